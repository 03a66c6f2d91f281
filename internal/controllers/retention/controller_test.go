package retention

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

const hall = "hall"

// newJob returns a job that was completed a day before noon, and changes it.
func newJob(name string, change func(*v1alpha1.Job)) *v1alpha1.Job {
	j := &v1alpha1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: hall, Name: name, UID: types.UID(name), Generation: 2},
		Status:     v1alpha1.JobStatus{State: "completed", ObservedGeneration: 2, CompletedAt: ptr.To(metav1.NewMicroTime(noon.Add(-24 * time.Hour)))},
	}
	change(j)
	return j
}

func newFlow(name string, change func(*flowv1.JobFlow)) *flowv1.JobFlow {
	f := &flowv1.JobFlow{
		ObjectMeta: metav1.ObjectMeta{Namespace: hall, Name: name, UID: types.UID(name)},
		Status:     flowv1.JobFlowStatus{State: flowv1.State{Phase: flowv1.Succeed}, CompletionTime: ptr.To(metav1.NewTime(noon.Add(-24 * time.Hour)))},
	}
	change(f)
	return f
}

func newVCJob(name string, change func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: hall, Name: name, UID: types.UID(name)},
		Status:     batchv1.JobStatus{State: batchv1.JobState{Phase: batchv1.JobFailed, LastTransitionTime: metav1.NewTime(noon.Add(-24 * time.Hour))}},
	}
	change(j)
	return j
}

func annotate(o client.Object, key, value string) { o.SetAnnotations(map[string]string{key: value}) }

// newController returns a controller of a namespace with these annotations and objects.
func newController(t *testing.T, annotations map[string]string, objects ...client.Object) (*Controller, *events.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme, flowv1.AddToScheme, batchv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hall, Annotations: annotations}}
	recorder := events.NewFakeRecorder(16)
	return &Controller{
		Client: fakeapi.NewBuilder(scheme).WithObjects(append(objects, ns)...).Build(),
		Now:    func() time.Time { return noon }, Recorder: recorder, Limits: Limits{Age: time.Hour, Count: 1000},
		Jobs: true, Flows: true, VCJobs: true,
	}, recorder
}

// reconcileAll returns the names of the objects that are left.
func reconcileAll(t *testing.T, c *Controller) (left []string) {
	t.Helper()
	if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: hall}}); err != nil {
		t.Fatal(err)
	}
	for _, k := range c.selectKinds() {
		list := k.newList()
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range items {
			left = append(left, o.(client.Object).GetName())
		}
	}
	return left
}

func TestReconcile_DeletesFinishedObjects(t *testing.T) {
	c, _ := newController(t, nil, newJob("job", func(*v1alpha1.Job) {}), newFlow("flow", func(*flowv1.JobFlow) {}), newVCJob("vcjob", func(*batchv1.Job) {}),
		newJob("not-kept", func(j *v1alpha1.Job) { annotate(j, AnnotationKeep, "false") }))
	if left := reconcileAll(t, c); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

func TestReconcile_LeavesOthers(t *testing.T) {
	for name, o := range map[string]client.Object{
		"a job with a TTL":                newJob("o", func(j *v1alpha1.Job) { j.Spec.TTLSecondsAfterFinished = ptr.To[int32](3600) }),
		"a flow with a TTL":               newFlow("o", func(f *flowv1.JobFlow) { f.Spec.TTLSecondsAfterFinished = ptr.To[int32](3600) }),
		"a vcjob with a TTL":              newVCJob("o", func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = ptr.To[int32](3600) }),
		"a job that runs":                 newJob("o", func(j *v1alpha1.Job) { j.Status.State, j.Status.CompletedAt = "running", nil }),
		"a canceled job with a live task": newJob("o", func(j *v1alpha1.Job) { j.Status.State, j.Status.TotalTasks, j.Status.RunningTasks = "canceled", 1, 1 }),
		"a job whose requeue is pending":  newJob("o", func(j *v1alpha1.Job) { j.Generation++ }),
		"a flow whose retry is pending":   newFlow("o", func(f *flowv1.JobFlow) { f.Generation++ }),
		"a failed flow with a running job": newFlow("o", func(f *flowv1.JobFlow) {
			f.Status.JobStatusList = []flowv1.JobStatus{{Name: "a", State: batchv1.JobRunning}}
		}),
		"an aborted vcjob": newVCJob("o", func(j *batchv1.Job) { j.Status.State.Phase = batchv1.JobAborted }),
		"a job of a flow": newJob("o", func(j *v1alpha1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "flow.volcano.sh/v1alpha1", Kind: "JobFlow", Name: "f", UID: "f", Controller: ptr.To(true)}}
		}),
		"a kept job":                 newJob("o", func(j *v1alpha1.Job) { annotate(j, AnnotationKeep, "true") }),
		"a kept job, in other words": newJob("o", func(j *v1alpha1.Job) { annotate(j, AnnotationKeep, "yes") }),
		"a flow of Argo CD": newFlow("o", func(f *flowv1.JobFlow) {
			annotate(f, "argocd.argoproj.io/tracking-id", "robots:robot.k8s4r.io/Job:hall/o")
		}),
		"a job of an older Argo CD":         newJob("o", func(j *v1alpha1.Job) { j.Labels = map[string]string{"app.kubernetes.io/instance": "robots"} }),
		"a job of Flux":                     newJob("o", func(j *v1alpha1.Job) { j.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "robots"} }),
		"a job of Helm by its label":        newJob("o", func(j *v1alpha1.Job) { j.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm"} }),
		"a vcjob of Helm by its annotation": newVCJob("o", func(j *batchv1.Job) { annotate(j, "meta.helm.sh/release-name", "robots") }),
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newController(t, nil, o)
			if left := reconcileAll(t, c); !slices.Equal(left, []string{"o"}) {
				t.Errorf("%v are left", left)
			}
		})
	}
}

