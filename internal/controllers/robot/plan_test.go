package robot

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func world(phase string, changes ...func(*World)) World {
	w := World{Robot: &v1alpha1.Robot{
		ObjectMeta: metav1.ObjectMeta{Name: "r1", CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
		Status:     v1alpha1.RobotStatus{Phase: phase},
	}, Robots: 1, LastCount: noon}
	for _, f := range changes {
		f(&w)
	}
	return w
}

func heard(ago time.Duration) func(*World) {
	return func(w *World) { t := metav1.NewMicroTime(noon.Add(-ago)); w.Robot.Status.LastHeartbeatTime = &t }
}
func condition(kind string, is metav1.ConditionStatus) func(*World) {
	return func(w *World) {
		w.Robot.Status.Conditions = append(w.Robot.Status.Conditions, metav1.Condition{Type: kind, Status: is, LastTransitionTime: metav1.NewTime(noon.Add(-time.Minute))})
	}
}
func dropped(w *World)         { condition(v1alpha1.ConditionConnected, "False")(w) }
func connected(w *World)       { condition(v1alpha1.ConditionConnected, "True")(w) }
func letIn(w *World)           { w.Robot.Annotations = map[string]string{AnnotationApproved: "true"} }
func elder(w *World)           { w.Elder = "old" }
func tasks(n int) func(*World) { return func(w *World) { w.Tasks = n } }
func counted(ago time.Duration) func(*World) {
	return func(w *World) { w.LastCount = noon.Add(-ago) }
}

func TestPlan(t *testing.T) {
	manual := Config{Approve: ApproveManual}
	for _, c := range []struct {
		name      string
		cfg       Config
		in        World
		wantPhase string // empty: nothing is written
		wantTasks int32
		wantWake  time.Duration
		message   string
	}{
		{name: "a robot that registered is let in", in: world("", connected), wantPhase: "Online", wantWake: 5 * time.Minute, message: messageOnline},
		{name: "a robot that was written down beforehand waits for the robot itself", in: world(""), wantPhase: "Pending", message: messageAbsent},
		{name: "by hand, a new robot waits", cfg: manual, in: world("pending", heard(0)), wantPhase: "Pending", message: messageWaiting},
		{name: "by hand, an annotation lets it in", cfg: manual, in: world("pending", heard(0), letIn), wantPhase: "Online", wantWake: 5 * time.Minute, message: messageOnline},
		{name: "the id of an older robot is taken", in: world("", heard(0), elder), wantPhase: "Pending",
			message: "robotId r1 is taken by the older robot in namespace old"},
		{name: "a robot that was silent since it registered is let in and offline", in: world("", heard(time.Hour)), wantPhase: "Offline", message: "No contact for 5m0s"},
		{name: "a robot in contact stays, and is looked at when its time is over", in: world("online", heard(time.Minute)), wantWake: 4 * time.Minute},
		{name: "a broken connection makes it unknown at once", in: world("Online", heard(time.Minute), dropped), wantPhase: "Unknown", wantWake: 4 * time.Minute, message: messageDropped},
		{name: "silence makes it offline", in: world("Online", heard(5*time.Minute)), wantPhase: "Offline", message: "No contact for 5m0s"},
		{name: "silence after a broken connection makes it offline", in: world("Unknown", heard(5*time.Minute), dropped), wantPhase: "Offline", message: "No contact for 5m0s"},
		{name: "a robot whose connection is broken is not back", in: world("Unknown", heard(time.Minute), dropped), wantWake: 4 * time.Minute},
		{name: "a robot that is heard again is online", in: world("Unknown", heard(0), connected), wantPhase: "Online", wantWake: 5 * time.Minute, message: messageOnline},
		{name: "an offline robot that is heard again is online", in: world("offline", heard(0)), wantPhase: "Online", wantWake: 5 * time.Minute, message: messageOnline},
		{name: "an offline robot stays offline without a word", in: world("Offline", heard(time.Hour), connected)},
		{name: "a robot without any heartbeat counts from its approval", in: world("Online", condition(v1alpha1.ConditionApproved, "True")), wantWake: 4 * time.Minute},
		{name: "the number of tasks is written after a while", in: world("Online", heard(0), tasks(3), counted(5*time.Second)), wantPhase: "Online", wantTasks: 3, wantWake: 5 * time.Minute},
		{name: "the number of tasks waits", in: world("Online", heard(0), tasks(3), counted(time.Second)), wantWake: 4 * time.Second},
		{name: "the number of tasks goes with another write", in: world("Online", heard(0), tasks(3), dropped), wantPhase: "Unknown", wantTasks: 3, wantWake: 5 * time.Minute, message: messageDropped},
		{name: "a thousand robots count less often", in: world("Online", heard(0), tasks(3), counted(10*time.Second), func(w *World) { w.Robots = 1000 }), wantWake: 40 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, c.cfg.WithDefaults(), c.in)
			var s v1alpha1.RobotStatus
			if got.Status != nil {
				s = *got.Status
			}
			if s.Phase != c.wantPhase || s.RunningTasks != c.wantTasks || s.Message != c.message {
				t.Errorf("phase %q tasks %d message %q, want %q %d %q", s.Phase, s.RunningTasks, s.Message, c.wantPhase, c.wantTasks, c.message)
			}
			if c.wantWake == 0 && !got.WakeAt.IsZero() || c.wantWake != 0 && !got.WakeAt.Equal(noon.Add(c.wantWake)) {
				t.Errorf("wake at %s, want after %s", got.WakeAt, c.wantWake)
			}
		})
	}
}

func TestAPlanThatWasWrittenHasNothingToAdd(t *testing.T) {
	for _, p := range append([]lifecycle.RobotPhase{""}, lifecycle.RobotPhases...) {
		for _, f := range []func(*World){connected, dropped, elder, heard(0), heard(time.Hour)} {
			w := world(string(p), f)
			if first := Plan(noon, Config{}.WithDefaults(), w); first.Status != nil {
				w.Robot.Status = *first.Status
			}
			if second := Plan(noon, Config{}.WithDefaults(), w); second.Status != nil {
				t.Errorf("%q: %+v, then %+v", p, w.Robot.Status, second.Status)
			}
		}
	}
}
