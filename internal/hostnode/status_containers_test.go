package hostnode

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	initReason = "PodInitializing"
	aID        = "hostnode://u/a/"
)

// withBefore sets the run before the latest one of a container.
func withBefore(name string, r *run) func(*podState) {
	return func(w *podState) { w.records[name].before = r }
}

func withoutInit(w *podState) { w.pod.Spec.InitContainers = nil }

// terminated returns the state of a run of runningRun that ended at noon.
func terminated(attempt string, code int32, reason string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{
		ContainerID: aID + attempt, ExitCode: code, Reason: reason,
		StartedAt: metav1.Time{Time: noon.Add(-time.Minute)}, FinishedAt: metav1.Time{Time: noon},
	}
}

func waiting(reason, message string) *corev1.ContainerStateWaiting {
	return &corev1.ContainerStateWaiting{Reason: reason, Message: message}
}

func isRunningState() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: noon.Add(-time.Minute)}}}
}

func TestStatusOf_Container(t *testing.T) {
	const never, onFailure, always = corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, corev1.RestartPolicyAlways
	ok, up := exited(0, noon), runningRun()
	unready, unstarted := runningRun(), runningRun()
	unready.ready, unstarted.started = false, false
	startFailure := func(w *podState) {
		r := w.recordOf("a")
		r.startFailure = waiting("CreateContainerConfigError", "no ConfigMap")
		w.records["a"] = r
	}
	backOff := func(delay string) *corev1.ContainerStateWaiting {
		return waiting("CrashLoopBackOff", "back-off "+delay+" restarting failed container=a pod=p_n(u)")
	}
	state := func(w *corev1.ContainerStateWaiting) corev1.ContainerState { return corev1.ContainerState{Waiting: w} }
	ended := func(s *corev1.ContainerStateTerminated) corev1.ContainerState {
		return corev1.ContainerState{Terminated: s}
	}
	for _, c := range []struct {
		name string
		in   *podState
		want corev1.ContainerStatus
	}{
		{"not started, with init containers", podStateOf(always, nil), corev1.ContainerStatus{State: state(waiting(initReason, ""))}},
		{"not started, without init containers", podStateOf(always, nil, withoutInit), corev1.ContainerStatus{State: state(waiting("ContainerCreating", ""))}},
		{"cannot be started", podStateOf(always, nil, startFailure), corev1.ContainerStatus{State: state(waiting("CreateContainerConfigError", "no ConfigMap"))}},
		{"not reported yet", podStateOf(always, runsOf(ok, up, dispatched(), up)), corev1.ContainerStatus{State: state(waiting("ContainerCreating", "")), ContainerID: aID + "0"}},
		{"running and ready", podStateOf(always, runsOf(ok, up, up, up)), corev1.ContainerStatus{State: isRunningState(), Ready: true, Started: ptr.To(true), ContainerID: aID + "0"}},
		{"running and not ready", podStateOf(always, runsOf(ok, up, unready, up)), corev1.ContainerStatus{State: isRunningState(), Started: ptr.To(true), ContainerID: aID + "0"}},
		{"before its startup probe has succeeded", podStateOf(always, runsOf(ok, up, unstarted, up)), corev1.ContainerStatus{State: isRunningState(), ContainerID: aID + "0"}},
		{"before the end of its postStart hook", podStateOf(always, runsOf(ok, up, beforeHook(), up)), corev1.ContainerStatus{State: isRunningState(), ContainerID: aID + "0"}},
		{
			"restarted twice", podStateOf(always, runsOf(ok, up, again(runningRun(), 2, 10*time.Second), up), withBefore("a", again(exited(3, noon), 1, 0))),
			corev1.ContainerStatus{
				State: isRunningState(), Ready: true, Started: ptr.To(true), ContainerID: aID + "2", RestartCount: 2,
				LastTerminationState: ended(terminated("1", 3, "Error")),
			},
		},
		{"failed, Never", podStateOf(never, runsOf(ok, up, exited(3, noon), up)), corev1.ContainerStatus{State: ended(terminated("0", 3, "Error")), ContainerID: aID + "0"}},
		{"succeeded, OnFailure", podStateOf(onFailure, runsOf(ok, up, exited(0, noon), up)), corev1.ContainerStatus{State: ended(terminated("0", 0, "Completed")), ContainerID: aID + "0"}},
		{
			"failed, OnFailure", podStateOf(onFailure, runsOf(ok, up, again(exited(3, noon), 1, 0), up), withBefore("a", exited(4, noon))),
			corev1.ContainerStatus{State: state(backOff("10s")), LastTerminationState: ended(terminated("1", 3, "Error")), ContainerID: aID + "1", RestartCount: 1},
		},
		{
			"succeeded, Always", podStateOf(always, runsOf(ok, up, again(exited(0, noon), 3, 20*time.Second), up)),
			corev1.ContainerStatus{State: state(backOff("40s")), LastTerminationState: ended(terminated("3", 0, "Completed")), ContainerID: aID + "3", RestartCount: 3},
		},
		{
			"in back-off with a start failure", podStateOf(always, runsOf(ok, up, again(exited(3, noon), 1, 0), up), startFailure),
			corev1.ContainerStatus{State: state(backOff("10s")), LastTerminationState: ended(terminated("1", 3, "Error")), ContainerID: aID + "1", RestartCount: 1},
		},
		{
			"after the back-off with a start failure", podStateOf(always, runsOf(ok, up, exited(3, noon), up), startFailure),
			corev1.ContainerStatus{State: state(waiting("CreateContainerConfigError", "no ConfigMap")), LastTerminationState: ended(terminated("0", 3, "Error")), ContainerID: aID + "0"},
		},
		{"failed and deleted", podStateOf(always, runsOf(ok, up, exited(143, noon), up), deleted), corev1.ContainerStatus{State: ended(terminated("0", 143, "Error")), ContainerID: aID + "0"}},
		{
			"unknown end", podStateOf(never, runsOf(ok, up, unknownEnd(), up)),
			corev1.ContainerStatus{ContainerID: aID + "0", State: ended(&corev1.ContainerStateTerminated{
				ContainerID: aID + "0", ExitCode: 137, Reason: "ContainerStatusUnknown", StartedAt: metav1.Time{Time: noon.Add(-time.Minute)},
				Message: "The exit code of the container is unknown: its shim was killed",
			})},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.Name, c.want.Image = "a", "image:1"
			if c.want.Started == nil {
				c.want.Started = ptr.To(false)
			}
			c.in.pod.Spec.Containers[0].Image = "image:1"
			if got := statusOf(noon, c.in).ContainerStatuses[0]; !reflect.DeepEqual(got, c.want) {
				t.Errorf("status is\n%+v, want\n%+v", got, c.want)
			}
		})
	}
}

