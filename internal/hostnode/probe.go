package hostnode

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probeKind is the kind of a probe, as events name it.
type probeKind string

const (
	startup   probeKind = "Startup"
	liveness  probeKind = "Liveness"
	readiness probeKind = "Readiness"
)

// probeKey identifies a probe of a run.
type probeKey struct {
	container string
	attempt   int
	kind      probeKind
}

// watchProbes starts the probes of the running containers.
func (w *worker) watchProbes(ctx context.Context) {
	for _, c := range allContainers(w.pod) {
		r := w.recordOf(c.Name).last
		if r == nil || !r.isRunning() || !r.postStartDone || r.stopping {
			continue
		}
		if !r.started {
			w.startProbe(ctx, &c, r, startup, c.StartupProbe)
			continue
		}
		w.stopProbes(func(k probeKey) bool { return k.container == c.Name && k.kind == startup })
		w.startProbe(ctx, &c, r, liveness, c.LivenessProbe)
		w.startProbe(ctx, &c, r, readiness, c.ReadinessProbe)
	}
}

// startProbe starts a probe unless it is running already.
func (w *worker) startProbe(ctx context.Context, c *corev1.Container, r *run, kind probeKind, p *corev1.Probe) {
	key := probeKey{c.Name, r.attempt, kind}
	if p == nil || w.probes[key] != nil {
		return
	}
	life, cancel := context.WithCancel(ctx)
	w.probes[key] = cancel
	t, began := w.newTarget(c, r), r.state.Started.At
	go t.runProbe(life, p, began, func(failure error) {
		w.enqueue(func(ctx context.Context) { w.recordProbe(ctx, key, p, failure) })
	}, func(failure error) {
		w.node.recordEvent(t.pod, corev1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%s probe failed: %v", kind, failure))
	})
}

func (w *worker) stopProbes(which func(probeKey) bool) {
	for key, cancel := range w.probes {
		if which(key) {
			cancel()
			delete(w.probes, key)
		}
	}
}

// recordProbe handles a result of a probe that has reached its threshold.
func (w *worker) recordProbe(ctx context.Context, key probeKey, p *corev1.Probe, failure error) {
	r := w.recordOf(key.container).last
	if r == nil || r.attempt != key.attempt || r.shimExited || r.stopping {
		return
	}
	switch {
	case key.kind == readiness:
		r.ready = failure == nil
	case failure == nil:
		r.started = true
	default:
		grace := w.gracePeriod()
		if p.TerminationGracePeriodSeconds != nil {
			grace = time.Duration(*p.TerminationGracePeriodSeconds) * time.Second
		}
		w.stopContainer(ctx, key.container, grace, fmt.Sprintf("Container %s failed %s probe, will be restarted", key.container, lowercaseKind(key.kind)))
	}
}

func lowercaseKind(k probeKind) string {
	if k == startup {
		return "startup"
	}
	return "liveness"
}

// probeCounter counts consecutive results of a probe and compares them with its thresholds.
type probeCounter struct {
	successes, failures int32 // thresholds
	last                bool
	inRow               int32
}

// countResult counts a result, and reports whether it has reached its threshold.
func (t *probeCounter) countResult(ok bool) bool {
	if ok != t.last {
		t.last, t.inRow = ok, 0
	}
	t.inRow++
	if ok {
		return t.inRow >= max(t.successes, 1)
	}
	return t.inRow >= max(t.failures, 1)
}

// runProbe probes until ctx is done. It calls onResult for each result that reaches its threshold
// and differs from the previous one, and onFailure for each failure.
func (t target) runProbe(ctx context.Context, p *corev1.Probe, began time.Time, onResult, onFailure func(error)) {
	first := time.NewTimer(time.Until(began.Add(time.Duration(p.InitialDelaySeconds) * time.Second)))
	defer first.Stop()
	select {
	case <-ctx.Done():
		return
	case <-first.C:
	}
	ticks := time.NewTicker(time.Duration(max(p.PeriodSeconds, 1)) * time.Second)
	defer ticks.Stop()
	count, reported, hasReported := probeCounter{successes: p.SuccessThreshold, failures: p.FailureThreshold}, false, false
	for {
		failure := t.probeOnce(ctx, p)
		if ctx.Err() != nil {
			return
		}
		if failure != nil {
			onFailure(failure)
		}
		ok := failure == nil
		if count.countResult(ok) && (!hasReported || reported != ok) {
			reported, hasReported = ok, true
			onResult(failure)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

func (t target) probeOnce(ctx context.Context, p *corev1.Probe) error {
	timeout := time.Duration(max(p.TimeoutSeconds, 1)) * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case p.Exec != nil:
		return t.probeCommand(ctx, p.Exec.Command, timeout)
	case p.HTTPGet != nil:
		return t.httpGet(ctx, p.HTTPGet)
	case p.TCPSocket != nil:
		return t.tcpConnect(ctx, p.TCPSocket)
	case p.GRPC != nil:
		return t.checkGRPCHealth(ctx, p.GRPC)
	}
	return errors.New("the probe has no handler: set exec, httpGet, tcpSocket or grpc")
}

// runHook runs a postStart or preStop hook.
func (t target) runHook(ctx context.Context, h *corev1.LifecycleHandler) error {
	switch {
	case h.Exec != nil:
		return t.probeCommand(ctx, h.Exec.Command, 0)
	case h.HTTPGet != nil:
		return t.httpGet(ctx, h.HTTPGet)
	case h.TCPSocket != nil:
		return t.tcpConnect(ctx, h.TCPSocket)
	case h.Sleep != nil:
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(h.Sleep.Seconds) * time.Second):
		}
	}
	return nil
}

// maxResponse bounds how much of a response is kept, in bytes.
const maxResponse = 10 << 10

func (t target) probeCommand(ctx context.Context, argv []string, timeout time.Duration) error {
	output := &headBuffer{limit: maxResponse}
	code, err := t.runCommand(ctx, argv, streams{out: output, err: output})
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("command timed out after %s: %q", timeout, argv)
	case code != 0:
		return fmt.Errorf("exit code %d: %s", code, output.text())
	}
	return nil
}

