package raycluster

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// A cluster is ready once the head and the desired workers of each group are, whatever surplus Pods
// there are.
func TestComputeStatus_ReadyBesideSurplusPods(t *testing.T) {
	const ready = "ready"
	leaving := ends(time.Minute)
	for _, c := range []struct {
		name string
		pods []*corev1.Pod // of the groups a and b with one worker each
		want string        // the beginning of status.reason, or ready
	}{
		{"all Pods", []*corev1.Pod{head(), pod("a", "a", 0), pod("b", "b", 0)}, ready},
		{"a surplus Pod", []*corev1.Pod{head(), pod("a", "a", 0), pod("a1", "a", 1), pod("b", "b", 0)}, ready},
		{"a surplus Pod that is not ready", []*corev1.Pod{head(), pod("a", "a", 0), pod("a1", "a", 1, unready), pod("b", "b", 0)}, ready},
		{"a surplus Pod that terminates", []*corev1.Pod{head(), pod("a", "a", 0), pod("a1", "a", 1, leaving), pod("b", "b", 0)}, ready},
		{"a Pod of a removed group", []*corev1.Pod{head(), pod("a", "a", 0), pod("b", "b", 0), pod("x", "old", 0, leaving)}, ready},
		{"a surplus Pod of another group", []*corev1.Pod{head(), pod("a", "a", 0), pod("a1", "a", 1)}, "1 of 2 worker Pods are ready"},
		{"a desired Pod that terminates", []*corev1.Pod{head(), pod("a", "a", 0), pod("b", "b", 0, leaving)}, "1 of 2 worker Pods are ready"},
		{"a desired Pod that is not ready", []*corev1.Pod{head(), pod("a", "a", 0), pod("b", "b", 0, unready)}, "1 of 2 worker Pods are ready"},
		{"a head that terminates", []*corev1.Pod{head(leaving), pod("a", "a", 0), pod("b", "b", 0)}, "the head Pod is being deleted"},
	} {
		in := Input{Cluster: testCluster(testGroup("a", 1, 1), testGroup("b", 1, 1)), Pods: c.pods}
		status := ComputeStatus(t0, testOptions(), in, Actions{}, nil)
		got := string(status.State)
		if status.State != rayv1.StateReady {
			got = status.Reason
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// The first status of a new cluster waits for its Pods, so that few are written until it is ready.
// What a user or another controller waits for is written at once.
func TestStatusDue_WaitsWithWhatIsNotUrgent(t *testing.T) {
	pods := []*corev1.Pod{head(unready), pod("a", "a", 0, unready)}
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	const tick = time.Second
	for _, c := range []struct {
		name    string
		change  func(*Input)
		failed  error
		created time.Time
		want    time.Duration // until the write, since the one before
	}{
		{"no Pods yet", func(*Input) {}, nil, time.Time{}, tick},
		{"Pods were created", func(*Input) {}, nil, at(5 * tick), 6 * tick},
		{"Pods are created all the time", func(*Input) {}, nil, at(20 * tick), maxStatusTicks * tick},
		{"Pods were created before the last write", func(w *Input) { w.Pods = pods }, nil, at(-tick), tick},
		{"all Pods are ready", func(w *Input) { w.Pods = []*corev1.Pod{head(), pod("a", "a", 0)} }, nil, at(tick), 0},
		{"a Pod cannot be created", func(*Input) {}, &failure{rayv1.ReasonFailedCreateHeadPod, errNameTaken}, at(tick), 0},
		{"it must be suspended", func(w *Input) { w.Cluster.Spec.Suspend = new(true) }, nil, at(tick), 0},
		{"a ready cluster loses a worker", func(w *Input) { w.Cluster.Status.State, w.Pods = rayv1.StateReady, pods[:1] }, nil, at(tick), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := Input{Cluster: testCluster(testGroup("a", 1, 1))}
			c.change(&w)
			next := ComputeStatus(t0, testOptions(), w, Actions{}, c.failed)
			due, needed := statusDue(tick, statusTimes{written: t0, created: c.created}, &w.Cluster.Status, next)
			if !needed || max(0, due.Sub(t0)) != c.want {
				t.Errorf("needed %v, due after %v, want %v", needed, due.Sub(t0), c.want)
			}
		})
	}
}
