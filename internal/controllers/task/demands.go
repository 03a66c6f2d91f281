package task

import (
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/placement"
)

// replicaOf names the replica that a Task belongs to.
func replicaOf(t *v1alpha1.Task) replica {
	owner := metav1.GetControllerOf(t)
	if owner == nil || owner.Kind != "TaskGroup" {
		return replica{index: t.Namespace + "/" + t.Name}
	}
	return replica{
		group: key{Namespace: t.Namespace, Name: owner.Name},
		index: t.Labels[v1alpha1.LabelTaskIndex],
	}
}

func indexOf(t *v1alpha1.Task) int {
	n, err := strconv.Atoi(t.Labels[v1alpha1.LabelTaskIndex])
	if err != nil {
		return 0
	}
	return n
}

// snapshots are what a cycle decides on, by namespace: robots serve the tasks
// of their own.
func (l *ledger) snapshots() map[string]placement.Snapshot {
	out := map[string]placement.Snapshot{}
	add := func(namespace string, demands ...placement.Demand) {
		s := out[namespace]
		s.Demands = append(s.Demands, demands...)
		out[namespace] = s
	}
	shared := sharedTerms{}
	for _, waiting := range l.waitingReplicas() {
		if d, ok := l.demandOf(waiting, shared); ok {
			add(waiting[0].key.Namespace, d)
		}
	}
	for k, c := range l.wants {
		terms := shared.ofClaim(l, k, c)
		for _, d := range c.demands {
			terms.put(&d)
			d.Gang = c.group.gang
			if !l.entered(k.Namespace, &d) {
				add(k.Namespace, d)
			}
		}
	}
	for namespace, s := range out {
		l.bindGangs(namespace, s.Demands)
		if slices.ContainsFunc(s.Demands, func(d placement.Demand) bool { return d.Preempts }) {
			s.Holders = l.holders(namespace)
			out[namespace] = s
		}
	}
	for k, r := range l.robots {
		if s, ok := out[k.Namespace]; ok && r.known {
			s.Robots = append(s.Robots, r.Robot)
			out[k.Namespace] = s
		}
	}
	return out
}

// entered tells whether a task of the demand waits or holds a seat already.
func (l *ledger) entered(namespace string, d *placement.Demand) bool {
	return slices.ContainsFunc(d.Tasks, func(t placement.Task) bool {
		return l.entries[key{Namespace: namespace, Name: t.Name}] != nil
	})
}

// waitingReplicas are the waiting entries that may be placed, those of one
// replica together.
func (l *ledger) waitingReplicas() map[replica][]*entry {
	out := make(map[replica][]*entry, len(l.waiting))
	for _, e := range l.waiting {
		if e.ready.IsZero() && !e.held {
			out[e.replica] = append(out[e.replica], e)
		}
	}
	maps.DeleteFunc(out, func(r replica, _ []*entry) bool { return l.gathering(r) })
	return out
}

// demandOf is what the waiting tasks of one replica want. The robot is fixed when
// somebody chose one or when the other tasks of the replica are there, together.
func (l *ledger) demandOf(waiting []*entry, shared sharedTerms) (placement.Demand, bool) {
	slices.SortFunc(waiting, func(a, b *entry) int { return compareNames(a.key, b.key) })
	first := waiting[0]
	d := placement.Demand{Group: first.replica.group.Name, Index: first.index, Since: first.since}
	if first.job != "" && !l.jobs[key{Namespace: first.key.Namespace, Name: first.job}].starts {
		return d, false
	}
	if group := first.replica.group; group.Name != "" && !l.knows(group) {
		return d, false
	}
	l.termsFor(first, shared).put(&d)
	for _, e := range waiting {
		d.Tasks = append(d.Tasks, e.Task)
		d.Failed = append(d.Failed, e.failed...)
		if e.original != "" {
			// A new attempt there would end the original that may count again.
			d.Failed = append(d.Failed, e.original)
		}
		if d.Robot == "" {
			d.Robot = e.pinned
		}
	}
	near := l.seatsOf(first.replica)
	if len(near) == 0 {
		l.returnTo(waiting, &d)
		return d, true
	}
	shareDisk(&d)
	if d.Near = near; !l.apart(first.replica, near) {
		d.Robot = near[0]
	}
	return d, true
}

