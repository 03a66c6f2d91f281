package archive_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/testkit"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// suite is one empty archive and what its clock says.
type suite struct {
	*testing.T
	*archive.Store
	ctx context.Context

	mu  sync.Mutex
	now time.Time
}

func (s *suite) clock() time.Time { s.mu.Lock(); defer s.mu.Unlock(); return s.now }

func (s *suite) record(objects ...archive.Object) {
	s.Helper()
	if err := s.Record(s.ctx, objects...); err != nil {
		s.Fatal(err)
	}
}

func (s *suite) get(uid string) archive.Object {
	s.Helper()
	o, err := s.GetByUID(s.ctx, nil, uid)
	if err != nil {
		s.Fatal(err)
	}
	return o
}

// list is the names that a filter finds, over all pages.
func (s *suite) list(f archive.Filter) string {
	s.Helper()
	var names []string
	for {
		p, err := s.List(s.ctx, f)
		if err != nil {
			s.Fatal(err)
		}
		for _, o := range p.Items {
			names = append(names, o.Name)
		}
		if f.Cursor = p.Next; f.Cursor == "" {
			return strings.Join(names, " ")
		}
	}
}

// TestArchive proves each promise over SQLite and over PostgreSQL.
func TestArchive(t *testing.T) {
	var postgres *testkit.Postgres
	if !testing.Short() {
		postgres = testkit.StartPostgres(t)
	}
	for i, c := range []struct {
		name string
		run  func(*suite)
	}{
		{"what is recorded comes back whole", comesBack},
		{"an older record never overwrites a newer one", olderIsNothing},
		{"what is recorded twice is there once", onceOnly},
		{"a change of phase is kept, with the one before", transitions},
		{"attempts stay that the object has forgotten", attemptsStay},
		{"the runs of an attempt are those of the last record", countsRuns},
		{"what a robot says keeps nothing out", anyText},
		{"one that cannot be recorded leaves none of its batch", allOrNothing},
		{"what is deleted is marked, and a later record does not undo it", deleted},
		{"many may record at once", manyAtOnce},
		{"lists filter by everything that they promise", filters},
		{"pages follow each other without gap or repetition", pages},
		{"an unknown cursor is rejected", cursors},
		{"namespaces that a reader may not see are not there", scoped},
		{"the next namespace of a name does not have the rows of the one before", namespacesOfOneName},
		{"rows without a namespace's UID are bound to the namespace that existed then", bindsOldRows},
		{"what ran on a robot between two times", ranOn},
		{"which tasks fail most", mostFailing},
		{"how long steps take", stepTimes},
		{"statistics cover the newest objects, and report that", samples},
		{"what is too old goes, with all that belongs to it", pruneByAge},
		{"the oldest goes where there is too much", pruneBySize},
		{"what lives is never pruned, its old attempts are", pruneSparesTheLiving},
		{"more goes than one batch", pruneInBatches},
		{"actions of users are recorded once, and found", recordsActions},
		{"who created an object is found", findsCreators},
		{"old actions go, and those of the namespace with most", prunesActions},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Run("sqlite", func(t *testing.T) {
				c.run(open(t, "sqlite:"+filepath.Join(t.TempDir(), "50% of?it#", "history.db")))
			})
			if postgres != nil {
				t.Run("postgres", func(t *testing.T) { c.run(open(t, postgres.CreateDatabase(fmt.Sprint("case", i)))) })
			}
		})
	}
}

// counted are the runs that statistics are made of here.
const counted = 150

