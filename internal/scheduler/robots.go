package scheduler

import (
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/window"
)

// robotState is a robot with the reservations of tasks of all namespaces. A robot with
// reservations is kept even if it has no object.
type robotState struct {
	id       string
	reserved placement.Room
	tasks    robotTaskCounts
	entries  []*taskEntry // with a reservation on the robot
	offer    *placement.Offer
	objects  []*v1alpha1.Robot // of this id in all namespaces; the oldest counts
	users    []string          // namespaces whose tasks may use it
	stopped  []v1alpha1.StoppedTask
	holds    []v1alpha1.RobotHold
	// onlineSince is when the robot last came online.
	onlineSince time.Time
}

// forNamespace returns the robot for the placement of tasks of a namespace. Its Groups counts only
// groups of that namespace, because two namespaces may use the same group name.
func (r *robotState) forNamespace(namespace string) placement.Robot {
	return placement.Robot{Name: r.id, Offer: r.offer, Held: r.reserved, Groups: r.tasks[namespace]}
}

// hasObject reports whether a Robot object of this id exists.
func (r *robotState) hasObject() bool { return len(r.objects) > 0 }

// removeEntry drops an entry whose reservation was released.
func (r *robotState) removeEntry(e *taskEntry) {
	if i := slices.Index(r.entries, e); i >= 0 {
		r.entries = slices.Delete(r.entries, i, i+1)
	}
}

// isIdle reports whether the robot has no reservations. It also checks the counts and entries,
// because the reservation of an init task may take no room.
func (r *robotState) isIdle() bool {
	return r.reserved.Equal(placement.Room{}) && len(r.tasks) == 0 && len(r.entries) == 0
}

func (r *robotState) isOnline() bool { return r.offer.Phase == lifecycle.RobotOnline }

// acceptsTasksOf reports whether new tasks of a namespace may be placed on the robot.
func (r *robotState) acceptsTasksOf(namespace string) bool {
	return r.isOnline() && !r.offer.Unschedulable && r.offer.Impairment == "" && slices.Contains(r.users, namespace)
}

// removeObject drops the object of a namespace, if there is one.
func (r *robotState) removeObject(namespace string) {
	r.objects = slices.DeleteFunc(slices.Clone(r.objects), func(o *v1alpha1.Robot) bool { return o.Namespace == namespace })
}

// robotTaskCounts counts the tasks with a reservation on one robot, by namespace and
// TaskGroup. Zero counts are absent.
type robotTaskCounts map[string]map[string]int

func (c robotTaskCounts) addTasks(group key, n int) {
	if c[group.Namespace] == nil {
		c[group.Namespace] = map[string]int{}
	}
	counts := c[group.Namespace]
	if counts[group.Name] += n; counts[group.Name] == 0 {
		delete(counts, group.Name)
	}
	if len(counts) == 0 {
		delete(c, group.Namespace)
	}
}

// onlineRobots counts the online robots that a namespace may use.
type onlineRobots struct {
	count int
	since time.Time // when the first of them came online; zero if there is none
}

// robotIndex holds all robots, and which of them each namespace may use. It is
// guarded by Scheduler.mu.
type robotIndex struct {
	now   func() time.Time
	dirty *dirtyFlag

	byID        map[string]*robotState   // an id is unique in the cluster
	byNamespace map[string][]*robotState // robots that a namespace may use, in the order of ids
	online      map[string]onlineRobots  // by namespace
	stopped     stoppedTasks
}

func newRobotIndex(now func() time.Time, dirty *dirtyFlag) *robotIndex {
	return &robotIndex{
		now: now, dirty: dirty,
		stopped: stoppedTasks{},
		byID:    map[string]*robotState{}, byNamespace: map[string][]*robotState{}, online: map[string]onlineRobots{},
	}
}

// getOrCreate returns the robot of an id. A new one has no object.
func (x *robotIndex) getOrCreate(id string) *robotState {
	r := x.byID[id]
	if r == nil {
		r = &robotState{id: id, offer: &placement.Offer{}, tasks: robotTaskCounts{}}
		x.byID[id] = r
	}
	return r
}

// reserveRoom takes room on a robot.
func (x *robotIndex) reserveRoom(robot string, room placement.Room) {
	r := x.getOrCreate(robot)
	r.reserved = r.reserved.Plus(room)
}

// releaseRoom releases reserved room on a robot.
func (x *robotIndex) releaseRoom(robot string, room placement.Room) {
	r := x.getOrCreate(robot)
	r.reserved = r.reserved.Minus(room)
	x.deleteIfUnused(r)
	x.dirty.set()
}

