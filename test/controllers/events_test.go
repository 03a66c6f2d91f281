package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
	"k8s4r.io/k8s4r/internal/testkit"
)

// life is what each task of TestEvents goes through, more than once.
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
	t.Parallel()
	cfg := testkit.StartAPIServer(t)
	c := testkit.NewClient(t, cfg)
	const namespace, tasks, restarts, between = "events", 8, 4, 100
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	config := watch.Config{API: cfg, StateFile: filepath.Join(t.TempDir(), "position"), Behind: 1200 * time.Millisecond, Log: logr.Discard()}
	w, stop := runWorld(t, config)
	for _, k := range row.Kinds {
		if !w.Has(k) {
			t.Errorf("%s are not there", k)
		}
	}
	at := w.Ring().Position()
	done := &written{all: map[string][]seen{}}
	// Tasks live until the reader has enough: if they had so many lives and no more, a quick
	// machine would be through with them before a position is kept, and the reader wait for ever.
	enough := make(chan struct{})
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	for i := range tasks {
		wg.Go(func() { live(t, c, namespace, fmt.Sprintf("t-%d", i), enough, done) })
	}
	told := map[string][]seen{}
	for range restarts {
		had := count(told)
		follow(t, w, &at, told, func() bool {
			kept, _ := filepath.Glob(config.StateFile)
			return count(told) >= had+between && len(kept) == 1
		})
		stop()
		w, stop = runWorld(t, config)
	}
	close(enough)
	wg.Wait()
	follow(t, w, &at, told, func() bool { return count(told) == count(done.all)+tasks }) // each has an end
	for name, all := range done.all {
		end := len(told[name]) - 1
		if !slices.Equal(told[name][:end], all) || told[name][end].state != "" {
			t.Errorf("%s: told\n%v, written\n%v", name, told[name], all)
		}
	}
}

func count(states map[string][]seen) (n int) {
	for _, all := range states {
		n += len(all)
	}
	return n
}

func runWorld(t *testing.T, config watch.Config) (*watch.Store, func()) {
	t.Helper()
	w, err := watch.New(config)
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
func follow(t *testing.T, w *watch.Store, at *string, told map[string][]seen, enough func() bool) {
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
		if e.Type == watch.Resync || e.Filled {
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

// live takes a task through its life, again and again until that is enough, and notes every write.
func live(t *testing.T, c client.Client, namespace, name string, enough <-chan struct{}, done *written) {
	o := create(t, c, namespace, name, done)
	if o == nil {
		return
	}
	for more := true; more; {
		for _, state := range life {
			o.Status.State = state
			if err := c.Status().Update(t.Context(), o); err != nil {
				t.Errorf("%s to %s: %v", name, state, err)
				return
			}
			done.note(o)
		}
		select {
		case <-enough:
			more = false
		default:
		}
	}
	if err := c.Delete(t.Context(), o); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, 10*time.Second, name+" is gone", func() bool {
		return client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(o), o)) == nil
	})
}

// wayIn is a way to the API server that can be shut.
type wayIn struct {
	mu    sync.Mutex
	shut  bool
	conns []net.Conn
}

// dial is of rest.Config.
func (g *wayIn) dial(ctx context.Context, network, address string) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return nil, errors.New("the gate is shut")
	}
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		g.conns = append(g.conns, c)
	}
	return c, err
}

// set shuts the gate, which cuts all connections, or opens it.
func (g *wayIn) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	for _, c := range g.conns {
		c.Close()
	}
	g.conns = nil
}

// TestEvents_ContinueAfterAPIServerRestarts checks that a stream continues after the API server has
// lost its history of changes: what the objects record is sent in order, all differences are sent,
// and also that there may have been more.
func TestEvents_ContinueAfterAPIServerRestarts(t *testing.T) {
	t.Parallel()
	up := testkit.StartUp(t, "--without", "manager,server,broker,robots,node,console")
	const namespace = "events"
	if err := testkit.NewClient(t, up.RESTConfig()).Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	var way wayIn
	config := up.RESTConfig()
	config.Dial = way.dial
	w, _ := runWorld(t, watch.Config{API: config, Log: logr.Discard()})
	d := &digest{T: t, reader: w.Ring().Since(""), state: map[string]string{}}
	done := &written{all: map[string][]seen{}}
	c := testkit.NewClient(t, up.RESTConfig())
	for _, name := range []string{"before", "lives"} {
		create(t, c, namespace, name, done)
	}
	d.until("two are added", func() bool { return d.state["before"] == "pending" && d.state["lives"] == "pending" })
	way.set(true)
	up.Kill()
	up.Start()
	c = testkit.NewClient(t, up.RESTConfig())
	var o v1alpha1.Task
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "lives"}, &o); err != nil {
		t.Fatal(err)
	}
	start := metav1.NowMicro()
	o.Status.State, o.Status.Attempt = "completed", 1
	o.Status.Attempts = []v1alpha1.TaskAttempt{{Attempt: 1, State: "completed", StartedAt: &start, FinishedAt: &start}}
	if err := c.Status().Update(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "before"}}); err != nil {
		t.Fatal(err)
	}
	create(t, c, namespace, "after", done)
	way.set(false)
	d.until("what has happened meanwhile", func() bool { return d.resynced })
	if want := "filled lives pending>running, changed lives running>completed, added after >pending, removed before pending>"; strings.Join(d.since, ", ") != want {
		t.Errorf("told\n%s, want\n%s", strings.Join(d.since, ", "), want)
	}
	testkit.Eventually(t, time.Minute, "everything is watched again", func() bool { return w.Live() == nil })
}

// digest is what a reader makes of tasks.
type digest struct {
	*testing.T
	reader   *watch.Reader
	state    map[string]string
	since    []string // what came since the last call
	resynced bool
}

// until reads on until enough is known.
func (d *digest) until(what string, enough func() bool) {
	d.Helper()
	d.since = nil
	ctx, cancel := context.WithTimeout(d.Context(), 2*time.Minute)
	defer cancel()
	for !enough() {
		e, err := d.reader.Next(ctx)
		switch {
		case err != nil:
			d.Fatalf("%s: not told; %v came", what, d.since)
		case e.Kind != row.Tasks:
		case e.Type == watch.Resync:
			d.resynced = true
		default:
			if e.From != d.state[e.Name] {
				d.Errorf("%s: from %q to %q, it was %q", e.Name, e.From, e.To, d.state[e.Name])
			}
			d.state[e.Name] = e.To
			how := string(e.Type)
			if e.Filled {
				how = "filled"
			}
			d.since = append(d.since, fmt.Sprintf("%s %s %s>%s", how, e.Name, e.From, e.To))
		}
	}
}

// create makes a task and notes it.
func create(t *testing.T, c client.Client, namespace, name string, done *written) *v1alpha1.Task {
	t.Helper()
	o := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	o.Spec.Name, o.Spec.Driver = "t", "raw_exec"
	o.Spec.Config.ExecConfig = &v1alpha1.ExecConfig{Command: "true"}
	if err := c.Create(t.Context(), o); err != nil {
		t.Error(err)
		return nil
	}
	o.Status.State = "pending"
	done.note(o)
	return o
}
