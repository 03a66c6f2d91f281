package gateway

import (
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// objectIndex holds the Tasks and Robots of the informers, indexed by UID and robot ID.
// The objects are shared with the informers and must not be changed.
//
// A Task of our own last write replaces the informer's until that has caught
// up, so that two reports about one task in a row do not end in a conflict.
type objectIndex struct {
	mu      sync.RWMutex
	tasks   map[types.UID]*robotv1.Task
	byRobot map[string]map[types.UID]struct{}
	robots  map[string][]*robotv1.Robot // by id, the one that counts first
	version uint64
	// connected is the number of ids whose robot is connected.
	connected int
}

func newObjectIndex() *objectIndex {
	return &objectIndex{
		tasks:   map[types.UID]*robotv1.Task{},
		byRobot: map[string]map[types.UID]struct{}{},
		robots:  map[string][]*robotv1.Robot{},
	}
}

// task returns the Task with this UID, or nil.
func (v *objectIndex) task(uid types.UID) *robotv1.Task {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.tasks[uid]
}

// tasksOn returns the Tasks that a robot should be running or be notified about, as the
// robot should see them. Ended Tasks cost nothing here. A revoked robot has none.
func (v *objectIndex) tasksOn(robotID string) []*robotv1.Task {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.isRevokedLocked(robotID) {
		return nil
	}
	found := make([]*robotv1.Task, 0, len(v.byRobot[robotID]))
	for uid := range v.byRobot[robotID] {
		t := v.tasks[uid]
		o := lostAttemptOf(t)
		switch {
		case t.CurrentRobot() == robotID && needsRobot(t) && !v.isForOtherNamespaceLocked(t, robotID):
			found = append(found, t)
		case o != nil && o.Spec.TargetRobot == robotID && !v.isForOtherNamespaceLocked(o, robotID):
			found = append(found, o)
		}
	}
	return found
}

// isForOtherNamespace reports whether the Robot with this ID is in another namespace
// than the robot of the Task's attempt.
func (v *objectIndex) isForOtherNamespace(t *robotv1.Task, robotID string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.isForOtherNamespaceLocked(t, robotID)
}

// isForOtherNamespaceLocked is isForOtherNamespace for callers that hold v.mu. IDs are
// cluster-wide: after a Robot is deleted, one of another namespace may get its ID, and
// must not be sent the Task and its secrets.
func (v *objectIndex) isForOtherNamespaceLocked(t *robotv1.Task, robotID string) bool {
	all := v.robots[robotID]
	return len(all) > 0 && all[0].Namespace != t.NamespaceOfRobot(t.Status.Attempt)
}

// canceledOn returns the canceled attempts whose end this robot should report. A revoked
// robot has none.
func (v *objectIndex) canceledOn(robotID string) (over []wire.TaskReference) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.isRevokedLocked(robotID) {
		return nil
	}
	for uid := range v.byRobot[robotID] {
		for _, a := range canceledAttempts(v.tasks[uid]) {
			if a.Robot == robotID {
				over = append(over, wire.TaskReference{UID: string(uid), Attempt: a.Attempt})
			}
		}
	}
	return over
}

// robot returns the Robot with this ID, or nil. If several namespaces have one, it is
// the oldest.
func (v *objectIndex) robot(id string) *robotv1.Robot {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if all := v.robots[id]; len(all) > 0 {
		return all[0]
	}
	return nil
}

// isRevoked reports whether an operator has revoked this robot.
func (v *objectIndex) isRevoked(id string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.isRevokedLocked(id)
}

func (v *objectIndex) isRevokedLocked(id string) bool {
	all := v.robots[id]
	return len(all) > 0 && all[0].IsRevoked()
}

// robotUID returns the UID of the Robot, within which epochs are comparable, or "".
func (v *objectIndex) robotUID(id string) string {
	if r := v.robot(id); r != nil {
		return string(r.UID)
	}
	return ""
}

// robotIDs returns the ids of all robots.
func (v *objectIndex) robotIDs() []string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	ids := make([]string, 0, len(v.robots))
	for id := range v.robots {
		ids = append(ids, id)
	}
	return ids
}

// highestVersion returns the highest resource version that the informer of Tasks has
// delivered, for a Task or its first list. Our own writes do not count: they may be
// ahead of pending events.
func (v *objectIndex) highestVersion() uint64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.version
}

