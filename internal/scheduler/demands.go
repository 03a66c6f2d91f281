package scheduler

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// terms are the rules and preferences that the demands of a group share. Placement checks demands
// that share them once.
type terms struct {
	rules       *placement.Rules
	preferences *placement.Preferences
	priority    int32
	preempts    bool
	createdAt   time.Time // of the job; zero: the task's own time counts
}

func (t *terms) applyTo(d *placement.Demand) {
	d.Rules, d.Preferences, d.Preempts = t.rules, t.preferences, t.preempts
	d.Priority = t.priority
	if !t.createdAt.IsZero() {
		d.Since = t.createdAt
	}
}

// demandBuilder builds the demands of waiting tasks and claims. It is used for one cycle, and is
// guarded by Scheduler.mu.
type demandBuilder struct {
	*clusterState
	shared map[key]*terms // by TaskGroup
}

func newDemandBuilder(c *clusterState) *demandBuilder {
	return &demandBuilder{clusterState: c, shared: map[key]*terms{}}
}

// buildDemands returns the demands of all waiting tasks and claims, by namespace.
func (b *demandBuilder) buildDemands() map[string][]placement.Demand {
	out := map[string][]placement.Demand{}
	for _, waiting := range b.placeableReplicas() {
		if d, ok := b.demandOf(waiting); ok {
			namespace := waiting[0].key.Namespace
			out[namespace] = append(out[namespace], d)
		}
	}
	for k, c := range b.claims {
		t := b.termsOfClaim(k, c)
		for _, d := range c.demands {
			t.applyTo(&d)
			d.Gang = c.group.gang
			if !b.tasks.hasTaskOf(k.Namespace, &d) {
				out[k.Namespace] = append(out[k.Namespace], d)
			}
		}
	}
	for namespace, demands := range out {
		b.setGangs(namespace, demands)
	}
	return out
}

// placeableReplicas returns the waiting entries that may be placed now, by replica.
func (b *demandBuilder) placeableReplicas() map[taskstate.Replica][]*taskEntry {
	out := make(map[taskstate.Replica][]*taskEntry, len(b.tasks.waiting))
	for _, e := range b.tasks.waiting {
		if e.notBefore.IsZero() && !e.awaitsAttempt {
			out[e.replica] = append(out[e.replica], e)
		}
	}
	maps.DeleteFunc(out, func(r taskstate.Replica, _ []*taskEntry) bool { return b.awaitsMoreTasks(r) })
	return out
}

// demandOf returns the demand of the waiting tasks of one replica, and false if they may not start.
// The robot is fixed if a user chose one, or if the other tasks of the replica share one.
func (b *demandBuilder) demandOf(waiting []*taskEntry) (d placement.Demand, ok bool) {
	slices.SortFunc(waiting, func(x, y *taskEntry) int { return strings.Compare(x.key.Name, y.key.Name) })
	first := waiting[0]
	group := first.replica.Group
	d = placement.Demand{Group: group.Name, Index: first.index, Since: first.createdAt}
	if first.job != "" && !b.owners.jobs[key{Namespace: first.key.Namespace, Name: first.job}].starts {
		return d, false
	}
	if group.Name != "" && !b.owners.isComplete(group) {
		return d, false
	}
	b.termsOfEntry(first).applyTo(&d)
	for _, e := range waiting {
		d.Tasks = append(d.Tasks, e.Task)
		d.Failed = append(d.Failed, e.failedRobots...)
		d.Stopped = b.robots.stopped.addTo(d.Stopped, e.uid)
		if e.lostRobot != "" {
			// A new attempt there would end the lost one, which may be restored.
			d.Failed = append(d.Failed, e.lostRobot)
		}
		if d.Robot == "" {
			d.Robot = e.requiredRobot
		}
	}
	near := b.tasks.robotsOf(first.replica)
	if len(near) == 0 {
		b.initTasks.addPreferredRobots(waiting, &d)
		return d, true
	}
	reuseDisk(&d)
	if d.Near = near; !b.tasks.isSplit(first.replica, near) {
		d.Robot = near[0]
	}
	return d, true
}

// reuseDisk moves the shared disk of a demand to its ExtraRoom, which the robots in Near do not
// need, because they hold the disk already.
func reuseDisk(d *placement.Demand) {
	for i := range d.Tasks {
		d.ExtraRoom.Disk = max(d.ExtraRoom.Disk, d.Tasks[i].Shared)
		d.Tasks[i].Shared = 0
	}
}

// setGangs marks the demands of gangs, which are placed together. The replicas of a gang that has
// started are placed one by one, unless all of them wait.
func (b *demandBuilder) setGangs(namespace string, demands []placement.Demand) {
	count := map[string]int{}
	for i := range demands {
		count[demands[i].Group]++
	}
	for i := range demands {
		d := &demands[i]
		k := key{Namespace: namespace, Name: d.Group}
		g, ok := b.owners.groups[k]
		switch {
		case !ok:
		case g.gang > 0 && (count[d.Group] == g.gang || !b.groups.hasStarted(k, g.uid)):
			d.Gang = g.gang
		default:
			d.Gang = 0
		}
	}
}

