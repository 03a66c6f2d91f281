package task

import (
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/controllers/progress"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/placement"
)

type key = types.NamespacedName

// ledger is what the robots hold and what waits for them, as far as the watch
// has told, plus the seats that were given away since. It is fed one event at
// a time, so that a cycle never lists. It is not safe for concurrent use.
type ledger struct {
	now      func() time.Time
	robots   map[string]*robot            // by id, which is one in the whole cluster
	fleets   map[string]map[string]*robot // by namespace: those that its tasks may use, by id
	kept     map[string]string            // robots on which tasks of a namespace make room for another of it
	last     string                       // namespace that chose first in the last cycle
	jobs     map[key]job
	groups   map[key]group
	objects  map[groupID]key               // TaskGroups by their place in a Job
	sitting  map[key]int                   // by TaskGroup: entries with a seat
	ran      map[types.UID]bool            // TaskGroups of which a task was ever on a robot
	entries  map[key]*entry                // every task that waits or holds a seat
	replicas map[replica]map[key]*entry    // entries of the same replica
	waiting  map[key]*entry                // in the cluster and without a seat
	gathers  map[replica]time.Time         // until when a replica waits for its own tasks to be seen
	unseen   map[key]*entry                // seats whose Task the watch has not shown yet
	wants    map[key]*claim                // by TaskGroup: replicas that do not exist yet
	runs     map[key]runs                  // by Task: attempts that do not count and may still run
	leaving  []*run                        // those that are told to end
	prepared map[key]*prepared             // by Task: init tasks that have ended
	ended    map[replica]map[key]*prepared // the same by replica
	victims  map[key]*entry                // entries that are to leave for another task
	contact  map[string]contact            // by namespace
	changed  bool                          // a cycle may decide otherwise than the last one
	late     []key                         // seated before the watch showed them, and not told

	// preempts tells that somebody makes victims leave.
	preempts bool
}

// robot with what tasks of all namespaces hold of it. One that is held to but has
// no object is not known.
type robot struct {
	id      string
	held    placement.Room
	groups  map[string]map[string]int // by namespace and TaskGroup: tasks with a seat
	offer   *placement.Offer
	objects []*v1alpha1.Robot // of this id; the first counts
	users   []string          // namespaces whose tasks may use it
	since   time.Time         // when it came, or came back, into contact
}

// as is the robot as the tasks of a namespace see it: to be spread over robots
// concerns those of a group, and each namespace may have one of that name.
func (r *robot) as(namespace string) placement.Robot {
	return placement.Robot{Name: r.id, Offer: r.offer, Held: r.held, Groups: r.groups[namespace]}
}

func (r *robot) known() bool { return len(r.objects) > 0 }

// contact counts the robots that a namespace may use and that are in contact.
type contact struct {
	robots int
	since  time.Time // when the first of them came; zero: there is none
}

// job is what its tasks inherit.
type job struct {
	priority int32
	preempts bool
	rules    placement.Rules // without constraints, which are the groups'
	since    time.Time
	starts   bool
}

// replica names the tasks that share a robot. A task made by hand is its own.
type replica struct {
	group key
	index string
}

// String is equal only for the same replica of one namespace.
func (r replica) String() string { return r.group.Name + "/" + r.index }

// entry is one task that waits or holds a seat.
type entry struct {
	placement.Task
	key         key
	job         string // empty: made by hand
	replica     replica
	index       int
	since       time.Time
	constraints []placement.Constraint
	failed      []string  // robots that it failed on
	pinned      string    // spec.targetRobot
	ready       time.Time // when it may be placed again; zero: at once
	held        bool      // it waits for the end of another attempt
	killTimeout time.Duration
	uid         types.UID // empty: its Task was not seen yet
	version     string    // of the Task, as it was seen last
	seat        string    // robot whose room it takes; empty: none
	onRobot     bool      // the watch said that it was dispatched
	leaves      bool      // it is asked to stop
	original    string    // robot of the original that may count again; empty: none
	last        string    // robot of its present attempt; empty: it has none
	sticky      bool      // it would rather go back there
	turned      time.Time // when it was bound to its robot, or came back from it
	victimOf    string    // the demand that it must leave for; empty: none
	seated      time.Time
	refusal     *placement.Refusal
	told        string // the refusal in words, as of the last cycle
}

func newLedger(now func() time.Time) *ledger {
	return &ledger{
		now:      now,
		robots:   map[string]*robot{},
		fleets:   map[string]map[string]*robot{},
		kept:     map[string]string{},
		jobs:     map[key]job{},
		groups:   map[key]group{},
		objects:  map[groupID]key{},
		sitting:  map[key]int{},
		ran:      map[types.UID]bool{},
		entries:  map[key]*entry{},
		replicas: map[replica]map[key]*entry{},
		waiting:  map[key]*entry{},
		gathers:  map[replica]time.Time{},
		unseen:   map[key]*entry{},
		wants:    map[key]*claim{},
		runs:     map[key]runs{},
		prepared: map[key]*prepared{},
		ended:    map[replica]map[key]*prepared{},
		victims:  map[key]*entry{},
		contact:  map[string]contact{},
	}
}

