package vcjob

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// bench is an API server in memory that fails one write, before or after it is done. The
// controller then crashes and another one starts.
type bench struct {
	*testing.T
	client.WithWatch
	c       *Controller
	writes  int
	failAt  int // the number of the write that fails. 0: none
	done    bool
	crashes int
	made    map[string]int // how often a Pod of each name was created

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

// keyOfTest returns the same key each time, because a new one takes a while.
var keyOfTest = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, SSHKeyBits) })

var errCrashed = errors.New("the controller crashed")

func newBench(t *testing.T, failAt int, done bool, objects ...client.Object) *bench {
	t.Helper()
	b := &bench{T: t, failAt: failAt, done: done, made: map[string]int{}}
	b.WithWatch = fakeapi.NewBuilder(scheme).WithObjects(objects...).WithStatusSubresource(&batchv1.Job{}, &corev1.Pod{}).
		WithIndex(&corev1.Pod{}, indexPods, kit.ControllerUIDs("Job")).WithIndex(&busv1.Command{}, indexCommands, targetJobNames).Build()
	b.start()
	return b
}

// start starts a controller with empty memory.
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
		expect: kit.NewExpectations(time.Now, logr.Discard()), memory: kit.NewObjectMemory(newMemory), volcano: newPeerOperator(),
		GenerateKey: keyOfTest,
	}
	b.c.volcano.LeaseReader = api
}

// write serializes writes: the controller writes several Pods at once.
func (b *bench) write(do func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writes++; b.writes != b.failAt {
		return do()
	}
	b.crashes++
	if b.done {
		if err := do(); err != nil {
			return err
		}
	}
	return errCrashed
}

// look runs one reconcile of the Job.
func (b *bench) look() {
	b.Helper()
	_, err := b.c.Reconcile(b.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "j"}})
	if errors.Is(err, errCrashed) {
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

// kubelet starts each Pod and ends the named ones.
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

// TestController_SurvivesCrashAtAnyWrite crashes the controller before or after each
// write. The next controller must bring the Job to the same end, count no restart twice
// and complete each restart.
func TestController_SurvivesCrashAtAnyWrite(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 9
	}
	for _, action := range []batchv1.Action{batchv1.RestartJobAction, batchv1.RestartTaskAction, batchv1.RestartPartitionAction, batchv1.RestartPodAction} {
		for _, done := range []bool{false, true} {
			for failAt := 0; ; failAt += step {
				b := lives(t, action, failAt, done)
				if failAt > 0 && b.crashes == 0 {
					break // that was the last write
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
	if s.State.Phase != batchv1.JobFailed || s.RetryCount != 2 || made != cmp.Or(want, "2 2 1") || s.Failed == 0 || s.Running != 0 {
		t.Errorf("%s, crash at write %d (done %v), made %s Pods: %+v", action, failAt, done, made, s)
	}
	return b
}

// drainEvents returns the texts of the events of a reason that were recorded so far.
func (b *bench) drainEvents(reason string) []string {
	var found []string
	for recorded := b.c.Recorder.(*events.FakeRecorder).Events; len(recorded) > 0; {
		if text := <-recorded; strings.Contains(text, " "+reason+" ") {
			found = append(found, text)
		}
	}
	return found
}

func TestController_RecordsExecutedActions(t *testing.T) {
	j := job("", 1)
	j.Spec.Policies = []batchv1.LifecyclePolicy{policy(batchv1.PodFailedEvent, batchv1.RestartJobAction)}
	b := newBench(t, 0, false, j)
	for range 3 {
		b.look()
		b.kubelet(nil)
	}
	b.kubelet(map[string]corev1.PodPhase{"j-a-0": corev1.PodFailed})
	b.look()
	b.look()
	if got := b.drainEvents(ReasonExecuteAction); !slices.Equal(got, []string{"Normal ExecuteAction Start to execute action RestartJob"}) {
		t.Errorf("events of the policy: %q", got)
	}
	cmd := &busv1.Command{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c"}, Action: "AbortJob",
		TargetObject: metav1.NewControllerRef(j, batchv1.GroupVersion.WithKind("Job"))}
	if err := b.Create(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		b.look()
		b.kubelet(nil)
	}
	if got := b.drainEvents(ReasonExecuteAction); !slices.Equal(got, []string{"Normal ExecuteAction Start to execute action AbortJob"}) {
		t.Errorf("events of the Command: %q", got)
	}
}

// TestController_TakesNoCommandBeforeFirstPhase: a Command that is taken before the Job
// has a phase would be lost.
func TestController_TakesNoCommandBeforeFirstPhase(t *testing.T) {
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

// TestController_ExecutesCommandAtMostOnce crashes the controller at each write.
func TestController_ExecutesCommandAtMostOnce(t *testing.T) {
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
				t.Errorf("crash at write %d (done %v): %+v", failAt, done, s)
			}
			if err := b.Get(t.Context(), client.ObjectKeyFromObject(cmd), cmd); !apierrors.IsNotFound(err) {
				t.Errorf("the Command still exists: %v", err)
			}
		}
	}
}
