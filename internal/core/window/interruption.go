package window

import (
	"fmt"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/robotattr"
)

// Robot is what decides whether the tasks of a robot may be interrupted. The zero value has no windows of its
// namespace and no holds.
type Robot struct {
	Namespace string
	Labels    map[string]string
	Holds     []v1alpha1.RobotHold
}

// RobotFrom returns the Robot of an object. Its labels are those of metadata and spec.
func RobotFrom(r *v1alpha1.Robot) Robot {
	return Robot{Namespace: r.Namespace, Labels: robotattr.TaskVisibleLabels(r), Holds: r.Status.Holds}
}

// Obstacle is why a task may not be interrupted now.
type Obstacle int

const (
	// NoObstacle means that the task may be interrupted.
	NoObstacle Obstacle = iota
	// OutsideWindow means that no maintenance window of the robot is open.
	OutsideWindow
	// Held means that a person at the robot holds the task, or all of them.
	Held
)

// Interruption is whether a running task may be interrupted.
type Interruption struct {
	Obstacle Obstacle
	// State is that of the robot's windows. It is zero if windows are ignored.
	State State
	// Hold is what holds the task if Obstacle is Held.
	Hold v1alpha1.RobotHold
}

// IsAllowed reports whether the task may be interrupted.
func (i Interruption) IsAllowed() bool { return i.Obstacle == NoObstacle }

// ClosesAt returns until when the task may be interrupted. Zero: as long as nothing else changes.
func (i Interruption) ClosesAt() time.Time { return i.State.ClosesAt }

// Opens reports whether the obstacle is a window that opens at some time.
func (i Interruption) Opens() bool { return i.Obstacle == OutsideWindow && !i.State.OpensAt.IsZero() }

// String returns why the task may not be interrupted. Empty if it may.
func (i Interruption) String() string {
	switch {
	case i.Obstacle == NoObstacle:
		return ""
	case i.Obstacle == Held:
		return describeHold(&i.Hold)
	case i.State.Defect != nil:
		return fmt.Sprintf("its maintenance window %s stays closed: %s", i.State.Window, i.State.Defect)
	case i.State.OpensAt.IsZero():
		return fmt.Sprintf("its maintenance window %s never opens", i.State.Window)
	}
	return fmt.Sprintf("its maintenance window %s opens at %s", i.State.Window, i.State.OpensAt.UTC().Format(time.RFC3339))
}

func describeHold(h *v1alpha1.RobotHold) string {
	text := "it is held at the robot"
	if h.By != "" {
		text += " by " + h.By
	}
	if h.Reason != "" {
		text += ": " + h.Reason
	}
	return text
}

// Scope is what a cause of interruptions has to respect.
type Scope int

const (
	// WindowsAndHolds are respected by rollouts, changes of a definition and preemption.
	WindowsAndHolds Scope = iota
	// HoldsOnly are respected by Rollouts with ignoreWindows, and by a revert.
	HoldsOnly
)

// Interruption returns whether a task may be interrupted on a robot. A closed window is named before a hold: people
// may have released it by the time that the window opens.
func (v *View) Interruption(r *Robot, taskUID string, scope Scope) Interruption {
	var out Interruption
	if scope == WindowsAndHolds {
		out.State = v.StateOf(r.Namespace, r.Labels)
		if !out.State.IsOpen {
			out.Obstacle = OutsideWindow
			return out
		}
	}
	for i := range r.Holds {
		if h := &r.Holds[i]; h.TaskUID == "" || h.TaskUID == taskUID {
			out.Obstacle, out.Hold = Held, *h
			return out
		}
	}
	return out
}
