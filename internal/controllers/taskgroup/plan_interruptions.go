package taskgroup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/core/window"
)

// Interruptions is what decides whether running Tasks of a group may be interrupted for another definition.
type Interruptions struct {
	Calendar *window.Calendar
	// Robots are those that the group's namespace may use, by name. Others have no windows and no holds.
	Robots map[string]window.Robot
}

// waitingUnits are the replicas that are not interrupted now.
type waitingUnits struct {
	outsideWindow, held int
	// opensAt is when the first of the windows opens. Zero: never.
	opensAt time.Time
	// example is why one of them waits, and the name of its Task.
	example, task string
}

// isInterruptible reports whether all Tasks of a replica may be interrupted that have an old definition, and records
// why not. The replica waits as a whole: its tasks may need the same definition.
func (p *plan) isInterruptible(replica []Member) bool {
	var first window.Interruption
	var task string
	for _, m := range outdatedOnRobot(replica) {
		if m.Evict == m.Attempt {
			continue // its robot was asked already
		}
		if i := p.interruptionOf(&m); !i.IsAllowed() && (task == "" || i.Obstacle == window.OutsideWindow) {
			first, task = i, m.Name
		}
	}
	if task == "" {
		return true
	}
	p.rollout.waiting.add(first, task)
	if first.Opens() {
		p.requeueAt(first.State.OpensAt)
	}
	return false
}

// interruptionOf returns whether a running Task may be interrupted for another definition.
func (p *plan) interruptionOf(m *Member) window.Interruption {
	if p.Interruptions == nil {
		return window.Interruption{}
	}
	if p.view == nil {
		p.view = p.Interruptions.Calendar.At(p.now)
	}
	scope := window.WindowsAndHolds
	if p.Waves != nil && rollout.IgnoresWindows(p.Waves.Rollout) {
		scope = window.HoldsOnly
	}
	robot := p.Interruptions.Robots[m.Robot]
	return p.view.Interruption(&robot, string(m.UID), scope)
}

func (w *waitingUnits) add(i window.Interruption, task string) {
	if w.task == "" {
		w.example, w.task = i.String(), task
	}
	if i.Obstacle == window.Held {
		w.held++
		return
	}
	w.outsideWindow++
	if at := i.State.OpensAt; !at.IsZero() && (w.opensAt.IsZero() || at.Before(w.opensAt)) {
		w.opensAt = at
	}
}

// String returns how many replicas wait, and why. Empty if none does.
func (w *waitingUnits) String() string {
	var parts []string
	if w.outsideWindow > 0 {
		parts = append(parts, fmt.Sprintf("replicas outside the maintenance windows of their robots: %d", w.outsideWindow))
		if !w.opensAt.IsZero() {
			parts[0] += ", the next opens at " + w.opensAt.UTC().Format(time.RFC3339)
		}
	}
	if w.held > 0 {
		parts = append(parts, fmt.Sprintf("replicas held at their robots: %d", w.held))
	}
	if w.task != "" && w.opensAt.IsZero() {
		parts = append(parts, w.task+" waits: "+w.example)
	}
	return strings.Join(parts, "; ")
}

// needsInterruptions reports whether a decision may depend on maintenance windows and holds.
func (w *Input) needsInterruptions() bool {
	return slices.ContainsFunc(w.Members, func(m Member) bool { return m.Outdated && isOnRobot(m.State) })
}