func TestStatusOf_InitContainers(t *testing.T) {
	const never, always = corev1.RestartPolicyNever, corev1.RestartPolicyAlways
	type summary struct {
		state    string
		ready    bool
		restarts int32
	}
	summaryOf := func(s corev1.ContainerStatus) summary {
		state := "running"
		switch {
		case s.State.Waiting != nil:
			state = s.State.Waiting.Reason
		case s.State.Terminated != nil:
			state = s.State.Terminated.Reason
		}
		return summary{state, s.Ready, s.RestartCount}
	}
	for _, c := range []struct {
		name          string
		in            *podState
		init, sidecar summary
	}{
		{"nothing has been started", podStateOf(always, nil), summary{state: initReason}, summary{state: initReason}},
		{"the init container is running", podStateOf(always, runsOf(beforeHook(), nil, nil, nil)), summary{"running", false, 0}, summary{state: initReason}},
		{"the init container has succeeded", podStateOf(always, runsOf(exited(0, noon), runningRun(), nil, nil)), summary{"Completed", true, 0}, summary{"running", true, 0}},
		{"the init container has failed", podStateOf(always, runsOf(again(exited(1, noon), 1, 0), nil, nil, nil)), summary{"CrashLoopBackOff", false, 1}, summary{state: initReason}},
		{"the init container has failed for good", podStateOf(never, runsOf(exited(1, noon), nil, nil, nil)), summary{"Error", false, 0}, summary{state: initReason}},
		{"the sidecar has exited", podStateOf(never, runsOf(exited(0, noon), again(exited(0, noon), 2, 10*time.Second), runningRun(), runningRun())), summary{"Completed", true, 0}, summary{"CrashLoopBackOff", false, 2}},
		{"the sidecar has exited after the containers", podStateOf(never, runsOf(exited(0, noon), exited(0, noon), exited(0, noon), exited(0, noon))), summary{"Completed", true, 0}, summary{"Completed", false, 0}},
	} {
		s := statusOf(noon, c.in).InitContainerStatuses
		if got := [2]summary{summaryOf(s[0]), summaryOf(s[1])}; got != [2]summary{c.init, c.sidecar} {
			t.Errorf("%s: %+v, want %+v and %+v", c.name, got, c.init, c.sidecar)
		}
	}
}

