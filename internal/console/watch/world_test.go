package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/testkit"
)

// running is a running store with a reader.
type running struct {
	*testing.T
	*Store
	stop   func()
	reader *Reader
	last   *Event // last event that was received
}

// start runs a store until the test ends or it is stopped, and follows it from an ID.
func (a *api) start(t *testing.T, c Config, since string) *running {
	t.Helper()
	c.Log = logr.Discard()
	w := a.world(c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Run(ctx)
	}()
	r := &running{T: t, Store: w, stop: func() { cancel(); <-done }}
	t.Cleanup(r.stop)
	select {
	case <-w.Synced():
	case <-time.After(30 * time.Second):
		t.Fatal("the world is not synced after 30 seconds")
	}
	r.reader = w.Ring().Since(since)
	return r
}

// next returns the next event in one line. It fails the test after a timeout.
func (r *running) next() string {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
	defer cancel()
	e, err := r.reader.Next(ctx)
	if err != nil {
		r.Fatalf("nothing is told: %v", err)
	}
	r.last = e
	return line(e)
}

func line(e *Event) string {
	switch {
	case e.Type == Resync:
		return strings.TrimSpace(fmt.Sprintf("resync %s", e.Kind))
	case e.Filled:
		return fmt.Sprintf("filled %s %s %s>%s", e.Type, e.Name, e.From, e.To)
	}
	return fmt.Sprintf("%s %s %s>%s", e.Type, e.Name, e.From, e.To)
}

// told fails the test unless exactly these events are next.
func (r *running) told(want ...string) {
	r.Helper()
	for _, w := range want {
		if got := r.next(); got != w {
			r.Fatalf("told %q, want %q", got, w)
		}
	}
}

func (r *running) nothingMore() {
	r.Helper()
	if e := r.reader.Poll(); e != nil {
		r.Fatalf("%q is told, and nothing has happened", line(e))
	}
}

func task(name, state string) *v1alpha1.Task {
	t := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
	t.Spec.JobName = "j"
	t.Status.State = state
	return t
}

// attempts adds attempts to a task. Start and end are in minutes after noon, zero if not set.
func attempts(t *v1alpha1.Task, all ...v1alpha1.TaskAttempt) *v1alpha1.Task {
	for i := range all {
		all[i].Attempt = int32(i + 1)
	}
	t.Status.Attempt, t.Status.Attempts = int32(len(all)), all
	return t
}

func minute(n int) *metav1.MicroTime {
	m := metav1.NewMicroTime(time.Date(2026, 11, 22, 12, n, 0, 0, time.UTC))
	return &m
}

func TestStore_PublishesChanges(t *testing.T) {
	a := newAPI()
	a.put(task("old", "running"))
	a.remove(row.Tasks, "old")
	a.put(task("there", "pending"))
	w := a.start(t, Config{}, "")
	w.nothingMore() // existing objects are in the lists
	a.put(task("there", "dispatching"))
	a.put(task("there", "running"))
	w.told("changed there pending>dispatching", "changed there dispatching>running")
	used := task("there", "running")
	used.Status.Resources = &v1alpha1.ResourceUse{CPUPercent: 50}
	a.put(used)
	used.Labels = map[string]string{"a": "b"}
	a.put(used)
	a.remove(row.Tasks, "there")
	a.put(task("there", "pending"))
	w.told("changed there running>running", "removed there running>", "added there >pending")
}