// seeTask takes in what the watch says of a Task.
func (l *ledger) seeTask(t *v1alpha1.Task) {
	k := key{Namespace: t.Namespace, Name: t.Name}
	state := lifecycle.TaskState(t.Status.State).Normal()
	if e := l.unseen[k]; e != nil && e.seat != t.Spec.TargetRobot {
		l.late = append(l.late, k)
	}
	delete(l.unseen, k)
	if e := l.entries[k]; e != nil && e.uid != "" && e.uid != t.UID {
		l.leave(k) // the watch was cut off and shows no deletion
	}
	l.seeRuns(k, t)
	l.fulfil(t)
	l.seePrepared(k, t)
	if owner := metav1.GetControllerOf(t); owner != nil && t.Status.Attempt > 0 && t.DeletionTimestamp == nil {
		l.ran[owner.UID] = true
	}
	switch {
	case state.Active() && t.RobotOfAttempt() != "" && !unplacedFor(&t.Status, ReasonOriginalAway):
		// An exited one keeps its place until it is known what follows: it may
		// be run again there, unless only its original could still save it.
		e := l.entryOf(k, t)
		e.onRobot = true
		l.sit(e, t.RobotOfAttempt())
	case state.Placeable() && t.DeletionTimestamp == nil:
		l.seeWaiting(k, t)
	default:
		l.drop(k)
	}
}

// fulfil takes back what was wanted for a replica of which a Task exists now. A
// want that stayed would take a second seat when the Task has ended.
func (l *ledger) fulfil(t *v1alpha1.Task) {
	if c := l.wants[replicaOf(t).group]; c != nil {
		delete(c.demands, indexOf(t))
	}
}

// seeWaiting keeps the seat that was given to the task since the last event,
// but not the one that it comes back from, nor one on another robot than the
// one that its spec names.
func (l *ledger) seeWaiting(k key, t *v1alpha1.Task) {
	e := l.entryOf(k, t)
	if e.onRobot || (e.pinned != "" && e.pinned != e.seat) || l.now().Before(e.ready) || e.held {
		l.stand(e)
	}
	e.onRobot = false
	l.forsake(e)
	if e.seat == "" {
		l.waiting[k] = e
		l.changed = true
	}
}

func (l *ledger) entryOf(k key, t *v1alpha1.Task) *entry {
	e := l.entries[k]
	if e == nil {
		e = &entry{key: k, replica: replicaOf(t)}
		l.enter(e)
	}
	l.redefine(e, demand.Of(t), demand.Constraints(t.Spec.Constraints))
	e.job, e.index = t.Spec.JobName, indexOf(t)
	e.since, e.pinned = t.CreationTimestamp.Time, pinnedTo(t)
	e.version = t.ResourceVersion
	e.uid, e.ready, e.killTimeout = t.UID, readyAt(t), killTimeout(t)
	e.held = stillRunning(t)
	e.leaves = t.DeletionTimestamp != nil || t.Status.AskedToStop()
	e.failed, e.original = t.Status.FailedRobots, originalOn(t)
	e.last, e.turned = lastOn(t)
	e.sticky = t.Spec.EphemeralDisk != nil && t.Spec.EphemeralDisk.Sticky
	return e
}

// redefine takes in what the task is now. One that changed gives back the seat
// that it was given for what it was: it may not fit there any more, and must
// give back the room that it took.
func (l *ledger) redefine(e *entry, now placement.Task, constraints []placement.Constraint) {
	same := e.Driver == now.Driver && e.Isolation == now.Isolation && e.Secrets == now.Secrets && e.Needs.Equal(now.Needs) && e.Shared == now.Shared &&
		(e.uid == "" || slices.Equal(e.constraints, constraints))
	if !same {
		l.stand(e)
	}
	e.Task, e.constraints = now, constraints
}

func (l *ledger) enter(e *entry) {
	l.entries[e.key] = e
	if l.replicas[e.replica] == nil {
		l.replicas[e.replica] = map[key]*entry{}
	}
	l.replicas[e.replica][e.key] = e
}

// drop forgets a task that neither waits nor holds anything.
func (l *ledger) drop(k key) {
	e := l.entries[k]
	if e == nil {
		return
	}
	l.stand(e)
	if l.waiting[k] != nil && len(l.victims) > 0 {
		l.changed = true // one of them may be allowed to stay
	}
	delete(l.entries, k)
	delete(l.waiting, k)
	delete(l.unseen, k)
	delete(l.victims, k)
	delete(l.replicas[e.replica], k)
	if len(l.replicas[e.replica]) == 0 {
		delete(l.replicas, e.replica)
	}
}