func TestReconcile_WaitsForArchive(t *testing.T) {
	archived := metav1.Condition{Type: v1alpha1.ConditionArchived, Status: metav1.ConditionTrue, ObservedGeneration: 2}
	c, _ := newController(t, nil, newJob("waiting", func(*v1alpha1.Job) {}),
		newJob("archived", func(j *v1alpha1.Job) { j.Status.Conditions = []metav1.Condition{archived} }),
		newVCJob("vcjob-waiting", func(*batchv1.Job) {}),
		newVCJob("vcjob-archived", func(j *batchv1.Job) { annotate(j, batchv1.AnnotationArchived, j.ArchiveMarker()) }))
	c.Archives = true
	if left := reconcileAll(t, c); !slices.Equal(left, []string{"waiting", "vcjob-waiting"}) {
		t.Errorf("%v are left", left)
	}
}

func TestReconcile_FollowsTheNamespace(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		flags       Limits
		left        int
	}{
		"on by its annotation":  {map[string]string{AnnotationAge: "1h"}, Limits{Count: 1000}, 0},
		"off by its annotation": {map[string]string{AnnotationAge: "0"}, Limits{Age: time.Hour}, 1},
		"off by the flag":       {nil, Limits{Count: 1000}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newController(t, c.annotations, newJob("job", func(*v1alpha1.Job) {}))
			r.Limits = c.flags
			if left := reconcileAll(t, r); len(left) != c.left {
				t.Errorf("%v are left", left)
			}
		})
	}
}

func TestReconcile_ReportsInvalidAnnotationOnce(t *testing.T) {
	c, recorder := newController(t, map[string]string{AnnotationAge: "2d"}, newJob("job", func(*v1alpha1.Job) {}))
	for range 3 {
		if left := reconcileAll(t, c); len(left) != 1 {
			t.Fatalf("%v are left", left)
		}
	}
	if len(recorder.Events) != 1 {
		t.Fatalf("%d events", len(recorder.Events))
	}
	if got := <-recorder.Events; !strings.Contains(got, ReasonRetentionInvalid) || !strings.Contains(got, AnnotationAge) {
		t.Errorf("event %q", got)
	}
}

// An object that was changed after the plan has seen it stays.
func TestDeleteFinished_LeavesChangedObject(t *testing.T) {
	c, _ := newController(t, nil, newJob("job", func(*v1alpha1.Job) {}))
	var seen v1alpha1.Job
	key := client.ObjectKey{Namespace: hall, Name: "job"}
	if err := c.Get(t.Context(), key, &seen); err != nil {
		t.Fatal(err)
	}
	changed := seen.DeepCopy()
	annotate(changed, AnnotationKeep, "true")
	if err := c.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if err := c.deleteFinished(t.Context(), Delete{Object: Object{Kind: "job", Object: &seen}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key, &seen); err != nil {
		t.Error(err)
	}
}

// The cache has no objects of other namespaces than --watch-namespace, and lists of them are errors.
func TestWatchNamespaces_OnlyThoseOfTheCache(t *testing.T) {
	for _, c := range []struct {
		watched []string
		want    int
	}{{nil, 1}, {[]string{hall}, 1}, {[]string{"yard"}, 0}} {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		events := (&Controller{Namespaces: c.watched}).watchNamespaces()
		events.Create(t.Context(), event.CreateEvent{Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hall}}}, q)
		if q.Len() != c.want {
			t.Errorf("watched %v: %d requests, want %d", c.watched, q.Len(), c.want)
		}
		q.ShutDown()
	}
}

// Only ends and changed annotations trigger a plan, which lists a namespace.
func TestWatches_IgnoreOtherChanges(t *testing.T) {
	annotated := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hall, Annotations: map[string]string{AnnotationAge: "1h"}}}
	labeled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hall, Labels: map[string]string{"a": "b"}}}
	plain := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hall}}
	running := newJob("o", func(j *v1alpha1.Job) { j.Status.State, j.Status.CompletedAt = "running", nil })
	finished := newJob("o", func(*v1alpha1.Job) {})
	namespaces := (&Controller{}).watchNamespaces()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			of       handler.EventHandler
			old, now client.Object
			want     int
		}{
			"an annotation": {namespaces, plain, annotated, 1},
			"a label":       {namespaces, plain, labeled, 0},
			"an end":        {watchFinished(), running, finished, 1},
			"a start":       {watchFinished(), running, running, 0},
		} {
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			c.of.Update(t.Context(), event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.now}, q)
			time.Sleep(2 * batchDelay)
			if q.Len() != c.want {
				t.Errorf("%s: %d requests, want %d", name, q.Len(), c.want)
			}
			q.ShutDown()
		}
	})
}
