package taskgroup

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/progress"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// The reasons of the condition RolledOver, and of the events beside it.
const (
	ReasonRollingOver = "RollingOver"
	ReasonRolledOver  = "RolledOver"
)

// minHealthyTime is how long a replica runs in its new definition before the
// next one changes, when the group does not say.
const minHealthyTime = 10 * time.Second

// rollover is how far the group is on its way to its present definition.
type rollover struct {
	old  int   // tasks of an older definition that have not ended
	busy []int // replicas that are changing
}

// rolling tells whether the group's last status says that it rolls over.
func rolling(g *v1alpha1.TaskGroup) bool {
	return meta.IsStatusConditionFalse(g.Status.Conditions, v1alpha1.ConditionRolledOver)
}

// onRobot tells whether a robot that is in contact is working on the task.
func onRobot(s lifecycle.TaskState) bool {
	return s == lifecycle.TaskDispatching || s == lifecycle.TaskRunning
}

// roll brings Tasks of an older definition to the present one. Those that wait
// change where they are. Those on a robot leave it, some replicas at a time, and
// the next ones only when these have been well for a while: a definition that
// does not work stops at the first.
func (p *plan) roll() {
	var next [][]Member
	for _, replica := range replicas(p.staying) {
		p.revise(replica)
		switch {
		case p.changes(replica):
			p.rollover.busy = append(p.rollover.busy, replica[0].Index)
			p.evict(replica)
		case p.reachable(replica) && len(outdated(replica)) > 0:
			next = append(next, replica)
		}
	}
	// Who is not well in the older definition changes before who is.
	slices.SortStableFunc(next, func(a, b []Member) int { return p.wellness(a) - p.wellness(b) })
	free := max(p.maxParallel()-len(p.rollover.busy), 0)
	if !p.mayEvict() {
		free = 0
	}
	for _, replica := range next[:min(free, len(next))] {
		p.evict(replica)
		p.rollover.busy = append(p.rollover.busy, replica[0].Index)
	}
}

// replicas are the members of each replica.
func replicas(members []Member) [][]Member {
	var out [][]Member
	for i, m := range members {
		if i == 0 || members[i-1].Index != m.Index {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], m)
	}
	return out
}

// outdated are the members of an older definition that a robot is working on.
func outdated(replica []Member) []Member {
	var out []Member
	for _, m := range replica {
		if m.Outdated && onRobot(m.State) {
			out = append(out, m)
		}
	}
	return out
}

// revise gives the present definition to those members that wait. The task
// controller first gives back one that has exited, and lets one go that may come
// back with its robot.
func (p *plan) revise(replica []Member) {
	for _, m := range replica {
		if !m.Outdated || m.State.Terminal() {
			continue
		}
		p.rollover.old++
		if waits(m.State) && m.Original == 0 && p.mayChange() {
			p.out.Revise = append(p.out.Revise, Revision{Name: m.Name, Forget: !p.unfinished(m)})
			p.out.Why = append(p.out.Why, "give "+m.Name+" its new definition")
		}
	}
}

func waits(s lifecycle.TaskState) bool { return s.Placeable() || s == lifecycle.TaskPaused }

// mayChange tells whether Tasks may be given the present definition.
func (p *plan) mayChange() bool { return p.TooLarge == "" && !p.jobState().Stops() }

// mayEvict tells whether Tasks may be made to leave their robots for that. A job
// that pauses lets run what runs.
func (p *plan) mayEvict() bool { return p.mayChange() && progress.Starts(p.Job) }

// evict makes what is left of a replica in an older definition leave its robot.
func (p *plan) evict(replica []Member) {
	if !p.mayEvict() {
		return
	}
	for _, m := range outdated(replica) {
		if m.Evict != m.Attempt {
			p.out.Evict = append(p.out.Evict, m)
			p.out.Why = append(p.out.Why, "evict "+m.Name+": it is to have its new definition")
		}
	}
}

