package bridge

import (
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/wire"
)

// view holds the informers' Tasks and Robots, found by what a message names.
// The objects in it are shared with the informers: nobody changes them.
//
// A Task of our own last write replaces the informer's until that has caught
// up, so that two reports about one task in a row do not end in a conflict.
type view struct {
	mu      sync.RWMutex
	tasks   map[types.UID]*robotv1.Task
	byRobot map[string]map[types.UID]struct{}
	robots  map[string][]*robotv1.Robot // by id, the one that counts first
	version uint64
}

func newView() *view {
	return &view{
		tasks:   map[types.UID]*robotv1.Task{},
		byRobot: map[string]map[types.UID]struct{}{},
		robots:  map[string][]*robotv1.Robot{},
	}
}

// task returns the Task with this UID, or nil.
func (v *view) task(uid types.UID) *robotv1.Task {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.tasks[uid]
}

// tasksOn returns the Tasks that this robot should be running, or is to be told
// about, as it is to see them: none of one that is revoked. What has ended costs
// nothing here, however much there is of it.
func (v *view) tasksOn(robotID string) []*robotv1.Task {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.refused(robotID) {
		return nil
	}
	found := make([]*robotv1.Task, 0, len(v.byRobot[robotID]))
	for uid := range v.byRobot[robotID] {
		t := v.tasks[uid]
		o := originalOf(t)
		switch {
		case t.RobotOfAttempt() == robotID && asks(t) && !v.another(t, robotID):
			found = append(found, t)
		case o != nil && o.Spec.TargetRobot == robotID && !v.another(o, robotID):
			found = append(found, o)
		}
	}
	return found
}

// isForAnother tells whether the Robot of this id is another than the one that the
// Task's attempt was given to.
func (v *view) isForAnother(t *robotv1.Task, robotID string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.another(t, robotID)
}

// another is isForAnother for those who hold the lock. Ids are the cluster's: when a
// Robot is gone, one of another namespace may have its id, and whoever owns that one
// would be sent the Task and its secrets.
func (v *view) another(t *robotv1.Task, robotID string) bool {
	all := v.robots[robotID]
	return len(all) > 0 && all[0].Namespace != t.RobotNamespace(t.Status.Attempt)
}

// overOn are the attempts whose end this robot is to tell. One that is revoked is
// not heard.
func (v *view) overOn(robotID string) (over []wire.TaskRef) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.refused(robotID) {
		return nil
	}
	for uid := range v.byRobot[robotID] {
		for _, a := range callsOff(v.tasks[uid]) {
			if a.Robot == robotID {
				over = append(over, wire.TaskRef{UID: string(uid), Attempt: a.Attempt})
			}
		}
	}
	return over
}

// robot returns the Robot with this id, or nil. Of several in different
// namespaces it is the one that counts.
func (v *view) robot(id string) *robotv1.Robot {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if all := v.robots[id]; len(all) > 0 {
		return all[0]
	}
	return nil
}

// revoked tells whether an operator has refused this robot.
func (v *view) revoked(id string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.refused(id)
}

// refused is revoked for who holds the lock.
func (v *view) refused(id string) bool {
	all := v.robots[id]
	return len(all) > 0 && all[0].Revoked()
}

// era is what the epochs that a robot is told belong to: the object that stands
// for it. Empty: it has none.
func (v *view) era(id string) string {
	if r := v.robot(id); r != nil {
		return string(r.UID)
	}
	return ""
}

// robotIDs returns the ids of all robots.
func (v *view) robotIDs() []string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	ids := make([]string, 0, len(v.robots))
	for id := range v.robots {
		ids = append(ids, id)
	}
	return ids
}

// highest is the highest resource version that the informer of Tasks has
// delivered: of a Task, or of its first list. Our own writes do not raise it: they may be ahead of changes by
// others that are still on their way.
func (v *view) highest() uint64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.version
}

// reached takes in that the view holds all Tasks as of a resource version.
func (v *view) reached(version uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.version = max(v.version, version)
}

// deliverTask takes in what the informer says. It returns the Task that stood
// here before, and whether the informer's is news.
func (v *view) deliverTask(t *robotv1.Task) (old *robotv1.Task, news bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.version = max(v.version, versionOf(t.ResourceVersion))
	return v.put(t)
}

// wroteTask takes in the result of our own write or read. A Task that the
// informer has not delivered yet, or has taken away, stays out.
func (v *view) wroteTask(t *robotv1.Task) (old *robotv1.Task, news bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.tasks[t.UID] == nil {
		return nil, false
	}
	return v.put(t)
}

func (v *view) put(t *robotv1.Task) (old *robotv1.Task, news bool) {
	old = v.tasks[t.UID]
	if old != nil && versionOf(old.ResourceVersion) >= versionOf(t.ResourceVersion) {
		return old, false
	}
	v.unindex(old)
	v.tasks[t.UID] = t
	for _, id := range concerned(t) {
		if v.byRobot[id] == nil {
			v.byRobot[id] = map[types.UID]struct{}{}
		}
		v.byRobot[id][t.UID] = struct{}{}
	}
	return old, true
}

// removeTask forgets a Task. It returns the one that stood here.
func (v *view) removeTask(t *robotv1.Task) *robotv1.Task {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.version = max(v.version, versionOf(t.ResourceVersion))
	old := v.tasks[t.UID]
	v.unindex(old)
	delete(v.tasks, t.UID)
	return old
}

// asks tells whether a Task asks something of the robot of its present attempt.
func asks(t *robotv1.Task) bool { return listed(t) || wanted(t) != "" }

// concerned are the robots that a Task asks something of.
func concerned(t *robotv1.Task) (ids []string) {
	if asks(t) {
		ids = append(ids, t.RobotOfAttempt())
	}
	if o := originalOf(t); listed(o) {
		ids = append(ids, o.Spec.TargetRobot)
	}
	for _, a := range callsOff(t) {
		ids = append(ids, a.Robot)
	}
	return ids
}

func (v *view) unindex(t *robotv1.Task) {
	for _, id := range concerned(t) {
		delete(v.byRobot[id], t.UID)
		if len(v.byRobot[id]) == 0 {
			delete(v.byRobot, id)
		}
	}
}

// putRobot takes in a Robot from the informer or from our own write.
func (v *view) putRobot(r *robotv1.Robot) (news bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := v.robots[r.Name]
	for i, old := range all {
		if old.UID != r.UID {
			continue
		}
		if versionOf(old.ResourceVersion) >= versionOf(r.ResourceVersion) {
			return false
		}
		next := append([]*robotv1.Robot(nil), all...)
		next[i] = r
		v.robots[r.Name] = next
		return true
	}
	v.robots[r.Name] = insertByAge(all, r)
	return true
}

func insertByAge(all []*robotv1.Robot, r *robotv1.Robot) []*robotv1.Robot {
	next := make([]*robotv1.Robot, 0, len(all)+1)
	for _, old := range all {
		if r != nil && r.CompareAge(old) < 0 {
			next = append(next, r)
			r = nil
		}
		next = append(next, old)
	}
	if r != nil {
		next = append(next, r)
	}
	return next
}

// removeRobot forgets a Robot.
func (v *view) removeRobot(r *robotv1.Robot) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var left []*robotv1.Robot
	for _, old := range v.robots[r.Name] {
		if old.UID != r.UID {
			left = append(left, old)
		}
	}
	if len(left) == 0 {
		delete(v.robots, r.Name)
		return
	}
	v.robots[r.Name] = left
}

// versionOf reads a resource version as a number. Since Kubernetes 1.35 they
// are documented to be comparable integers; they have always been.
func versionOf(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
