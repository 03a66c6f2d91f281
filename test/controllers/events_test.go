package controllers

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/events"
	"k8s4r.io/k8s4r/internal/events/row"
	"k8s4r.io/k8s4r/internal/testkit"
)

// life is what each task of TestEvents goes through.
var life = []string{"dispatching", "running", "exited", "soft-failed", "dispatching", "running", "unknown", "running", "completed", "pending"}

// written are the states of a task by the resourceVersion of the write.
type written struct {
	mu  sync.Mutex
	all map[string][]seen
}

type seen struct {
	version uint64
	state   string
}

func (w *written) note(o *v1alpha1.Task) {
	n, _ := strconv.ParseUint(o.ResourceVersion, 10, 64)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[o.Name] = append(w.all[o.Name], seen{n, o.Status.State})
}

// TestEvents proves with a real API server that a stream which is stopped and started again in
// the middle of a run of changes tells every one of them, in order, with the state before it.
func TestEvents(t *testing.T) {
	cfg := testkit.APIServer(t)
	c := testkit.Client(t, cfg)
	const namespace, tasks, rounds, restarts = "events", 8, 8, 4
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	config := events.Config{API: cfg, StateFile: filepath.Join(t.TempDir(), "position"), Behind: 1200 * time.Millisecond, Log: logr.Discard()}
	w, stop := runWorld(t, config)
	for _, k := range row.Kinds {
		if !w.Has(k) {
			t.Errorf("%s are not there", k)
		}
	}
	at := w.Ring().Position()
	done := &written{all: map[string][]seen{}}
	var wg sync.WaitGroup
	for i := range tasks {
		wg.Go(func() { live(t, c, namespace, fmt.Sprintf("t-%d", i), rounds, done) })
	}
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()

	told := map[string][]seen{}
	want := func() int { // a create, its states, the end
		return tasks * (1 + rounds*len(life) + 1)
	}
	for n := range restarts {
		follow(t, w, &at, told, func() bool { return count(told) >= (n+1)*want()/(restarts+2) })
		testkit.Eventually(t, 30*time.Second, "a position is kept", func() bool { m, _ := filepath.Glob(config.StateFile); return len(m) == 1 })
		stop()
		w, stop = runWorld(t, config)
	}
	follow(t, w, &at, told, func() bool { return count(told) == want() })
	<-finished
	for name, all := range done.all {
		end := len(told[name]) - 1
		if !slices.Equal(told[name][:end], all) || told[name][end].state != "" {
			t.Errorf("%s: told\n%v, written\n%v", name, told[name], all)
		}
	}
}

func count(told map[string][]seen) (n int) {
	for _, all := range told {
		n += len(all)
	}
	return n
}

func runWorld(t *testing.T, config events.Config) (*events.World, func()) {
	t.Helper()
	w, err := events.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop := sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(stop)
	select {
	case <-w.Synced():
	case <-time.After(time.Minute):
		t.Fatal("the world is not synced after a minute")
	}
	return w, stop
}

// follow reads on from a position until enough is known, and drops what it knows already as
// readers do, by the resourceVersion.
func follow(t *testing.T, w *events.World, at *string, told map[string][]seen, enough func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	reader := w.Ring().Since(*at)
	for !enough() {
		e, err := reader.Next(ctx)
		if err != nil {
			t.Fatalf("%d events came, then nothing more: %v", count(told), err)
		}
		*at = reader.Position()
		if e.Type == events.Resync || e.Filled {
			t.Fatalf("something is not told as it was: %+v", e)
		}
		if e.Kind != row.Tasks {
			continue
		}
		last := seen{}
		if all := told[e.Name]; len(all) > 0 {
			last = all[len(all)-1]
		}
		if e.Seq <= last.version {
			continue
		}
		if e.From != last.state {
			t.Fatalf("%s: from %q to %q, it was %q before", e.Name, e.From, e.To, last.state)
		}
		told[e.Name] = append(told[e.Name], seen{e.Seq, e.To})
	}
}

// live takes a task through its life, and notes every write.
func live(t *testing.T, c client.Client, namespace, name string, rounds int, done *written) {
	o := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	o.Spec.Name, o.Spec.Driver = "t", "raw_exec"
	o.Spec.Config.ExecConfig = &v1alpha1.ExecConfig{Command: "true"}
	if err := c.Create(t.Context(), o); err != nil {
		t.Error(err)
		return
	}
	o.Status.State = "pending"
	done.note(o)
	for range rounds {
		for _, state := range life {
			o.Status.State = state
			if err := c.Status().Update(t.Context(), o); err != nil {
				t.Errorf("%s to %s: %v", name, state, err)
				return
			}
			done.note(o)
		}
	}
	if err := c.Delete(t.Context(), o); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, 10*time.Second, name+" is gone", func() bool {
		return client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(o), o)) == nil
	})
}
