package bridge

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/robotfacts"
	"k8s4r.io/k8s4r/internal/wire"
)

// dispatchMessage is wire.Dispatch with the whole Task object in it.
type dispatchMessage struct {
	Action  string        `json:"action"`
	Task    *robotv1.Task `json:"task"`
	Attempt int32         `json:"attempt,omitempty"`
	Epoch   uint64        `json:"epoch,omitempty"`
	Era     string        `json:"era,omitempty"`
	Started bool          `json:"started,omitempty"`

	Robot   *wire.RobotFacts `json:"robot,omitempty"`
	Secrets wire.Secrets     `json:"secrets,omitempty"`
}

// wanted is the action that a Task asks its robot for. Empty: none. A Task that
// is gone (nil) asks for nothing.
func wanted(t *robotv1.Task) string {
	if t == nil {
		return ""
	}
	state := lifecycle.TaskState(t.Status.State).Normal()
	switch {
	case t.RobotOfAttempt() == "":
		return ""
	case t.DeletionTimestamp != nil:
		if heldForRobot(t) || state.OnRobot() {
			return wire.ActionDelete
		}
		return ""
	case !state.OnRobot():
		return ""
	case t.Status.AskedToStop():
		return wire.ActionDelete
	case state == lifecycle.TaskRunning:
		return ""
	}
	// A robot that is back from being out of contact is asked again as well:
	// its journal answers.
	return wire.ActionCreate
}

// listed tells whether the task belongs to what should be running on its
// robot.
func listed(t *robotv1.Task) bool {
	return t != nil && t.DeletionTimestamp == nil && t.RobotOfAttempt() != "" &&
		!t.Status.AskedToStop() && lifecycle.TaskState(t.Status.State).OnRobot()
}

// originalOf is the Task as the robot is to see it that was lost while it ran
// it: that run goes on there until the manager has decided which one counts.
// Nil: there is none.
//
// It has started, whether anybody knows of that or not, so a robot that does not
// know it says so instead of running it beside the one that took its place.
func originalOf(t *robotv1.Task) *robotv1.Task {
	if t == nil || t.Status.Original == 0 || lifecycle.TaskState(t.Status.State).Terminal() {
		return nil
	}
	a := t.Status.Entry(t.Status.Original)
	if a == nil || a.FinishedAt != nil {
		return nil
	}
	o := *t // nothing below is changed in place
	o.Spec.TargetRobot = a.Robot
	o.Status = robotv1.TaskStatus{State: string(lifecycle.TaskRunning), Attempt: a.Attempt, Original: a.Attempt, Attempts: []robotv1.TaskAttempt{*a}}
	return &o
}

// isOriginal tells whether a Task is as originalOf shows it.
func isOriginal(t *robotv1.Task) bool {
	return t.Status.Original == t.Status.Attempt && t.Status.Original > 0
}

// callsOff are the attempts of a Task that count no more and whose end nobody has
// heard. Who must not let two of them run waits for it.
func callsOff(t *robotv1.Task) (open []robotv1.TaskAttempt) {
	if t == nil || t.DeletionTimestamp != nil || lifecycle.TaskState(t.Status.State).Terminal() {
		return nil
	}
	s := &t.Status
	for _, a := range s.Attempts {
		counts := a.Attempt == s.Original || a.Attempt == s.Attempt && lifecycle.TaskState(s.State).OnRobot()
		if a.FinishedAt == nil && a.Robot != "" && !counts {
			open = append(open, a)
		}
	}
	return open
}

// hasStarted tells whether the attempt that counts has run, by the robot's own
// word.
func hasStarted(t *robotv1.Task) bool {
	if lifecycle.TaskState(t.Status.State) == lifecycle.TaskRunning {
		return true
	}
	a := t.Status.Entry(t.Status.Attempt)
	return a != nil && a.StartedAt != nil
}

// encodeDispatch writes the message in the robot's dialect. Document agents
// know neither attempt nor epoch; each attempt is a task of its own to them.
func encodeDispatch(action string, t *robotv1.Task, dialect string, epoch uint64, era string, facts *wire.RobotFacts, secrets wire.Secrets) ([]byte, error) {
	m := dispatchMessage{Action: action, Task: portable(t, dialect)}
	if dialect == robotv1.ProtocolK8s4r {
		m.Robot, m.Secrets = facts, secrets
		m.Attempt, m.Epoch, m.Era, m.Started = t.Status.Attempt, epoch, era, hasStarted(t)
	}
	return encode(m)
}

// factsFor are what a Task may read of its robot. Nil: it asks for nothing, as most
// do, and a robot's labels and attributes are as long as a small Task.
func factsFor(t *robotv1.Task, r *robotv1.Robot) *wire.RobotFacts {
	if r == nil || !asksForRobot(&t.Spec.TaskDefinition) {
		return nil
	}
	return factsOf(r)
}

func factsOf(r *robotv1.Robot) *wire.RobotFacts {
	return &wire.RobotFacts{Labels: robotfacts.Labels(r), Attrs: robotfacts.Attributes(r)}
}

// asksForRobot tells whether a definition has templates, or names a fact of the
// robot where names are replaced.
func asksForRobot(d *robotv1.TaskDefinition) bool {
	names := func(s string) bool { return strings.Contains(s, "${robot.") }
	if len(d.Templates) > 0 || slices.ContainsFunc(slices.Collect(maps.Values(d.Env)), names) {
		return true
	}
	c := d.Config.ExecConfig
	return c != nil && (names(c.Command) || slices.ContainsFunc(c.Args, names))
}

// portable is the whole Task but for what changes all the time and what only
// the API server cares about.
func portable(t *robotv1.Task, dialect string) *robotv1.Task {
	p := *t // nothing below is changed in place
	p.APIVersion, p.Kind = robotv1.GroupVersion.String(), "Task"
	p.ManagedFields = nil
	p.Spec.TargetRobot, p.Status = t.RobotOfAttempt(), robotv1.TaskStatus{}
	if dialect != robotv1.ProtocolK8s4r {
		p.UID = types.UID(wire.AttemptUID(string(t.UID), t.Status.Attempt))
	}
	return &p
}

func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	if len(b) > wire.MaxPayload {
		return nil, wire.ErrTooLarge
	}
	return b, nil
}