func TestStore_CoalescesMassChanges(t *testing.T) {
	a := newAPI()
	for i := range 3 {
		a.put(task(fmt.Sprint("t", i), "pending"))
	}
	release := a.holdWatches()
	w := a.start(t, Config{}, "")
	for i := range 3 {
		paused := task(fmt.Sprint("t", i), "paused")
		paused.Status.Reason, paused.Status.Message = v1alpha1.ReasonPaused, "job j: somebody wants it"
		a.put(paused)
	}
	release() // all changes arrive within the same second
	w.told("changed t0 pending>paused", "changed  >paused")
	const want = `{"seq":"106","type":"changed","kind":"tasks","namespace":"n","name":"","uid":"","job":"j","to":"paused","reason":"Paused","message":"job j: somebody wants it","time":"","refresh":true,"count":2,"after":"104"}`
	if got := regexp.MustCompile(`"time":"[^"]+"`).ReplaceAllString(string(w.last.JSON), `"time":""`); got != want {
		t.Errorf("told\n%s\nwant\n%s", got, want)
	}
}

// Items are shared, inherit from their job, and are indexed by owner, in any order of arrival.
func TestStore_SharesAndIndexesItems(t *testing.T) {
	for _, jobFirst := range []bool{true, false} {
		a := newAPI()
		job := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "flow-step", OwnerReferences: []metav1.OwnerReference{{APIVersion: "flow.volcano.sh/v1alpha1", Kind: "JobFlow", Name: "flow", UID: "f", Controller: new(bool)}},
		}}
		*job.OwnerReferences[0].Controller = true
		one := task("one", "running")
		one.Spec.JobName = "flow-step"
		one.OwnerReferences = []metav1.OwnerReference{{APIVersion: "robot.k8s4r.io/v1alpha1", Kind: "Job", Name: job.Name, UID: "uid-102", Controller: job.OwnerReferences[0].Controller}}
		w := a.start(t, Config{}, "")
		if jobFirst {
			a.put(task("zero", ""))
			w.told("added zero >pending")
			a.put(job)
			w.told("added flow-step >under-construction")
			a.put(one)
			w.told("added one >running")
		} else {
			a.put(one)
			w.told("added one >running")
			a.put(job)
			w.told("added flow-step >under-construction")
		}
		i := w.Get(row.Tasks, "n", "one")
		if i == nil || i.Row.Flow != "flow" || i.Row.Step != "step" || i.Row.Job != "flow-step" || i.Object.GetManagedFields() != nil {
			t.Fatalf("job first %v: %+v", jobFirst, i)
		}
		if all := w.List(row.Tasks, "n"); !slices.Contains(all, i) || len(w.List(row.Tasks, "other")) != 0 || len(w.List(row.Tasks, "")) != len(all) {
			t.Errorf("lists %d tasks, without the one", len(all))
		}
		if own := w.Owned("uid-102"); len(own) != 1 || own[0] != i {
			t.Errorf("the job owns %v", own)
		}
		if !w.Has(row.Tasks) || w.Has(row.Pods) || w.Live() != nil {
			t.Errorf("has tasks %v and pods %v, live: %v", w.Has(row.Tasks), w.Has(row.Pods), w.Live())
		}
		a.remove(row.Tasks, "one")
		w.told("removed one running>")
		if w.Get(row.Tasks, "n", "one") != nil || len(w.Owned("uid-102")) != 0 {
			t.Error("what is removed is still there")
		}
		w.stop()
	}
}

// When a watch cannot resume, the changes in between are published in the order of the writes,
// including the states that objects recorded.
func TestStore_PublishesDifferencesAfterRelist(t *testing.T) {
	a := newAPI()
	a.put(attempts(task("twice", "running"), v1alpha1.TaskAttempt{State: "running", StartedAt: minute(1)}))
	a.put(task("gone", "completed"))
	a.put(task("same", "completed"))
	w := a.start(t, Config{}, "")
	release := a.holdWatches() // new watches send nothing until all changes are written
	a.cutOff()
	a.put(task("fresh", "pending"))
	a.put(attempts(task("twice", "exited"), v1alpha1.TaskAttempt{State: "exited", StartedAt: minute(1), FinishedAt: minute(2), Reason: "Exited"}))
	a.put(attempts(task("quick", "completed"), v1alpha1.TaskAttempt{State: "completed", StartedAt: minute(3), FinishedAt: minute(4)}))
	a.put(attempts(task("twice", "completed"),
		v1alpha1.TaskAttempt{State: "failed", StartedAt: minute(1), FinishedAt: minute(2), Reason: "Exited"},
		v1alpha1.TaskAttempt{State: "completed", StartedAt: minute(3), FinishedAt: minute(5)}))
	a.remove(row.Tasks, "gone")
	a.forget()
	release()
	w.told(
		"added fresh >pending",
		"filled added quick >running", "changed quick running>completed",
		"filled changed twice running>exited", "filled changed twice exited>running", "changed twice running>completed",
		"removed gone completed>", "resync tasks",
	)
	w.nothingMore()
	if at := w.List(row.Tasks, ""); len(at) != 4 {
		t.Errorf("%d tasks are there", len(at))
	}
	a.put(task("fresh", "running"))
	w.told("changed fresh pending>running")
}