// termsOfGroup returns the terms of a group that was observed.
func (b *demandBuilder) termsOfGroup(k key, g *groupInfo) *terms {
	t := b.shared[k]
	if t == nil {
		g.blocked = b.blockedRobots(k)
		t = b.newTerms(key{Namespace: k.Namespace, Name: g.job}, g, g.constraints)
		b.shared[k] = t
	}
	return t
}

// termsOfClaim returns the terms of a claim: those of the observed group, or of the caller's
// version if the informers still show an earlier group or job of that name.
func (b *demandBuilder) termsOfClaim(k key, c *claim) *terms {
	g, job := b.owners.groups[k], key{Namespace: k.Namespace, Name: c.group.job}
	if b.owners.isComplete(k) && g.uid == c.group.uid && b.owners.jobs[job].createdAt.Equal(c.job.createdAt) {
		return b.termsOfGroup(k, &g)
	}
	return b.newTermsOf(job, c.job, &c.group, c.group.constraints)
}

// termsOfEntry returns the terms of a waiting task. Its own constraints count, because those of its
// group may have changed.
func (b *demandBuilder) termsOfEntry(e *taskEntry) *terms {
	job := key{Namespace: e.key.Namespace, Name: e.job}
	g, ok := b.owners.groups[e.replica.Group]
	switch {
	case ok && slices.Equal(g.constraints, e.constraints):
		return b.termsOfGroup(e.replica.Group, &g)
	case ok:
		g.blocked = b.blockedRobots(e.replica.Group)
		return b.newTerms(job, &g, e.constraints)
	}
	return b.newTerms(job, nil, e.constraints)
}

// newTerms returns the terms of demands of an observed job. The group is nil for a task without one.
func (b *demandBuilder) newTerms(job key, g *groupInfo, constraints []placement.Constraint) *terms {
	j, ok := b.owners.jobs[job]
	if !ok {
		j.priority = apiconv.DefaultPriority
	}
	return b.newTermsOf(job, j, g, constraints)
}

// newTermsOf returns the terms of demands of a job with this info, even if it was not observed.
func (b *demandBuilder) newTermsOf(job key, j jobInfo, g *groupInfo, constraints []placement.Constraint) *terms {
	rules := j.rules
	rules.Constraints = constraints
	t := &terms{
		rules:    &rules,
		priority: j.priority, createdAt: j.createdAt,
		preempts: j.preempts && b.canPreempt,
	}
	if g != nil {
		t.rules.Blocked = g.blocked
		t.preferences = apiconv.PreferencesFrom(g.placement, func(name string) string { return b.owners.groupsByRef[groupRef{job, name}].Name })
	}
	return t
}

// snapshotFor returns the input of placement for one namespace. It contains the reservations that
// earlier namespaces got in the same cycle.
func (c *clusterState) snapshotFor(namespace string, demands []placement.Demand) placement.Snapshot {
	robots := c.robots.byNamespace[namespace]
	s := placement.Snapshot{Demands: demands, Robots: make([]placement.Robot, 0, len(robots))}
	for _, r := range robots {
		robot := r.forNamespace(namespace)
		if owner := c.preemptions.reservedFor[r.id]; owner != "" && owner != namespace {
			robot.Offer = closedOffer(robot.Offer)
		}
		s.Robots = append(s.Robots, robot)
	}
	if slices.ContainsFunc(demands, func(d placement.Demand) bool { return d.Preempts }) {
		s.Holders = c.holdersIn(namespace)
	}
	return s
}

// closedOffer returns the offer of a robot that takes no new tasks for now.
func closedOffer(o *placement.Offer) *placement.Offer {
	closed := *o
	closed.Unschedulable = true
	return &closed
}

// holdersIn returns the tasks of a namespace with a reservation, by robot.
func (c *clusterState) holdersIn(namespace string) map[string][]placement.Holder {
	out := map[string][]placement.Holder{}
	for k, e := range c.tasks.byKey {
		if e.robot == "" || k.Namespace != namespace {
			continue
		}
		out[e.robot] = append(out[e.robot], placement.Holder{
			Name: k.Name, Priority: c.owners.priorityOf(key{Namespace: namespace, Name: e.job}),
			Since: e.createdAt, Room: c.tasks.roomOf(e), Leaving: e.leaving || e.victimOf != "",
			Protected: c.isProtected(e),
		})
	}
	return out
}

// rotateNamespaces returns the order in which namespaces are served in a cycle. Each is first in
// turn: priorities count within a namespace only, so with a fixed order the last one would get only
// the shared robots that all others leave.
func (c *clusterState) rotateNamespaces(demands map[string][]placement.Demand) []string {
	names := slices.Sorted(maps.Keys(demands))
	next, found := slices.BinarySearch(names, c.lastNamespace)
	if found {
		next++
	}
	order := slices.Concat(names[next:], names[:next])
	if len(order) > 0 {
		c.lastNamespace = order[0]
	}
	return order
}
