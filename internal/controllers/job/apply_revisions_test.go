package job

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// revisionBench is a controller of one service job, with an API server whose cache can be stale.
type revisionBench struct {
	*Controller
	t   *testing.T
	job *v1alpha1.Job
	now time.Time
	// hidesRevisions makes lists return no ControllerRevision.
	hidesRevisions bool
	// refuses is the error of a create of a ControllerRevision, if any.
	refuses error
	creates int
}

func newRevisionBench(t *testing.T, existing ...client.Object) *revisionBench {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	b := &revisionBench{t: t, job: newInput("", ofType(v1alpha1.JobTypeService)).Job, now: noon}
	b.job.Generation = 1
	b.job.Spec.Update = &v1alpha1.JobUpdate{Strategy: v1alpha1.UpdateRollout}
	api := fakeapi.NewBuilder(scheme).WithObjects(b.job).WithObjects(existing...).WithStatusSubresource(b.job, &v1alpha1.TaskGroup{}).
		WithIndex(&v1alpha1.TaskGroup{}, indexOwner, kit.ControllerUIDs("Job")).
		WithIndex(&appsv1.ControllerRevision{}, indexOwner, kit.ControllerUIDs("Job")).
		WithIndex(&v1alpha1.Rollout{}, indexTarget, rolloutTargets).
		WithInterceptorFuncs(interceptor.Funcs{List: b.list, Create: b.create}).Build()
	clock := func() time.Time { return b.now }
	b.Controller = &Controller{
		Client: api, Live: api, Now: clock, Tick: DefaultTick, Recorder: events.NewFakeRecorder(10),
		expect: kit.NewExpectations(clock, logr.Discard()), revisionWrites: kit.NewExpectations(clock, logr.Discard()),
		memory: kit.NewObjectMemory(func() memory { return newMemory(clock()) }),
	}
	return b
}

func (b *revisionBench) list(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*appsv1.ControllerRevisionList); ok && b.hidesRevisions {
		return nil
	}
	return c.List(ctx, list, opts...)
}

func (b *revisionBench) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	if _, ok := o.(*appsv1.ControllerRevision); ok {
		b.creates++
		if b.refuses != nil {
			return b.refuses
		}
	}
	return c.Create(ctx, o, opts...)
}

// reconcile reconciles the job a second later.
func (b *revisionBench) reconcile() (reconcile.Result, error) {
	b.now = b.now.Add(time.Second)
	return b.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b.job)})
}

// status returns the status of the job.
func (b *revisionBench) status() v1alpha1.JobStatus {
	b.t.Helper()
	var j v1alpha1.Job
	if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(b.job), &j); err != nil {
		b.t.Fatal(err)
	}
	return j.Status
}

// stored returns the revisions that the API server has.
func (b *revisionBench) stored() []appsv1.ControllerRevision {
	b.t.Helper()
	hides := b.hidesRevisions
	defer func() { b.hidesRevisions = hides }()
	b.hidesRevisions = false
	var all appsv1.ControllerRevisionList
	if err := b.List(b.t.Context(), &all); err != nil {
		b.t.Fatal(err)
	}
	return all.Items
}

func (b *revisionBench) reconcileWithoutError() reconcile.Result {
	b.t.Helper()
	result, err := b.reconcile()
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func TestController_StaleCacheStoresNoSecondRevision(t *testing.T) {
	b := newRevisionBench(t)
	b.hidesRevisions = true
	for range 3 {
		b.reconcileWithoutError()
	}
	if all := b.stored(); len(all) != 1 || all[0].Revision != 1 || b.creates != 1 {
		t.Errorf("%d creates, revisions %+v", b.creates, all)
	}
	// A restart of the manager loses its expectations.
	b.revisionWrites = kit.NewExpectations(b.Now, logr.Discard())
	b.reconcileWithoutError()
	if all := b.stored(); len(all) != 1 || b.creates != 2 {
		t.Errorf("after a restart: %d creates, revisions %+v", b.creates, all)
	}
	b.hidesRevisions = false
	b.reconcileWithoutError()
	if s := b.status(); s.CurrentRevision != 1 || s.UpdateRevision != 1 || s.ObservedGeneration != 1 {
		t.Errorf("status %+v", s)
	}
}

func TestController_ForeignRevisionHasTheName(t *testing.T) {
	name := Plan(noon, 0, newInput("", ofType(v1alpha1.JobTypeService))).Revisions.Create.Name
	foreign := &appsv1.ControllerRevision{}
	foreign.Namespace, foreign.Name = "ns", name
	b := newRevisionBench(t, foreign)
	if b.reconcileWithoutError().RequeueAfter == 0 {
		t.Error("it does not try another name at once")
	}
	if s := b.status(); s.UpdateRevision != 0 {
		t.Errorf("the status names a revision that is not stored: %+v", s)
	}
	b.reconcileWithoutError()
	b.reconcileWithoutError()
	if all := b.stored(); len(all) != 2 || b.status().CurrentRevision != 1 {
		t.Errorf("revisions %+v, status %+v", all, b.status())
	}
}

// A quota for ControllerRevisions must not keep a user from canceling a job.
func TestController_FailedRevisionLeavesOtherFieldsAlone(t *testing.T) {
	b := newRevisionBench(t)
	b.refuses = errors.New("exceeded quota")
	if _, err := b.reconcile(); err == nil {
		t.Error("the error is lost")
	}
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(b.job), b.job); err != nil {
		t.Fatal(err)
	}
	b.job.Spec.DesiredState = v1alpha1.DesiredCanceled
	if err := b.Update(t.Context(), b.job); err != nil {
		t.Fatal(err)
	}
	if _, err := b.reconcile(); err == nil {
		t.Error("the error is lost")
	}
	if s := b.status(); s.State != "cancel-requested" || s.UpdateRevision != 0 || s.ObservedGeneration != 0 {
		t.Errorf("status %+v", s)
	}
}
