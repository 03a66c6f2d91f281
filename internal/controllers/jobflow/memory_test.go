package jobflow

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
)

var flowKey = types.NamespacedName{Namespace: "ns", Name: "f"}

func flowOf(uid types.UID, generation int64) *flowv1.JobFlow {
	return &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "f", UID: uid, Generation: generation}}
}

// Large graphs take long to build; other flows must not wait for that.
func TestMemoryStore_BuildsGraphWithoutLock(t *testing.T) {
	m := newMemoryStore()
	built := 0
	build := func(spec *flowv1.JobFlowSpec) *Graph {
		built++
		others := make(chan struct{})
		go func() {
			m.Update(types.NamespacedName{Namespace: "ns", Name: "other"}, "other", func(*memory) {})
			close(others)
		}()
		select {
		case <-others:
		case <-time.After(30 * time.Second):
			t.Error("building a graph blocks another flow")
		}
		return NewGraph(spec)
	}
	first := m.flowGraph(flowOf("1", 1), build)
	if again := m.flowGraph(flowOf("1", 1), build); again != first || built != 1 {
		t.Errorf("built %d times for one generation", built)
	}
	m.Update(flowKey, "1", func(one *memory) { one.rejections["a"], one.takenNames["f-b"] = jobRejection{}, noon })
	m.flowGraph(flowOf("1", 2), build)
	m.UpdateIfPresent(flowKey, func(one *memory) {
		if built != 2 || len(one.rejections)+len(one.takenNames) != 0 {
			t.Errorf("built %d times for two generations; rejections %v, taken %v", built, one.rejections, one.takenNames)
		}
	})
	if m.flowGraph(flowOf("2", 2), build); built != 3 {
		t.Error("the graph of an earlier flow of the same name was used")
	}
}

// The Jobs of a flow that was deleted and created again are deleted one by one while the
// new flow runs.
func TestMemoryStore_IgnoresJobsOfEarlierFlow(t *testing.T) {
	c := &Controller{memory: newMemoryStore(), expect: kit.NewExpectations(time.Now, logr.Discard())}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	job := func(uid, flow types.UID) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "f-a", UID: uid,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: flowv1.GroupVersion.String(), Kind: "JobFlow", Name: "f", UID: flow, Controller: ptr.To(true)}},
		}}
	}
	c.memory.Update(flowKey, "new", func(m *memory) { m.lastStatusWrite = noon })
	c.recordDeletedJob(job("j1", "old"), q)
	c.recordDeletedJob(job("j2", "new"), q)
	c.memory.UpdateIfPresent(flowKey, func(m *memory) {
		if !m.lastStatusWrite.Equal(noon) || len(m.deletedJobs) != 1 || m.deletedJobs["j2"] == nil {
			t.Errorf("last status write %s, deleted Jobs %v", m.lastStatusWrite, m.deletedJobs)
		}
	})
}

// delayedQueue records the delay of each request.
type delayedQueue struct {
	queue
	delays []time.Duration
}

func (q *delayedQueue) AddAfter(_ reconcile.Request, d time.Duration) {
	q.delays = append(q.delays, max(0, d))
}
func (q *delayedQueue) Add(reconcile.Request) { q.delays = append(q.delays, 0) }

// Passes of a large flow are apart, but an event after a pause starts one at once.
func TestEnqueueOwner_DelaysLargeFlowAfterPass(t *testing.T) {
	for _, c := range []struct {
		name         string
		steps        int
		since, delay time.Duration
	}{
		{"a small flow", largeFlow, 0, 0},
		{"a large flow", 500, 0, 50 * time.Millisecond},
		{"a while after the pass", 500, 30 * time.Millisecond, 20 * time.Millisecond},
		{"long after the pass", 500, time.Second, 0},
		{"a huge flow", 10_000, 0, maxBatchDelay},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &Controller{memory: newMemoryStore(), Now: func() time.Time { return noon.Add(c.since) }}
			k.memory.Update(flowKey, "flow", func(m *memory) {
				m.setGraph(&Graph{steps: make([]flowv1.Flow, c.steps)}, 1)
				m.fillInput(noon, &Input{})
			})
			q := &delayedQueue{}
			k.enqueueOwner(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(flowOf("flow", 1), flowv1.GroupVersion.WithKind("JobFlow"))},
			}}, q)
			if len(q.delays) != 1 || q.delays[0] != c.delay {
				t.Errorf("delays %v, want %v", q.delays, c.delay)
			}
		})
	}
}
