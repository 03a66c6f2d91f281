package rollout

import (
	"fmt"
	"strings"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/core/window"
)

// maxListedUnits is how many units a message lists.
const maxListedUnits = 5

// unreverted are the units in contact that have another revision than the current one of the Job, or the version
// of the Rollout.
type unreverted struct {
	left []string // the names of those that can return now
	// held and closed are how many cannot, because they are held, or outside the windows of a shared robot.
	held, closed int
}

// revert ends a Rollout once no unit in contact is left that can return, or none of them has returned for the
// deadline: a robot may not follow the order to stop a task. Others follow when they are back, or released.
func (p *plan) revert() {
	u := p.findUnreverted()
	p.out.Unreverted = len(u.left)
	if len(u.left) > 0 && !p.hasRevertStalled() {
		p.s.Message = p.describeEnd(fmt.Sprintf("%s left to return to %s", describeUnits(len(u.left)), p.describeBase()))
		return
	}
	p.end(v1alpha1.RolloutReverted, p.describeEnd(p.describeReverted(&u)))
	p.addEvent(Event{Reason: v1alpha1.RolloutReverted, Message: p.s.Message, IsWarning: true})
}

func (p *plan) findUnreverted() (out unreverted) {
	for i := range p.Units {
		u := &p.Units[i]
		if !u.InContact || !p.needsRevert(u) {
			continue
		}
		switch p.findObstacle(u, p.Current).Obstacle {
		case window.Held:
			out.held++
		case window.OutsideWindow:
			out.closed++
		case window.NoObstacle:
			out.left = append(out.left, u.Name)
		}
	}
	return out
}

// hasRevertStalled reports whether no unit has returned for the deadline. That does not pass while the Job starts no
// tasks, and begins again with the manager.
func (p *plan) hasRevertStalled() bool {
	if p.isHeld() {
		return false
	}
	from := p.now
	if !p.ReturnedAt.IsZero() {
		from = later(p.ReturnedAt, p.resumedAt())
	}
	at := from.Add(rollout.Deadline(p.r))
	if p.now.Before(at) {
		p.requeueAt(at)
		return false
	}
	return true
}

// describeReverted returns how a revert has ended, and for which units it did not wait.
func (p *plan) describeReverted(u *unreverted) string {
	text := "no agent in contact is left to return to the version of before"
	if !p.isOfAgents() {
		text = fmt.Sprintf("all units in contact have revision %d", p.Job.Status.CurrentRevision)
	}
	var except []string
	if u.held > 0 {
		except = append(except, describeUnits(u.held)+" held at the robots")
	}
	if u.closed > 0 {
		except = append(except, describeUnits(u.closed)+" outside the maintenance windows of shared robots")
	}
	if n := len(u.left); n > 0 {
		names := strings.Join(u.left[:min(n, maxListedUnits)], ", ")
		if n > maxListedUnits {
			names += fmt.Sprintf(" and %d more", n-maxListedUnits)
		}
		except = append(except, fmt.Sprintf("%s of which none has returned for %s: %s", describeUnits(n), rollout.Deadline(p.r), names))
	}
	if len(except) > 0 {
		text += ", except " + strings.Join(except, ", ")
	}
	return text
}