// raiseVersion records that the index contains all Tasks as of a resource version.
func (v *objectIndex) raiseVersion(version uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.version = max(v.version, version)
}

// deliverTask stores a Task of the informer. It returns the previous one, and whether
// the new one is newer.
func (v *objectIndex) deliverTask(t *robotv1.Task) (old *robotv1.Task, isNewer bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.version = max(v.version, versionOf(t.ResourceVersion))
	if old := v.tasks[t.UID]; old != nil && old.ResourceVersion == t.ResourceVersion {
		v.tasks[t.UID] = t // the copy of our own write is garbage
		return old, false
	}
	return v.putLocked(t)
}

// storeWrittenTask stores the result of our own write or read, unless the informer has
// not delivered the Task yet or has removed it.
func (v *objectIndex) storeWrittenTask(t *robotv1.Task) (old *robotv1.Task, isNewer bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.tasks[t.UID] == nil {
		return nil, false
	}
	return v.putLocked(t)
}

func (v *objectIndex) putLocked(t *robotv1.Task) (old *robotv1.Task, isNewer bool) {
	old = v.tasks[t.UID]
	if old != nil && versionOf(old.ResourceVersion) >= versionOf(t.ResourceVersion) {
		return old, false
	}
	v.unindexLocked(old)
	v.tasks[t.UID] = t
	for _, id := range robotsOf(t) {
		if v.byRobot[id] == nil {
			v.byRobot[id] = map[types.UID]struct{}{}
		}
		v.byRobot[id][t.UID] = struct{}{}
	}
	return old, true
}

// removeTask removes a Task, and returns the previous one.
func (v *objectIndex) removeTask(t *robotv1.Task) *robotv1.Task {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.version = max(v.version, versionOf(t.ResourceVersion))
	old := v.tasks[t.UID]
	v.unindexLocked(old)
	delete(v.tasks, t.UID)
	return old
}

// needsRobot reports whether a Task requests anything of the robot of its current
// attempt.
func needsRobot(t *robotv1.Task) bool { return isListed(t) || wantedAction(t) != "" }

// robotsOf returns the robots that a Task requests anything of.
func robotsOf(t *robotv1.Task) (ids []string) {
	if needsRobot(t) {
		ids = append(ids, t.CurrentRobot())
	}
	if o := lostAttemptOf(t); isListed(o) {
		ids = append(ids, o.Spec.TargetRobot)
	}
	for _, a := range canceledAttempts(t) {
		ids = append(ids, a.Robot)
	}
	return ids
}

func (v *objectIndex) unindexLocked(t *robotv1.Task) {
	for _, id := range robotsOf(t) {
		delete(v.byRobot[id], t.UID)
		if len(v.byRobot[id]) == 0 {
			delete(v.byRobot, id)
		}
	}
}

// putRobot stores a Robot of the informer or of our own write, and reports whether it is
// newer.
func (v *objectIndex) putRobot(r *robotv1.Robot) (isNewer bool) {
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
		v.setRobotsLocked(r.Name, next)
		return true
	}
	v.setRobotsLocked(r.Name, insertByAge(all, r))
	return true
}

// setRobotsLocked stores the robots of an id, and counts those that are connected.
func (v *objectIndex) setRobotsLocked(id string, all []*robotv1.Robot) {
	v.connected -= countConnected(v.robots[id])
	v.connected += countConnected(all)
	if len(all) == 0 {
		delete(v.robots, id)
		return
	}
	v.robots[id] = all
}

// countConnected returns 1 if the robot that counts is connected, else 0.
func countConnected(all []*robotv1.Robot) int {
	if len(all) > 0 && meta.IsStatusConditionTrue(all[0].Status.Conditions, robotv1.ConditionConnected) {
		return 1
	}
	return 0
}

// connectedRobots returns the number of connected robots.
func (v *objectIndex) connectedRobots() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.connected
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

// removeRobot removes a Robot.
func (v *objectIndex) removeRobot(r *robotv1.Robot) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var left []*robotv1.Robot
	for _, old := range v.robots[r.Name] {
		if old.UID != r.UID {
			left = append(left, old)
		}
	}
	v.setRobotsLocked(r.Name, left)
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
