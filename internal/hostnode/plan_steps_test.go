package hostnode

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// dispatched is a run whose shim has not reported a process yet.
func dispatched() *run { return &run{} }

// unknownEnd is a run whose shim was killed before it recorded how the container ended.
func unknownEnd() *run {
	r := runningRun()
	r.shimExited = true
	return r
}

// beforeHook is a running container whose postStart hook has not finished.
func beforeHook() *run {
	r := runningRun()
	r.postStartDone = false
	return r
}

func retryAfterFailure(name string, at time.Time) func(*podState) {
	return func(w *podState) {
		r := w.recordOf(name)
		r.startFailure, r.retryAt = &corev1.ContainerStateWaiting{Reason: reasonConfigError}, at
		w.records[name] = r
	}
}

func withPhase(phase corev1.PodPhase) func(*podState) {
	return func(w *podState) { w.pod.Status.Phase = phase }
}

// secondSidecar adds a sidecar s2 after s.
func secondSidecar(r *run) func(*podState) {
	return func(w *podState) {
		w.pod.Spec.InitContainers = append(w.pod.Spec.InitContainers,
			corev1.Container{Name: "s2", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)})
		if r != nil {
			w.records["s2"] = &containerRecord{last: r}
		}
	}
}

func expectPlan(t *testing.T, w *podState, want actions) {
	t.Helper()
	if got := planPod(noon, w); !reflect.DeepEqual(got, want) {
		t.Errorf("plan is %+v, want %+v", got, want)
	}
}

func TestPlanPod_StartsContainers(t *testing.T) {
	const never, onFailure, always = corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, corev1.RestartPolicyAlways
	for _, c := range []struct {
		name string
		in   *podState
		want actions
	}{
		{"a sidecar waits for the init container before it", podStateOf(always, runsOf(runningRun(), nil, nil, nil)), actions{}},
		{"containers wait for the postStart hook of a sidecar", podStateOf(always, runsOf(exited(0, noon), beforeHook(), nil, nil)), actions{}},
		{"containers wait for the second sidecar", podStateOf(always, runsOf(exited(0, noon), runningRun(), nil, nil), secondSidecar(nil)), actions{start: []string{"s2"}}},
		{"containers do not wait for sidecars once one has been started", podStateOf(always, runsOf(exited(0, noon), dispatched(), runningRun(), nil)), actions{start: []string{"b"}}},
		{"containers start in the order of the spec", podStateOf(always, runsOf(exited(0, noon), runningRun(), nil, nil)), actions{start: []string{"a", "b"}}},
		{"an exited sidecar is restarted before the containers start", podStateOf(never, runsOf(exited(0, noon), exited(0, noon), nil, nil)), actions{start: []string{"s"}}},
		{"an exited sidecar is restarted together with a container", podStateOf(always, runsOf(exited(0, noon), exited(1, noon), exited(1, noon), runningRun())), actions{start: []string{"s", "a"}}},
		{"init containers are not repeated once a container has been started", podStateOf(always, runsOf(exited(1, noon), runningRun(), runningRun(), runningRun())), actions{}},
		{"an init container is not repeated after its success", podStateOf(always, runsOf(exited(0, noon), runningRun(), runningRun(), runningRun())), actions{}},
		{"Always restarts a failed init container", podStateOf(always, runsOf(exited(1, noon), nil, nil, nil)), actions{start: []string{"i"}}},
		{"OnFailure restarts a container whose end is unknown", podStateOf(onFailure, runsOf(exited(0, noon), runningRun(), unknownEnd(), runningRun())), actions{start: []string{"a"}}},
		{"Never does not restart a container whose end is unknown", podStateOf(never, runsOf(exited(0, noon), runningRun(), unknownEnd(), runningRun())), actions{}},
		{"a container without a report from its shim is not started twice", podStateOf(always, runsOf(exited(0, noon), runningRun(), dispatched(), runningRun())), actions{}},
		{"a container that is being stopped is not started", podStateOf(always, runsOf(exited(0, noon), runningRun(), stoppingNow(runningRun()), runningRun())), actions{}},
	} {
		t.Run(c.name, func(t *testing.T) { expectPlan(t, c.in, c.want) })
	}
}