func TestStatusOf_Phase(t *testing.T) {
	const never, onFailure, always = corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, corev1.RestartPolicyAlways
	ok, failed, up := exited(0, noon), exited(1, noon), runningRun()
	for _, c := range []struct {
		name string
		in   *podState
		want corev1.PodPhase
	}{
		{"the init container is running", podStateOf(always, runsOf(runningRun(), nil, nil, nil)), corev1.PodPending},
		{"the init container is in back-off", podStateOf(always, runsOf(failed, nil, nil, nil)), corev1.PodPending},
		{"a sidecar runs after a failed init container", podStateOf(never, runsOf(nil, up, nil, nil), failedAfterSidecar), corev1.PodPending},
		{"a sidecar has ended after a failed init container", podStateOf(never, runsOf(nil, ok, nil, nil), failedAfterSidecar), corev1.PodFailed},
		{"the first container has been started", podStateOf(always, runsOf(ok, up, dispatched(), nil)), corev1.PodRunning},
		{"all containers are in back-off", podStateOf(always, runsOf(ok, ok, failed, failed)), corev1.PodRunning},
		{"one is running, the other has failed", podStateOf(never, runsOf(ok, up, failed, up)), corev1.PodRunning},
		{"the sidecar is still running", podStateOf(never, runsOf(ok, up, ok, ok)), corev1.PodRunning},
		{"a failed sidecar does not fail the pod", podStateOf(never, runsOf(ok, failed, ok, ok)), corev1.PodSucceeded},
		{"one container has failed", podStateOf(never, runsOf(ok, ok, ok, failed)), corev1.PodFailed},
		{"the end of one container is unknown", podStateOf(never, runsOf(ok, ok, ok, unknownEnd())), corev1.PodFailed},
		{"all have succeeded, OnFailure", podStateOf(onFailure, runsOf(ok, ok, ok, ok)), corev1.PodSucceeded},
		{"deleted with the init container running", podStateOf(always, runsOf(runningRun(), nil, nil, nil), deleted), corev1.PodPending},
		{"deleted with the init container ended", podStateOf(always, runsOf(exited(143, noon), nil, nil, nil), deleted), corev1.PodFailed},
		{"deleted before the second container was started", podStateOf(always, runsOf(ok, ok, ok, nil), deleted), corev1.PodFailed},
		{"deleted after all have succeeded", podStateOf(always, runsOf(ok, ok, ok, ok), deleted), corev1.PodSucceeded},
		{"expired while a container runs", podStateOf(always, runsOf(ok, up, up, up), isExpired), corev1.PodRunning},
		{"expired and ended", podStateOf(always, runsOf(ok, ok, ok, ok), isExpired), corev1.PodFailed},
		{"a final phase is kept", podStateOf(always, runsOf(ok, up, up, up), withPhase(corev1.PodSucceeded)), corev1.PodSucceeded},
	} {
		if got := statusOf(noon, c.in).Phase; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestStatusOf_PodFields(t *testing.T) {
	w := podStateOf(corev1.RestartPolicyAlways, runsOf(exited(0, noon), runningRun(), runningRun(), runningRun()))
	w.startedAt = noon.Add(-time.Hour + 700*time.Millisecond)
	w.pod.Generation, w.pod.Status.QOSClass, w.pod.Status.NominatedNodeName = 7, corev1.PodQOSBurstable, "other"
	s := statusOf(noon, w)
	want := corev1.PodStatus{
		Phase: corev1.PodRunning, ObservedGeneration: 7, QOSClass: corev1.PodQOSBurstable, NominatedNodeName: "other",
		StartTime: &metav1.Time{Time: noon.Add(-time.Hour)}, HostIP: "127.0.0.1", HostIPs: []corev1.HostIP{{IP: "127.0.0.1"}},
		PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
	}
	s.Conditions, s.ContainerStatuses, s.InitContainerStatuses = nil, nil, nil
	if !reflect.DeepEqual(s, want) {
		t.Errorf("status is\n%+v, want\n%+v", s, want)
	}
	if w.pod.Status.Phase != "" {
		t.Error("statusOf has changed its input")
	}
}

func TestStatusOf_UnsupportedPod(t *testing.T) {
	w := podStateOf(corev1.RestartPolicyAlways, nil, func(w *podState) { w.unsupported = "no images" })
	want := corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "NotSupportedByHostNode", Message: "Pod was rejected: no images", ObservedGeneration: 1,
		StartTime: &metav1.Time{Time: noon.Add(-time.Hour)},
	}
	if got := statusOf(noon, w); !reflect.DeepEqual(got, want) {
		t.Errorf("status is\n%+v, want\n%+v", got, want)
	}
}

func TestStatusOf_ExpiredPod(t *testing.T) {
	w := podStateOf(corev1.RestartPolicyAlways, runsOf(exited(0, noon), exited(0, noon), exited(143, noon), exited(143, noon)), isExpired)
	s := statusOf(noon, w)
	if s.Phase != corev1.PodFailed || s.Reason != "DeadlineExceeded" || s.Message != "Pod was active on the node longer than the specified deadline" {
		t.Errorf("%s, %s, %q", s.Phase, s.Reason, s.Message)
	}
	w.records["a"].last = runningRun()
	if s := statusOf(noon, w); s.Phase != corev1.PodRunning || s.Reason != "" {
		t.Errorf("%s, %s while a container runs", s.Phase, s.Reason)
	}
}

// A final status written before a crash may show running containers, which must be corrected.
func TestStatusOf_CompletesFinalStatus(t *testing.T) {
	w := podStateOf(corev1.RestartPolicyNever, runsOf(exited(0, noon), exited(0, noon), exited(0, noon), exited(0, noon)), withPhase(corev1.PodSucceeded))
	w.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", State: isRunningState()}}
	if s := statusOf(noon, w); len(s.ContainerStatuses) != 2 || s.ContainerStatuses[0].State.Terminated == nil || s.Phase != corev1.PodSucceeded {
		t.Errorf("status is %+v", s)
	}
	w.pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: terminated("0", 0, "Completed")}
	if s := statusOf(noon, w); !reflect.DeepEqual(s, w.pod.Status) {
		t.Errorf("a complete final status has changed to %+v", s)
	}
}

