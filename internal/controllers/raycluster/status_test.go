package raycluster

import (
	"strconv"
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
	at := t0.Add
	const tick = time.Second
	for _, c := range []struct {
		name   string
		change func(*Input)
		failed error
		times  statusTimes   // without the time of the last write
		want   time.Duration // since the last write
	}{
		{"no Pods yet", func(*Input) {}, nil, statusTimes{}, tick},
		{"Pods were created", func(*Input) {}, nil, statusTimes{created: at(5 * tick)}, (5 + settleTicks) * tick},
		{"Pods are created all the time", func(*Input) {}, nil, statusTimes{created: at(20 * tick)}, maxStatusTicks * tick},
		{"Pods were created before the last write", func(w *Input) { w.Pods = pods }, nil, statusTimes{created: at(-settleTicks * tick)}, tick},
		{"another Pod is ready", func(w *Input) { w.Pods = pods }, nil, statusTimes{deferred: 2}, 4 * tick},
		{"many Pods are ready one by one", func(w *Input) { w.Pods = pods }, nil, statusTimes{deferred: 1000}, 8 * tick},
		{"all Pods are ready", func(w *Input) { w.Pods = []*corev1.Pod{head(), pod("a", "a", 0)} }, nil, statusTimes{created: at(tick), deferred: 2}, 0},
		{"a Pod cannot be created", func(*Input) {}, &failure{rayv1.ReasonFailedCreateHeadPod, errNameTaken}, statusTimes{created: at(tick)}, 0},
		{"it must be suspended", func(w *Input) { w.Cluster.Spec.Suspend = new(true) }, nil, statusTimes{created: at(tick)}, 0},
		{"a ready cluster loses a worker", func(w *Input) { w.Cluster.Status.State, w.Pods = rayv1.StateReady, pods[:1] }, nil, statusTimes{created: at(tick)}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := Input{Cluster: testCluster(testGroup("a", 1, 1))}
			c.change(&w)
			next := ComputeStatus(t0, testOptions(), w, Actions{}, c.failed)
			c.times.written = t0
			due, needed := statusDue(tick, c.times, &w.Cluster.Status, next)
			if !needed || max(0, due.Sub(t0)) != c.want {
				t.Errorf("needed %v, due after %v, want %v", needed, due.Sub(t0), c.want)
			}
		})
	}
}

func TestStatusTimes_UrgentWriteResetsTick(t *testing.T) {
	times := statusTimes{}
	for _, c := range []struct {
		urgent bool
		want   int
	}{{true, 0}, {false, 1}, {false, 2}, {true, 0}, {false, 1}} {
		times.recordWrite(t0, c.urgent)
		if times.deferred != c.want || !times.written.Equal(t0) {
			t.Errorf("%+v, want %d deferred", times, c.want)
		}
	}
}

// Each kubelet reports its Pod so long after the one before. The status is written a few times, and
// at once when the last Pod is ready.
func TestStatusDue_FewWritesWhileSlowPodsStart(t *testing.T) {
	for _, c := range []struct {
		workers int
		each    time.Duration
		want    int
	}{
		{3, 100 * time.Millisecond, 1},
		{3, 500 * time.Millisecond, 1},
		{3, time.Second, 2},
		{3, 3 * time.Second, 4},
		{90, time.Second, 14},
	} {
		if n := countStatusWrites(t, c.workers, c.each); n != c.want {
			t.Errorf("%d workers, one each %v: %d writes, want %d", c.workers, c.each, n, c.want)
		}
	}
}

// countStatusWrites returns the number of status writes until a cluster is ready whose Pods were
// created at t0.
func countStatusWrites(t *testing.T, workers int, each time.Duration) (n int) {
	t.Helper()
	const tick = time.Second
	w := Input{Cluster: testCluster(testGroup("a", int32(workers), 1))}
	w.Pods = []*corev1.Pod{head(unready)}
	for i := range workers {
		w.Pods = append(w.Pods, pod("w"+strconv.Itoa(i), "a", i, unready))
	}
	times, ready := statusTimes{written: t0, created: t0}, 0
	for now := t0; w.Cluster.Status.State != rayv1.StateReady; {
		for ; ready < len(w.Pods) && !now.Before(t0.Add(time.Duration(ready+1)*each)); ready++ {
			setRunning(w.Pods[ready], true)
		}
		next := ComputeStatus(now, testOptions(), w, Actions{}, nil)
		due, needed := statusDue(tick, times, &w.Cluster.Status, next)
		if needed && !due.After(now) {
			times.recordWrite(now, isUrgentChange(&w.Cluster.Status, next))
			w.Cluster.Status, n = *next, n+1
		}
		if now = now.Add(100 * time.Millisecond); now.After(t0.Add(time.Hour)) {
			t.Fatal("the cluster does not become ready")
		}
	}
	return n
}
