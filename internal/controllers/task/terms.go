package task

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/placement"
)

// group is what its replicas inherit from a TaskGroup.
type group struct {
	uid         types.UID
	job, name   string // name is that within the job
	constraints []placement.Constraint
	placement   *v1alpha1.Placement
	blocked     []string // robots that failed too many of its tasks
	gang        int      // the number of replicas of a gang; 0: it is none
	size        int      // the number of tasks of a replica
}

// claim is what a TaskGroup asks for: replicas that do not exist yet, by index.
type claim struct {
	demands map[int]placement.Demand
	// group and job are as who asks sees them: the watch may be behind here. A claim
	// that waited for it got no robot, so the first tasks of every job were created
	// without one, which costs a write more.
	group group
	job   job
}

// groupID is a group's place in a job.
type groupID struct {
	job  key
	name string
}

func idOf(namespace string, g *group) groupID {
	return groupID{key{Namespace: namespace, Name: g.job}, g.name}
}

// seeGroup takes in what the watch says of a TaskGroup.
func (l *ledger) seeGroup(obj *v1alpha1.TaskGroup) {
	k, now := key{Namespace: obj.Namespace, Name: obj.Name}, newGroup(obj)
	if obj.Status.StartedAt != nil {
		l.ran[obj.UID] = true
	}
	if old, ok := l.groups[k]; ok && reflect.DeepEqual(old, now) {
		return
	}
	l.groups[k], l.changed = now, true
	l.objects[idOf(k.Namespace, &now)] = k
}

func newGroup(obj *v1alpha1.TaskGroup) group {
	return group{
		uid: obj.UID, job: obj.Spec.JobName, name: obj.Spec.GroupName,
		constraints: demand.Constraints(obj.Spec.Constraints), placement: obj.Spec.Placement, gang: demand.Gang(obj),
		blocked: obj.Status.BlockedRobots,
		size:    len(obj.Spec.InitTasks) + len(obj.Spec.Tasks),
	}
}

func (l *ledger) dropGroup(k key) {
	g := l.groups[k]
	if id := idOf(k.Namespace, &g); l.objects[id] == k {
		delete(l.objects, id)
	}
	delete(l.ran, g.uid)
	delete(l.groups, k)
}

// knows tells whether the watch has shown a TaskGroup and its Job. A Task that was
// placed before that went anywhere: the group's affinity was not looked at, or the Job's
// robotSelector.
func (l *ledger) knows(k key) bool {
	g, ok := l.groups[k]
	_, job := l.jobs[key{Namespace: k.Namespace, Name: g.job}]
	return ok && job
}

// started tells whether a replica of the group holds a robot or ever did. The
// rest of a gang that has started does not wait for those that have ended.
func (l *ledger) started(k key) bool { return l.ran[l.groups[k].uid] || l.sitting[k] > 0 }

// terms are what the demands of a group have in common. Demands that share
// them are judged once.
type terms struct {
	rules    *placement.Rules
	wishes   *placement.Wishes
	priority int32
	preempts bool
	since    time.Time
}

// sharedTerms are those of the groups in one cycle.
type sharedTerms map[key]*terms

// of are the terms of a group that is known.
func (s sharedTerms) of(l *ledger, k key, g *group) *terms {
	t := s[k]
	if t == nil {
		t = l.termsOf(key{Namespace: k.Namespace, Name: g.job}, g, g.constraints)
		s[k] = t
	}
	return t
}

// ofClaim are the terms of replicas that a group asks for: by what the watch has
// shown, unless that is still of an earlier group or job of the name.
func (s sharedTerms) ofClaim(l *ledger, k key, c *claim) *terms {
	g, jobKey := l.groups[k], key{Namespace: k.Namespace, Name: c.group.job}
	if l.knows(k) && g.uid == c.group.uid && l.jobs[jobKey].since.Equal(c.job.since) {
		return s.of(l, k, &g)
	}
	return l.termsIn(jobKey, c.job, &c.group, c.group.constraints)
}

// termsOf are those of a group of a job, or of a task by hand.
func (l *ledger) termsOf(jobKey key, g *group, constraints []placement.Constraint) *terms {
	j, ok := l.jobs[jobKey]
	if !ok {
		j.priority = demand.DefaultPriority
	}
	return l.termsIn(jobKey, j, g, constraints)
}