// sit gives the entry a seat on a robot.
func (l *ledger) sit(e *entry, robot string) {
	delete(l.waiting, e.key)
	e.refusal, e.told = nil, ""
	if e.seat == robot {
		return
	}
	l.stand(e)
	e.seat = robot
	l.take(robot, l.roomOf(e))
	if g := e.replica.group; g.Name != "" {
		l.robot(robot).count(g, 1)
		l.sitting[g]++
	}
}

// count counts tasks of a group in or out.
func (r *robot) count(g key, tasks int) {
	if r.groups[g.Namespace] == nil {
		r.groups[g.Namespace] = map[string]int{}
	}
	mine := r.groups[g.Namespace]
	if mine[g.Name] += tasks; mine[g.Name] == 0 {
		delete(mine, g.Name)
	}
	if len(mine) == 0 {
		delete(r.groups, g.Namespace)
	}
}

// stand gives the entry's seat back.
func (l *ledger) stand(e *entry) {
	if e.seat == "" {
		return
	}
	robot, room := e.seat, l.roomOf(e)
	if g := e.replica.group; g.Name != "" {
		l.robot(robot).count(g, -1)
		if l.sitting[g]--; l.sitting[g] == 0 {
			delete(l.sitting, g)
		}
	}
	e.seat, e.victimOf = "", ""
	delete(l.victims, e.key)
	l.free(robot, room)
}

// roomOf is what a task with a seat takes there beside the others of its replica,
// who share a disk.
func (l *ledger) roomOf(e *entry) placement.Room {
	room := e.Room()
	if e.Shared == 0 {
		return room
	}
	var others int64
	for _, sibling := range l.replicas[e.replica] {
		if sibling != e && sibling.seat == e.seat {
			others = max(others, sibling.Shared)
		}
	}
	room.Disk += max(e.Shared-others, 0)
	return room
}

// take holds room on a robot.
func (l *ledger) take(robot string, room placement.Room) {
	r := l.robot(robot)
	r.held = r.held.Plus(room)
}

// free gives room on a robot back.
func (l *ledger) free(robot string, room placement.Room) {
	r := l.robot(robot)
	r.held = r.held.Minus(room)
	if !r.known() && r.idle() {
		delete(l.robots, robot)
	}
	l.changed = true
}

// idle tells whether nobody holds anything on the robot, be it only a seat: an init
// task may hold no room of its own.
func (r *robot) idle() bool { return r.held.Equal(placement.Room{}) && len(r.groups) == 0 }

func (l *ledger) robot(id string) *robot {
	r := l.robots[id]
	if r == nil {
		r = &robot{id: id, offer: &placement.Offer{}, groups: map[string]map[string]int{}}
		l.robots[id] = r
	}
	return r
}

// seeRobot takes in what the watch says of a Robot.
func (l *ledger) seeRobot(obj *v1alpha1.Robot) {
	r := l.robot(obj.Name)
	r.objects = append(r.without(obj.Namespace), obj)
	slices.SortFunc(r.objects, (*v1alpha1.Robot).CompareAge)
	l.follow(r)
}

// dropRobot takes in that a Robot is gone.
func (l *ledger) dropRobot(k key) {
	r := l.robots[k.Name]
	if r == nil {
		return
	}
	r.objects = r.without(k.Namespace)
	l.follow(r)
	if !r.known() && r.idle() {
		delete(l.robots, k.Name)
	}
}

// without are the objects of the robot's id in other namespaces.
func (r *robot) without(namespace string) []*v1alpha1.Robot {
	return slices.DeleteFunc(slices.Clone(r.objects), func(o *v1alpha1.Robot) bool { return o.Namespace == namespace })
}

// follow makes the robot what the object says that counts.
func (l *ledger) follow(r *robot) {
	now, users := &placement.Offer{}, []string(nil)
	if r.known() {
		now, users = demand.Robot(r.objects[0]).Offer, r.objects[0].Users()
	}
	was, had := r.inContact(), r.users
	if slices.Equal(had, users) && r.offer.Equal(now) {
		return
	}
	r.offer, r.users, l.changed = now, users, true
	is := r.inContact()
	if is && !was {
		r.since = l.now()
	}
	fewer := false
	for _, namespace := range had {
		if !slices.Contains(users, namespace) {
			fewer = true
			delete(l.fleets[namespace], r.id)
			l.reach(namespace, was, false)
		}
	}
	for _, namespace := range users {
		if l.fleets[namespace] == nil {
			l.fleets[namespace] = map[string]*robot{}
		}
		l.fleets[namespace][r.id] = r
		l.reach(namespace, was && slices.Contains(had, namespace), is)
	}
	if fewer || !is || now.Unschedulable { // it looks at every task
		l.withdraw(r)
	}
}

