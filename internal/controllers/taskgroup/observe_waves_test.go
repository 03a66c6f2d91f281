package taskgroup

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// revisionOf returns a stored revision of a job, whose group g runs a command.
func revisionOf(t *testing.T, j *v1alpha1.Job, name string, number int64, command string) *appsv1.ControllerRevision {
	t.Helper()
	content := jobrevision.JobContent{TaskGroups: []jobrevision.GroupContent{{Name: "g", Tasks: []v1alpha1.TaskDefinition{taskRunning("t", command)}}}}
	data, err := content.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Revision: number, Data: runtime.RawExtension{Raw: data}}
	r.UID, r.Labels = types.UID("uid-"+name), map[string]string{v1alpha1.LabelPrefixedJob: "j"}
	r.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, v1alpha1.GroupVersion.WithKind("Job"))}
	return r
}

// wavesWorld is a job with the strategy Rollout, whose only Task runs v1, and a Rollout to v2.
type wavesWorld struct {
	*Controller
	t     *testing.T
	group *v1alpha1.TaskGroup
}

func newWavesWorld(t *testing.T) *wavesWorld {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := newInput(1, inWaves(), inState("running"))
	j, g, r := w.Job, w.Group, w.Waves.Rollout
	j.Name, j.Namespace, j.UID = "j", "ns", "j"
	g.Spec.JobName, g.Spec.GroupName, g.Spec.Tasks = "j", "g", []v1alpha1.TaskDefinition{taskRunning("t", "v1")}
	g.Status = v1alpha1.TaskGroupStatus{State: "running"}
	g.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, v1alpha1.GroupVersion.WithKind("Job"))}
	r.Name, r.Namespace, r.UID, r.Spec.Target.Name, r.Status.Revision = "r", "ns", "r", "j", 2
	r.Status.TargetUID = j.UID
	other := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "ns", UID: "an earlier one"}}
	w.Waves, w.Revisions = nil, revision.TaskRevisions(&g.Spec.TaskGroupTemplate)
	task := w.newTaskBuilder().buildTask("j-g-0-t", 0, &g.Spec.Tasks[0], robotNamed("r1"))
	task.UID, task.Status.State, task.Status.Attempt = "t", string(lifecycle.TaskRunning), 1
	api := fakeapi.NewBuilder(scheme).WithStatusSubresource(g, task, r).
		WithObjects(j, g, r, task, revisionOf(t, other, "earlier", 2, "wrong"), revisionOf(t, j, "first", 1, "v1"), revisionOf(t, j, "second", 2, "v2")).
		WithIndex(&v1alpha1.Rollout{}, indexTarget, func(o client.Object) []string { return []string{o.(*v1alpha1.Rollout).Spec.Target.Name} }).
		WithIndex(&v1alpha1.TaskGroup{}, indexJob, func(o client.Object) []string { return []string{o.(*v1alpha1.TaskGroup).Spec.JobName} }).Build()
	now := func() time.Time { return noon }
	return &wavesWorld{t: t, group: g, Controller: &Controller{
		Client: api, Live: api, Config: Config{}.WithDefaults(), Binder: &noRobots{}, Recorder: events.NewFakeRecorder(10),
		Now: now, expect: kit.NewExpectations(now, logr.Discard()), counts: newGroupCounts(), robotChanges: kit.NewRobotChanges(),
	}}
}

// task returns the Task, as the watch shows it.
func (w *wavesWorld) task(change func(*v1alpha1.Task)) *v1alpha1.Task {
	w.t.Helper()
	var task v1alpha1.Task
	if err := w.Get(w.t.Context(), client.ObjectKey{Namespace: "ns", Name: "j-g-0-t"}, &task); err != nil {
		w.t.Fatal(err)
	}
	if change != nil {
		change(&task)
		if err := w.Status().Update(w.t.Context(), &task); err != nil {
			w.t.Fatal(err)
		}
	}
	w.counts.withGroup("g", func(m *groupTasks) { m.recordTask(noon, &task) })
	return &task
}

func (w *wavesWorld) reconcile() {
	w.t.Helper()
	if _, err := w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w.group)}); err != nil {
		w.t.Fatal(err)
	}
}

