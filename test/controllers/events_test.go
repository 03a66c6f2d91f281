package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
	"k8s4r.io/k8s4r/internal/testkit"
)

// life is the states that each task goes through, more than once.
var life = []string{"dispatching", "running", "exited", "soft-failed", "dispatching", "running", "unknown", "running", "completed", "pending"}

// written are the states of a task by the resourceVersion of the write.
type written struct {
	mu  sync.Mutex
	all map[string][]seen
}

type seen struct {
	version uint64
	state   string
	listed  bool // it is from a list, not from an event
}

func (w *written) note(o *v1alpha1.Task) {
	n, _ := strconv.ParseUint(o.ResourceVersion, 10, 64)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[o.Name] = append(w.all[o.Name], seen{version: n, state: o.Status.State})
}

// TestEvents follows all objects of an API server of its own.
func TestEvents(t *testing.T) {
	t.Parallel()
	up := testkit.StartUp(t, testkit.ControlPlaneOnly...)
	t.Run("nothing is missed across restarts of the store", func(t *testing.T) { missesNothing(t, up.RESTConfig()) })
	t.Run("a stream continues after a restart of the API server", func(t *testing.T) { continuesAfterAPIServer(t, up) })
}

// missesNothing checks that a reader receives every change in order, with the state before it, and
// that it misses nothing after a restart of the store, when it gets a resync and loads the list.
func missesNothing(t *testing.T, cfg *rest.Config) {
	c := testkit.NewClient(t, cfg)
	const namespace, tasks, restarts, between = "events", 8, 4, 100
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	config := watch.Config{API: cfg, Log: logr.Discard()}
	w, stop := runStore(t, config)
	for _, k := range row.Kinds {
		if !w.Has(k) {
			t.Errorf("%s are not watched", k)
		}
	}
	r := &relisting{T: t, at: w.Ring().Position(), states: map[string][]seen{}}
	done := &written{all: map[string][]seen{}}
	enough := make(chan struct{}) // closed when the tasks may end
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	for i := range tasks {
		wg.Go(func() { live(t, c, namespace, fmt.Sprintf("t-%d", i), enough, done) })
	}
	for range restarts {
		had := r.received
		r.follow(w, func() bool { return r.received >= had+between })
		stop()
		w, stop = runStore(t, config)
	}
	r.follow(w, func() bool { return r.lists == restarts })
	close(enough)
	wg.Wait()
	r.follow(w, func() bool { return r.ended() == tasks })
	if r.lists != restarts {
		t.Errorf("%d resyncs after %d restarts", r.lists, restarts)
	}
	for name, all := range done.all {
		if err := compareStates(r.states[name], all); err != nil {
			t.Errorf("%s: %v: received\n%v, written\n%v", name, err, r.states[name], all)
		}
	}
}

// compareStates returns an error unless the known states are those that were written, except for
// the ones directly before a list, and the task is removed at the end.
func compareStates(known, all []seen) error {
	for _, k := range known {
		i := slices.IndexFunc(all, func(w seen) bool { return w.version == k.version })
		switch {
		case k.state == "" && len(all) == 0: // removed
			return nil
		case k.state == "":
			return fmt.Errorf("%d states are missing before the removal", len(all))
		case i < 0 || all[i].state != k.state:
			return fmt.Errorf("%v was not written", k)
		case i > 0 && !k.listed:
			return fmt.Errorf("%d states are missing before %v", i, k)
		}
		all = all[i+1:]
	}
	return errors.New("the removal is missing")
}

func runStore(t *testing.T, config watch.Config) (*watch.Store, func()) {
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
	case <-time.After(waitTimeout):
		t.Fatalf("the store is not synced after %s", waitTimeout)
	}
	return w, stop
}

// relisting is a reader that knows the states of tasks by events, and by a list after each resync.
type relisting struct {
	*testing.T
	at              string // position in the stream
	states          map[string][]seen
	received, lists int
}

// follow reads from the position until enough is known. It ignores events that it knows by their
// resourceVersion, as documented.
func (r *relisting) follow(w *watch.Store, enough func() bool) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Minute)
	defer cancel()
	reader := w.Ring().Since(r.at)
	for !enough() {
		e, err := reader.Next(ctx)
		if err != nil {
			r.Fatalf("no event after %d: %v", r.received, err)
		}
		r.at = reader.Position()
		switch {
		case e.Type == watch.Resync && e.Kind == "":
			r.load(w)
		case e.Type == watch.Resync || e.Filled:
			r.Fatalf("a watch was interrupted: %+v", e)
		case e.Kind == row.Tasks && e.Seq > r.last(e.Name).version:
			if from := r.last(e.Name).state; e.From != from {
				r.Fatalf("%s: from %q to %q, it was %q before", e.Name, e.From, e.To, from)
			}
			r.states[e.Name] = append(r.states[e.Name], seen{version: e.Seq, state: e.To})
			r.received++
		}
	}
}

// load adds the states of the list.
func (r *relisting) load(w *watch.Store) {
	for _, i := range w.List(row.Tasks, "") {
		version, _ := strconv.ParseUint(i.Row.ResourceVersion, 10, 64)
		if version > r.last(i.Row.Name).version {
			r.states[i.Row.Name] = append(r.states[i.Row.Name], seen{version, i.Row.State, true})
		}
	}
	r.lists++
}

func (r *relisting) last(name string) seen {
	if all := r.states[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return seen{}
}

// ended returns the number of tasks that were removed.
func (r *relisting) ended() (n int) {
	for _, all := range r.states {
		if all[len(all)-1].state == "" {
			n++
		}
	}
	return n
}

// live writes all states of a task repeatedly until enough is closed, removes it, and notes every
// write.
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
	testkit.Eventually(t, waitTimeout, name+" is gone", func() bool {
		return client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(o), o)) == nil
	})
}

// wayIn is a connection to the API server that can be cut.
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

// set cuts all connections, or allows new ones.
func (g *wayIn) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	for _, c := range g.conns {
		c.Close()
	}
	g.conns = nil
}

// continuesAfterAPIServer restarts the API server, which loses its history of changes: recorded changes
// and all differences are sent in order, with a note that other changes may be missing.
func continuesAfterAPIServer(t *testing.T, up *testkit.Up) {
	const namespace = "api-server-restarts"
	if err := testkit.NewClient(t, up.RESTConfig()).Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	var way wayIn
	config := up.RESTConfig()
	config.Dial = way.dial
	w, _ := runStore(t, watch.Config{API: config, Log: logr.Discard()})
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
		t.Errorf("events\n%s, want\n%s", strings.Join(d.since, ", "), want)
	}
	testkit.Eventually(t, waitTimeout, "everything is watched again", func() bool { return w.Live() == nil })
}

// digest is the state of tasks that a reader derives from events.
type digest struct {
	*testing.T
	reader   *watch.Reader
	state    map[string]string
	since    []string // what came since the last call
	resynced bool
}

// until reads until enough returns true.
func (d *digest) until(what string, enough func() bool) {
	d.Helper()
	d.since = nil
	ctx, cancel := context.WithTimeout(d.Context(), 2*time.Minute)
	defer cancel()
	for !enough() {
		e, err := d.reader.Next(ctx)
		switch {
		case err != nil:
			d.Fatalf("%s: no such event, only %v", what, d.since)
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

// create creates a task and records it.
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