func (r *robot) inContact() bool { return r.offer.Phase == lifecycle.RobotOnline }

// takes tells whether the robot takes new tasks of a namespace.
func (r *robot) takes(namespace string) bool {
	return r.inContact() && !r.offer.Unschedulable && slices.Contains(r.users, namespace)
}

// reach takes in that a robot was in contact, and is.
func (l *ledger) reach(namespace string, was, is bool) {
	c := l.contact[namespace]
	switch {
	case is && !was:
		if c.robots++; c.robots == 1 {
			c.since = l.now()
		}
	case was && !is:
		if c.robots--; c.robots == 0 {
			c.since = time.Time{}
		}
	}
	l.contact[namespace] = c
}

// withdraw takes back the seats on a robot of tasks that were not dispatched yet
// and that it does not take any more. Or an init task that leaves a robot which is
// drained would wait for those that are to come after it there.
func (l *ledger) withdraw(r *robot) {
	for _, e := range l.entries {
		if e.seat == r.id && !e.onRobot && !r.takes(e.key.Namespace) {
			l.unseat(e)
		}
	}
}

// unseat takes a seat back and lets the task wait again, if it exists.
func (l *ledger) unseat(e *entry) {
	if l.unseen[e.key] != nil {
		l.drop(e.key)
		return
	}
	l.stand(e)
	l.waiting[e.key] = e
}

// seeJob takes in what the watch says of a Job.
func (l *ledger) seeJob(obj *v1alpha1.Job) {
	k, now := key{Namespace: obj.Namespace, Name: obj.Name}, newJob(obj)
	old, ok := l.jobs[k]
	if ok && old.same(now) {
		return
	}
	l.jobs[k], l.changed = now, true
	if old.starts && !now.starts {
		l.halt(k)
	}
}

func newJob(obj *v1alpha1.Job) job {
	j := job{
		priority: demand.DefaultPriority,
		preempts: obj.Spec.Preemption,
		rules:    *demand.Rules(obj, nil),
		since:    obj.CreationTimestamp.Time,
		starts:   progress.Starts(obj) && obj.DeletionTimestamp == nil,
	}
	if p := obj.Spec.Priority; p != nil {
		j.priority = *p
	}
	return j
}

// same also tells a Job from a later one of its name, of which a watch that was
// cut off shows no deletion in between.
func (j job) same(o job) bool {
	return j.priority == o.priority && j.preempts == o.preempts && j.starts == o.starts && j.since.Equal(o.since) &&
		reflect.DeepEqual(j.rules, o.rules)
}

func (l *ledger) dropJob(k key) {
	delete(l.jobs, k)
	l.halt(k)
}

// halt takes back the seats of a job's tasks that were not dispatched yet. Of a
// Job that is deleted in the background the Tasks stay for a while.
func (l *ledger) halt(job key) {
	for _, e := range l.entries {
		if e.job == job.Name && e.key.Namespace == job.Namespace && e.seat != "" && !e.onRobot {
			l.unseat(e)
		}
	}
}

// want replaces what a group of a job asks for.
func (l *ledger) want(g *v1alpha1.TaskGroup, j *v1alpha1.Job, demands []placement.Demand) {
	k := key{Namespace: g.Namespace, Name: g.Name}
	if len(demands) == 0 {
		delete(l.wants, k)
		return
	}
	c := &claim{group: newGroup(g), job: newJob(j), demands: make(map[int]placement.Demand, len(demands))}
	for i := range demands {
		c.demands[demands[i].Index] = demands[i]
	}
	l.wants[k], l.changed = c, true
}

// seats are the robots of those demands that have one. A Task of another owner
// may hold the name that a demand goes by: its robot is not ours.
func (l *ledger) seats(group key, demands []placement.Demand) map[string]placement.Robot {
	out := map[string]placement.Robot{}
	for i := range demands {
		d := &demands[i]
		e := l.entries[key{Namespace: group.Namespace, Name: d.Name()}]
		if e != nil && e.seat != "" && e.replica.group == group {
			out[d.Name()] = l.robot(e.seat).as(group.Namespace)
		}
	}
	return out
}

// release gives back the seat of a task that was not created after all.
func (l *ledger) release(k key) {
	if l.unseen[k] != nil {
		l.drop(k)
	}
}

// forget drops all that a group asked for and did not use.
func (l *ledger) forget(group key) {
	delete(l.wants, group)
	for k, e := range l.unseen {
		if e.replica.group == group {
			l.drop(k)
		}
	}
}

// expire gives back seats whose Task never appeared, and returns them.
func (l *ledger) expire(before time.Time) []key {
	var gone []key
	for k, e := range l.unseen {
		if e.seated.Before(before) {
			gone = append(gone, k)
			l.drop(k)
		}
	}
	return gone
}
