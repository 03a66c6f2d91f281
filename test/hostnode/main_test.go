// Package hostnode tests the node of `k8s4r up` with pods, as in a cluster: with a real API server
// and scheduler, and real processes.
package hostnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"k8s4r.io/k8s4r/internal/testkit"
)

// within is long enough for a machine that runs other tests at the same time.
const within = time.Minute

// serverVariable makes this program a web server for pods. Its value is the address to listen on.
const serverVariable = "K8S4R_TEST_SERVE"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == rayCommand {
		os.Exit(rayMain(os.Args[1:]))
	}
	if address := os.Getenv(serverVariable); address != "" {
		fmt.Println(http.ListenAndServe(address, http.HandlerFunc(serve)))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serve responds as the files in /state require.
func serve(w http.ResponseWriter, r *http.Request) {
	if _, err := os.Stat("/state/sick"); err == nil && r.URL.Path == "/healthz" {
		http.Error(w, "sick", http.StatusInternalServerError)
		return
	}
	fmt.Fprintf(w, "hello from %s", os.Getenv("HOSTNAME"))
}

// system is a running k8s4r up with clients.
type system struct {
	*testkit.Up
	client.Client
	config *rest.Config
	set    kubernetes.Interface
}

// bare are the options that omit the parts of k8s4r up that pods do not need.
var bare = []string{"--without", "manager,server,broker,robots"}

func start(t *testing.T, uid uint32, args ...string) *system {
	t.Helper()
	s := &system{Up: testkit.StartUpAs(t, uid, append(bare, args...)...)}
	s.connect(t)
	return s
}

func (s *system) connect(t *testing.T) {
	t.Helper()
	s.config = s.RESTConfig()
	s.Client = testkit.NewClient(t, s.config)
	var err error
	if s.set, err = kubernetes.NewForConfig(s.config); err != nil {
		t.Fatal(err)
	}
}

// space is the namespace of one test.
type space struct {
	*testing.T
	*system
	name string
}

// in creates the namespace and waits for the service account that pods need.
func (s *system) in(t *testing.T, name string) *space {
	t.Helper()
	if err := s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyNoError(t, within, "service account of "+name, func() error {
		// The token volume of a Pod needs both.
		return errors.Join(s.Get(t.Context(), client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{}),
			s.Get(t.Context(), client.ObjectKey{Namespace: name, Name: "kube-root-ca.crt"}, &corev1.ConfigMap{}))
	})
	return &space{T: t, system: s, name: name}
}

// apply creates the objects of a manifest.
func (s *space) apply(manifest string) {
	s.Helper()
	for _, doc := range strings.Split(manifest, "\n---\n") {
		json, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			s.Fatalf("%v\n%s", err, doc)
		}
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(json, nil, nil)
		if err != nil {
			s.Fatalf("%v\n%s", err, doc)
		}
		object := o.(client.Object)
		object.SetNamespace(s.name)
		if err := s.Create(s.Context(), object); err != nil {
			s.Fatalf("create: %v\n%s", err, doc)
		}
	}
}

func (s *space) pod(name string) *corev1.Pod {
	s.Helper()
	p := &corev1.Pod{}
	if err := s.Get(context.Background(), client.ObjectKey{Namespace: s.name, Name: name}, p); err != nil {
		s.Fatal(err)
	}
	return p
}

// await waits until is returns true for a pod, and returns the pod.
func (s *space) await(name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	s.Helper()
	var p *corev1.Pod
	testkit.EventuallyNoError(s.T, within, name+" "+what, func() error {
		if p = s.pod(name); is(p) {
			return nil
		}
		return fmt.Errorf("its status is %s", describe(p))
	})
	return p
}

func describe(p *corev1.Pod) string {
	b, _ := yaml.Marshal(p.Status)
	return string(b)
}

func (s *space) awaitPhase(name string, phase corev1.PodPhase) *corev1.Pod {
	s.Helper()
	return s.await(name, string(phase), func(p *corev1.Pod) bool { return p.Status.Phase == phase })
}