// termsIn are those in a job that is like j.
func (l *ledger) termsIn(jobKey key, j job, g *group, constraints []placement.Constraint) *terms {
	rules := j.rules
	rules.Constraints = constraints
	t := &terms{
		rules:    &rules,
		priority: j.priority, since: j.since,
		preempts: j.preempts && l.preempts,
	}
	if g != nil {
		t.rules.Blocked = g.blocked
		t.wishes = demand.Wishes(g.placement, func(name string) string { return l.objects[groupID{jobKey, name}].Name })
	}
	return t
}

// termsFor are those of a task that waits. It goes by its own constraints: its
// group may have others by now.
func (l *ledger) termsFor(e *entry, shared sharedTerms) *terms {
	g, ok := l.groups[e.replica.group]
	switch {
	case ok && slices.Equal(g.constraints, e.constraints):
		return shared.of(l, e.replica.group, &g)
	case ok:
		return l.termsOf(key{Namespace: e.key.Namespace, Name: e.job}, &g, e.constraints)
	}
	return l.termsOf(key{Namespace: e.key.Namespace, Name: e.job}, nil, e.constraints)
}

func (t *terms) put(d *placement.Demand) {
	d.Rules, d.Wishes, d.Preempts = t.rules, t.wishes, t.preempts
	d.Priority = t.priority
	if !t.since.IsZero() {
		d.Since = t.since
	}
}

// bindGangs says of the demands of gangs that they go together. A gang that
// has started goes together again when all of it waits; else its replicas
// come back one by one.
func (l *ledger) bindGangs(namespace string, demands []placement.Demand) {
	count := map[string]int{}
	for i := range demands {
		count[demands[i].Group]++
	}
	for i := range demands {
		d := &demands[i]
		k := key{Namespace: namespace, Name: d.Group}
		g, ok := l.groups[k]
		switch {
		case !ok:
		case g.gang > 0 && (count[d.Group] == g.gang || !l.started(k)):
			d.Gang = g.gang
		default:
			d.Gang = 0
		}
	}
}

// holders are all who hold room in a namespace, by robot.
func (l *ledger) holders(namespace string) map[string][]placement.Holder {
	out := map[string][]placement.Holder{}
	for k, e := range l.entries {
		if e.seat == "" || k.Namespace != namespace {
			continue
		}
		h := placement.Holder{Name: k.Name, Priority: demand.DefaultPriority, Since: e.since, Room: l.roomOf(e), Leaving: e.leaves || e.victimOf != ""}
		if j, ok := l.jobs[key{Namespace: namespace, Name: e.job}]; ok {
			h.Priority = j.priority
		}
		out[e.seat] = append(out[e.seat], h)
	}
	return out
}

// better asks placement for the one of two robots that both run the Task. Of what
// they hold the Task itself is left out.
func (l *ledger) better(t *v1alpha1.Task, a, b string) string {
	d := l.demandFor(t)
	var s placement.Snapshot
	for _, name := range []string{a, b} {
		r := l.robots[name]
		if r == nil || !r.known() {
			continue
		}
		one := r.as(t.Namespace)
		one.Held = one.Held.Minus(d.Needs())
		if name == t.RobotOfAttempt() { // an original is in no group
			groups := map[string]int{}
			maps.Copy(groups, one.Groups)
			groups[d.Group]--
			one.Groups = groups
		}
		s.Robots = append(s.Robots, one)
	}
	s.Demands = []placement.Demand{d}
	for _, bound := range placement.Decide(s).Bind {
		return bound.Robot
	}
	return ""
}

// demandFor is what a Task wants by itself.
func (l *ledger) demandFor(t *v1alpha1.Task) placement.Demand {
	e := &entry{
		Task: demand.Of(t), key: key{Namespace: t.Namespace, Name: t.Name},
		job: t.Spec.JobName, replica: replicaOf(t), constraints: demand.Constraints(t.Spec.Constraints),
	}
	d := placement.Demand{Tasks: []placement.Task{e.Task}, Group: e.replica.group.Name, Since: t.CreationTimestamp.Time}
	l.termsFor(e, sharedTerms{}).put(&d)
	return d
}

// capable tells whether any robot could ever take the Task, beside those that
// have failed it, or another of its replica.
func (l *ledger) capable(t *v1alpha1.Task, failed []string) bool {
	d := l.demandFor(t)
	d.Failed = slices.Concat(failed, l.failedOthers(t))
	if !chosenByUs(t) {
		d.Robot = t.Spec.TargetRobot
	}
	var robots []placement.Robot
	for _, r := range l.fleets[t.Namespace] {
		robots = append(robots, r.as(t.Namespace))
	}
	return placement.Capable(&d, robots)
}
