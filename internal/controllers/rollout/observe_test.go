package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// newController returns a controller of a fake API server with these objects.
func newController(t *testing.T, objects ...client.Object) *Controller {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	fake := fakeapi.NewBuilder(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Robot{}).
		WithIndex(&v1alpha1.Rollout{}, indexTarget, func(o client.Object) []string { return rollout.TargetOf(o.(*v1alpha1.Rollout)) }).Build()
	now := func() time.Time { return noon }
	return &Controller{Client: fake, Now: now, Tick: tick, memory: kit.NewObjectMemory(func() memory { return memory{sightings: newSightings(now())} })}
}

// Without them, the counts of a complete Rollout would become zero, and a revert would end at once.
func TestObserveAgents_ReadsUnitsOfCompleteRollouts(t *testing.T) {
	for phase, want := range map[string]int{v1alpha1.RolloutProgressing: 1, v1alpha1.RolloutComplete: 1, v1alpha1.RolloutReverting: 1, v1alpha1.RolloutReverted: 0} {
		r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", UID: "uid"}}
		r.Spec.Target, r.Spec.Follow = v1alpha1.RolloutTarget{Kind: v1alpha1.TargetAgent, Agent: release}, new(bool)
		r.Status.Version, r.Status.Phase = "v2", phase
		c := newController(t, &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r00"}})
		w := &Input{Rollout: r}
		if err := c.observeAgents(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if len(w.Units) != want {
			t.Errorf("%s: %d units, want %d", phase, len(w.Units), want)
		}
	}
}

func TestNewTask_OrdersToStop(t *testing.T) {
	at := metav1.NewMicroTime(noon)
	for _, c := range []struct {
		name                   string
		evict                  int32 // of the spec
		order                  *v1alpha1.TaskInterruption
		isEvicting, isStopping bool
		withdrawnAt            time.Time
	}{
		{"none", 0, nil, false, false, time.Time{}},
		{"an eviction is requested", 2, nil, true, true, time.Time{}},
		{"that of an earlier attempt", 1, nil, false, false, time.Time{}},
		{"an order is in force", 0, &v1alpha1.TaskInterruption{Attempt: 2}, false, true, time.Time{}},
		{"an order was withdrawn", 0, &v1alpha1.TaskInterruption{Attempt: 2, WithdrawnAt: &at}, false, false, noon},
		{"an order of an earlier attempt", 0, &v1alpha1.TaskInterruption{Attempt: 1, WithdrawnAt: &at}, false, false, time.Time{}},
		{"it is requested again", 2, &v1alpha1.TaskInterruption{Attempt: 2, WithdrawnAt: &at}, true, true, noon},
	} {
		o := running(2, noon)
		o.Spec.EvictAttempt, o.Status.Interruption = c.evict, c.order
		got := newTask(o, "g")
		if got.IsEvicting != c.isEvicting || got.IsStopping != c.isStopping || !got.WithdrawnAt.Equal(c.withdrawnAt) {
			t.Errorf("%s: evicting %v, stopping %v, withdrawn at %s", c.name, got.IsEvicting, got.IsStopping, got.WithdrawnAt)
		}
	}
}