// The next instance publishes the changes since shortly before the end of the previous one,
// including intermediate states, and a reader continues with it.
func TestStore_ContinuesAfterRestart(t *testing.T) {
	a := newAPI()
	c := Config{StateFile: filepath.Join(t.TempDir(), "position"), Behind: 120 * time.Millisecond}
	w := a.start(t, c, "")
	early := a.put(task("quiet", "pending"))
	a.put(task("busy", "pending"))
	w.told("added quiet >pending", "added busy >pending")
	awaitPosition(t, c.StateFile, early+1)
	a.put(task("busy", "dispatching"))
	w.told("changed busy pending>dispatching")
	w.stop()
	position := keptIn(t, c.StateFile).Position // the next instance will overwrite the file
	a.put(task("busy", "running"))
	a.put(task("busy", "completed"))
	a.put(task("new", "pending"))
	a.remove(row.Tasks, "quiet")

	next := a.start(t, c, w.reader.Position())
	var got []string
	for len(got) == 0 || got[len(got)-1] != "removed quiet pending>" {
		got = append(got, next.next())
	}
	if got[0] == "changed busy pending>dispatching" { // the reader already knows it, by its resourceVersion
		got = got[1:]
	}
	if want := "changed busy dispatching>running, changed busy running>completed, added new >pending, removed quiet pending>"; strings.Join(got, ", ") != want {
		t.Errorf("told\n%s, want\n%s", strings.Join(got, ", "), want)
	}
	next.nothingMore()
	a.mu.Lock()
	lists := strings.Join(a.lists, "|")
	a.mu.Unlock()
	if !strings.Contains(lists, fmt.Sprintf("tasks %dExact", position)) {
		t.Errorf("the API server was asked for %s", lists)
	}
	if first := next.Ring().Since("elsewhere:50:1").Poll(); first == nil || first.Type != Resync {
		t.Errorf("a reader that knows less than this incarnation is told %+v", first)
	}
}