func open(t *testing.T, address string) *suite {
	t.Helper()
	s := &suite{T: t, ctx: t.Context(), now: noon}
	var err error
	if s.Store, err = archive.Open(address, archive.WithClock(s.clock), archive.WithMaxRuns(counted), archive.WithFew(1), archive.WithPruneBatch(50)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// task is one that completed on a robot, a minute after noon.
func task(name string, changes ...func(*archive.Object)) archive.Object {
	code := int64(0)
	o := archive.Object{
		Kind: archive.Task, Namespace: "hall", NamespaceUID: "ns-hall", Name: name, UID: "uid-" + name, Version: 10, Owner: "uid-group", Template: "inspect", Step: "cameras/shoot",
		Robot: "r1", Phase: "completed", Reason: "Exited", Changed: noon.Add(time.Minute), Outcome: archive.Succeeded,
		Created: noon.Add(-time.Minute), Started: noon, Finished: noon.Add(time.Minute), Labels: map[string]string{"job": "inspect-1", "taskindex": "0"},
		Attempts: []archive.Attempt{{
			Job: "inspect-1", Number: 1, Robot: "r1", State: "completed", Reason: "Exited", ExitCode: &code, RunCount: 2,
			Started: noon, Finished: noon.Add(time.Minute), Log: "/v1/namespaces/hall/tasks/" + name + "/logs?attempt=1",
		}},
		Manifest: json.RawMessage(`{"kind":"Task","metadata":{"name":"` + name + `"}}`),
	}
	for _, f := range changes {
		f(&o)
	}
	return o
}

// ran changes when the task's only attempt ran.
func ran(start time.Time, took time.Duration) func(*archive.Object) {
	return func(o *archive.Object) {
		o.Created, o.Started, o.Finished = start.Add(-time.Second), start, start.Add(took)
		o.Attempts[0].Started, o.Attempts[0].Finished = o.Started, o.Finished
	}
}

func runs(start time.Time) func(*archive.Object) {
	return func(o *archive.Object) {
		o.Phase, o.Outcome, o.Started, o.Finished = "running", "", start, time.Time{}
		o.Attempts[0].State, o.Attempts[0].Started, o.Attempts[0].Finished, o.Attempts[0].ExitCode = "running", start, time.Time{}, nil
	}
}

func fails(o *archive.Object) {
	one := int64(1)
	o.Phase, o.Outcome = "failed", archive.Failed
	o.Attempts[0].State, o.Attempts[0].Failed, o.Attempts[0].ExitCode = "failed", true, &one
}

func version(n int64) func(*archive.Object) { return func(o *archive.Object) { o.Version = n } }
func on(robot string) func(*archive.Object) {
	return func(o *archive.Object) { o.Robot, o.Attempts[0].Robot = robot, robot }
}
func of(template, step string) func(*archive.Object) {
	return func(o *archive.Object) { o.Template, o.Step = template, step }
}
func in(namespace string) func(*archive.Object) {
	return func(o *archive.Object) { o.Namespace, o.NamespaceUID = namespace, "ns-"+namespace }
}

// visible returns the namespaces with the UIDs that in gives them.
func visible(names ...string) []archive.Namespace {
	all := []archive.Namespace{}
	for _, name := range names {
		all = append(all, archive.Namespace{Name: name, UID: "ns-" + name})
	}
	return all
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func comesBack(s *suite) {
	want := task("t1")
	s.record(want)
	want.Changed = time.Time{} // it is the transition's
	want.Attempts[0].TaskUID, want.Attempts[0].Namespace, want.Attempts[0].Task = want.UID, want.Namespace, want.Name
	want.Attempts[0].Template, want.Attempts[0].Step = want.Template, want.Step
	if got := s.get("uid-t1"); asJSON(s, got) != asJSON(s, want) {
		s.Errorf("it is\n%s\nwant\n%s", asJSON(s, got), asJSON(s, want))
	}
	if got, err := s.FindByName(s.ctx, nil, archive.Task, "hall", "t1"); err != nil || got.UID != want.UID {
		s.Errorf("by name it is %q, %v", got.UID, err)
	}
	for _, missing := range []func() error{
		func() error { _, err := s.GetByUID(s.ctx, nil, "unknown"); return err },
		func() error { _, err := s.FindByName(s.ctx, nil, archive.Job, "hall", "t1"); return err },
	} {
		if err := missing(); !errors.Is(err, archive.ErrNotFound) {
			s.Errorf("what is not there gives %v", err)
		}
	}
}

func olderIsNothing(s *suite) {
	s.record(task("t1", version(20)))
	s.record(task("t1", version(19), runs(noon)))
	if got := s.get("uid-t1"); got.Version != 20 || got.Phase != "completed" || got.Attempts[0].State != "completed" {
		s.Errorf("version %d, %s, attempt %s", got.Version, got.Phase, got.Attempts[0].State)
	}
	s.record(task("t1", version(21), fails, func(o *archive.Object) { o.Labels = map[string]string{"job": "other"} }))
	got := s.get("uid-t1")
	if got.Version != 21 || got.Outcome != archive.Failed || !got.Attempts[0].Failed || asJSON(s, got.Labels) != asJSON(s, map[string]string{"job": "other"}) {
		s.Errorf("after a newer one: %s", asJSON(s, got))
	}
}

func onceOnly(s *suite) {
	for range 3 {
		s.record(task("t1"), task("t2"))
		s.record(task("t1"))
	}
	if got := s.list(archive.Filter{}); got != "t2 t1" {
		s.Errorf("there are %s", got)
	}
	if got := s.get("uid-t1"); len(got.Attempts) != 1 {
		s.Errorf("%d attempts", len(got.Attempts))
	}
	if all, err := s.ListTransitions(s.ctx, "uid-t1"); err != nil || len(all) != 1 {
		s.Errorf("%d transitions, %v", len(all), err)
	}
}

func transitions(s *suite) {
	s.record(task("t1", version(10), runs(noon), func(o *archive.Object) { o.Changed = noon }))
	s.now = noon.Add(time.Hour)
	s.record(task("t1", version(11), runs(noon), func(o *archive.Object) { o.Changed = time.Time{} })) // nothing that counts
	s.record(task("t1", version(12), func(o *archive.Object) { o.Changed = time.Time{} }))
	got, err := s.ListTransitions(s.ctx, "uid-t1")
	want := []archive.Transition{
		{Version: 10, At: noon, To: "running", Reason: "Exited"},
		{Version: 12, At: noon.Add(time.Hour), From: "running", To: "completed", Reason: "Exited"},
	}
	if err != nil || !slices.Equal(got, want) {
		s.Errorf("%+v, %v", got, err)
	}
}

func attemptsStay(s *suite) {
	attempt := func(n int64) func(*archive.Object) { return func(o *archive.Object) { o.Attempts[0].Number = n } }
	s.record(task("t1", version(10), attempt(1), fails))
	s.record(task("t1", version(20), attempt(2)))
	got := s.get("uid-t1").Attempts
	if len(got) != 2 || got[0].Number != 1 || !got[0].Failed || got[1].Number != 2 || got[1].Failed {
		s.Errorf("%s", asJSON(s, got))
	}
}

func countsRuns(s *suite) {
	started := func(n int64) func(*archive.Object) { return func(o *archive.Object) { o.Attempts[0].RunCount = n } }
	s.record(task("t1", version(10), runs(noon), started(1)))
	s.record(task("t1", version(20), runs(noon), started(3_000_000_000)))
	s.record(task("t1", version(15), runs(noon), started(2)))
	ran, err := s.ListRobotAttempts(s.ctx, archive.RobotHistory{Robot: "r1"})
	if err != nil || len(ran.Items) != 1 || ran.Items[0].RunCount != 3_000_000_000 {
		s.Errorf("on the robot: %s, %v", asJSON(s, ran.Items), err)
	}
	if got := s.get("uid-t1").Attempts; len(got) != 1 || got[0].RunCount != 3_000_000_000 {
		s.Errorf("%s", asJSON(s, got))
	}
}

func anyText(s *suite) {
	said := task("t1", func(o *archive.Object) { o.Reason, o.Attempts[0].Reason = "a\x00b", "c\xffd" })
	s.record(said)
	if got := s.get("uid-t1"); got.Reason != "a\uFFFDb" || got.Attempts[0].Reason != "c\uFFFDd" {
		s.Errorf("%q, %q", got.Reason, got.Attempts[0].Reason)
	}
}

func allOrNothing(s *suite) {
	err := s.Record(s.ctx, task("t1"), archive.Object{Kind: archive.Task, Name: "t3", UID: "u3"})
	if err == nil || !strings.Contains(err.Error(), "resourceVersion") {
		s.Errorf("it says %v", err)
	}
	refused := task("t2")
	refused.Labels = map[string]string{"a": "a\x00b"} // PostgreSQL keeps no such text, SQLite does
	want := "t2 t1"
	if err := s.Record(s.ctx, task("t1"), refused); err != nil {
		want = ""
	}
	if got := s.list(archive.Filter{}); got != want {
		s.Errorf("there is %q, want %q", got, want)
	}
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	if err := s.Record(ended, task("t1")); !errors.Is(err, context.Canceled) {
		s.Errorf("it says %v", err)
	}
}

func deleted(s *suite) {
	gone := noon.Add(2 * time.Hour)
	s.record(task("t1", runs(noon)))
	for _, uid := range []string{"uid-t1", "uid-unknown", "uid-t1"} {
		if err := s.MarkDeleted(s.ctx, uid, gone); err != nil {
			s.Fatal(err)
		}
		gone = gone.Add(time.Hour)
	}
	s.record(task("t1", version(11), runs(noon)))
	if got := s.get("uid-t1"); !got.Deleted.Equal(noon.Add(2*time.Hour)) || got.Version != 11 {
		s.Errorf("deleted %s, version %d", got.Deleted, got.Version)
	}
	s.now = noon.Add(24 * time.Hour)
	if p, err := s.Prune(s.ctx, archive.Retention{Age: time.Hour}); err != nil || p.Objects != 1 {
		s.Errorf("pruned %+v, %v", p, err)
	}
}

func manyAtOnce(s *suite) {
	const writers, each = 8, 20
	var wg sync.WaitGroup
	errs := make(chan error, writers)
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				// All write the shared ones, in their own order.
				mine, a, b := task(fmt.Sprintf("w%d-%d", w, n)), task("a", version(int64(1+n))), task("b", version(int64(1+n)))
				if w%2 == 0 {
					a, b = b, a
				}
				if err := s.Record(s.ctx, mine, a, b); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		s.Error(err)
	}
	if got := len(strings.Fields(s.list(archive.Filter{}))); got != writers*each+2 {
		s.Errorf("%d objects", got)
	}
	if got := s.get("uid-a"); got.Version != each {
		s.Errorf("the shared one has version %d", got.Version)
	}
}

func filters(s *suite) {
	s.record(
		task("t1", ran(noon, time.Second)),
		task("t2", ran(noon.Add(time.Hour), time.Second), fails, on("r2"), of("weld", "arm/join")),
		task("t3", ran(noon.Add(2*time.Hour), time.Second), in("yard")),
		archive.Object{Kind: archive.Job, Namespace: "hall", NamespaceUID: "ns-hall", Name: "t1", UID: "job", Version: 1, Created: noon.Add(3 * time.Hour), Phase: "running", Labels: map[string]string{"job": "it's", "x": "y"}},
		archive.Object{Kind: archive.Robot, Namespace: "hall", NamespaceUID: "ns-hall", Name: "r1", UID: "robot", Version: 1, Created: noon.Add(4 * time.Hour), Phase: "Online", Robot: "r1"},
	)
	for _, c := range []struct {
		name string
		in   archive.Filter
		want string
	}{
		{"all, the last first", archive.Filter{}, "r1 t1 t3 t2 t1"},
		{"a kind", archive.Filter{Kind: archive.Task}, "t3 t2 t1"},
		{"a name", archive.Filter{Name: "t1"}, "t1 t1"},
		{"a name and a kind", archive.Filter{Name: "t1", Kind: archive.Job}, "t1"},
		{"a namespace", archive.Filter{Namespaces: visible("yard")}, "t3"},
		{"two namespaces", archive.Filter{Namespaces: visible("yard", "hall")}, "r1 t1 t3 t2 t1"},
		{"no namespace", archive.Filter{Namespaces: visible()}, ""},
		{"a phase", archive.Filter{Phase: "failed"}, "t2"},
		{"an outcome", archive.Filter{Outcome: archive.Succeeded}, "t3 t1"},
		{"a template", archive.Filter{Template: "weld"}, "t2"},
		{"a robot", archive.Filter{Robot: "r1"}, "r1 t3 t1"},
		{"an owner", archive.Filter{Owner: "uid-group", Outcome: archive.Failed}, "t2"},
		{"a label", archive.Filter{Labels: map[string]string{"job": "inspect-1"}}, "t3 t2 t1"},
		{"two labels, one with a quote", archive.Filter{Labels: map[string]string{"job": "it's", "x": "y"}}, "t1"},
		{"a label of which only the name is there", archive.Filter{Labels: map[string]string{"job": "x"}}, ""},
		{"since then", archive.Filter{Since: noon.Add(time.Hour)}, "r1 t1 t3"},
		{"until then", archive.Filter{Until: noon.Add(time.Hour)}, "t2 t1"},
		{"between", archive.Filter{Since: noon, Until: noon.Add(2 * time.Hour)}, "t3 t2"},
	} {
		if got := s.list(c.in); got != c.want {
			s.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func pages(s *suite) {
	var want []string
	for n := range 25 {
		// Five of each moment: the cursor has to distinguish them.
		o := task(fmt.Sprintf("t%02d", n), ran(noon.Add(time.Duration(n/5)*time.Second), time.Second))
		s.record(o)
		want = append([]string{o.Name}, want...)
	}
	for _, size := range []int{1, 4, 5, 7, 25, 0} {
		if got := s.list(archive.Filter{Limit: size}); got != strings.Join(want, " ") {
			s.Errorf("in pages of %d: %s", size, got)
		}
		var ran []string
		h := archive.RobotHistory{Robot: "r1", Limit: size}
		for {
			p, err := s.ListRobotAttempts(s.ctx, h)
			if err != nil {
				s.Fatal(err)
			}
			if size > 0 && len(p.Items) > size {
				s.Errorf("a page of %d", len(p.Items))
			}
			for _, a := range p.Items {
				ran = append(ran, a.Task)
			}
			if h.Cursor = p.Next; h.Cursor == "" {
				break
			}
		}
		if !slices.Equal(ran, want) {
			s.Errorf("attempts in pages of %d: %s", size, ran)
		}
	}
}

func cursors(s *suite) {
	s.record(task("t1"), task("t2"))
	p, err := s.List(s.ctx, archive.Filter{Limit: 1})
	if err != nil || p.Next == "" {
		s.Fatalf("%+v, %v", p, err)
	}
	for _, c := range []string{"x", "!!", "e30", "eyJ0IjoxLCJrIjpbe31dfQ", strings.Repeat("A", 40)} {
		if _, err := s.List(s.ctx, archive.Filter{Cursor: c}); !errors.Is(err, archive.ErrCursor) {
			s.Errorf("list takes %q: %v", c, err)
		}
	}
	if _, err := s.ListRobotAttempts(s.ctx, archive.RobotHistory{Robot: "r1", Cursor: p.Next}); !errors.Is(err, archive.ErrCursor) {
		s.Errorf("one query takes the cursor of another: %v", err)
	}
}

// namespacesOfOneName records a task before its namespace is deleted and one in the namespace that
// was created then, and one of an unknown namespace.
func namespacesOfOneName(s *suite) {
	second := func(o *archive.Object) { o.NamespaceUID = "ns-hall-2" }
	unknown := func(o *archive.Object) { o.NamespaceUID = "" }
	s.record(task("t1"), task("t2", second), task("t3", unknown), task("t4", in("yard")))
	s.record(task("t1", version(11), second)) // an object never changes its namespace
	for _, c := range []struct {
		name string
		in   []archive.Namespace
		want string
	}{
		{"all", nil, "t4 t3 t2 t1"},
		{"the first", visible("hall"), "t1"},
		{"the second", []archive.Namespace{{Name: "hall", UID: "ns-hall-2"}}, "t2"},
		{"one without a UID", []archive.Namespace{{Name: "hall"}}, ""},
		{"one with the UID of another", []archive.Namespace{{Name: "hall", UID: "ns-yard"}}, ""},
		{"two", visible("hall", "yard"), "t4 t1"},
		{"more than have a statement each", append(visible("hall", "yard"), make([]archive.Namespace, 20)...), "t4 t1"},
	} {
		if got := s.list(archive.Filter{Namespaces: c.in}); got != c.want {
			s.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		p, err := s.ListRobotAttempts(s.ctx, archive.RobotHistory{Robot: "r1", Namespaces: c.in})
		if want := len(strings.Fields(c.want)); err != nil || len(p.Items) != want {
			s.Errorf("%s: %d attempts, want %d, %v", c.name, len(p.Items), want, err)
		}
		_, of, err := s.StepTimes(s.ctx, archive.Task, archive.Span{Namespaces: c.in})
		if want := len(strings.Fields(c.want)); err != nil || of.Runs != want {
			s.Errorf("%s: times of %d runs, want %d, %v", c.name, of.Runs, want, err)
		}
	}
	if got := s.list(archive.Filter{Namespace: "hall"}); got != "t3 t2 t1" {
		s.Errorf("all of the name: %s", got)
	}
	if o, err := s.FindByName(s.ctx, visible("hall"), archive.Task, "hall", "t2"); !errors.Is(err, archive.ErrNotFound) {
		s.Errorf("by name: %s, %v", o.UID, err)
	}
	if o, err := s.GetByUID(s.ctx, visible("hall"), "uid-t3"); !errors.Is(err, archive.ErrNotFound) {
		s.Errorf("by UID: %s, %v", o.UID, err)
	}
}

// bindsOldRows has rows that a program before format 11 has recorded.
func bindsOldRows(s *suite) {
	old := func(o *archive.Object) { o.NamespaceUID = "" }
	s.record(task("t1", old, ran(noon, time.Second)), task("t2", old, ran(noon.Add(time.Hour), time.Second)), task("t3", old, in("yard"), old))
	names, err := s.ListUnboundNamespaces(s.ctx)
	if err != nil || !slices.Equal(names, []string{"hall", "yard"}) {
		s.Errorf("unbound %v, %v", names, err)
	}
	hall := visible("hall")
	if err := s.BindNamespace(s.ctx, hall[0], noon.Add(time.Minute)); err != nil {
		s.Fatal(err)
	}
	if got := s.list(archive.Filter{Namespaces: hall}); got != "t2" {
		s.Errorf("the namespace has %s; t1 is older than it", got)
	}
	p, err := s.ListRobotAttempts(s.ctx, archive.RobotHistory{Robot: "r1", Namespaces: hall})
	if err != nil || len(p.Items) != 1 || p.Items[0].Task != "t2" {
		s.Errorf("attempts %+v, %v", p.Items, err)
	}
}

func scoped(s *suite) {
	s.record(task("t1", fails), task("t2", in("yard"), fails), task("t3", in("yard")))
	none, yard := visible(), visible("yard")
	if _, err := s.GetByUID(s.ctx, yard, "uid-t1"); !errors.Is(err, archive.ErrNotFound) {
		s.Errorf("get: %v", err)
	}
	if _, err := s.GetByUID(s.ctx, none, "uid-t2"); !errors.Is(err, archive.ErrNotFound) {
		s.Errorf("get: %v", err)
	}
	for _, c := range []struct {
		namespaces      []archive.Namespace
		ran, failed, ok int
	}{{nil, 3, 2, 1}, {yard, 2, 1, 1}, {none, 0, 0, 0}, {visible("hall"), 1, 1, 0}} {
		p, err := s.ListRobotAttempts(s.ctx, archive.RobotHistory{Robot: "r1", Namespaces: c.namespaces})
		if err != nil || len(p.Items) != c.ran {
			s.Errorf("%v: ran %d, %v", c.namespaces, len(p.Items), err)
		}
		failed := 0
		all, _, err := s.MostFailing(s.ctx, archive.Span{Namespaces: c.namespaces})
		for _, f := range all {
			failed += int(f.Failed)
		}
		if err != nil || failed != c.failed {
			s.Errorf("%v: failed %d, %v", c.namespaces, failed, err)
		}
		times, _, err := s.StepTimes(s.ctx, archive.Task, archive.Span{Namespaces: c.namespaces})
		if err != nil || len(times) != c.ok {
			s.Errorf("%v: times %v, %v", c.namespaces, times, err)
		}
	}
}

func ranOn(s *suite) {
	hour := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Hour) }
	s.record(
		task("before", ran(hour(-3), time.Hour)),
		task("into", ran(hour(-1), 2*time.Hour)),
		task("within", ran(hour(1), time.Minute)),
		task("over", ran(hour(-2), 6*time.Hour)),
		task("running", runs(hour(1).Add(time.Second))),
		task("after", ran(hour(2), time.Hour)),
		task("elsewhere", ran(hour(1), time.Minute), on("r2")),
		task("never", func(o *archive.Object) { o.Attempts[0].Started, o.Attempts[0].Finished = time.Time{}, time.Time{} }),
	)
	for _, c := range []struct {
		name         string
		since, until time.Time
		want         string
	}{
		{"two hours", hour(0), hour(2), "running within into over"},
		{"no end", hour(1), time.Time{}, "after running within into over"},
		{"no beginning", time.Time{}, hour(-1), "over before"},
	} {
		p, err := s.ListRobotAttempts(s.ctx, archive.RobotHistory{Robot: "r1", Since: c.since, Until: c.until})
		var got []string
		for _, a := range p.Items {
			got = append(got, a.Task)
		}
		if err != nil || strings.Join(got, " ") != c.want {
			s.Errorf("%s: %v, %v, want %s", c.name, got, err, c.want)
		}
	}
}

func mostFailing(s *suite) {
	var all []archive.Object
	for n := range 10 {
		start := noon.Add(time.Duration(n) * time.Hour)
		weld := task(fmt.Sprint("w", n), of("weld", "arm/join"), ran(start, time.Minute))
		cut := task(fmt.Sprint("c", n), of("weld", "arm/cut"), ran(start, time.Minute))
		if n < 3 {
			fails(&weld)
		}
		if n%2 == 0 {
			fails(&cut)
		}
		all = append(all, weld, cut, task(fmt.Sprint("good", n), ran(start, time.Minute)))
	}
	all = append(all, task("live", of("weld", "arm/cut"), runs(noon)), task("bad", fails))
	s.record(all...)
	for _, c := range []struct {
		name string
		in   archive.Span
		want []archive.Failures
	}{
		{"all", archive.Span{}, []archive.Failures{
			{"weld", "arm/cut", 10, 5, noon.Add(8*time.Hour + time.Minute)},
			{"weld", "arm/join", 10, 3, noon.Add(2*time.Hour + time.Minute)},
			{"inspect", "cameras/shoot", 11, 1, noon.Add(time.Minute)},
		}},
		{"of a template, after a time", archive.Span{Template: "weld", Since: noon.Add(5 * time.Hour)}, []archive.Failures{
			{"weld", "arm/cut", 5, 2, noon.Add(8*time.Hour + time.Minute)},
		}},
		{"the worst", archive.Span{Limit: 1, Until: noon.Add(90 * time.Minute)}, []archive.Failures{
			{"weld", "arm/join", 2, 2, noon.Add(time.Hour + time.Minute)},
		}},
	} {
		if got, _, err := s.MostFailing(s.ctx, c.in); err != nil || !slices.Equal(got, c.want) {
			s.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func stepTimes(s *suite) {
	var all []archive.Object
	for n := range 100 { // 1s to 100s, not in order
		all = append(all, task(fmt.Sprint("t", n), ran(noon, time.Duration(n*37%100+1)*time.Second)))
	}
	all = append(all,
		task("bad", ran(noon, time.Hour), fails), task("live", runs(noon)),
		task("one", of("weld", "arm/join"), ran(noon.Add(time.Hour), 3*time.Second)),
		archive.Object{
			Kind: archive.Job, Namespace: "hall", Name: "flow-train", UID: "job", Version: 1, Template: "train", Step: "train",
			Created: noon, Started: noon, Finished: noon.Add(time.Hour), Outcome: archive.Succeeded,
		})
	s.record(all...)
	for _, c := range []struct {
		name string
		kind archive.Kind
		in   archive.Span
		want []archive.Times
	}{
		{"tasks", archive.Task, archive.Span{}, []archive.Times{
			{"inspect", "cameras/shoot", 100, 50 * time.Second, 95 * time.Second, 100 * time.Second},
			{"weld", "arm/join", 1, 3 * time.Second, 3 * time.Second, 3 * time.Second},
		}},
		{"of a template", archive.Task, archive.Span{Template: "weld"}, []archive.Times{{"weld", "arm/join", 1, 3 * time.Second, 3 * time.Second, 3 * time.Second}}},
		{"in a time", archive.Task, archive.Span{Until: noon.Add(11 * time.Second)}, []archive.Times{
			{"inspect", "cameras/shoot", 10, 5 * time.Second, 10 * time.Second, 10 * time.Second},
		}},
		{"steps of flows", archive.Job, archive.Span{}, []archive.Times{{"train", "train", 1, time.Hour, time.Hour, time.Hour}}},
	} {
		if got, _, err := s.StepTimes(s.ctx, c.kind, c.in); err != nil || !slices.Equal(got, c.want) {
			s.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func samples(s *suite) {
	for n := range counted + 50 {
		namespace := "hall"
		if n%2 == 0 {
			namespace = "yard"
		}
		t := task(fmt.Sprint("t", n), ran(noon.Add(time.Duration(n)*time.Minute), time.Second), in(namespace))
		if n < 100 {
			fails(&t)
		}
		s.record(t)
	}
	end := func(n int) time.Time { return noon.Add(time.Duration(n)*time.Minute + time.Second) }
	for _, c := range []struct {
		name          string
		in            archive.Span
		failed, count int64 // of the attempts that count, and tasks that succeeded
		attempts      archive.Sample
	}{
		{"all", archive.Span{}, 50, 100, archive.Sample{Runs: counted, Since: end(50)}},
		{"of two namespaces", archive.Span{Namespaces: visible("hall", "yard")}, 50, 100, archive.Sample{Runs: counted, Since: end(50)}},
		{"of one", archive.Span{Namespaces: visible("hall")}, 50, 50, archive.Sample{Runs: 100}},
		{"a while ago", archive.Span{Until: end(120)}, 100, 20, archive.Sample{Runs: 120}},
	} {
		failures, of, err := s.MostFailing(s.ctx, c.in)
		if err != nil || len(failures) != 1 || failures[0].Failed != c.failed || of != c.attempts {
			s.Errorf("%s: %+v of %+v, %v", c.name, failures, of, err)
		}
		times, of, err := s.StepTimes(s.ctx, archive.Task, c.in)
		if err != nil || len(times) != 1 || times[0].Count != c.count || int64(of.Runs) != c.count || !of.Since.IsZero() {
			s.Errorf("%s: %+v of %+v, %v", c.name, times, of, err)
		}
	}
}

func pruneByAge(s *suite) {
	s.record(task("old", ran(noon, time.Minute)), task("new", ran(noon.Add(time.Hour), time.Minute)))
	s.now = noon.Add(25 * time.Hour)
	got, err := s.Prune(s.ctx, archive.Retention{Age: 24 * time.Hour})
	if err != nil || got.Objects != 1 || got.Bytes == 0 {
		s.Errorf("pruned %+v, %v", got, err)
	}
	if left := s.list(archive.Filter{}); left != "new" {
		s.Errorf("left %s", left)
	}
	if p, err := s.ListRobotAttempts(s.ctx, archive.RobotHistory{Robot: "r1"}); err != nil || len(p.Items) != 1 {
		s.Errorf("%d attempts are left, %v", len(p.Items), err)
	}
	if all, err := s.ListTransitions(s.ctx, "uid-old"); err != nil || len(all) != 0 {
		s.Errorf("%d transitions are left, %v", len(all), err)
	}
	if got, err := s.Prune(s.ctx, archive.Retention{}); err != nil || got != (archive.Pruned{}) {
		s.Errorf("without limits it prunes %+v, %v", got, err)
	}
}

func pruneBySize(s *suite) {
	for n := range 10 {
		s.record(task(fmt.Sprint("t", n), ran(noon.Add(time.Duration(n)*time.Hour), time.Minute)))
	}
	size, err := s.TotalBytes(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	got, err := s.Prune(s.ctx, archive.Retention{Bytes: size - size/4})
	if err != nil || got.Objects != 3 {
		s.Errorf("pruned %+v, %v", got, err)
	}
	if left := s.list(archive.Filter{}); left != "t9 t8 t7 t6 t5 t4 t3" {
		s.Errorf("left %s", left)
	}
	if left, err := s.TotalBytes(s.ctx); err != nil || left != size-got.Bytes {
		s.Errorf("%d bytes are left of %d, less %d, %v", left, size, got.Bytes, err)
	}
}

func pruneSparesTheLiving(s *suite) {
	one := int64(1)
	s.record(task("service", runs(noon.Add(47*time.Hour)), func(o *archive.Object) {
		o.Changed = noon
		o.Attempts = append(o.Attempts, archive.Attempt{Number: 2, Robot: "r1", State: "failed", ExitCode: &one, Started: noon, Finished: noon.Add(time.Hour)})
	}))
	s.now = noon.Add(48 * time.Hour)
	got, err := s.Prune(s.ctx, archive.Retention{Age: 24 * time.Hour, Bytes: 1})
	if err != nil || got != (archive.Pruned{Attempts: 1, Transitions: 1}) {
		s.Errorf("pruned %+v, %v", got, err)
	}
	if o := s.get("uid-service"); len(o.Attempts) != 1 || o.Attempts[0].State != "running" {
		s.Errorf("attempts %s", asJSON(s, o.Attempts))
	}
}

func pruneInBatches(s *suite) {
	var all []archive.Object
	for n := range 103 { // prune removes up to 50 in a transaction
		all = append(all, task(fmt.Sprint("t", n)))
	}
	s.record(all...)
	s.now = noon.Add(48 * time.Hour)
	if got, err := s.Prune(s.ctx, archive.Retention{Age: time.Hour}); err != nil || got.Objects != 103 {
		s.Errorf("pruned %+v, %v", got, err)
	}
}

func TestOpen_RejectsInvalidAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"":                           "must be sqlite:PATH or postgres://",
		"history.db":                 "must be sqlite:PATH or postgres://",
		"mysql://host/db":            "must be sqlite:PATH or postgres://",
		"sqlite:":                    "the path is missing",
		"postgres://u:hidden@h:x/db": "cannot parse",
	} {
		_, err := archive.Open(address)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", address, err)
		}
		if err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("the error contains the password: %v", err)
		}
	}
}

func TestOpen_RejectsAnEarlierFormat(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history.db")
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"CREATE TABLE goose_db_version (id INTEGER PRIMARY KEY AUTOINCREMENT, version_id INTEGER NOT NULL, is_applied INTEGER NOT NULL, tstamp TIMESTAMP DEFAULT (datetime('now')))",
		"INSERT INTO goose_db_version (version_id, is_applied) VALUES (0, 1), (1, 1), (2, 1)",
		"CREATE TABLE objects (uid TEXT NOT NULL PRIMARY KEY)",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := open(t, "sqlite:"+file)
	err = s.Check(s.ctx)
	if !errors.Is(err, archive.ErrOldFormat) || !strings.Contains(err.Error(), file+" has format 2") || !strings.Contains(err.Error(), "--archive") {
		t.Errorf("Check: %v, want an error that names the file, its format and what to do", err)
	}
}

func TestStore_RecoversWhenTheDatabaseIsBack(t *testing.T) {
	if testing.Short() {
		t.Skip("with -short only SQLite is tested")
	}
	server := testkit.StartPostgres(t)
	server.Stop()
	s := open(t, server.Address)
	if err := s.Check(s.ctx); err == nil {
		t.Error("it can be reached")
	}
	if err := s.Record(s.ctx, task("t1")); err == nil {
		t.Error("it records")
	}
	server.Start()
	s.record(task("t1"))
	server.Stop() // and what was recorded outlives its crash
	if _, err := s.List(s.ctx, archive.Filter{}); err == nil {
		t.Error("it lists")
	}
	server.Start()
	if got := s.list(archive.Filter{}); got != "t1" {
		t.Errorf("there is %q", got)
	}
}

func TestOpen_RestrictsTheFileToItsOwner(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a", "history.db")
	s := open(t, "sqlite:"+file)
	s.record(task("t1"))
	for _, name := range []string{file, file + "-wal", file + "-shm"} {
		if i, err := os.Stat(name); err != nil || i.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, i, err)
		}
	}
}

func TestPrune_ReleasesSpaceOfTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history.db")
	s := open(t, "sqlite:"+file)
	var all []archive.Object
	for n := range 200 {
		all = append(all, task(fmt.Sprint("t", n), func(o *archive.Object) { o.Manifest = []byte(`"` + strings.Repeat("m", 4000) + `"`) }))
	}
	s.record(all...)
	s.now = noon.Add(48 * time.Hour)
	if _, err := s.Prune(s.ctx, archive.Retention{Age: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(file); err != nil || i.Size() > 200_000 {
		t.Errorf("the file has %d bytes, %v", i.Size(), err)
	}
}