// client does not follow redirects to other hosts and does not verify certificates, like the
// kubelet: a probe only checks whether the server responds.
var client = &http.Client{
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, Proxy: nil},
	CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if r.URL.Hostname() != via[0].URL.Hostname() || len(via) >= 10 {
			return http.ErrUseLastResponse
		}
		return nil
	},
}

func (t target) httpGet(ctx context.Context, g *corev1.HTTPGetAction) error {
	port, err := t.resolvePort(g.Port)
	if err != nil {
		return err
	}
	u, err := url.Parse(g.Path)
	if err != nil {
		u = &url.URL{Path: g.Path}
	}
	u.Scheme = "http"
	if g.Scheme == corev1.URISchemeHTTPS {
		u.Scheme = "https"
	}
	u.Host = net.JoinHostPort(t.targetAddress(g.Host), port)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "kube-probe/hostnode")
	for _, h := range g.HTTPHeaders {
		request.Header.Add(h.Name, h.Value)
		if h.Name == "Host" {
			request.Host = h.Value
		}
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxResponse))
	if response.StatusCode < 200 || response.StatusCode >= 400 {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", response.StatusCode)
	}
	return nil
}

func (t target) tcpConnect(ctx context.Context, s *corev1.TCPSocketAction) error {
	port, err := t.resolvePort(s.Port)
	if err != nil {
		return err
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(t.targetAddress(s.Host), port))
	if err != nil {
		return err
	}
	return c.Close()
}

func (t target) checkGRPCHealth(ctx context.Context, g *corev1.GRPCAction) error {
	c, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(t.podIP, strconv.Itoa(int(g.Port))), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	request := &grpc_health_v1.HealthCheckRequest{}
	if g.Service != nil {
		request.Service = *g.Service
	}
	response, err := grpc_health_v1.NewHealthClient(c).Check(ctx, request)
	if err != nil {
		return err
	}
	if response.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("service unhealthy (responded with %q)", response.Status)
	}
	return nil
}

func (t target) targetAddress(host string) string {
	if host != "" {
		return host
	}
	return t.podIP
}

// resolvePort returns a port by its number, or by the name of one of the container's ports.
func (t target) resolvePort(p intstr.IntOrString) (string, error) {
	if p.Type == intstr.Int {
		return p.String(), nil
	}
	i := slices.IndexFunc(t.container.Ports, func(c corev1.ContainerPort) bool { return c.Name == p.StrVal })
	if i < 0 {
		return "", fmt.Errorf("container %s has no port %q", t.container.Name, p.StrVal)
	}
	return strconv.Itoa(int(t.container.Ports[i].ContainerPort)), nil
}

// headBuffer keeps the first bytes that are written to it. It is safe for concurrent use, since a
// command writes its output and its errors to the same one.
type headBuffer struct {
	limit int

	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write implements io.Writer.
func (b *headBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buffer.Write(p[:min(len(p), b.limit-b.buffer.Len())])
	return len(p), nil
}

func (b *headBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