func TestPlanPod_DelaysStarts(t *testing.T) {
	const always = corev1.RestartPolicyAlways
	s := time.Second
	started := runsOf(exited(0, noon), runningRun(), nil, nil)
	for _, c := range []struct {
		name string
		in   *podState
		want actions
	}{
		{"a start failure delays the start", podStateOf(always, started, retryAfterFailure("a", noon.Add(3*s))), actions{start: []string{"b"}, wakeAt: noon.Add(3 * s)}},
		{"the start is retried when the delay is over", podStateOf(always, started, retryAfterFailure("a", noon)), actions{start: []string{"a", "b"}}},
		{
			"the earliest of several delays counts",
			podStateOf(always, started, retryAfterFailure("a", noon.Add(5*s)), retryAfterFailure("b", noon.Add(3*s))), actions{wakeAt: noon.Add(3 * s)},
		},
		{
			"a start failure delays a restart beyond the back-off",
			podStateOf(always, runsOf(exited(0, noon), runningRun(), again(exited(1, noon), 1, 0), runningRun()), retryAfterFailure("a", noon.Add(11*s))),
			actions{wakeAt: noon.Add(11 * s)},
		},
		{
			"the back-off delays a restart beyond the retry of a start failure",
			podStateOf(always, runsOf(exited(0, noon), runningRun(), again(exited(1, noon), 1, 0), runningRun()), retryAfterFailure("a", noon.Add(9*s))),
			actions{wakeAt: noon.Add(10 * s)},
		},
		{"the back-off counts from the exit", podStateOf(always, runsOf(exited(0, noon), runningRun(), again(exited(1, noon.Add(-7*s)), 1, 0), runningRun())), actions{wakeAt: noon.Add(3 * s)}},
		{"the container is restarted when the back-off is over", podStateOf(always, runsOf(exited(0, noon), runningRun(), again(exited(1, noon.Add(-10*s)), 1, 0), runningRun())), actions{start: []string{"a"}}},
		{"an init container in back-off blocks the others", podStateOf(always, runsOf(again(exited(1, noon), 1, 0), nil, nil, nil)), actions{wakeAt: noon.Add(10 * s)}},
		{"a sidecar in back-off blocks the containers", podStateOf(always, runsOf(exited(0, noon), again(exited(1, noon), 2, 10*s), nil, nil)), actions{wakeAt: noon.Add(20 * s)}},
		{"a sidecar in back-off does not block restarts", podStateOf(always, runsOf(exited(0, noon), again(exited(1, noon), 2, 10*s), exited(1, noon), runningRun())), actions{start: []string{"a"}, wakeAt: noon.Add(20 * s)}},
		{
			"the deadline comes before the back-off is over",
			podStateOf(always, runsOf(exited(0, noon), runningRun(), again(exited(1, noon), 1, 0), runningRun()), withDeadline(3602)), actions{wakeAt: noon.Add(2 * s)},
		},
		{
			"the back-off is over before the deadline",
			podStateOf(always, runsOf(exited(0, noon), runningRun(), again(exited(1, noon), 1, 0), runningRun()), withDeadline(3660)), actions{wakeAt: noon.Add(10 * s)},
		},
	} {
		t.Run(c.name, func(t *testing.T) { expectPlan(t, c.in, c.want) })
	}
}

