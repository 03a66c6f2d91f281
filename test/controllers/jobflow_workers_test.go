package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// testSeveralWorkers holds creates of Jobs on their way to a real API server: neither other flows
// nor the other Jobs of the flow wait for them.
func testSeveralWorkers(t *testing.T, s *system) {
	s.stop()
	g := &gate{holds: map[string]func(context.Context){}}
	s.config = rest.CopyConfig(s.config)
	s.config.Wrap(func(next http.RoundTripper) http.RoundTripper { g.RoundTripper = next; return g })
	s.manage(flowsOnly)
	t.Run("a flow does not wait for the writes of another", func(t *testing.T) { doesNotWait(s.flows(t, "workers"), g) })
	t.Run("the Jobs of a flow are created side by side", func(t *testing.T) { createsInParallel(s.flows(t, "wide"), g) })
}

// gate is on the way of a manager to its API server.
type gate struct {
	http.RoundTripper
	mu sync.Mutex
	// holds is what the create of a Job waits for, by its name.
	holds map[string]func(context.Context)
}

// RoundTrip sends a request, that of a Job that is held once it may pass.
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/jobs") {
		if hold := g.of(nameIn(r)); hold != nil {
			hold(r.Context())
		}
	}
	return g.RoundTripper.RoundTrip(r)
}

func (g *gate) of(job string) func(context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.holds[job]
}

func (g *gate) hold(job string, until func(context.Context)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds[job] = until
}

// nameIn returns the name of the object in the body of a request, and restores the body.
func nameIn(r *http.Request) string {
	var o metav1.PartialObjectMetadata
	body, err := io.ReadAll(r.Body)
	if err == nil {
		_ = json.Unmarshal(body, &o) // what has no name is not held
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return o.Name
}

// wait until the channel is closed, or ctx is done.
func wait(ctx context.Context, signal <-chan struct{}) {
	select {
	case <-signal:
	case <-ctx.Done():
	}
}

func doesNotWait(s *flows, g *gate) {
	came, open := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(open) })
	defer release() // the manager cannot stop before
	arrive := sync.OnceFunc(func() { close(came) })
	g.hold("slow-a", func(ctx context.Context) { arrive(); wait(ctx, open) })
	s.runs(nil)
	s.flow("slow", steps(after("a")))
	bounded, cancel := context.WithTimeout(s.Context(), waitTimeout)
	defer cancel()
	if wait(bounded, came); bounded.Err() != nil {
		s.Fatal("the Job is not created")
	}
	s.flow("quick", steps(after("a"), after("b", "a")))
	s.awaitFlow("quick", flowv1.Succeed)
	release()
	s.awaitFlow("slow", flowv1.Succeed)
}

func createsInParallel(s *flows, g *gate) {
	const n = 8
	var all sync.WaitGroup
	all.Add(n)
	together := make(chan struct{})
	go func() { all.Wait(); close(together) }()
	var spec flowv1.JobFlowSpec
	for i := range n {
		name := fmt.Sprintf("s%d", i)
		spec.Flows = append(spec.Flows, after(name))
		arrive := sync.OnceFunc(all.Done)
		g.hold("wide-"+name, func(ctx context.Context) {
			arrive()
			bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel() // if created one after the other, they take longer than the timeout of the flow
			wait(bounded, together)
		})
	}
	s.runs(nil)
	s.flow("wide", spec)
	s.awaitFlow("wide", flowv1.Succeed)
}