// deleteIfUnused drops a robot that has neither an object nor reservations.
func (x *robotIndex) deleteIfUnused(r *robotState) {
	if !r.hasObject() && r.isIdle() {
		delete(x.byID, r.id)
	}
}

// addObject adds a new version of a Robot object.
func (x *robotIndex) addObject(obj *v1alpha1.Robot) *robotState {
	r := x.getOrCreate(obj.Name)
	r.removeObject(obj.Namespace)
	r.objects = append(r.objects, obj)
	slices.SortFunc(r.objects, (*v1alpha1.Robot).CompareAge)
	return r
}

// refresh updates a robot from its oldest object. It reports whether reservations on the robot
// may have to be canceled.
func (x *robotIndex) refresh(r *robotState) (needsCheck bool) {
	offer, users, stopped := &placement.Offer{}, []string(nil), []v1alpha1.StoppedTask(nil)
	if r.hasObject() {
		offer, users, stopped = apiconv.RobotFrom(r.objects[0]).Offer, r.objects[0].UserNamespaces(), r.objects[0].Status.StoppedTasks
	}
	if x.stopped.replace(r.id, r.stopped, stopped) {
		r.stopped = stopped
		x.dirty.set()
	}
	x.refreshHolds(r)
	wasOnline, oldUsers := r.isOnline(), r.users
	if slices.Equal(oldUsers, users) && r.offer.Equal(offer) {
		return false
	}
	r.offer, r.users = offer, users
	x.dirty.set()
	isOnline := r.isOnline()
	if isOnline && !wasOnline {
		r.onlineSince = x.now()
	}
	lostUsers := false
	for _, namespace := range oldUsers {
		if !slices.Contains(users, namespace) {
			lostUsers = true
			x.removeUser(r, namespace)
			x.countOnline(namespace, wasOnline, false)
		}
	}
	for _, namespace := range users {
		x.addUser(r, namespace)
		x.countOnline(namespace, wasOnline && slices.Contains(oldUsers, namespace), isOnline)
	}
	return lostUsers || !isOnline || offer.Unschedulable || offer.Impairment != ""
}

// refreshHolds updates the holds of a robot from its oldest object.
func (x *robotIndex) refreshHolds(r *robotState) {
	var holds []v1alpha1.RobotHold
	if r.hasObject() {
		holds = r.objects[0].Status.Holds
	}
	if !apiequality.Semantic.DeepEqual(r.holds, holds) {
		r.holds = holds
		x.dirty.set()
	}
}

// limits returns what decides whether tasks on the robot may be interrupted.
func (r *robotState) limits() window.Robot {
	if !r.hasObject() {
		return window.Robot{}
	}
	return window.Robot{Namespace: r.objects[0].Namespace, Labels: r.offer.Labels, Holds: r.holds}
}

// addUser lets a namespace use a robot.
func (x *robotIndex) addUser(r *robotState, namespace string) {
	at, found := x.findUsable(namespace, r.id)
	if !found {
		x.byNamespace[namespace] = slices.Insert(x.byNamespace[namespace], at, r)
	}
}

// removeUser ends that a namespace may use a robot.
func (x *robotIndex) removeUser(r *robotState, namespace string) {
	if at, found := x.findUsable(namespace, r.id); found {
		x.byNamespace[namespace] = slices.Delete(x.byNamespace[namespace], at, at+1)
	}
}

// findUsable returns where a robot is, or would be, among those that a namespace may use.
func (x *robotIndex) findUsable(namespace, id string) (at int, found bool) {
	return slices.BinarySearchFunc(x.byNamespace[namespace], id, func(r *robotState, id string) int { return strings.Compare(r.id, id) })
}

// countOnline updates the count of a namespace after one of its robots changed.
func (x *robotIndex) countOnline(namespace string, wasOnline, isOnline bool) {
	o := x.online[namespace]
	switch {
	case isOnline && !wasOnline:
		if o.count++; o.count == 1 {
			o.since = x.now()
		}
	case wasOnline && !isOnline:
		if o.count--; o.count == 0 {
			o.since = time.Time{}
		}
	}
	x.online[namespace] = o
}

// usableBy returns the robots that a namespace may use.
func (x *robotIndex) usableBy(namespace string) []placement.Robot {
	robots := make([]placement.Robot, 0, len(x.byNamespace[namespace]))
	for _, r := range x.byNamespace[namespace] {
		robots = append(robots, r.forNamespace(namespace))
	}
	return robots
}