func TestPlanPod_StopsContainers(t *testing.T) {
	const never, always = corev1.RestartPolicyNever, corev1.RestartPolicyAlways
	for _, c := range []struct {
		name string
		in   *podState
		want actions
	}{
		{"a deleted pod stops its init container", podStateOf(always, runsOf(runningRun(), nil, nil, nil), deleted), actions{stop: []string{"i"}}},
		{"a deleted pod stops a container without a report from its shim", podStateOf(always, runsOf(exited(0, noon), runningRun(), dispatched(), nil), deleted), actions{stop: []string{"a"}}},
		{"a deleted pod waits for a container that is being stopped", podStateOf(always, runsOf(exited(0, noon), runningRun(), stoppingNow(runningRun()), nil), deleted), actions{}},
		{"a deleted pod stops the others meanwhile", podStateOf(always, runsOf(exited(0, noon), runningRun(), stoppingNow(runningRun()), runningRun()), deleted), actions{stop: []string{"b"}}},
		{"the last sidecar is stopped first", podStateOf(always, runsOf(exited(0, noon), runningRun(), exited(0, noon), exited(0, noon)), secondSidecar(runningRun()), deleted), actions{stop: []string{"s2"}}},
		{"the first sidecar waits for the last", podStateOf(always, runsOf(exited(0, noon), runningRun(), exited(0, noon), exited(0, noon)), secondSidecar(stoppingNow(runningRun())), deleted), actions{}},
		{"the first sidecar is stopped last", podStateOf(always, runsOf(exited(0, noon), runningRun(), exited(0, noon), exited(0, noon)), secondSidecar(exited(143, noon)), deleted), actions{stop: []string{"s"}}},
		{"a deleted pod starts nothing", podStateOf(always, runsOf(exited(0, noon), runningRun(), exited(1, noon), runningRun()), deleted), actions{stop: []string{"b"}}},
		{"a pod whose phase is final stops what is running", podStateOf(always, runsOf(exited(0, noon), runningRun(), runningRun(), exited(0, noon)), withPhase(corev1.PodFailed)), actions{stop: []string{"a"}}},
		{"a pod whose phase is final starts nothing", podStateOf(always, nil, withPhase(corev1.PodSucceeded)), actions{over: true}},
		{"a pod whose init container failed for good is over", podStateOf(never, runsOf(exited(1, noon), nil, nil, nil)), actions{over: true}},
		{"a sidecar is stopped if an init container failed for good", podStateOf(never, runsOf(nil, runningRun(), nil, nil), failedAfterSidecar), actions{stop: []string{"s"}}},
		{"an expired pod stays stopped after its deadline", podStateOf(always, runsOf(exited(0, noon), runningRun(), exited(143, noon), runningRun()), isExpired), actions{stop: []string{"b"}}},
		{"an unsupported pod is over", podStateOf(always, nil, withDeadline(7200), func(w *podState) { w.unsupported = "no images" }), actions{over: true}},
		{"a pod that is over has no deadline", podStateOf(never, runsOf(exited(0, noon), exited(0, noon), exited(0, noon), exited(0, noon)), withDeadline(7200)), actions{over: true}},
	} {
		t.Run(c.name, func(t *testing.T) { expectPlan(t, c.in, c.want) })
	}
}

// failedAfterSidecar makes the init container start after the sidecar, and fail.
func failedAfterSidecar(w *podState) {
	c := w.pod.Spec.InitContainers
	c[0], c[1] = c[1], c[0]
	w.records["i"] = &containerRecord{last: exited(1, noon)}
}

func isExpired(w *podState) { w.expired = true }

func TestPlanPod_IsRepeatable(t *testing.T) {
	w := podStateOf(corev1.RestartPolicyAlways, runsOf(exited(0, noon), runningRun(), again(exited(1, noon), 1, 0), nil), retryAfterFailure("b", noon.Add(time.Second)))
	first := planPod(noon, w)
	if second := planPod(noon, w); !reflect.DeepEqual(first, second) {
		t.Errorf("the second plan is %+v, the first %+v", second, first)
	}
}

