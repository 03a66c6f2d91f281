package hostnode

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

const (
	idleTimeout     = 4 * time.Hour
	creationTimeout = 30 * time.Second
)

// The protocols of exec and port-forward that the API server may use.
var (
	execProtocols    = []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"}
	forwardProtocols = []string{portforward.ProtocolV1Name}
)

// notFoundError reports that a requested object does not exist.
type notFoundError struct{ error }

func statusCode(err error) int {
	if _, is := errors.AsType[notFoundError](err); is {
		return http.StatusNotFound
	}
	return http.StatusBadRequest
}

// serveAPI serves the API server until ctx is done. If there is no listener, it returns at once.
func (n *Node) serveAPI(ctx context.Context) error {
	if n.cfg.Listener == nil {
		return nil
	}
	server := &http.Server{
		Handler: n.requireClient(n.newHandler()), ReadHeaderTimeout: creationTimeout,
		TLSConfig: &tls.Config{
			GetCertificate: n.cfg.Certificate, ClientCAs: n.cfg.ClientCA,
			ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
			NextProtos: []string{"http/1.1"}, // an HTTP/2 connection cannot be upgraded to SPDY
		},
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() { _ = server.ServeTLS(n.cfg.Listener, "", "") }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return nil
}

// requireClient admits only the API server.
func (n *Node) requireClient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != n.cfg.ClientName {
			http.Error(w, "forbidden: the client certificate is not that of the API server", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (n *Node) newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /pods", n.servePods)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.serveLogs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", n.serveExec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", n.serveAttach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", n.servePortForward)
	return mux
}

func (n *Node) servePods(w http.ResponseWriter, _ *http.Request) {
	found, err := n.pods.List(everything)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
	for _, p := range found {
		list.Items = append(list.Items, *p)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

// podName joins the namespace and the name of a pod, since the streaming library has only one
// name.
func podName(r *http.Request) string { return r.PathValue("namespace") + "/" + r.PathValue("pod") }

func (n *Node) serveExec(w http.ResponseWriter, r *http.Request) {
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, executor{n}, podName(r), "", r.PathValue("container"), r.URL.Query()["command"], o, idleTimeout, creationTimeout, execProtocols)
}

func (n *Node) serveAttach(w http.ResponseWriter, r *http.Request) {
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, executor{n}, podName(r), "", r.PathValue("container"), o, idleTimeout, creationTimeout, execProtocols)
}

func (n *Node) servePortForward(w http.ResponseWriter, r *http.Request) {
	o, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, forwarder{n, r.PathValue("namespace")}, r.PathValue("pod"), "", o, idleTimeout, creationTimeout, forwardProtocols)
}

// forwarder serves kubectl port-forward.
type forwarder struct {
	node      *Node
	namespace string
}

// PortForward implements portforward.PortForwarder.
func (f forwarder) PortForward(ctx context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	var address string
	err := f.node.inspectPod(ctx, f.namespace, pod, func(w *worker) error {
		address = w.podIP
		return nil
	})
	if err != nil {
		return err
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer c.Close()
	go func() {
		_, _ = io.Copy(c, stream)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, c)
	return err
}

// inspectPod calls inspect between two rounds of the pod's worker.
func (n *Node) inspectPod(ctx context.Context, namespace, pod string, inspect func(*worker) error) error {
	w := n.findWorker(namespace, pod)
	if w == nil {
		return notFoundError{fmt.Errorf("pod %s/%s not found on this node", namespace, pod)}
	}
	done := make(chan error, 1)
	w.enqueue(func(context.Context) { done <- inspect(w) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// findWorker returns the worker of the pod that has this name at present.
func (n *Node) findWorker(namespace, pod string) *worker {
	p, err := n.pods.Pods(namespace).Get(pod)
	if err != nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.workers[p.UID]
}
