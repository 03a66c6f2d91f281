package hostnode

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/robot/shim"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// runningRun returns a run that is running and ready.
func runningRun() *run {
	return &run{postStartDone: true, started: true, ready: true, state: shim.State{MayHaveStarted: true, Started: &shim.Started{At: noon.Add(-time.Minute)}}}
}

func exited(code int, at time.Time) *run {
	r := runningRun()
	r.shimExited, r.state.Exit = true, &shim.Exit{Code: code, At: at}
	return r
}

// again sets the number of a run and the back-off before it.
func again(r *run, attempt int, delay time.Duration) *run {
	r.attempt, r.delay = attempt, delay
	return r
}

func stoppingNow(r *run) *run {
	r.stopping = true
	return r
}

// podStateOf returns a pod with an init container i, a sidecar s, and the containers a and b.
func podStateOf(policy corev1.RestartPolicy, runs map[string]*run, change ...func(*podState)) *podState {
	always := corev1.ContainerRestartPolicyAlways
	w := &podState{
		pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u", Generation: 1},
			Spec: corev1.PodSpec{
				RestartPolicy:  policy,
				InitContainers: []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}},
				Containers:     []corev1.Container{{Name: "a"}, {Name: "b"}},
			},
		},
		records: map[string]*containerRecord{}, podIP: "10.0.0.1", hostIP: "127.0.0.1", startedAt: noon.Add(-time.Hour),
	}
	for name, r := range runs {
		w.records[name] = &containerRecord{last: r}
	}
	for _, c := range change {
		c(w)
	}
	return w
}

func deleted(w *podState) { w.pod.DeletionTimestamp = &metav1.Time{Time: noon} }

func withDeadline(seconds int64) func(*podState) {
	return func(w *podState) { w.pod.Spec.ActiveDeadlineSeconds = &seconds }
}

// runsOf maps the containers of podStateOf, in their order, to their runs. A nil run has not been
// started.
func runsOf(i, s, a, b *run) map[string]*run {
	all := map[string]*run{}
	for name, r := range map[string]*run{"i": i, "s": s, "a": a, "b": b} {
		if r != nil {
			all[name] = r
		}
	}
	return all
}

