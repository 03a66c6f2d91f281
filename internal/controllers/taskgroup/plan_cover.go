package taskgroup

import (
	"maps"
	"slices"

	"k8s4r.io/k8s4r/internal/lifecycle"
)

// divide tells the Tasks that are wanted from those that are not any more. Their
// order decides which of two replicas on one robot of a system job stays.
func (p *plan) divide() {
	p.seats = map[string]int{}
	for _, m := range p.Members {
		if p.wanted(m) {
			p.staying = append(p.staying, m)
		} else {
			p.leaving = append(p.leaving, m)
		}
	}
}

func (p *plan) wanted(m Member) bool {
	if !p.system() {
		return m.Index < p.count()
	}
	if _, matches := p.Fleet[m.Robot]; !matches {
		return false
	}
	index, seated := p.seats[m.Robot]
	if !seated {
		p.seats[m.Robot] = m.Index
	}
	return !seated || index == m.Index
}

// covered is the number of robots that have a replica of the system job, or are
// to have one.
func (p *plan) covered() int {
	n := 0
	for robot, fit := range p.Fleet {
		if _, seated := p.seats[robot]; seated || fit.Takes {
			n++
		}
	}
	return n
}

// cover gives each robot that matches a system job its replica, with the lowest
// index that is free. Which robot has which one only the Tasks say, so nothing is
// decided while some of them do not show yet: a robot would get a second one.
func (p *plan) cover() {
	if p.Creating > 0 {
		return
	}
	have := map[int]map[string]bool{}
	for _, m := range p.Members {
		if have[m.Index] == nil {
			have[m.Index] = map[string]bool{}
		}
		have[m.Index][m.Task] = true
	}
	free := 0
	for _, robot := range slices.Sorted(maps.Keys(p.Fleet)) {
		if !p.Fleet[robot].Takes || len(p.out.Complete) == maxAsk {
			continue
		}
		index, seated := p.seats[robot]
		if !seated {
			for have[free] != nil {
				free++
			}
			index = free
			free++
		}
		if r := p.lacking(index, have[index]); len(r.Tasks) > 0 {
			r.Robot = robot
			p.out.Complete = append(p.out.Complete, r)
		}
	}
}

// lacking are the tasks of a replica that do not exist.
func (p *plan) lacking(index int, have map[string]bool) Replica {
	r := Replica{Index: index}
	for _, def := range p.Group.Spec.Definitions() {
		if !have[def.Name] {
			r.Tasks = append(r.Tasks, def)
		}
	}
	return r
}

// leave brings the Tasks that are not wanted any more to their end. One that a
// robot may be working on is taken from it first: of what is gone nobody would
// know that it still runs, when its replica is wanted again.
func (p *plan) leave() {
	for _, m := range p.leaving {
		switch {
		case !p.mayRun(m.State):
			p.out.Delete = append(p.out.Delete, m.Name)
			p.out.Why = append(p.out.Why, "delete "+m.Name+": its replica is not wanted any more")
		case m.Evict != m.Attempt:
			p.out.Evict = append(p.out.Evict, m)
			p.out.Why = append(p.out.Why, "evict "+m.Name+": its replica is not wanted any more")
		}
	}
}

// mayRun tells whether a robot may be working on a task that is to leave it. A
// system task that is lost with its robot nobody takes from it, and no other robot
// gets its replica; the robot finds it gone when it is back.
func (w *World) mayRun(s lifecycle.TaskState) bool {
	return onRobot(s) || s == lifecycle.TaskUnknown && !w.system()
}
