package vcjob

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/controllers/remember"
)

// bench is an API server in memory, at which one write fails: before it is done,
// or after. The controller then dies and another one starts.
type bench struct {
	*testing.T
	client.WithWatch
	c      *Controller
	writes int
	failAt int // the number of the write that fails. 0: none
	done   bool
	died   int
	made   map[string]int // how often a Pod of each name was created

	mu sync.Mutex
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	err := errors.Join(corev1.AddToScheme(s), coordinationv1.AddToScheme(s), batchv1.AddToScheme(s), busv1.AddToScheme(s), flowv1.AddToScheme(s))
	if err != nil {
		panic(err)
	}
	return s
}()

var errDied = errors.New("the controller died")

func newBench(t *testing.T, failAt int, done bool, objects ...client.Object) *bench {
	t.Helper()
	b := &bench{T: t, failAt: failAt, done: done, made: map[string]int{}}
	b.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&batchv1.Job{}, &corev1.Pod{}).
		WithIndex(&corev1.Pod{}, indexPods, ownerOf).WithIndex(&busv1.Command{}, indexCommands, targetOf).Build()
	b.start()
	return b
}

// start starts a controller that remembers nothing.
func (b *bench) start() {
	api := interceptor.NewClient(b.WithWatch, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return b.write(func() error {
				o.SetUID(types.UID(fmt.Sprintf("uid-%d", b.writes))) // as an API server does
				err := c.Create(ctx, o, opts...)
				if err == nil {
					b.made[o.GetName()]++
				}
				return err
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return b.write(func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return b.write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return b.write(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
	})
	b.c = &Controller{
		Client: api, Live: api, Now: time.Now, Recorder: events.NewFakeRecorder(1000), Tick: time.Nanosecond,
		expect: expect.New(time.Now, logr.Discard()), memory: remember.New(newMemory), volcano: volcano(),
	}
	b.c.volcano.Leases = api
}

// write is one at a time: the controller writes several Pods at once.
func (b *bench) write(do func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writes++; b.writes != b.failAt {
		return do()
	}
	b.died++
	if b.done {
		if err := do(); err != nil {
			return err
		}
	}
	return errDied
}

// look lets the controller look at the Job once.
func (b *bench) look() {
	b.Helper()
	_, err := b.c.Reconcile(b.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "j"}})
	if errors.Is(err, errDied) {
		b.start()
	} else if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) job() *batchv1.Job {
	b.Helper()
	var j batchv1.Job
	if err := b.Get(b.Context(), client.ObjectKey{Namespace: "ns", Name: "j"}, &j); err != nil {
		b.Fatal(err)
	}
	return &j
}

// kubelet lets each Pod run, and those that are named end.
func (b *bench) kubelet(end map[string]corev1.PodPhase) {
	b.Helper()
	var pods corev1.PodList
	if err := b.List(b.Context(), &pods); err != nil {
		b.Fatal(err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		switch {
		case p.Status.Phase == "":
			set(p, corev1.PodRunning, 0)
		case p.Status.Phase == corev1.PodRunning && end[p.Name] != "" && b.job().Status.State.Phase == batchv1.JobRunning:
			set(p, end[p.Name], 1)
		default:
			continue
		}
		if err := b.Status().Update(b.Context(), p); err != nil && !apierrors.IsNotFound(err) {
			b.Fatal(err)
		}
	}
}

// TestTheControllerMayDieAtAnyWrite lets each of the writes of a Job's life be the
// last of a controller, done or not: the next one brings the Job to the same end,
// no restart is counted twice, and none is done by half.
func TestTheControllerMayDieAtAnyWrite(t *testing.T) {
	for _, action := range []batchv1.Action{batchv1.RestartJobAction, batchv1.RestartTaskAction, batchv1.RestartPartitionAction, batchv1.RestartPodAction} {
		for _, done := range []bool{false, true} {
			for failAt := 0; ; failAt++ {
				b := lives(t, action, failAt, done)
				if failAt > 0 && b.died == 0 {
					break // there are no more writes
				}
			}
		}
	}
}

func lives(t *testing.T, action batchv1.Action, failAt int, done bool) *bench {
	t.Helper()
	j := job("", 2, 1)
	j.Spec.Tasks[0].PartitionPolicy = &batchv1.PartitionPolicySpec{TotalPartitions: 1, PartitionSize: 2}
	j.Spec.MaxRetry = 2
	j.Spec.Policies = []batchv1.LifecyclePolicy{policy(batchv1.PodFailedEvent, action)}
	b := newBench(t, failAt, done, j)
	for range 60 {
		b.look()
		b.kubelet(map[string]corev1.PodPhase{"j-a-0": corev1.PodFailed})
		if b.job().Status.State.Phase == batchv1.JobFailed {
			break
		}
	}
	b.look()
	b.look()
	s := b.job().Status
	made := fmt.Sprint(b.made["j-a-0"], b.made["j-a-1"], b.made["j-b-0"])
	want := map[batchv1.Action]string{batchv1.RestartJobAction: "2 2 2", batchv1.RestartPodAction: "2 1 1"}[action]
	if s.State.Phase != batchv1.JobFailed || s.RetryCount != 2 || made != or(want, "2 2 1") || s.Failed == 0 || s.Running != 0 {
		t.Errorf("%s, dies at write %d (done %v), made %s Pods: %+v", action, failAt, done, made, s)
	}
	return b
}

// TestACommandWaitsForTheFirstLook: what is taken before the Job has a phase would be
// taken for nothing.
func TestACommandWaitsForTheFirstLook(t *testing.T) {
	j := job("", 1)
	cmd := &busv1.Command{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c"}, Action: "AbortJob",
		TargetObject: metav1.NewControllerRef(j, batchv1.GroupVersion.WithKind("Job"))}
	b := newBench(t, 0, false, j, cmd)
	for range 8 {
		b.look()
		b.kubelet(nil)
	}
	if s := b.job().Status; s.State.Phase != batchv1.JobAborted {
		t.Errorf("the Job is %+v, want Aborted", s.State)
	}
}

// TestACommandIsCarriedOutOnceAtTheMost dies at each write that follows it.
func TestACommandIsCarriedOutOnceAtTheMost(t *testing.T) {
	for _, done := range []bool{false, true} {
		for failAt := 1; failAt < 12; failAt++ {
			j := job("", 1)
			b := newBench(t, 0, done, j)
			for range 3 {
				b.look()
				b.kubelet(nil)
			}
			cmd := &busv1.Command{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c"}, Action: "RestartJob",
				TargetObject: metav1.NewControllerRef(j, batchv1.GroupVersion.WithKind("Job"))}
			if err := b.Create(t.Context(), cmd); err != nil {
				t.Fatal(err)
			}
			b.failAt = b.writes + failAt
			for range 12 {
				b.look()
				b.kubelet(nil)
			}
			s := b.job().Status
			lost := failAt == 1 && done || failAt == 2 && !done // deleted, and not yet in the status
			if want := int32(1); s.RetryCount > want || s.RetryCount < want && !lost || s.State.Phase != batchv1.JobRunning {
				t.Errorf("dies at write %d (done %v): %+v", failAt, done, s)
			}
			if err := b.Get(t.Context(), client.ObjectKeyFromObject(cmd), cmd); !apierrors.IsNotFound(err) {
				t.Errorf("the Command is still there: %v", err)
			}
		}
	}
}