func TestActiveDeadline(t *testing.T) {
	for _, c := range []struct {
		name string
		in   *podState
		want time.Time
	}{
		{"none without activeDeadlineSeconds", podStateOf(corev1.RestartPolicyAlways, nil), time.Time{}},
		{"none before the pod was accepted", podStateOf(corev1.RestartPolicyAlways, nil, withDeadline(60), func(w *podState) { w.startedAt = time.Time{} }), time.Time{}},
		{"counted from when the pod was accepted", podStateOf(corev1.RestartPolicyAlways, nil, withDeadline(90)), noon.Add(-time.Hour + 90*time.Second)},
	} {
		if got := c.in.activeDeadline(); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestIsOverdue(t *testing.T) {
	running := runsOf(exited(0, noon), runningRun(), runningRun(), runningRun())
	ended := runsOf(exited(0, noon), runningRun(), exited(0, noon), exited(1, noon))
	for _, c := range []struct {
		name string
		in   *podState
		want bool
	}{
		{"without a deadline", podStateOf(corev1.RestartPolicyNever, running), false},
		{"before the deadline", podStateOf(corev1.RestartPolicyNever, running, withDeadline(3601)), false},
		{"at the deadline", podStateOf(corev1.RestartPolicyNever, running, withDeadline(3600)), true},
		{"after the deadline", podStateOf(corev1.RestartPolicyNever, running, withDeadline(60)), true},
		{"after the deadline, but finished", podStateOf(corev1.RestartPolicyNever, ended, withDeadline(60)), false},
		{"after the deadline, and to be restarted", podStateOf(corev1.RestartPolicyAlways, ended, withDeadline(60)), true},
		{"ended by its deadline before", podStateOf(corev1.RestartPolicyNever, ended, isExpired), true},
	} {
		if got := c.in.isOverdue(noon); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestShouldRestart(t *testing.T) {
	success, failure, unknown := exited(0, noon), exited(1, noon), unknownEnd()
	for policy, want := range map[corev1.RestartPolicy][3]bool{
		corev1.RestartPolicyNever:     {false, false, false},
		corev1.RestartPolicyOnFailure: {false, true, true},
		corev1.RestartPolicyAlways:    {true, true, true},
		"":                            {true, true, true}, // the API server's default is Always
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: policy}}
		if got := [3]bool{shouldRestart(pod, success), shouldRestart(pod, failure), shouldRestart(pod, unknown)}; got != want {
			t.Errorf("%q: after success, failure and an unknown end %v, want %v", policy, got, want)
		}
	}
}

func TestIsFinished(t *testing.T) {
	const never, onFailure, always = corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, corev1.RestartPolicyAlways
	ok, failed := exited(0, noon), exited(1, noon)
	for _, c := range []struct {
		name string
		in   *podState
		want bool
	}{
		{"nothing has been started", podStateOf(never, nil), false},
		{"one container has not been started", podStateOf(never, runsOf(ok, ok, ok, nil)), false},
		{"one container is running", podStateOf(never, runsOf(ok, ok, ok, runningRun())), false},
		{"all have ended, Never", podStateOf(never, runsOf(ok, runningRun(), ok, failed)), true},
		{"all have succeeded, OnFailure", podStateOf(onFailure, runsOf(ok, runningRun(), ok, ok)), true},
		{"one has failed, OnFailure", podStateOf(onFailure, runsOf(ok, runningRun(), ok, failed)), false},
		{"all have succeeded, Always", podStateOf(always, runsOf(ok, runningRun(), ok, ok)), false},
		{"the init container has failed, Never", podStateOf(never, runsOf(failed, nil, nil, nil)), true},
		{"the init container has failed, OnFailure", podStateOf(onFailure, runsOf(failed, nil, nil, nil)), false},
		{"the init container is running", podStateOf(never, runsOf(runningRun(), nil, nil, nil)), false},
		{"the sidecar has failed, Never", podStateOf(never, runsOf(ok, failed, nil, nil)), false},
		{"the init container had failed before the containers were started", podStateOf(never, runsOf(failed, runningRun(), runningRun(), nil)), false},
	} {
		if got := c.in.isFinished(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestRequeueAt_KeepsEarliestTime(t *testing.T) {
	var s actions
	for _, step := range []struct{ at, want time.Duration }{{5, 5}, {7, 5}, {3, 3}, {3, 3}} {
		s.requeueAt(noon.Add(step.at))
		if !s.wakeAt.Equal(noon.Add(step.want)) {
			t.Errorf("after %v: wakes at %v, want %v", step.at, s.wakeAt.Sub(noon), step.want)
		}
	}
}