// status returns the status of a container. It is empty if there is none yet.
func status(p *corev1.Pod, container string) corev1.ContainerStatus {
	for _, all := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range all {
			if c.Name == container {
				return c
			}
		}
	}
	return corev1.ContainerStatus{}
}

// ended returns how a container ended. It is nil if the container has not ended.
func ended(p *corev1.Pod, container string) *corev1.ContainerStateTerminated {
	return status(p, container).State.Terminated
}

func running(container string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return status(p, container).State.Running != nil }
}

func holds(p *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// log returns the log of a container.
func (s *space) log(pod string, o corev1.PodLogOptions) string {
	s.Helper()
	b, err := s.set.CoreV1().Pods(s.name).GetLogs(pod, &o).DoRaw(context.Background())
	if err != nil {
		s.Fatalf("logs of %s: %v\n%s", pod, err, describe(s.pod(pod)))
	}
	return string(b)
}

// expectLog requires each line in the log of a container.
func (s *space) expectLog(pod, container string, lines ...string) {
	s.Helper()
	text := s.log(pod, corev1.PodLogOptions{Container: container})
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			s.Errorf("the log of %s/%s has no line %q:\n%s", pod, container, line, text)
		}
	}
}

// exec runs a command in a container.
func (s *space) exec(pod, container, stdin string, tty bool, argv ...string) (stdout, stderr string, err error) {
	s.Helper()
	request := s.set.CoreV1().RESTClient().Post().Resource("pods").Namespace(s.name).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: argv, Stdin: stdin != "", Stdout: true, Stderr: !tty, TTY: tty}, scheme.ParameterCodec)
	e, err := remotecommand.NewSPDYExecutor(s.config, "POST", request.URL())
	if err != nil {
		s.Fatal(err)
	}
	return stream(s.Context(), e, stdin, tty)
}

func stream(ctx context.Context, e remotecommand.Executor, stdin string, tty bool) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	o := remotecommand.StreamOptions{Stdout: &out, Tty: tty}
	if stdin != "" {
		o.Stdin = io.NopCloser(strings.NewReader(stdin))
	}
	if !tty {
		o.Stderr = &errs
	}
	err = e.StreamWithContext(ctx, o)
	return out.String(), errs.String(), err
}

// must runs a command in a container. The command must succeed.
func (s *space) must(pod, container string, argv ...string) string {
	s.Helper()
	out, errs, err := s.exec(pod, container, "", false, argv...)
	if err != nil {
		s.Fatalf("%q in %s: %v\n%s", argv, pod, err, errs)
	}
	return out
}

// remove deletes a pod and waits until it is gone.
func (s *space) remove(name string, o ...client.DeleteOption) {
	s.Helper()
	p := s.pod(name)
	if err := s.Delete(s.Context(), p, o...); err != nil {
		s.Fatal(err)
	}
	s.awaitGone(name)
}

func (s *space) awaitGone(name string) {
	s.Helper()
	testkit.Eventually(s.T, within, name+" gone", func() bool {
		err := s.Get(context.Background(), client.ObjectKey{Namespace: s.name, Name: name}, &corev1.Pod{})
		return client.IgnoreNotFound(err) == nil && err != nil
	})
}

// awaitEvent waits for an event of a pod.
func (s *space) awaitEvent(pod, reason, part string) {
	s.Helper()
	testkit.EventuallyNoError(s.T, within, "event "+reason, func() error {
		var all corev1.EventList
		if err := s.List(context.Background(), &all, client.InNamespace(s.name)); err != nil {
			return err
		}
		for _, e := range all.Items {
			if e.InvolvedObject.Name == pod && e.Reason == reason && strings.Contains(e.Message, part) {
				return nil
			}
		}
		return fmt.Errorf("there is none with %q among %d", part, len(all.Items))
	})
}

// self returns the path of this program.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func rootOnly(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
}
