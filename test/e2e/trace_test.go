package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	traceparent "k8s4r.io/k8s4r/internal/protocol/trace"
	"k8s4r.io/k8s4r/internal/testkit"
)

// otlp is a collector of OpenTelemetry.
type otlp struct {
	t   *testing.T
	url string

	mu    sync.Mutex
	spans []traced
}

// traced is a span that has come, and the service that it came from.
type traced struct {
	*tracev1.Span
	service string
}

func collect(t *testing.T) *otlp {
	t.Helper()
	c := &otlp{t: t}
	server := httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *otlp) take(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	text, err := io.ReadAll(body)
	var got collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(text, &got)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		c.t.Errorf("%s: %v", r.URL.Path, err)
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range got.GetResourceSpans() {
		service := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, traced{s, service})
			}
		}
	}
}

// named returns the spans of a task with this name.
func (c *otlp) named(uid, name string) (found []traced) {
	trace := traceparent.TaskContext(uid).Trace
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if bytes.Equal(s.GetTraceId(), trace[:]) && s.GetName() == name {
			found = append(found, s)
		}
	}
	return found
}

// await blocks until a task has spans with this name.
func (c *otlp) await(uid, name string, count int) (found []traced) {
	c.t.Helper()
	testkit.EventuallyNoError(c.t, time.Minute, fmt.Sprintf("%d spans %s", count, name), func() error {
		if found = c.named(uid, name); len(found) < count {
			return fmt.Errorf("there are %d", len(found))
		}
		return nil
	})
	if name != "publish" && len(found) != count { // a publish that is not acknowledged is sent again
		c.t.Errorf("%d spans %s, want %d", len(found), name, count)
	}
	return found
}

func attribute(s traced, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return strings.TrimSpace(fmt.Sprint(a.GetValue().GetStringValue(), " ", a.GetValue().GetIntValue()))
		}
	}
	return ""
}

// below fails the test unless a span is a child of another and was created by the service.
func below(t *testing.T, s traced, parent []byte, service string) {
	t.Helper()
	if !bytes.Equal(s.GetParentSpanId(), parent) || s.service != service {
		t.Errorf("span %s of %s is below %x, want %x and %s", s.GetName(), s.service, s.GetParentSpanId(), parent, service)
	}
	if s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
		t.Errorf("span %s ends before it begins", s.GetName())
	}
}

// TestTrace_CoversPlacementToProcessExit runs the real programs, and kills manager
// and server while the task runs: their successors continue the same trace.
func TestTrace_CoversPlacementToProcessExit(t *testing.T) {
	t.Parallel()
	c := collect(t)
	s := start(t, "--without", "manager,server,broker,robots,node")
	broker := testkit.NewSecureMosquitto(t)
	control := func() []*program { return runControl(t, s, broker.ServerFlags(broker.Addr), "--otlp-endpoint", c.url) }
	before := control()
	agent(t, s, "r1")
	s.awaitRobot("r1", "Online", time.Minute)

	dir := t.TempDir()
	parentFile, goOn, ended := filepath.Join(dir, "parent"), filepath.Join(dir, "go-on"), filepath.Join(dir, "ended")
	s.create(jobOf("traced", 1, shell("work", "echo $TRACEPARENT > "+parentFile+"; while [ ! -e "+goOn+" ]; do sleep 0.05; done; date +%s%N > "+ended+"; exit 3")))
	uid := string(s.awaitTask("traced-main-0-work", "running", time.Minute).UID)
	dispatch := c.await(uid, "dispatch", 1)[0]
	c.await(uid, "publish", 1)
	for _, p := range before {
		p.Kill()
	}
	control()
	// They work before the task ends: a manager that comes later has seen no change of it.
	s.create(jobOf("after", 1, shell("work", "true")))
	s.awaitJob("after", "completed", time.Minute)
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	task := s.awaitTask("traced-main-0-work", "failed", time.Minute)

	whole, wait, ran := c.await(uid, "task", 1)[0], c.await(uid, "wait", 1)[0], c.await(uid, "run", 1)[0]
	below(t, whole, nil, "k8s4r-manager")
	below(t, wait, whole.GetSpanId(), "k8s4r-manager")
	below(t, dispatch, whole.GetSpanId(), "k8s4r-manager")
	below(t, ran, dispatch.GetSpanId(), "k8s4r-server")
	for _, p := range c.await(uid, "publish", 1) {
		below(t, p, dispatch.GetSpanId(), "k8s4r-server")
	}

	if robot, code := attribute(ran, "k8s4r.robot.name"), attribute(ran, "process.exit.code"); !strings.HasPrefix(robot, "r1") || code != "3" || ran.GetStatus().GetCode() != tracev1.Status_STATUS_CODE_ERROR {
		t.Errorf("the run on %q ended with %q, %v", robot, code, ran.GetStatus())
	}
	exited := nanoseconds(t, ended)
	if end := int64(ran.GetEndTimeUnixNano()); end < exited || end > exited+int64(30*time.Second) {
		t.Errorf("the process ended at %d, and its run at %d", exited, end)
	}
	if want := task.Status.FinishedAt.UnixNano(); int64(ran.GetEndTimeUnixNano()) != want {
		t.Errorf("the run ends at %d, and status.finishedAt is %d", ran.GetEndTimeUnixNano(), want)
	}
	text, err := os.ReadFile(parentFile)
	at, ok := traceparent.Parse(strings.TrimSpace(string(text)))
	if err != nil || !ok || !at.Sampled || !bytes.Equal(at.Trace[:], ran.GetTraceId()) || !bytes.Equal(at.Span[:], ran.GetSpanId()) {
		t.Errorf("TRACEPARENT is %q, which is not the run %x: %v", text, ran.GetSpanId(), err)
	}
}

// TestTrace_IsExportedByUp: with all parts in one process the spans are the same.
func TestTrace_IsExportedByUp(t *testing.T) {
	t.Parallel()
	c := collect(t)
	s := start(t, "--without", "console,node", "--otlp-endpoint", c.url)
	s.create(jobOf("traced", 1, shell("work", "true")))
	uid := string(s.awaitTask("traced-main-0-work", "completed", time.Minute).UID)
	whole := c.await(uid, "task", 1)[0]
	below(t, whole, nil, "k8s4r")
	below(t, c.await(uid, "wait", 1)[0], whole.GetSpanId(), "k8s4r")
	dispatch := c.await(uid, "dispatch", 1)[0]
	below(t, dispatch, whole.GetSpanId(), "k8s4r")
	below(t, c.await(uid, "publish", 1)[0], dispatch.GetSpanId(), "k8s4r")
	below(t, c.await(uid, "run", 1)[0], dispatch.GetSpanId(), "k8s4r")
}

// nanoseconds reads a number from a file.
func nanoseconds(t *testing.T, file string) (n int64) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		_, err = fmt.Sscan(string(text), &n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}
