package robot

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newInput(phase string, changes ...func(*Input)) Input {
	w := Input{Robot: &v1alpha1.Robot{
		ObjectMeta: metav1.ObjectMeta{Name: "r1", CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
		Status:     v1alpha1.RobotStatus{Phase: phase},
	}, Robots: 1, LastCount: noon}
	for _, f := range changes {
		f(&w)
	}
	return w
}

func lastHeartbeat(ago time.Duration) func(*Input) {
	return func(w *Input) {
		t := metav1.NewMicroTime(noon.Add(-ago))
		w.Robot.Status.LastHeartbeatTime, w.Silence = &t, ago
	}
}
func condition(kind string, is metav1.ConditionStatus) func(*Input) {
	return func(w *Input) {
		w.Robot.Status.Conditions = append(w.Robot.Status.Conditions, metav1.Condition{Type: kind, Status: is, LastTransitionTime: metav1.NewTime(noon.Add(-time.Minute))})
	}
}
func disconnected(w *Input) { condition(v1alpha1.ConditionConnected, "False")(w) }
func unresponsive(w *Input) {
	disconnected(w)
	w.Robot.Status.Conditions[0].Reason = v1alpha1.ReasonUnresponsive
}
func connected(w *Input) { condition(v1alpha1.ConditionConnected, "True")(w) }
func approvedAgo(w *Input) {
	condition(v1alpha1.ConditionApproved, "True")(w)
	w.Silence = time.Minute
}

// seenOnce is a robot whose heartbeat this manager has seen, and no other.
func seenOnce(w *Input)        { w.MaySilenceBeLonger = true }
func approved(w *Input)        { w.Robot.Annotations = map[string]string{AnnotationApproved: "true"} }
func older(w *Input)           { w.OlderNamespace = "old" }
func tasks(n int) func(*Input) { return func(w *Input) { w.Tasks = n } }
func counted(ago time.Duration) func(*Input) {
	return func(w *Input) { w.LastCount = noon.Add(-ago) }
}

func TestPlan(t *testing.T) {
	manual := Config{Approve: ApproveManual}
	for _, c := range []struct {
		name        string
		cfg         Config
		in          Input
		wantPhase   string // empty if nothing is written
		wantTasks   int32
		wantWake    time.Duration
		wantMessage string
	}{
		{name: "a registered robot is approved", in: newInput("", connected), wantPhase: "Online", wantWake: 5 * time.Minute, wantMessage: messageOnline},
		{name: "a robot created by a user waits for its agent", in: newInput(""), wantPhase: "Pending", wantMessage: messageNotRegistered},
		{name: "manual approval: a new robot waits", cfg: manual, in: newInput("pending", lastHeartbeat(0)), wantPhase: "Pending", wantMessage: messageWaiting},
		{name: "manual approval: the annotation approves it", cfg: manual, in: newInput("pending", lastHeartbeat(0), approved), wantPhase: "Online", wantWake: 5 * time.Minute, wantMessage: messageOnline},
		{name: "a robot with the id of an older robot is not approved", in: newInput("", lastHeartbeat(0), older), wantPhase: "Pending",
			wantMessage: "robotId r1 is taken by the older robot in namespace old"},
		{name: "a robot without a heartbeat since it registered is approved and offline", in: newInput("", lastHeartbeat(time.Hour)), wantPhase: "Offline", wantMessage: "No heartbeat for 5m0s"},
		{name: "a connected robot stays online, and is planned again when its next heartbeat is overdue", in: newInput("online", lastHeartbeat(time.Minute)), wantWake: 4 * time.Minute},
		{name: "a robot that disconnects is unknown at once", in: newInput("Online", lastHeartbeat(time.Minute), disconnected), wantPhase: "Unknown", wantWake: 4 * time.Minute, wantMessage: messageDisconnected},
		{name: "a robot without heartbeats goes offline", in: newInput("Online", lastHeartbeat(5*time.Minute)), wantPhase: "Offline", wantMessage: "No heartbeat for 5m0s"},
		{name: "a disconnected robot without heartbeats goes offline", in: newInput("Unknown", lastHeartbeat(5*time.Minute), disconnected), wantPhase: "Offline", wantMessage: "No heartbeat for 5m0s"},
		{name: "a robot of which the server has received nothing for so long goes offline", in: newInput("Online", lastHeartbeat(4*time.Minute), unresponsive), wantPhase: "Offline", wantMessage: "No heartbeat for 5m0s"},
		{name: "a disconnected robot stays unknown", in: newInput("Unknown", lastHeartbeat(time.Minute), disconnected), wantWake: 4 * time.Minute},
		{name: "a robot that reconnects is online", in: newInput("Unknown", lastHeartbeat(0), connected), wantPhase: "Online", wantWake: 5 * time.Minute, wantMessage: messageOnline},
		{name: "an offline robot that sends a heartbeat is online", in: newInput("offline", lastHeartbeat(0)), wantPhase: "Online", wantWake: 5 * time.Minute, wantMessage: messageOnline},
		{name: "an offline robot stays offline after a restart of the manager", in: newInput("Offline", lastHeartbeat(0), seenOnce)},
		{name: "an online robot stays online after a restart of the manager", in: newInput("Online", lastHeartbeat(0), seenOnce), wantWake: 5 * time.Minute},
		{name: "an offline robot stays offline without a write", in: newInput("Offline", lastHeartbeat(time.Hour), connected)},
		{name: "a robot without any heartbeat counts from its approval", in: newInput("Online", approvedAgo), wantWake: 4 * time.Minute},
		{name: "the task count is written after its interval", in: newInput("Online", lastHeartbeat(0), tasks(3), counted(10*time.Second)), wantPhase: "Online", wantTasks: 3, wantWake: 5 * time.Minute},
		{name: "the task count waits for its interval", in: newInput("Online", lastHeartbeat(0), tasks(3), counted(time.Second)), wantWake: 9 * time.Second},
		{name: "the task count is written together with another change", in: newInput("Online", lastHeartbeat(0), tasks(3), disconnected), wantPhase: "Unknown", wantTasks: 3, wantWake: 5 * time.Minute, wantMessage: messageDisconnected},
		{name: "a thousand robots have a longer interval", in: newInput("Online", lastHeartbeat(0), tasks(3), counted(10*time.Second), func(w *Input) { w.Robots = 1000 }), wantWake: 40 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, c.cfg.WithDefaults(), c.in)
			var s v1alpha1.RobotStatus
			if got.Status != nil {
				s = *got.Status
			}
			if s.Phase != c.wantPhase || s.RunningTasks != c.wantTasks || s.Message != c.wantMessage {
				t.Errorf("phase %q tasks %d message %q, want %q %d %q", s.Phase, s.RunningTasks, s.Message, c.wantPhase, c.wantTasks, c.wantMessage)
			}
			if c.wantWake == 0 && !got.RequeueAt.IsZero() || c.wantWake != 0 && !got.RequeueAt.Equal(noon.Add(c.wantWake)) {
				t.Errorf("requeue at %s, want after %s", got.RequeueAt, c.wantWake)
			}
		})
	}
}