func TestPlanPod_ActionsAndPhase(t *testing.T) {
	const never, onFailure, always = corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, corev1.RestartPolicyAlways
	ago := noon.Add(-time.Hour)
	starting := runningRun()
	starting.started = false
	unborn := &run{}
	for _, c := range []struct {
		name      string
		in        *podState
		wantStart []string
		wantStop  []string
		wantOver  bool
		wantWake  time.Duration // from noon; zero: never
		wantPhase corev1.PodPhase
	}{
		{name: "the first init container starts", in: podStateOf(never, nil), wantStart: []string{"i"}, wantPhase: corev1.PodPending},
		{name: "nothing starts while it runs", in: podStateOf(never, runsOf(runningRun(), nil, nil, nil)), wantPhase: corev1.PodPending},
		{name: "nothing starts before its shim has reported", in: podStateOf(never, runsOf(unborn, nil, nil, nil)), wantPhase: corev1.PodPending},
		{name: "the sidecar starts after it", in: podStateOf(never, runsOf(exited(0, ago), nil, nil, nil)), wantStart: []string{"s"}, wantPhase: corev1.PodPending},
		{name: "the containers wait for the startup probe of the sidecar", in: podStateOf(never, runsOf(exited(0, ago), starting, nil, nil)), wantPhase: corev1.PodPending},
		{name: "the containers start once the sidecar is up", in: podStateOf(never, runsOf(exited(0, ago), runningRun(), nil, nil)), wantStart: []string{"a", "b"}, wantPhase: corev1.PodPending},
		{name: "a failed init container is restarted at once", in: podStateOf(onFailure, runsOf(exited(1, noon), nil, nil, nil)), wantStart: []string{"i"}, wantPhase: corev1.PodPending},
		{name: "its second restart is delayed by ten seconds", in: podStateOf(onFailure, runsOf(again(exited(1, noon), 1, 0), nil, nil, nil)), wantWake: 10 * time.Second, wantPhase: corev1.PodPending},
		{name: "a failed init container fails the pod with Never", in: podStateOf(never, runsOf(exited(1, noon), nil, nil, nil)), wantOver: true, wantPhase: corev1.PodFailed},
		{name: "all run", in: podStateOf(always, runsOf(exited(0, ago), runningRun(), runningRun(), runningRun())), wantPhase: corev1.PodRunning},
		{name: "one container has failed, Never", in: podStateOf(never, runsOf(exited(0, ago), runningRun(), exited(1, noon), runningRun())), wantPhase: corev1.PodRunning},
		{name: "one container has succeeded, OnFailure", in: podStateOf(onFailure, runsOf(exited(0, ago), runningRun(), exited(0, noon), runningRun())), wantPhase: corev1.PodRunning},
		{name: "one container has succeeded, Always", in: podStateOf(always, runsOf(exited(0, ago), runningRun(), exited(0, noon), runningRun())), wantStart: []string{"a"}, wantPhase: corev1.PodRunning},
		{name: "one container has failed for the third time", in: podStateOf(onFailure, runsOf(exited(0, ago), runningRun(), again(exited(1, noon), 2, 10*time.Second), runningRun())), wantWake: 20 * time.Second, wantPhase: corev1.PodRunning},
		{name: "the sidecar is restarted", in: podStateOf(never, runsOf(exited(0, ago), exited(1, noon), runningRun(), runningRun())), wantStart: []string{"s"}, wantPhase: corev1.PodRunning},
		{name: "the sidecar is stopped when all containers have ended", in: podStateOf(never, runsOf(exited(0, ago), runningRun(), exited(0, noon), exited(0, noon))), wantStop: []string{"s"}, wantPhase: corev1.PodRunning},
		{name: "the pod waits for the sidecar to end", in: podStateOf(never, runsOf(exited(0, ago), stoppingNow(runningRun()), exited(0, noon), exited(0, noon))), wantPhase: corev1.PodRunning},
		{name: "the pod has succeeded", in: podStateOf(never, runsOf(exited(0, ago), exited(1, noon), exited(0, noon), exited(0, noon))), wantOver: true, wantPhase: corev1.PodSucceeded},
		{name: "the pod has failed", in: podStateOf(never, runsOf(exited(0, ago), exited(0, noon), exited(0, noon), exited(2, noon))), wantOver: true, wantPhase: corev1.PodFailed},
		{name: "deleted: the containers are stopped first", in: podStateOf(always, runsOf(exited(0, ago), runningRun(), runningRun(), runningRun()), deleted), wantStop: []string{"a", "b"}, wantPhase: corev1.PodRunning},
		{name: "deleted: the sidecar is stopped next", in: podStateOf(always, runsOf(exited(0, ago), runningRun(), exited(143, noon), exited(0, noon)), deleted), wantStop: []string{"s"}, wantPhase: corev1.PodRunning},
		{name: "deleted: all have ended", in: podStateOf(always, runsOf(exited(0, ago), exited(0, noon), exited(143, noon), exited(0, noon)), deleted), wantOver: true, wantPhase: corev1.PodFailed},
		{name: "deleted before its start", in: podStateOf(always, nil, deleted), wantOver: true, wantPhase: corev1.PodFailed},
		{name: "before its deadline", in: podStateOf(always, runsOf(exited(0, ago), runningRun(), runningRun(), runningRun()), withDeadline(3660)), wantWake: time.Minute, wantPhase: corev1.PodRunning},
		{name: "at its deadline", in: podStateOf(always, runsOf(exited(0, ago), runningRun(), runningRun(), runningRun()), withDeadline(3600)), wantStop: []string{"a", "b"}, wantPhase: corev1.PodRunning},
		{name: "finished before its deadline", in: podStateOf(never, runsOf(exited(0, ago), exited(0, noon), exited(0, noon), exited(0, noon)), withDeadline(3600)), wantOver: true, wantPhase: corev1.PodSucceeded},
		{name: "unsupported", in: podStateOf(never, nil, func(w *podState) { w.unsupported = "why" }), wantOver: true, wantPhase: corev1.PodFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := planPod(noon, c.in)
			wake := time.Duration(0)
			if !got.wakeAt.IsZero() {
				wake = got.wakeAt.Sub(noon)
			}
			if !slices.Equal(got.start, c.wantStart) || !slices.Equal(got.stop, c.wantStop) || got.over != c.wantOver || wake != c.wantWake {
				t.Errorf("starts %v, stops %v, over %v, wakes after %s", got.start, got.stop, got.over, wake)
			}
			if phase := statusOf(noon, c.in).Phase; phase != c.wantPhase {
				t.Errorf("phase is %s, want %s", phase, c.wantPhase)
			}
		})
	}
}

func TestDelayAfter_DoublesUpToLimit(t *testing.T) {
	r, at := exited(1, noon), []time.Duration{}
	for range 9 {
		d := delayAfter(r)
		at = append(at, d)
		r = again(exited(1, noon), r.attempt+1, d)
	}
	s := time.Second
	if want := []time.Duration{0, 10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s, 300 * s}; !slices.Equal(at, want) {
		t.Errorf("the delays are %v, want %v", at, want)
	}
	r.state.Started.At = noon.Add(-backoffResetAfter)
	if d := delayAfter(r); d != 0 {
		t.Errorf("after ten good minutes the delay is %s", d)
	}
}
