package rollout

import (
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/core/window"
)

// obstacleStates are the states of units that cannot be changed now.
var obstacleStates = map[window.Obstacle]State{window.OutsideWindow: StateOutsideWindow, window.Held: StateHeld}

// findObstacle returns why a unit cannot be changed now to a revision: one of its running Tasks that have another one
// must not be interrupted. A closed window is named before a hold. The controller of task groups decides in the same
// way.
func (p *plan) findObstacle(u *Unit, wanted Hashes) window.Interruption {
	if u.Agent != nil {
		is := p.findInterruption(&u.Agent.Robot, "")
		p.requeueAtOpening(is)
		return is
	}
	var found window.Interruption
	for i := range u.Tasks {
		t := &u.Tasks[i]
		isOnRobot := t.State == lifecycle.TaskRunning || t.State == lifecycle.TaskDispatching
		if t.Robot == nil || !isOnRobot || t.IsEvicting || wanted.has(t) {
			continue
		}
		switch is := p.findInterruption(t.Robot, string(t.UID)); is.Obstacle {
		case window.OutsideWindow:
			p.requeueAtOpening(is)
			return is
		case window.Held:
			found = is
		case window.NoObstacle:
		}
	}
	return found
}

// findInterruption returns whether the Rollout may interrupt a task now on a robot.
func (p *plan) findInterruption(robot *window.Robot, taskUID string) window.Interruption {
	return p.view.Interruption(robot, taskUID, rollout.ScopeOf(p.r, robot.Namespace))
}

func (p *plan) requeueAtOpening(is window.Interruption) {
	if is.Opens() {
		p.requeueAt(is.State.OpensAt)
	}
}

// onlyOpens reports whether the units of a wave that are admitted and have not finished wait for windows, except
// for those for which it does not wait long.
func (c *waveCounts) onlyOpens() bool { return c.opening > 0 && c.steady+c.idle == 0 }

// addClosed counts a unit outside the maintenance windows of its robots.
func (c *waveCounts) addClosed(is window.Interruption) {
	if !is.Opens() {
		c.stragglers++
		return
	}
	c.opening++
	if at := is.State.OpensAt; c.opensAt.IsZero() || at.Before(c.opensAt) {
		c.opensAt = at
	}
}
