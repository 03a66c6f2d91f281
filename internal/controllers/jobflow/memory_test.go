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
	"k8s4r.io/k8s4r/internal/controllers/expect"
)

var flowKey = types.NamespacedName{Namespace: "ns", Name: "f"}

func flowOf(uid types.UID, generation int64) *flowv1.JobFlow {
	return &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "f", UID: uid, Generation: generation}}
}

// A graph takes its time: nobody else waits for it.
func TestTheGraphIsMadeOutsideOfTheLock(t *testing.T) {
	m := newMemories()
	built := 0
	build := func(spec *flowv1.JobFlowSpec) *Graph {
		built++
		others := make(chan struct{})
		go func() {
			m.Of(types.NamespacedName{Namespace: "ns", Name: "other"}, "other", func(*memory) {})
			close(others)
		}()
		select {
		case <-others:
		case <-time.After(30 * time.Second):
			t.Error("another flow waits for the graph")
		}
		return NewGraph(spec)
	}
	first := m.graphOf(flowOf("1", 1), build)
	if again := m.graphOf(flowOf("1", 1), build); again != first || built != 1 {
		t.Errorf("made %d times of one generation", built)
	}
	m.Of(flowKey, "1", func(one *memory) { one.refused["a"], one.taken["f-b"] = refusal{}, noon })
	m.graphOf(flowOf("1", 2), build)
	m.Known(flowKey, func(one *memory) {
		if built != 2 || len(one.refused)+len(one.taken) != 0 {
			t.Errorf("made %d times of two generations; refused %v, taken %v", built, one.refused, one.taken)
		}
	})
	if m.graphOf(flowOf("2", 2), build); built != 3 {
		t.Error("the graph of an earlier flow of the name was taken")
	}
}

// The Jobs of a flow that was made anew go one by one, while the new one runs.
func TestTheEndOfAnEarlierFlowsJobIsNotTheNewOnes(t *testing.T) { // §3.5
	c := &Controller{memory: newMemories(), expect: expect.New(time.Now, logr.Discard())}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	job := func(uid, flow types.UID) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "f-a", UID: uid,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: flowv1.GroupVersion.String(), Kind: "JobFlow", Name: "f", UID: flow, Controller: ptr.To(true)}},
		}}
	}
	c.memory.Of(flowKey, "new", func(m *memory) { m.lastStatus = noon })
	c.jobDeleted(job("j1", "old"), q)
	c.jobDeleted(job("j2", "new"), q)
	c.memory.Known(flowKey, func(m *memory) {
		if !m.lastStatus.Equal(noon) || len(m.gone) != 1 || m.gone["j2"] == nil {
			t.Errorf("last status %s, gone %v", m.lastStatus, m.gone)
		}
	})
}