// The times that the server writes are of another clock, which may be ahead or behind.
func TestPlan_IgnoresTheTimeOfHeartbeats(t *testing.T) {
	for _, skew := range []time.Duration{-24 * time.Hour, 0, 24 * time.Hour} {
		w := newInput("Online", lastHeartbeat(skew))
		w.Silence = 5*time.Minute - 1
		if got := Plan(noon, Config{}.WithDefaults(), w); got.Status != nil || !got.RequeueAt.Equal(noon.Add(1)) {
			t.Errorf("skew %s: %+v", skew, got)
		}
		w.Silence++
		if got := Plan(noon, Config{}.WithDefaults(), w); got.NewPhase != lifecycle.RobotOffline {
			t.Errorf("skew %s: %+v", skew, got)
		}
	}
}

func TestPlan_IsStable(t *testing.T) {
	for _, p := range append([]lifecycle.RobotPhase{""}, lifecycle.RobotPhases...) {
		for _, f := range []func(*Input){connected, disconnected, older, lastHeartbeat(0), lastHeartbeat(time.Hour)} {
			w := newInput(string(p), f)
			if first := Plan(noon, Config{}.WithDefaults(), w); first.Status != nil {
				w.Robot.Status = *first.Status
			}
			if second := Plan(noon, Config{}.WithDefaults(), w); second.Status != nil {
				t.Errorf("%q: %+v, then %+v", p, w.Robot.Status, second.Status)
			}
		}
	}
}