// Of two readers that know an event after the stored position, the one that disconnected before
// all earlier events were certainly sent gets a Resync.
func TestStore_ResyncsReaderThatLeftEarly(t *testing.T) {
	a := newAPI()
	position := a.put(task("one", "pending"))
	safe, after := a.put(task("one", "dispatching")), a.put(task("one", "running"))
	file := filepath.Join(t.TempDir(), "position")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"version": 2, "position": "%d", "safe": "%d", "last": "0"}`, position, safe), 0o600); err != nil {
		t.Fatal(err)
	}
	w := a.start(t, Config{StateFile: file}, fmt.Sprintf("elsewhere:%d:2", after))
	w.told("changed one pending>dispatching", "changed one dispatching>running")
	if first := w.Ring().Since(fmt.Sprintf("elsewhere:%d:1", safe)).Poll(); first == nil || first.Type != Resync {
		t.Errorf("who left early is told %+v", first)
	}
}

// After a restart, lists show the state at which the previous instance stopped, until all later
// writes and removals are received.
func TestStore_CurrentWaitsForMissedChanges(t *testing.T) {
	for name, since := range map[string]func(*api){
		"nothing has happened": func(*api) {},
		"one was written":      func(a *api) { a.put(task("one", "running")); a.put(task("one", "completed")) },
		"one is new":           func(a *api) { a.put(task("new", "pending")) },
		"one has gone":         func(a *api) { a.put(task("one", "running")); a.remove(row.Tasks, "one") },
		"one is another one":   func(a *api) { a.remove(row.Tasks, "one"); a.put(task("one", "pending")) },
		"one came and went":    func(a *api) { a.put(task("new", "pending")); a.remove(row.Tasks, "new") },
		"a job was written":    func(a *api) { a.put(&v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "j"}}) },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI()
			position := a.put(task("one", "pending"))
			since(a)
			a.mu.Lock()
			before, now := a.at(position), a.at(a.rev)
			a.mu.Unlock()
			release := a.holdWatches()
			c := Config{StateFile: filepath.Join(t.TempDir(), "position")}
			if err := os.WriteFile(c.StateFile, fmt.Appendf(nil, `{"version":2,"position":"%d","last":"0"}`, position), 0o600); err != nil {
				t.Fatal(err)
			}
			w := a.start(t, c, "")
			testkit.Eventually(t, 10*time.Second, "it watches", func() bool { return w.Live() == nil })
			if same := versions(before) == versions(now); same {
				await(t, w.Current())
			} else if isClosed(w.Current()) {
				t.Error("it is current before it was told what has happened")
			}
			release()
			await(t, w.Current())
			held := map[place]client.Object{}
			for _, kind := range []row.Kind{row.Jobs, row.Tasks} {
				for _, i := range w.List(kind, "") {
					held[place{kind, client.ObjectKeyFromObject(i.Object)}] = i.Object
				}
			}
			if name != "one came and went" && versions(held) != versions(now) {
				t.Errorf("it is current and has %s, there are %s", versions(held), versions(now))
			}
		})
	}
}

// versions returns the versions of objects in one line.
func versions(of map[place]client.Object) string {
	var out []string
	for at, o := range of {
		out = append(out, fmt.Sprintf("%s %s %s", at.kind, at.name, o.GetResourceVersion()))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, "the world is current", func() bool { return isClosed(c) })
}

// A reader has missed nothing if nothing happened since the last event that it knows, however
// long ago that was.
func TestStore_ContinuesAfterIdleTime(t *testing.T) {
	a := newAPI()
	c := Config{StateFile: filepath.Join(t.TempDir(), "position"), Behind: 60 * time.Millisecond}
	w := a.start(t, c, "")
	a.put(task("a", "pending"))
	w.told("added a >pending")
	awaitPosition(t, c.StateFile, a.elsewhere())
	w.stop()
	at := w.reader.Position()
	for range 2 { // in the second round, nothing is received at all
		w = a.start(t, c, at)
		w.nothingMore()
		awaitPosition(t, c.StateFile, a.elsewhere())
		w.stop()
	}
	a.put(task("a", "running"))
	a.start(t, c, at).told("changed a pending>running")
}

// Changes that the API server has forgotten are not published; readers get a Resync.
func TestStore_ResyncsIfHistoryIsGone(t *testing.T) {
	for name, position := range map[string]string{"forgotten": "101", "of another cluster": "99999"} {
		a := newAPI()
		a.put(task("a", "pending"))
		a.put(task("a", "running"))
		a.forget()
		c := Config{StateFile: filepath.Join(t.TempDir(), "position")}
		if err := os.WriteFile(c.StateFile, []byte(`{"position":"`+position+`","last":"101"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		w := a.start(t, c, "old:101:1")
		w.told("resync")
		w.nothingMore()
		await(t, w.Current())
		if i := w.Get(row.Tasks, "n", "a"); i == nil || i.Row.State != "running" {
			t.Errorf("%s: %+v", name, i)
		}
		a.put(task("a", "completed"))
		w.told("changed a running>completed")
	}
}

