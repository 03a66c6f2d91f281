package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/robotattr"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// dispatchMessage is wire.Dispatch with the whole Task object in it.
type dispatchMessage struct {
	Action   string        `json:"action"`
	Task     *robotv1.Task `json:"task"`
	Attempt  int32         `json:"attempt,omitempty"`
	Epoch    uint64        `json:"epoch,omitempty"`
	RobotUID string        `json:"robotUID,omitempty"`
	Started  bool          `json:"started,omitempty"`

	Robot   *wire.RobotAttributes `json:"robot,omitempty"`
	Secrets wire.Secrets          `json:"secrets,omitzero"`

	Interruption *wire.Interruption `json:"interruption,omitempty"`
}

// wantedAction returns the action that a Task requests of its robot. Empty: none, also
// for a Task that is gone (nil).
func wantedAction(t *robotv1.Task) string {
	if t == nil {
		return ""
	}
	state := lifecycle.TaskState(t.Status.State).OrPending()
	switch {
	case t.CurrentRobot() == "":
		return ""
	case t.DeletionTimestamp != nil:
		if hasRobotFinalizer(t) || state.HoldsResources() {
			return wire.ActionDelete
		}
		return ""
	case !state.HoldsResources():
		return ""
	case t.Status.IsStopRequested():
		return wire.ActionDelete
	case state == lifecycle.TaskRunning:
		return ""
	}
	// Also sent to a robot that has reconnected: it answers from its journal.
	return wire.ActionCreate
}

// isListed reports whether the task belongs into its robot's task list. So does one that the robot is asked
// to stop and may refuse: an agent stops what a list lacks.
func isListed(t *robotv1.Task) bool {
	return t != nil && t.DeletionTimestamp == nil && t.CurrentRobot() != "" &&
		(!t.Status.IsStopRequested() || t.Status.IsInterruption()) && lifecycle.TaskState(t.Status.State).HoldsResources()
}

// lostAttemptOf returns the Task as the robot of the lost attempt should see it, or nil.
// That attempt continues until the manager has decided which one is kept. It is shown as
// started, so that a robot that does not know it reports this instead of running it
// beside the replacement.
func lostAttemptOf(t *robotv1.Task) *robotv1.Task {
	if t == nil || t.Status.LostAttempt == 0 || lifecycle.TaskState(t.Status.State).IsTerminal() {
		return nil
	}
	a := t.Status.FindAttempt(t.Status.LostAttempt)
	if a == nil || a.FinishedAt != nil {
		return nil
	}
	o := *t // nothing below is changed in place
	o.Spec.TargetRobot = a.Robot
	o.Status = robotv1.TaskStatus{
		State: string(lifecycle.TaskRunning), Attempt: a.Attempt, LostAttempt: a.Attempt, Attempts: []robotv1.TaskAttempt{*a},
	}
	if startsNoRun(t) || t.Status.State == string(lifecycle.TaskPaused) {
		o.Status.PauseAttempt = a.Attempt
	}
	return &o
}

// isLostAttempt reports whether a Task was returned by lostAttemptOf.
func isLostAttempt(t *robotv1.Task) bool {
	return t.Status.LostAttempt == t.Status.Attempt && t.Status.LostAttempt > 0
}

// canceledAttempts returns the attempts that are no longer current and whose end has not
// been reported. The manager may have to wait for it before it starts another one, or has
// ended the task without its robot.
func canceledAttempts(t *robotv1.Task) (open []robotv1.TaskAttempt) {
	if t == nil || t.DeletionTimestamp != nil {
		return nil
	}
	s, hasEnded := &t.Status, lifecycle.TaskState(t.Status.State).IsTerminal()
	if hasEnded && s.UnconfirmedStop == nil {
		return nil
	}
	for _, a := range s.Attempts {
		counts := !hasEnded && a.Attempt == s.LostAttempt || a.Attempt == s.Attempt && lifecycle.TaskState(s.State).HoldsResources()
		if a.FinishedAt == nil && a.Robot != "" && !counts {
			open = append(open, a)
		}
	}
	return open
}

// hasStarted reports whether the robot has reported the start of the current attempt, or has it in its
// journal.
func hasStarted(t *robotv1.Task) bool {
	if lifecycle.TaskState(t.Status.State) == lifecycle.TaskRunning || t.Status.Reason == ReasonAttemptAdopted {
		return true
	}
	a := t.Status.FindAttempt(t.Status.Attempt)
	return a != nil && a.StartedAt != nil
}

// encodeDispatch encodes a dispatch for the robot's protocol. Legacy agents know neither
// attempt nor epoch; each attempt is a separate task to them.
func encodeDispatch(action string, t *robotv1.Task, protocol string, epoch uint64, robotUID string, attributes *wire.RobotAttributes, secrets wire.Secrets, order *wire.Interruption) ([]byte, error) {
	m := dispatchMessage{Action: action, Task: portableTask(t, protocol), Interruption: order}
	if protocol == robotv1.ProtocolV2 {
		m.Robot, m.Secrets = attributes, secrets
		m.Attempt, m.Epoch, m.RobotUID, m.Started = t.Status.Attempt, epoch, robotUID, hasStarted(t)
	}
	return encodeMessage(m)
}

// attributesFor returns the robot attributes that a Task may use. It is nil if the Task
// uses none, because attributes are as large as a small Task.
func attributesFor(t *robotv1.Task, r *robotv1.Robot) *wire.RobotAttributes {
	if r == nil || !usesRobotAttributes(&t.Spec.TaskDefinition) {
		return nil
	}
	return robotAttributes(r)
}

func robotAttributes(r *robotv1.Robot) *wire.RobotAttributes {
	return &wire.RobotAttributes{Labels: robotattr.TaskVisibleLabels(r), Attrs: robotattr.Attributes(r)}
}

// usesRobotAttributes reports whether a definition has templates or interpolates an
// attribute of the robot.
func usesRobotAttributes(d *robotv1.TaskDefinition) bool {
	names := func(s string) bool { return strings.Contains(s, "${robot.") || strings.Contains(s, "${attr.") }
	return len(d.Templates) > 0 || slices.ContainsFunc(slices.Collect(maps.Values(d.Env)), names) ||
		slices.ContainsFunc(d.Config.InterpolatedTexts(), names)
}

// portableTask returns the Task without its status and without fields for the API server
// only.
func portableTask(t *robotv1.Task, protocol string) *robotv1.Task {
	p := *t // nothing below is changed in place
	p.APIVersion, p.Kind = robotv1.GroupVersion.String(), "Task"
	p.ManagedFields = nil
	p.Spec.TargetRobot, p.Spec.DispatchTimeout, p.Status = t.CurrentRobot(), nil, robotv1.TaskStatus{}
	p.Spec.Array = array.Dispatched(t)
	if protocol != robotv1.ProtocolV2 {
		p.UID = types.UID(wire.AttemptUID(string(t.UID), t.Status.Attempt))
	}
	return &p
}

func encodeMessage(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	if len(b) > wire.MaxPayload {
		return nil, wire.ErrTooLarge
	}
	return b, nil
}