// shareDisk says of a demand that the disk of its replica is held already on the
// robots near it.
func shareDisk(d *placement.Demand) {
	for i := range d.Tasks {
		d.Spare.Disk = max(d.Spare.Disk, d.Tasks[i].Shared)
		d.Tasks[i].Shared = 0
	}
}

func compareNames(a, b key) int {
	switch {
	case a.Name < b.Name:
		return -1
	case a.Name > b.Name:
		return 1
	}
	return 0
}

// news is whom a cycle concerns: tasks with a new seat or a new refusal, and
// groups with new seats.
type news struct {
	tasks  []key
	groups map[key]bool
	freed  bool // seats were taken back for somebody who waits
}

// settle books the decisions of one namespace.
func (l *ledger) settle(namespace string, d placement.Decisions, now time.Time, n *news) {
	for i := range d.Bind {
		l.settleBinding(namespace, &d.Bind[i], now, n)
	}
	words := map[*placement.Refusal]string{}
	for name, refusal := range d.Refused {
		if e := l.waiting[key{Namespace: namespace, Name: name}]; e != nil {
			l.settleRefusal(e, refusal, words, n)
		}
	}
	for _, p := range d.Preempt {
		for _, victim := range p.Victims {
			k := key{Namespace: namespace, Name: victim}
			e := l.entries[k]
			if !e.onRobot { // it has only a seat to leave
				l.unseat(e)
				n.freed = true
				continue
			}
			e.victimOf, l.victims[k] = p.Demand, e
			n.tasks = append(n.tasks, k)
		}
	}
}

// pardon lets victims stay whose place nobody waits for any more. Those that were
// asked to leave do: their robots may have stopped them already.
func (l *ledger) pardon() {
	for k, e := range l.victims {
		if !e.leaves && !l.waits(k.Namespace, e.victimOf) {
			e.victimOf = ""
			delete(l.victims, k)
		}
	}
}

// waits tells whether a demand of this name waits for a robot.
func (l *ledger) waits(namespace, demand string) bool {
	if l.waiting[key{Namespace: namespace, Name: demand}] != nil {
		return true
	}
	for group, c := range l.wants {
		for _, d := range c.demands {
			if group.Namespace == namespace && d.Name() == demand {
				return true
			}
		}
	}
	return false
}

func (l *ledger) settleBinding(namespace string, b *placement.Binding, now time.Time, n *news) {
	for _, t := range b.Demand.Tasks {
		k := key{Namespace: namespace, Name: t.Name}
		e := l.entries[k]
		if e == nil {
			group := key{Namespace: namespace, Name: b.Demand.Group}
			e = &entry{key: k, Task: t, index: b.Demand.Index, replica: replica{group: group, index: strconv.Itoa(b.Demand.Index)}}
			l.enter(e)
			l.unseen[k] = e
			n.groups[group] = true
		} else {
			n.tasks = append(n.tasks, k)
			n.tasks = slices.AppendSeq(n.tasks, maps.Keys(l.ended[e.replica]))
		}
		e.seated = now
		l.sit(e, b.Robot)
	}
}

// settleRefusal tells all waiting tasks of the refused replica.
func (l *ledger) settleRefusal(first *entry, r *placement.Refusal, words map[*placement.Refusal]string, n *news) {
	if words[r] == "" {
		words[r] = r.String()
	}
	for k, e := range l.replicas[first.replica] {
		if l.waiting[k] == nil || e.told == words[r] {
			continue
		}
		e.refusal, e.told = r, words[r]
		n.tasks = append(n.tasks, k)
	}
}
