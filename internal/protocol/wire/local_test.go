package wire

import (
	"fmt"
	"strings"
	"testing"
)

func TestLocalState_IsBounded(t *testing.T) {
	long := strings.Repeat("x", 1000)
	s := &LocalState{Maintenance: &Maintenance{ID: long, By: long, Reason: "a\x1b[2Jb\n" + long}}
	s.StoppedTasks = append(s.StoppedTasks, StoppedTask{By: "no UID"}, StoppedTask{UID: "twice", By: "first"}, StoppedTask{UID: "twice", By: "second"})
	for i := range 2 * MaxStoppedTasks {
		s.StoppedTasks = append(s.StoppedTasks, StoppedTask{UID: fmt.Sprint(i, long), Namespace: long, Name: long, By: long, Attempt: -1})
	}
	s.Holds = append(s.Holds, Hold{By: "no ID"}, Hold{ID: "twice", UID: "a"}, Hold{ID: "twice", UID: "b"})
	for i := range 2 * MaxHolds {
		s.Holds = append(s.Holds, Hold{ID: fmt.Sprint(i, long), UID: fmt.Sprint(i, long), Namespace: long, Name: long, By: long, Reason: "a\x1b[2Jb\n" + long})
	}
	got := s.WithinLimits()
	if len(got.Holds) != MaxHolds || got.FindHold("a") == nil || got.FindHold("b") != nil {
		t.Errorf("there are %d holds, the first is %+v", len(got.Holds), got.Holds[0])
	}
	if h := got.Holds[MaxHolds-1]; len(h.ID) != maxHoldID || len(h.UID) != maxUID || len(h.Namespace) != maxNamespace || len(h.Name) != maxName || len(h.By) != maxPerson || len(h.Reason) != MaxHoldReason || !strings.HasPrefix(h.Reason, "a[2Jbx") {
		t.Errorf("the last hold is %+v", h)
	}
	if len(got.StoppedTasks) != MaxStoppedTasks || got.FindStopped("twice").By != "first" {
		t.Errorf("%d tasks are stopped, the first is %+v", len(got.StoppedTasks), got.StoppedTasks[0])
	}
	if last := got.StoppedTasks[MaxStoppedTasks-1]; len(last.UID) != maxUID || len(last.Namespace) != maxNamespace || len(last.Name) != maxName || len(last.By) != maxPerson || last.Attempt != 0 {
		t.Errorf("the last task is %+v", last)
	}
	if m := got.Maintenance; len(m.ID) != MaxMaintenanceID || len(m.By) != maxPerson || len(m.Reason) != MaxMaintenanceReason || !strings.HasPrefix(m.Reason, "a[2Jbx") {
		t.Errorf("the maintenance is %+v", m)
	}
	// With the device and the policy it fits into a message.
	payload, err := Encode(Register{Local: got})
	if err != nil || len(payload) > MaxLocalState {
		t.Errorf("it takes %d bytes: %v", len(payload), err)
	}
	if (*LocalState)(nil).WithinLimits() != nil || (*LocalState)(nil).FindStopped("a") != nil || (*LocalState)(nil).FindHold("a") != nil {
		t.Error("a state that was not reported has something")
	}
}

func TestLocalState_HoldOfRobotCoversTasks(t *testing.T) {
	s := &LocalState{Holds: []Hold{{ID: "1", UID: "a"}}}
	for uid, want := range map[string]bool{"a": true, "b": false, "": false} {
		if got := s.FindHold(uid) != nil; got != want {
			t.Errorf("task %q: held is %v", uid, got)
		}
	}
	s.Holds = append(s.Holds, Hold{ID: "2"})
	if s.FindHold("b") == nil || s.FindHold("") == nil {
		t.Error("the hold of the robot does not cover its tasks")
	}
}
