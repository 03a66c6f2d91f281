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