func withGates(gates ...corev1.PodConditionType) func(*podState) {
	return func(w *podState) {
		for _, g := range gates {
			w.pod.Spec.ReadinessGates = append(w.pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: g})
		}
		w.pod.Status.Conditions = []corev1.PodCondition{{Type: "open", Status: corev1.ConditionTrue}, {Type: "closed", Status: corev1.ConditionFalse}}
	}
}

func TestStatusOf_Conditions(t *testing.T) {
	const never, always = corev1.RestartPolicyNever, corev1.RestartPolicyAlways
	type outcome struct{ status, reason, message string }
	yes, no := outcome{status: "True"}, func(reason, message string) outcome { return outcome{"False", reason, message} }
	completed := outcome{status: "True", reason: "PodCompleted"}
	unready := func(names string) outcome {
		return no("ContainersNotReady", "containers with unready status: ["+names+"]")
	}
	uninitialized := func(names string) outcome {
		return no("ContainersNotInitialized", "containers with incomplete status: ["+names+"]")
	}
	const closedGate = `corresponding condition of pod readiness gate "closed" does not exist or is not True`
	const missingGate = `corresponding condition of pod readiness gate "missing" does not exist or is not True`
	ok, up := exited(0, noon), runningRun()
	unreadyRun := runningRun()
	unreadyRun.ready = false
	for _, c := range []struct {
		name                                    string
		in                                      *podState
		sandbox, initialized, ready, containers outcome
	}{
		{"nothing has been started", podStateOf(always, nil), no("", ""), uninitialized("i s"), unready("a b s"), unready("a b s")},
		{"the init container is running", podStateOf(always, runsOf(up, nil, nil, nil)), yes, uninitialized("i s"), unready("a b s"), unready("a b s")},
		{"the sidecar is starting", podStateOf(always, runsOf(ok, beforeHook(), nil, nil)), yes, uninitialized("s"), unready("a b s"), unready("a b s")},
		{"initialized", podStateOf(always, runsOf(ok, up, nil, nil)), yes, yes, unready("a b"), unready("a b")},
		{"a container is not ready", podStateOf(always, runsOf(ok, up, unreadyRun, up)), yes, yes, unready("a"), unready("a")},
		{"a sidecar is not ready", podStateOf(always, runsOf(ok, unreadyRun, up, up)), yes, yes, unready("s"), unready("s")},
		{"an exited sidecar does not undo the initialization", podStateOf(always, runsOf(ok, exited(1, noon), up, up)), yes, yes, unready("s"), unready("s")},
		{"all are ready", podStateOf(always, runsOf(ok, up, up, up)), yes, yes, yes, yes},
		{"all readiness gates are open", podStateOf(always, runsOf(ok, up, up, up), withGates("open")), yes, yes, yes, yes},
		{"two readiness gates are not open", podStateOf(always, runsOf(ok, up, up, up), withGates("closed", "open", "missing")), yes, yes, no("ReadinessGatesNotReady", closedGate+", "+missingGate), yes},
		{"containers come before readiness gates", podStateOf(always, runsOf(ok, up, unreadyRun, up), withGates("closed")), yes, yes, unready("a"), unready("a")},
		{"succeeded", podStateOf(never, runsOf(ok, ok, ok, ok)), no("", ""), completed, no("PodCompleted", ""), no("PodCompleted", "")},
		{"failed", podStateOf(never, runsOf(ok, ok, ok, exited(1, noon))), no("", ""), yes, no("PodFailed", ""), no("PodFailed", "")},
		{"failed to initialize", podStateOf(never, runsOf(exited(1, noon), nil, nil, nil)), no("", ""), uninitialized("i s"), no("PodFailed", ""), no("PodFailed", "")},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := statusOf(noon, c.in)
			for kind, want := range map[corev1.PodConditionType]outcome{
				corev1.PodReadyToStartContainers: c.sandbox, corev1.PodInitialized: c.initialized, corev1.PodReady: c.ready, corev1.ContainersReady: c.containers,
			} {
				got := conditionOf(s, kind)
				if got == nil || (outcome{string(got.Status), got.Reason, got.Message}) != want || !got.LastTransitionTime.Time.Equal(noon) || got.ObservedGeneration != 1 {
					t.Errorf("%s is %+v, want %+v", kind, got, want)
				}
			}
		})
	}
}

