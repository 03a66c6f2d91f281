package watch

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	w := a.newStore(c)
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
		t.Fatal("the store is not synced after 30 seconds")
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
		r.Fatalf("no event: %v", err)
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

// expect fails the test unless exactly these events are next.
func (r *running) expect(want ...string) {
	r.Helper()
	for _, w := range want {
		if got := r.next(); got != w {
			r.Fatalf("event %q, want %q", got, w)
		}
	}
}

func (r *running) expectNothing() {
	r.Helper()
	if e := r.reader.Poll(); e != nil {
		r.Fatalf("unexpected event %q", line(e))
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
	w.expectNothing() // existing objects are in the lists
	a.put(task("there", "dispatching"))
	a.put(task("there", "running"))
	w.expect("changed there pending>dispatching", "changed there dispatching>running")
	used := task("there", "running")
	used.Status.Resources = &v1alpha1.ResourceUse{CPUPercent: 50}
	a.put(used)
	used.Labels = map[string]string{"a": "b"}
	a.put(used)
	a.remove(row.Tasks, "there")
	a.put(task("there", "pending"))
	w.expect("changed there running>running", "removed there running>", "added there >pending")
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
		paused.Status.Reason, paused.Status.Message = v1alpha1.ReasonPaused, "job j: requested by a user"
		a.put(paused)
	}
	release() // all changes arrive within the same second
	w.expect("changed t0 pending>paused", "changed  >paused")
	const want = `{"seq":"106","type":"changed","kind":"tasks","namespace":"n","name":"","uid":"","job":"j","to":"paused","reason":"Paused","message":"job j: requested by a user","time":"","refresh":true,"count":2,"after":"104"}`
	if got := regexp.MustCompile(`"time":"[^"]+"`).ReplaceAllString(string(w.last.JSON), `"time":""`); got != want {
		t.Errorf("event\n%s\nwant\n%s", got, want)
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
			w.expect("added zero >pending")
			a.put(job)
			w.expect("added flow-step >under-construction")
			a.put(one)
			w.expect("added one >running")
		} else {
			a.put(one)
			w.expect("added one >running")
			a.put(job)
			w.expect("added flow-step >under-construction")
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
		w.expect("removed one running>")
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
	w.expect(
		"added fresh >pending",
		"filled added quick >running", "changed quick running>completed",
		"filled changed twice running>exited", "filled changed twice exited>running", "changed twice running>completed",
		"removed gone completed>", "resync tasks",
	)
	w.expectNothing()
	if at := w.List(row.Tasks, ""); len(at) != 4 {
		t.Errorf("%d tasks are there", len(at))
	}
	a.put(task("fresh", "running"))
	w.expect("changed fresh pending>running")
}

// After a restart, a reader gets a Resync at once. The lists contain the changes in between, and
// the reader receives all later changes.
func TestStore_ResyncsReaderAfterRestart(t *testing.T) {
	a := newAPI()
	w := a.start(t, Config{}, "")
	a.put(task("busy", "pending"))
	a.put(task("gone", "pending"))
	w.expect("added busy >pending", "added gone >pending")
	w.stop()
	a.put(task("busy", "running"))
	a.put(task("new", "pending"))
	a.remove(row.Tasks, "gone")

	next := a.start(t, Config{}, w.reader.Position())
	a.put(task("busy", "completed"))
	next.expect("resync")
	var listed []string
	for _, i := range next.List(row.Tasks, "") {
		if listed = append(listed, i.Row.Name); i.Row.Name == "busy" && i.Row.State == "pending" {
			t.Errorf("the list contains the state before the restart: %+v", i.Row)
		}
	}
	if slices.Sort(listed); !slices.Equal(listed, []string{"busy", "new"}) {
		t.Errorf("the list contains %v", listed)
	}
	a.put(task("new", "running"))
	next.expect("changed busy running>completed", "changed new pending>running")
	next.expectNothing()
	if again := next.Ring().Since(next.reader.Position()); again.Poll() != nil {
		t.Error("a reader that resumes in the same instance gets events again")
	}
}

// A kind that is not installed is no error, and may appear and disappear.
func TestStore_HandlesMissingKinds(t *testing.T) {
	a := newAPI()
	a.setAbsent(row.Tasks, true)
	w := a.start(t, Config{}, "")
	testkit.Eventually(t, 10*time.Second, "the other kinds are watched", func() bool { return w.Has(row.Jobs) && w.Live() == nil })
	if w.Has(row.Tasks) {
		t.Error("Has returns true for a kind that is missing")
	}
	a.put(task("early", "pending"))
	a.setAbsent(row.Tasks, false)
	w.expect("added early >pending")
	testkit.Eventually(t, 10*time.Second, "the new kind is watched", func() bool { return w.Has(row.Tasks) && w.Live() == nil })
	a.setAbsent(row.Tasks, true)
	for {
		if got := w.next(); got == "removed early pending>" {
			break
		}
	}
	if w.Has(row.Tasks) {
		t.Error("Has returns true for a kind that was removed")
	}
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
		if n := len(s.store.List(row.Tasks, "n")); n != 10_000 {
			b.Fatal(n)
		}
	}
}

// thousands returns a source with 10,000 tasks.
func thousands() *source {
	w := newAPI().newStore(Config{Log: logr.Discard()})
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