func TestController_FollowsRollout(t *testing.T) {
	w := newWavesWorld(t)
	w.task(nil)
	w.reconcile() // the status shows the revisions
	w.reconcile()
	if task := w.task(nil); task.Spec.EvictAttempt != 1 {
		t.Fatalf("not evicted: %+v", task.Spec)
	}
	w.task(func(task *v1alpha1.Task) { task.Status.State = string(lifecycle.TaskPending) })
	w.reconcile()
	task := w.task(nil)
	if got := task.Spec.Config.ExecConfig.Command; got != "v2" || task.Annotations[v1alpha1.AnnotationRevisedAt] == "" {
		t.Fatalf("runs %s, annotations %v", got, task.Annotations)
	}
	var g v1alpha1.TaskGroup
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(w.group), &g); err != nil {
		t.Fatal(err)
	}
	if g.Status.RolloutRevisions["t"] != task.Labels[v1alpha1.LabelRevision] || g.Status.Revisions["t"] == g.Status.RolloutRevisions["t"] {
		t.Errorf("revisions %v, of the Rollout %v, of the task %v", g.Status.Revisions, g.Status.RolloutRevisions, task.Labels)
	}
}

func TestController_KeepsTasksWhileRevisionIsUnknown(t *testing.T) {
	w := newWavesWorld(t)
	second := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "second"}}
	if err := w.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	w.task(nil)
	for range 3 {
		w.reconcile()
	}
	if task := w.task(nil); task.Spec.EvictAttempt != 0 {
		t.Errorf("evicted: %+v", task.Spec)
	}
}

func TestController_WatchesRollouts(t *testing.T) {
	w := newWavesWorld(t)
	r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"}}
	r.Spec.Target.Name = "j"
	stored := revisionOf(t, &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "j"}}, "x", 1, "v1")
	for name, got := range map[string][]reconcile.Request{"Rollout": w.groupsOfRollout(t.Context(), r), "revision": w.groupsOfRevision(t.Context(), stored)} {
		if len(got) != 1 || got[0].Name != "j-g" {
			t.Errorf("%s: enqueues %v", name, got)
		}
	}
	stored.OwnerReferences[0].Kind = "StatefulSet"
	if got := w.groupsOfRevision(t.Context(), stored); len(got) > 0 {
		t.Errorf("a revision of another kind enqueues %v", got)
	}
	r.Status.Waves = []v1alpha1.RolloutWaveStatus{{Name: "w"}}
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.Rollout)
		want   bool
	}{
		{"counts", func(r *v1alpha1.Rollout) {
			r.Status.Counts.Updated, r.Status.Waves[0].Updated, r.Status.Message = 3, 3, "x"
		}, false},
		{"phase", inPhase(v1alpha1.RolloutPaused), true},
		{"spec", func(r *v1alpha1.Rollout) { r.Generation++ }, true},
		{"revision", func(r *v1alpha1.Rollout) { r.Status.Revision++ }, true},
		{"bound", func(r *v1alpha1.Rollout) { r.Status.Waves[0].Bound++ }, true},
		{"admitted bound", func(r *v1alpha1.Rollout) { r.Status.Waves[0].AdmittedBound++ }, true},
		{"end of a wave", func(r *v1alpha1.Rollout) { r.Status.Waves[0].FinishedAt = &metav1.MicroTime{Time: noon} }, true},
		{"retry", func(r *v1alpha1.Rollout) { r.Status.Waves[0].RetriedAt = &metav1.MicroTime{Time: noon} }, true},
		{"new wave", func(r *v1alpha1.Rollout) { r.Status.Waves = append(r.Status.Waves, v1alpha1.RolloutWaveStatus{}) }, true},
		{"another one of the name", func(r *v1alpha1.Rollout) { r.UID = "x" }, true},
	} {
		after := r.DeepCopy()
		c.change(after)
		if got := !rollout.HasSameDecisions(r, after); got != c.want {
			t.Errorf("%s: changed is %v", c.name, got)
		}
	}
	if !isNewDecision(event.UpdateEvent{ObjectOld: r, ObjectNew: &v1alpha1.Rollout{}}) {
		t.Error("the predicate drops a change")
	}
}
