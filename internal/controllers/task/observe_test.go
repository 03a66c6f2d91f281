package task

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/scheduler"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// controls returns a reference to an owner of this kind.
func controls(kind, name string, uid types.UID) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{Kind: kind, Name: name, UID: uid, Controller: &yes}}
}

func TestObserveTask_FindsOwnJob(t *testing.T) {
	job := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", UID: "j2"}}
	group := func(uid, job types.UID) client.Object {
		return &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", UID: uid, OwnerReferences: controls("Job", "j", job)}}
	}
	for _, c := range []struct {
		name   string
		owners []metav1.OwnerReference
		exist  []client.Object
		want   bool
	}{
		{name: "a task without an owner belongs to the job that it names", exist: []client.Object{job}, want: true},
		{name: "a task of a group of the job", owners: controls("TaskGroup", "g", "g2"), exist: []client.Object{job, group("g2", "j2")}, want: true},
		{name: "a task of a group of an earlier job of the name", owners: controls("TaskGroup", "g", "g1"), exist: []client.Object{job, group("g1", "j1")}},
		{name: "a task of an earlier group of the name", owners: controls("TaskGroup", "g", "g1"), exist: []client.Object{job, group("g2", "j2")}},
		{name: "a task whose group is gone", owners: controls("TaskGroup", "g", "g1"), exist: []client.Object{job}},
		{name: "a task of the job itself", owners: controls("Job", "j", "j2"), exist: []client.Object{job}, want: true},
		{name: "a task of an earlier job itself", owners: controls("Job", "j", "j1"), exist: []client.Object{job}},
		{name: "a task whose job was deleted", owners: controls("TaskGroup", "g", "g1"), exist: []client.Object{group("g1", "j1")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			task := newInput(lifecycle.TaskPending).Task
			task.OwnerReferences = c.owners
			w, err := newController(t, append(c.exist, task)...).observeTask(t.Context(), client.ObjectKeyFromObject(task))
			if err != nil || (w.Job != nil) != c.want {
				t.Errorf("%+v, %v", w, err)
			}
		})
	}
}

func TestIndexForJobChange(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{"running", "cancel-requested", indexJob},
		{"running", "failed", indexJob},
		{"pending", "pause-requested", indexJob},
		{"completed", "requeueing", indexAllOfJob},
		{"requeueing", "pending", indexAllOfJob},
		{"paused", "pending", indexAllOfJob},
		{"pause-requested", "running", indexAllOfJob},
		{"", "running", ""},
		{"pending", "running", ""},
		{"running", "completed", ""},
	} {
		if got := indexForJobChange(lifecycle.JobState(c.before), lifecycle.JobState(c.after)); got != c.want {
			t.Errorf("%q -> %q wakes %q, want %q", c.before, c.after, got, c.want)
		}
	}
}

