package hostnode

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"k8s4r.io/k8s4r/internal/robot/shim"
)

func TestTerminatedState(t *testing.T) {
	for _, c := range []struct {
		name        string
		in          *shim.Exit
		wantCode    int32
		wantReason  string
		wantMessage string // part of the message
	}{
		{name: "success", in: &shim.Exit{}, wantReason: "Completed"},
		{name: "failure", in: &shim.Exit{Code: 3}, wantCode: 3, wantReason: "Error"},
		{name: "by a signal", in: &shim.Exit{Code: 143, Signal: 15}, wantCode: 143, wantReason: "Error"},
		{name: "out of memory", in: &shim.Exit{Code: 137, StopReason: "OOMKilled"}, wantCode: 137, wantReason: "OOMKilled"},
		{name: "command not found", in: &shim.Exit{Code: -1, Error: `command "x" not found`, CommandNotFound: true}, wantCode: 128, wantReason: "CommandNotFound", wantMessage: `the commands of this host: command "x" not found`},
		{name: "the command cannot be started", in: &shim.Exit{Code: -1, Error: "why"}, wantCode: 128, wantReason: "StartError", wantMessage: "why"},
		{name: "stopped before its start", in: &shim.Exit{Code: -1, StopReason: "Stopped"}, wantCode: 137, wantReason: "Error"},
		{name: "unknown end", wantCode: 137, wantReason: "ContainerStatusUnknown", wantMessage: "exit code of the container is unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := runningRun()
			r.shimExited, r.state.Exit = true, c.in
			got := podStateOf(corev1.RestartPolicyNever, nil).terminatedState(corev1.Container{Name: "a"}, r)
			if got.ExitCode != c.wantCode || got.Reason != c.wantReason || !strings.Contains(got.Message, c.wantMessage) || got.ContainerID != "hostnode://u/a/0" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestStatusOf_KeepsTransitionTimes(t *testing.T) {
	w := podStateOf(corev1.RestartPolicyAlways, runsOf(exited(0, noon), runningRun(), runningRun(), runningRun()))
	w.pod.Status.Conditions = []corev1.PodCondition{{Type: "Others", Status: corev1.ConditionTrue}}
	w.pod.Status = statusOf(noon, w)
	later := statusOf(noon.Add(time.Minute), w)
	for _, kind := range []corev1.PodConditionType{"Others", corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized, corev1.PodReadyToStartContainers} {
		c := conditionOf(later, kind)
		if c == nil || c.Status != corev1.ConditionTrue || c.LastTransitionTime.After(noon) {
			t.Errorf("%s is %+v", kind, c)
		}
	}
	w.records["a"].last.ready = false
	later = statusOf(noon.Add(time.Minute), w)
	c := conditionOf(later, corev1.PodReady)
	if c.Status != corev1.ConditionFalse || c.Reason != "ContainersNotReady" || c.Message != "containers with unready status: [a]" || !c.LastTransitionTime.Time.Equal(noon.Add(time.Minute)) {
		t.Errorf("Ready is %+v", c)
	}
}

func conditionOf(s corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}

func TestStatusOf_ReportsBackOff(t *testing.T) {
	w := podStateOf(corev1.RestartPolicyOnFailure, runsOf(exited(0, noon), runningRun(), again(exited(1, noon), 1, 0), runningRun()))
	w.records["a"].before = again(exited(2, noon), 0, 0)
	s := statusOf(noon, w).ContainerStatuses[0]
	if s.State.Waiting == nil || s.State.Waiting.Message != "back-off 10s restarting failed container=a pod=p_n(u)" || s.RestartCount != 1 || s.LastTerminationState.Terminated.ExitCode != 1 {
		t.Errorf("got %+v", s)
	}
}

func TestStatusOf_KeepsFinalPhase(t *testing.T) {
	w := podStateOf(corev1.RestartPolicyNever, runsOf(exited(0, noon), exited(0, noon), exited(0, noon), exited(0, noon)))
	w.expired = true
	w.pod.Status = statusOf(noon, w)
	if s := w.pod.Status; s.Phase != corev1.PodFailed || s.Reason != "DeadlineExceeded" {
		t.Fatalf("got %+v", s)
	}
	w.expired = false // a restarted node does not know
	if s := statusOf(noon.Add(time.Hour), w); s.Phase != corev1.PodFailed || s.Reason != "DeadlineExceeded" {
		t.Errorf("got %+v", s)
	}
}
