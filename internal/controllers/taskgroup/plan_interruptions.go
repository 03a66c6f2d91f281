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

// replicaObstacle is why a replica is not interrupted now. The zero value means that it may be.
type replicaObstacle struct {
	// interruption is that of task, which may not be interrupted, and why is the reason. If task is empty, all may be.
	interruption window.Interruption
	task, why    string
	// pausedUntil is when an eviction may be requested again, after one was withdrawn. Zero: now.
	pausedUntil time.Time
}

func (o *replicaObstacle) isNone() bool { return o.task == "" && o.pausedUntil.IsZero() }

// obstacleOf returns why the Tasks of a replica that have an old definition may not be interrupted. The replica waits
// as a whole: its tasks may need the same definition.
func (p *plan) obstacleOf(replica []Member) (out replicaObstacle) {
	for _, m := range outdatedOnRobot(replica) {
		if m.Evict == m.Attempt {
			continue // its robot was asked already
		}
		if i := p.interruptionOf(&m); !i.IsAllowed() && (out.task == "" || i.Obstacle == window.OutsideWindow) {
			out.interruption, out.task, out.why = i, m.Name, p.describeInterruption(&m, i)
		}
		if p.now.Before(m.NextEvictAt) && m.NextEvictAt.After(out.pausedUntil) {
			out.pausedUntil = m.NextEvictAt
		}
	}
	return out
}

// recordObstacle counts a replica that waits, and plans again when its pause is over. One on a robot that could not
// start it again does not count.
func (p *plan) recordObstacle(replica []Member, o replicaObstacle) {
	if !p.isReachable(replica) {
		return
	}
	if !o.pausedUntil.IsZero() {
		p.requeueAt(o.pausedUntil)
	}
	if o.task != "" {
		p.rollout.waiting.add(o)
	}
}

// interruptionOf returns whether a running Task may be interrupted for another definition.
func (p *plan) interruptionOf(m *Member) window.Interruption {
	if p.Interruptions == nil {
		return window.Interruption{}
	}
	if p.view == nil {
		p.view = p.Interruptions.Calendar.At(p.now)
	}
	robot := p.Interruptions.Robots[m.Robot]
	return p.view.Interruption(&robot, string(m.UID), p.scopeOf(robot.Namespace))
}

// scopeOf returns what changes of a definition respect on the robots of a namespace.
func (w *Input) scopeOf(robotNamespace string) window.Scope {
	if w.Waves == nil {
		return window.WindowsAndHolds
	}
	return rollout.ScopeOf(w.Waves.Rollout, robotNamespace)
}

// describeInterruption returns why a Task may not be interrupted. Readers of the group may not be able to read a robot
// of another namespace: its holds name people, and its windows have names of that namespace.
func (p *plan) describeInterruption(m *Member, i window.Interruption) string {
	switch {
	case p.Interruptions.Robots[m.Robot].Namespace == p.Group.Namespace:
		return i.String()
	case i.Obstacle == window.Held:
		return "it is held at the robot"
	}
	return "it is outside the maintenance windows of its robot"
}

// requeueAtWindowChange plans again when a window opens or closes on which this plan depends.
func (p *plan) requeueAtWindowChange() {
	if p.view != nil && !p.view.NextChange.IsZero() {
		p.requeueAt(p.view.NextChange)
	}
}

// add counts a replica that waits for its robots.
func (w *waitingUnits) add(o replicaObstacle) {
	if w.task == "" {
		w.example, w.task = o.why, o.task
	}
	if o.interruption.Obstacle == window.Held {
		w.held++
		return
	}
	w.outsideWindow++
	if at := o.interruption.State.OpensAt; !at.IsZero() && (w.opensAt.IsZero() || at.Before(w.opensAt)) {
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