// A stale cache must not hide a heartbeat that postponed the robot's self-stop.
func TestReconcile_ReadsSelfStopPastTheCache(t *testing.T) {
	for _, c := range []struct {
		name  string
		in    Input
		acked time.Duration // ago, as it is written by now
		slice bool          // in a slice
		want  lifecycle.TaskState
		reads int
	}{
		{name: "what was lost with a robot that was online meanwhile is not replaced",
			in: newInput(lifecycle.TaskUnknown, stopAfter(time.Minute)), acked: time.Minute, want: lifecycle.TaskUnknown, reads: 1},
		{name: "what was lost with a robot whose slice in the cache is behind is not replaced",
			in: newInput(lifecycle.TaskUnknown, stopAfter(time.Minute)), acked: time.Minute, slice: true, want: lifecycle.TaskUnknown, reads: 2},
		{name: "what was lost with one whose slice is not behind is",
			in: newInput(lifecycle.TaskUnknown, stopAfter(time.Minute)), acked: time.Hour, slice: true, want: lifecycle.TaskPending, reads: 2},
		{name: "what was lost with one that was not is", in: newInput(lifecycle.TaskUnknown, stopAfter(time.Minute)), acked: time.Hour, want: lifecycle.TaskPending, reads: 1},
		{name: "where robots stop nothing by themselves it costs no read", in: newInput(lifecycle.TaskUnknown), acked: time.Minute, want: lifecycle.TaskPending},
		{name: "a restart does not begin beside what may still run",
			in: newInput(lifecycle.TaskExited, failedAfter("r1"), restartDue(1, 0), stopAfter(time.Minute)), acked: time.Minute, want: lifecycle.TaskExited, reads: 2},
		{name: "a restart beside nothing costs no read",
			in: newInput(lifecycle.TaskExited, failedAfter("r1"), lostAttemptEnded("canceled"), restartDue(1, 0), stopAfter(time.Minute)), acked: time.Minute, want: lifecycle.TaskDispatching},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in.Job.Namespace, c.in.Task.OwnerReferences = "ns", nil
			placedByManager(&c.in)
			robots := func(acked time.Duration) []client.Object {
				away := named(robotSeenAt(lifecycle.RobotOffline, noon.Add(-time.Hour)), "r1", 1)
				away.Status.AcknowledgedUntil = &metav1.MicroTime{Time: noon.Add(-acked)}
				all := []client.Object{away, named(robotIn(lifecycle.RobotOnline), "r2", 1)}
				if c.slice {
					away.Status.AcknowledgedUntil, away.Status.HeartbeatSlice = v1alpha1.AcknowledgedBySlice(noon), "heartbeats-0"
					all = append(all, sliceOf(away, noon.Add(-acked)))
				}
				return all
			}
			k := newController(t, append(robots(time.Hour), c.in.Task, c.in.Job)...)
			var uptime time.Duration
			live := &counting{Reader: newController(t, robots(c.acked)...)}
			k.Heartbeats = kit.NewHeartbeats(live, func() time.Duration { return uptime })
			k.contacts = NewContacts(func() time.Duration { return uptime }, k.Heartbeats)
			for _, o := range robots(time.Hour) {
				switch o := o.(type) {
				case *v1alpha1.HeartbeatSlice:
					k.Heartbeats.ObserveSlice(o)
				case *v1alpha1.Robot:
					k.contacts.ObserveRobot(client.ObjectKeyFromObject(o), o)
				}
			}
			uptime = time.Hour
			k.Scheduler = onlineFor{k.Scheduler, time.Hour}
			k.Live, k.Recorder = live, events.NewFakeRecorder(10)
			at := client.ObjectKeyFromObject(c.in.Task)
			if _, err := k.Reconcile(t.Context(), reconcile.Request{NamespacedName: at}); err != nil {
				t.Fatal(err)
			}
			var task v1alpha1.Task
			if err := k.Get(t.Context(), at, &task); err != nil {
				t.Fatal(err)
			}
			if got := lifecycle.TaskState(task.Status.State); got != c.want || live.reads != c.reads {
				t.Errorf("%s after %d reads, want %s after %d", got, live.reads, c.want, c.reads)
			}
		})
	}
}

// sliceOf is the slice of a robot, with its last heartbeat.
func sliceOf(r *v1alpha1.Robot, at time.Time) *v1alpha1.HeartbeatSlice {
	return &v1alpha1.HeartbeatSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Status.HeartbeatSlice},
		Heartbeats: []v1alpha1.RobotHeartbeat{{Robot: r.Name, UID: r.UID, Time: metav1.NewMicroTime(at)}},
	}
}

// failedAfter is a task that failed on r2 after an attempt on another robot that may still run.
func failedAfter(robot string) func(*Input) {
	return func(w *Input) {
		s := &w.Task.Status
		s.Attempt, w.Task.Spec.TargetRobot = 2, "r2"
		end := &metav1.MicroTime{Time: noon}
		s.Attempts = []v1alpha1.TaskAttempt{{Attempt: 1, Robot: robot, State: "canceled"}, {Attempt: 2, Robot: "r2", State: "failed", FinishedAt: end}}
	}
}

// onlineFor is a scheduler whose robots have been online for so long.
type onlineFor struct {
	robotScheduler
	d time.Duration
}

func (s onlineFor) OnlineSince(string) time.Time { return noon.Add(-s.d) }

// counting counts the reads past the cache.
type counting struct {
	client.Reader
	reads int
}

func (c *counting) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	c.reads++
	return c.Reader.Get(ctx, k, o, opts...)
}

// newController returns a controller whose cache holds the objects.
func newController(t *testing.T, objects ...client.Object) *Controller {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return noon }
	return &Controller{
		Client: fakeapi.NewBuilder(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Task{}).
			WithIndex(&v1alpha1.Robot{}, indexName, func(o client.Object) []string { return []string{o.GetName()} }).Build(),
		Now: now, Scheduler: scheduler.New(now, logr.Discard()),
		expect: kit.NewExpectations(now, logr.Discard()), explain: rate.NewLimiter(explanationsPerSecond, explanationsPerSecond),
		contacts: NewContacts(func() time.Duration { return 0 }, nil),
	}
}