// changes tells whether the replica was taken from its robot for a new definition
// and is not well in it yet. One whose robot is out of contact says nothing about
// the definition, and does not hold up the others.
func (p *plan) changes(replica []Member) bool {
	return p.reachable(replica) && slices.ContainsFunc(replica, p.changing)
}

func (p *plan) changing(m Member) bool {
	switch {
	case m.Evict == 0 || m.State == lifecycle.TaskUnknown:
		return false
	case m.Outdated:
		return !m.State.Terminal() && p.unfinished(m)
	}
	return !p.healthy(m)
}

// unfinished tells whether a member of an older definition is out of work because
// of a rollover: its last attempt was made to leave for this one, or it waits and
// was made to leave for one that never got to its end.
func (p *plan) unfinished(m Member) bool {
	return m.Evict == m.Attempt || m.Evict > 0 && rolling(p.Group) && !onRobot(m.State)
}

// reachable tells whether a replica that is bound to its robot for good could run
// there again: it is in contact, and takes what is new to it.
func (p *plan) reachable(replica []Member) bool {
	fit := p.Fleet[replica[0].Robot]
	return !p.system() || fit.Online && fit.Takes
}

// healthy tells whether a member has ended well or has run for long enough.
func (p *plan) healthy(m Member) bool {
	switch m.State {
	case lifecycle.TaskCompleted, lifecycle.TaskCanceled:
		return true
	case lifecycle.TaskRunning:
		at := m.Since.Add(p.minHealthyTime())
		if p.now.Before(at) {
			p.wake(at)
			return false
		}
		return true
	default:
		return false
	}
}

// wellness is 1 for a replica whose members are all healthy, else 0.
func (p *plan) wellness(replica []Member) int {
	if slices.ContainsFunc(replica, func(m Member) bool { return !p.healthy(m) }) {
		return 0
	}
	return 1
}

func (p *plan) maxParallel() int {
	if u := p.Group.Spec.Update; u != nil && u.MaxParallel > 0 {
		return int(u.MaxParallel)
	}
	return 1
}

func (p *plan) minHealthyTime() time.Duration {
	if u := p.Group.Spec.Update; u != nil && u.MinHealthyTime != nil {
		return u.MinHealthyTime.Value()
	}
	return minHealthyTime
}

// report says in the condition how far the rollover is, and tells whether it has
// begun or ended. A group that was never changed has no such condition.
func (p *plan) report(s *v1alpha1.TaskGroupStatus) bool {
	was := rolling(p.Group)
	is := p.rollover.old > 0 || was && len(p.rollover.busy) > 0
	if !is && !was || p.jobState().Stops() {
		return false
	}
	c := metav1.Condition{
		Type: v1alpha1.ConditionRolledOver, Status: metav1.ConditionFalse, Reason: ReasonRollingOver, Message: p.rollover.String(),
		ObservedGeneration: p.Group.Generation, LastTransitionTime: metav1.NewTime(p.now),
	}
	if !is {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonRolledOver, "all tasks that have not ended are of the present definition"
	}
	meta.SetStatusCondition(&s.Conditions, c)
	if is == was && !p.changed() {
		return false
	}
	p.out.Rollover = c.Reason
	return true
}

// String is for people.
func (r rollover) String() string {
	if len(r.busy) == 0 {
		return fmt.Sprintf("%d tasks are of an older definition", r.old)
	}
	names := make([]string, 0, maxNamed)
	for _, index := range r.busy[:min(len(r.busy), maxNamed)] {
		names = append(names, strconv.Itoa(index))
	}
	if len(r.busy) > maxNamed {
		names = append(names, "...")
	}
	return fmt.Sprintf("%d tasks are of an older definition; changing now: replica %s", r.old, strings.Join(names, ", "))
}

// maxNamed is how many replicas a sentence names.
const maxNamed = 8
