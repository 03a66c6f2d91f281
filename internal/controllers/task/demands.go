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

// demands are what waits for robots, by namespace.
func (l *ledger) demands() map[string][]placement.Demand {
	out := map[string][]placement.Demand{}
	shared := sharedTerms{}
	for _, waiting := range l.waitingReplicas() {
		if d, ok := l.demandOf(waiting, shared); ok {
			namespace := waiting[0].key.Namespace
			out[namespace] = append(out[namespace], d)
		}
	}
	for k, c := range l.wants {
		terms := shared.ofClaim(l, k, c)
		for _, d := range c.demands {
			terms.put(&d)
			d.Gang = c.group.gang
			if !l.entered(k.Namespace, &d) {
				out[k.Namespace] = append(out[k.Namespace], d)
			}
		}
	}
	for namespace, demands := range out {
		l.bindGangs(namespace, demands)
	}
	return out
}

// turns is the order in which namespaces choose in a cycle. Each is the first in
// its turn, for priorities count within a namespace only: of robots that several
// share the last would get what the others never need.
func (l *ledger) turns(demands map[string][]placement.Demand) []string {
	names := slices.Sorted(maps.Keys(demands))
	next, found := slices.BinarySearch(names, l.last)
	if found {
		next++
	}
	order := slices.Concat(names[next:], names[:next])
	if len(order) > 0 {
		l.last = order[0]
	}
	return order
}

// snapshot is what is decided on for one namespace. What those before it in the
// cycle were given is taken.
func (l *ledger) snapshot(namespace string, demands []placement.Demand) placement.Snapshot {
	s := placement.Snapshot{Demands: demands}
	for _, r := range l.fleets[namespace] {
		one := r.as(namespace)
		if by := l.kept[r.id]; by != "" && by != namespace {
			one.Offer = closed(one.Offer) // or who waits for a victim to leave would see others take its place
		}
		s.Robots = append(s.Robots, one)
	}
	if slices.ContainsFunc(demands, func(d placement.Demand) bool { return d.Preempts }) {
		s.Holders = l.holders(namespace)
	}
	return s
}

// closed is the offer of a robot that takes nothing new for now.
func closed(o *placement.Offer) *placement.Offer {
	no := *o
	no.Unschedulable = true
	return &no
}

// vacated are the robots on which tasks made room and no victim is left.
func (l *ledger) vacated() (robots []string) {
	left := map[string]bool{}
	for _, e := range l.victims {
		left[e.seat] = true
	}
	for id := range l.kept {
		if !left[id] {
			robots = append(robots, id)
		}
	}
	return robots
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
	freed  bool // there is room that was not there when somebody was refused
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
		if len(l.robots[p.Robot].users) > 1 {
			l.kept[p.Robot] = namespace
		}
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
