package task

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// controls is a reference to an owner of this kind.
func controls(kind, name string, uid types.UID) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{Kind: kind, Name: name, UID: uid, Controller: &yes}}
}

func TestATaskFindsItsOwnJob(t *testing.T) {
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
		{name: "a task whose job is gone", owners: controls("TaskGroup", "g", "g1"), exist: []client.Object{group("g1", "j1")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			task := world(lifecycle.TaskPending).Task
			task.OwnerReferences = c.owners
			w, err := watching(t, append(c.exist, task)...).observe(t.Context(), client.ObjectKeyFromObject(task))
			if err != nil || (w.Job != nil) != c.want {
				t.Errorf("%+v, %v", w, err)
			}
		})
	}
}

func TestAJobsNewStateWakesItsTasks(t *testing.T) {
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
		if got := concerned(lifecycle.JobState(c.before), lifecycle.JobState(c.after)); got != c.want {
			t.Errorf("%q -> %q wakes %q, want %q", c.before, c.after, got, c.want)
		}
	}
}

// watching is a controller whose cache holds the objects.
func watching(t *testing.T, objects ...client.Object) *Controller {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return noon }
	return &Controller{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
		Now:    now, Scheduler: NewScheduler(now, logr.Discard()),
		expect: expect.New(now, logr.Discard()), explain: rate.NewLimiter(explanations, explanations),
	}
}