func TestWillRestart(t *testing.T) {
	const never, onFailure, always = corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, corev1.RestartPolicyAlways
	ok, failed, up := exited(0, noon), exited(1, noon), runningRun()
	for _, c := range []struct {
		name, container string
		in              *podState
		want            bool
	}{
		{"a failed container, Never", "a", podStateOf(never, runsOf(ok, up, failed, up)), false},
		{"a failed container, OnFailure", "a", podStateOf(onFailure, runsOf(ok, up, failed, up)), true},
		{"a succeeded container, OnFailure", "a", podStateOf(onFailure, runsOf(ok, up, ok, up)), false},
		{"a succeeded container, Always", "a", podStateOf(always, runsOf(ok, up, ok, up)), true},
		{"a container of a deleted pod", "a", podStateOf(always, runsOf(ok, up, failed, up), deleted), false},
		{"a container of a pod with a final phase", "a", podStateOf(always, runsOf(ok, up, failed, up), withPhase(corev1.PodFailed)), false},
		{"a succeeded sidecar, Never", "s", podStateOf(never, runsOf(ok, ok, up, up)), true},
		{"a sidecar of a finished pod", "s", podStateOf(never, runsOf(ok, ok, ok, ok)), false},
		{"a failed init container, Always", "i", podStateOf(always, runsOf(failed, nil, nil, nil)), true},
		{"a failed init container, Never", "i", podStateOf(never, runsOf(failed, nil, nil, nil)), false},
		{"a succeeded init container, Always", "i", podStateOf(always, runsOf(ok, nil, nil, nil)), false},
		{"an init container that had failed before the containers were started", "i", podStateOf(always, runsOf(failed, up, up, up)), false},
	} {
		container := findContainer(c.in.pod, c.container)
		if got := c.in.willRestart(*container, c.in.recordOf(c.container).last); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