// A kind that is not installed is no error, and may appear and disappear.
func TestStore_HandlesMissingKinds(t *testing.T) {
	a := newAPI()
	a.setAbsent(row.Tasks, true)
	w := a.start(t, Config{}, "")
	testkit.Eventually(t, 10*time.Second, "the other kinds are watched", func() bool { return w.Has(row.Jobs) && w.Live() == nil })
	if w.Has(row.Tasks) {
		t.Error("a kind that is missing is said to be there")
	}
	a.put(task("early", "pending"))
	a.setAbsent(row.Tasks, false)
	w.told("added early >pending")
	testkit.Eventually(t, 10*time.Second, "the new kind is watched", func() bool { return w.Has(row.Tasks) && w.Live() == nil })
	a.setAbsent(row.Tasks, true)
	for {
		if got := w.next(); got == "removed early pending>" {
			break
		}
	}
	if w.Has(row.Tasks) {
		t.Error("a kind that is gone is said to be there")
	}
}

// The file contains the positions of one minute and half a minute ago. While a kind is not
// watched, the file is not updated.
func TestPositionKeeper_WritesEarlierPosition(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	w := newWorld(Config{StateFile: filepath.Join(t.TempDir(), "position"), Log: logr.Discard()})
	w.now = func() time.Time { return now }
	w.addKind(everything[0], &kindAPI{newAPI(), row.Jobs})
	s := w.sources[0]
	s.present.Store(true)
	s.lister.live.Store(1)
	pass := func(d time.Duration, seen uint64, want string) {
		t.Helper()
		now = now.Add(d)
		w.seen.Store(seen)
		w.keeper.recordSample()
		kept := keptIn(t, w.keeper.file)
		if got := fmt.Sprintf("%d %d", kept.Position, kept.Safe); got != want {
			t.Errorf("at %s, seen %d: position and safe %s are kept, want %s", now.Format(time.TimeOnly), seen, got, want)
		}
	}
	pass(0, 10, "0 0")
	pass(30*time.Second, 20, "0 0")
	pass(29*time.Second, 30, "0 0")
	pass(time.Second, 40, "10 20")
	pass(30*time.Second, 50, "20 40")
	s.lister.live.Store(0)
	pass(2*time.Minute, 60, "20 40")
	s.lister.live.Store(1)
	pass(time.Second, 70, "20 40")
	pass(time.Minute, 80, "70 70")
}

// keptIn returns the content of the file, or zero if it does not exist.
func keptIn(t *testing.T, file string) (k kept) {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return k
	}
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func awaitPosition(t *testing.T, file string, want uint64) {
	t.Helper()
	testkit.EventuallyNoError(t, 10*time.Second, "the position is kept", func() error {
		if got := keptIn(t, file).Position; got != want {
			return fmt.Errorf("it is %d, want %d", got, want)
		}
		return nil
	})
}

// BenchmarkUpdate measures a change of one of 10,000 tasks; BenchmarkList measures a list of all
// of them.
func BenchmarkUpdate(b *testing.B) {
	s := thousands()
	states := []string{"dispatching", "running", "completed"}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		t := task(fmt.Sprintf("t-%d", n%10_000), states[n/10_000%3])
		t.ResourceVersion = fmt.Sprint(20_000 + n)
		if err := s.Update(t); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkList(b *testing.B) {
	s := thousands()
	b.ReportAllocs()
	for b.Loop() {
		if n := len(s.world.List(row.Tasks, "n")); n != 10_000 {
			b.Fatal(n)
		}
	}
}

// thousands returns a source with 10,000 tasks.
func thousands() *source {
	w := newAPI().world(Config{Log: logr.Discard()})
	s := w.sources[1]
	var all []any
	for n := range 10_000 {
		t := task(fmt.Sprintf("t-%d", n), "pending")
		t.ResourceVersion = fmt.Sprint(n + 1)
		all = append(all, t)
	}
	_ = s.Replace(all, "10000")
	return s
}
