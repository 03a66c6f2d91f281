package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// listWindow delays a changed list, so that more changes can share one message.
const listWindow = 200 * time.Millisecond

// taskLists publishes the retained lists of the tasks that should be running on each
// robot.
//
// An agent with protocol v2 stops a task that it accepted with epoch e when a list of
// an epoch >= e does not name it. Both epochs are resource versions, raised by
// one where that is needed, so that this is safe:
//
//   - a dispatch gets an epoch above that of the list published last to its
//     robot, so a list that was made before the dispatch, and therefore may
//     lack it, is always older than it. A repeated one keeps the epoch of the first while
//     the lists name its attempt. If each had a higher one, a robot without contact would
//     raise the epochs above all resource versions, and ignore the lists of the next server;
//   - a list gets an epoch of at least that of each dispatch sent before it to
//     its robot. It is made from an index that has those Tasks in it, so one that
//     it lacks has ended, moved or gone since, and stopping it is right;
//   - a list is at least as new as the highest resource version that an
//     informer delivered, its first list's among them, so the first list of a
//     new server, which knows nothing of what the one before it sent, outdates
//     its dispatches, also those of Tasks that were deleted in between. Our own
//     writes do not count: they may be ahead of a Task that is bound already
//     and still on its way to us.
//
// A new server publishes every list before its first dispatch.
type taskLists struct {
	serverID          string // of this process
	now               func() time.Time
	objects           *objectIndex
	protocolOf        func(robotID string) string
	publish           func(connection int64, robotID string, k wire.Kind, payload []byte, retain bool) bool
	onTooLarge        func(robotID string, tasks int) // for one message
	upConnection      func() int64                    // the connection for which sendAll has been called; zero: none
	currentConnection func() int64                    // the current connection, up or not
	journalRequest    func(robotID string) uint64     // after a restore: asks for the robot's journal; zero: does not
	mustQuery         func() bool                     // ask for the state of every started attempt
	// unanswered returns the tasks whose dispatch a robot has not answered. It is called without mu.
	unanswered func(robotID string) map[types.UID]bool

	mu            sync.Mutex
	dirty         map[string]time.Time // robot to when its list is due
	states        map[string]*listState
	endedAttempts map[types.UID]int32 // attempts whose end is reported and not written yet
	deleted       map[string]bool     // robots that were deleted while the connection was down
	wake          chan struct{}
}

// listState is what was sent to one robot.
type listState struct {
	list     uint64 // epoch of the last list
	dispatch uint64 // highest epoch of a dispatch
	// dispatched are the attempts that were dispatched and that every list since then has named.
	dispatched map[types.UID]dispatchedAttempt
	refs       []wire.TaskReference
	canceled   []wire.TaskReference
	protocol   string // empty: no list was sent
	// remembered are the attempts that a legacy agent's list may name.
	remembered map[types.UID]int32
}

// dispatchedAttempt is an attempt with the epoch of its first dispatch.
type dispatchedAttempt struct {
	attempt int32
	epoch   uint64
}

func (l *taskLists) initMaps() {
	l.dirty, l.states, l.endedAttempts = map[string]time.Time{}, map[string]*listState{}, map[types.UID]int32{}
	l.deleted = map[string]bool{}
	l.wake = make(chan struct{}, 1)
	if l.journalRequest == nil {
		l.journalRequest, l.mustQuery = func(string) uint64 { return 0 }, func() bool { return false }
	}
	if l.unanswered == nil {
		l.unanswered = func(string) map[types.UID]bool { return nil }
	}
}

// dispatchEpoch returns the epoch of a dispatch that is about to be sent. If the last list does not name
// the attempt, another one follows: if the Task is canceled now, the last list is too old to stop it. So it
// does if the attempt is to start no more, because the agent did not know it when it got the last one.
func (l *taskLists) dispatchEpoch(t *robotv1.Task) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.stateLocked(t.CurrentRobot())
	first, ok := c.dispatched[t.UID]
	if !ok || first.attempt != t.Status.Attempt {
		first = dispatchedAttempt{attempt: t.Status.Attempt, epoch: max(versionOf(t.ResourceVersion), c.list+1)}
		c.dispatched[t.UID] = first
	}
	c.dispatch = max(c.dispatch, first.epoch)
	isNamed := slices.ContainsFunc(c.refs, func(r wire.TaskReference) bool { return equalAttempts(r, refOf(t)) })
	if c.protocol == robotv1.ProtocolV2 && (!isNamed || startsNoIndex(t) || startsNoRun(t)) {
		c.protocol = ""
		l.markDirtyLocked(t.CurrentRobot(), listWindow)
	}
	return first.epoch
}

// forgetUnnamed forgets the dispatches of attempts that the next list does not name: it may be as new as
// they are, so if they are dispatched again, they need a higher epoch.
func (c *listState) forgetUnnamed(refs []wire.TaskReference) {
	named := make(map[types.UID]int32, len(refs))
	for _, ref := range refs {
		named[types.UID(ref.UID)] = ref.Attempt
	}
	maps.DeleteFunc(c.dispatched, func(uid types.UID, d dispatchedAttempt) bool {
		attempt, ok := named[uid]
		return !ok || attempt != d.attempt
	})
}

func (l *taskLists) stateLocked(robotID string) *listState {
	c := l.states[robotID]
	if c == nil {
		c = &listState{dispatched: map[types.UID]dispatchedAttempt{}}
		l.states[robotID] = c
	}
	return c
}

// recordEnd records the end of a legacy agent's attempt before it is written: the agent
// forgets ended tasks, and would run it again if a list named it.
func (l *taskLists) recordEnd(r report) {
	if !r.legacy || !r.IsTerminal() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// Under the lock: read before it, the Task may have ended and been settled.
	t := l.objects.task(r.uid)
	if !isListed(t) || !canReport(t, r) || t.Status.Attempt != r.attempt {
		return
	}
	l.endedAttempts[r.uid] = r.attempt
	l.forgetRememberedLocked(r)
}

// forgetEnd forgets a recorded end once the Task's status contains it.
func (l *taskLists) forgetEnd(uid types.UID, now *robotv1.Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if attempt, ok := l.endedAttempts[uid]; ok && (!isListed(now) || now.Status.Attempt != attempt) {
		delete(l.endedAttempts, uid)
	}
}

// onTaskChanged marks the lists that a change of a Task affects. Old is nil for a new
// Task, now for a deleted one.
func (l *taskLists) onTaskChanged(old, now *robotv1.Task) {
	if isListed(old) {
		l.forgetEnd(old.UID, now)
	}
	l.markMoved(old, now)
	l.markMoved(lostAttemptOf(old), lostAttemptOf(now))
	for _, a := range slices.Concat(canceledAttempts(old), canceledAttempts(now)) {
		if l.asksForEnds(a.Robot) {
			l.markDirty(a.Robot, 0) // an unchanged list is not sent
		}
	}
}

// asksForEnds reports whether a robot's list names canceled attempts. A legacy agent's
// does not.
func (l *taskLists) asksForEnds(robotID string) bool {
	return l.protocolOf(robotID) != robotv1.ProtocolV1
}

// canceledOn returns the canceled attempts that a robot's list names.
func (l *taskLists) canceledOn(robotID string) []wire.TaskReference {
	if !l.asksForEnds(robotID) {
		return nil
	}
	return sortRefs(l.objects.canceledOn(robotID))
}

// markMoved marks the lists of the robots that an attempt moved from and to.
func (l *taskLists) markMoved(old, now *robotv1.Task) {
	was, is := isListed(old), isListed(now)
	switch {
	case was && is && old.CurrentRobot() == now.CurrentRobot() && old.Status.Attempt == now.Status.Attempt:
		if startsNoIndex(old) != startsNoIndex(now) || startsNoRun(old) != startsNoRun(now) {
			l.markDirty(now.CurrentRobot(), 0)
		}
	case was && is:
		l.markDirty(old.CurrentRobot(), 0)
		l.markDirty(now.CurrentRobot(), 0)
	case was:
		l.markDirty(old.CurrentRobot(), correctionWindow(now))
	case is:
		l.markDirty(now.CurrentRobot(), listWindow)
	}
}

// correctionWindow returns how long a list may still name a task: not at all if the task
// is deleted or stopped.
func correctionWindow(now *robotv1.Task) time.Duration {
	if now == nil || now.DeletionTimestamp != nil || now.Status.IsStopRequested() {
		return 0
	}
	return listWindow
}

// markDirty schedules a robot's list to be published within a duration.
func (l *taskLists) markDirty(robotID string, within time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.markDirtyLocked(robotID, within)
}

// markDirtyLocked is markDirty for callers that hold l.mu.
func (l *taskLists) markDirtyLocked(robotID string, within time.Duration) {
	due := l.now().Add(within)
	if there, ok := l.dirty[robotID]; ok && !due.Before(there) {
		return
	}
	l.dirty[robotID] = due
	l.wakeUp()
}

func (l *taskLists) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// resendList publishes a robot's list at once, even if it is unchanged.
func (l *taskLists) resendList(robotID string) {
	l.forgetSentList(robotID)
	l.markDirty(robotID, 0)
}

// forgetSentList makes the next list of a robot be sent even if it is unchanged.
func (l *taskLists) forgetSentList(robotID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stateLocked(robotID).protocol = ""
}

// sendAll publishes the lists of all robots. That of a legacy agent is sent only if it has changed: it
// may name tasks whose ends are still on their way.
func (l *taskLists) sendAll(connection int64) {
	for _, id := range l.objects.robotIDs() {
		if l.protocolOf(id) != robotv1.ProtocolV1 {
			l.forgetSentList(id)
		}
		l.sendListOn(connection, id)
	}
	for _, id := range l.deletedRobots() {
		l.sendListOn(connection, id)
		l.dropRobot(id)
	}
}

// deletedRobots returns the robots that get a last, empty list.
func (l *taskLists) deletedRobots() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.deleted))
}

// forgetRobot publishes an empty list for a deleted robot, at once or with the next
// connection, and forgets the robot.
func (l *taskLists) forgetRobot(robotID string) {
	if l.upConnection() == 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.deleted[robotID] = true
		return
	}
	l.sendList(robotID)
	l.dropRobot(robotID)
}

func (l *taskLists) dropRobot(robotID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.states, robotID)
	delete(l.dirty, robotID)
	delete(l.deleted, robotID)
}

// run publishes lists until ctx ends.
func (l *taskLists) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-timer.C:
		}
		l.sendDue()
		timer.Reset(l.untilDue())
	}
}

// sendDue publishes the lists that are due.
func (l *taskLists) sendDue() {
	for _, id := range l.dueRobots() {
		l.sendIfDue(id)
	}
}

func (l *taskLists) dueRobots() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for id, at := range l.dirty {
		if !at.After(l.now()) {
			ids = append(ids, id)
		}
	}
	return ids
}

// sendIfDue publishes a list unless the connection is down.
func (l *taskLists) sendIfDue(robotID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.dirty[robotID]
	connection := l.upConnection()
	if !ok || at.After(l.now()) || connection == 0 {
		return
	}
	delete(l.dirty, robotID)
	l.sendListLocked(connection, robotID)
}

// untilDue returns the time until the next list is due. While the connection is down
// none is; the next connect wakes run.
func (l *taskLists) untilDue() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := time.Hour
	if l.upConnection() == 0 {
		return wait
	}
	for _, at := range l.dirty {
		wait = min(wait, at.Sub(l.now()))
	}
	return max(wait, 0)
}

// sendList publishes a robot's list now, unless it is unchanged.
func (l *taskLists) sendList(robotID string) { l.sendListOn(l.currentConnection(), robotID) }

func (l *taskLists) sendListOn(connection int64, robotID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sendListLocked(connection, robotID)
}

// sendListLocked is sendListOn for callers that hold l.mu. It does nothing if the
// connection is not the current one, which gets all lists anyway.
func (l *taskLists) sendListLocked(connection int64, robotID string) {
	if connection != l.currentConnection() {
		return
	}
	protocol := l.protocolOf(robotID)
	if protocol == "" {
		return // is sent when the robot registers
	}
	// Read the epoch first: later changes of the index are only newer.
	epoch := l.objects.highestVersion()
	tasks := l.activeTasksLocked(robotID)
	c := l.stateLocked(robotID)
	request, refs, over := l.journalRequest(robotID), l.refsOf(tasks), l.canceledOn(robotID)
	c.forgetUnnamed(refs)
	if c.protocol == protocol && slices.EqualFunc(c.refs, refs, equalAttempts) && slices.EqualFunc(c.canceled, over, equalAttempts) {
		return
	}
	epoch = max(epoch, c.dispatch, c.list)
	payload := encodeFittingList(tasks, protocol, wire.TaskList{
		Tasks: []wire.Task{}, Refs: refs, Canceled: over, Epoch: epoch, RobotUID: l.objects.robotUID(robotID), JournalRequest: request,
		ServerConnectionID: fmt.Sprintf("%s-%d", l.serverID, connection), SendsSecrets: true,
	})
	if len(payload) > wire.MaxPayload {
		// The broker would close our connection. The previous list remains: it is too
		// old to stop anything that should run.
		l.onTooLarge(robotID, len(refs))
		return
	}
	if !l.publish(connection, robotID, wire.KindState, payload, true) {
		l.markDirtyLocked(robotID, listWindow)
		return
	}
	c.list, c.refs, c.canceled, c.protocol = epoch, refs, over, protocol
}

// activeTasksLocked returns the tasks that should be running on a robot and that its list names.
func (l *taskLists) activeTasksLocked(robotID string) []*robotv1.Task {
	isLegacy := l.protocolOf(robotID) == robotv1.ProtocolV1
	return slices.DeleteFunc(l.objects.tasksOn(robotID), func(t *robotv1.Task) bool {
		return !isListed(t) || isLegacy && !l.isRememberedLocked(robotID, t)
	})
}

func (l *taskLists) refsOf(tasks []*robotv1.Task) []wire.TaskReference {
	refs, all := []wire.TaskReference{}, l.mustQuery()
	for _, t := range tasks {
		ref := refOf(t)
		ref.Query = ref.Query || all
		refs = append(refs, ref)
	}
	return sortRefs(refs)
}

func sortRefs(refs []wire.TaskReference) []wire.TaskReference {
	slices.SortFunc(refs, func(a, b wire.TaskReference) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Attempt, b.Attempt))
	})
	return refs
}

func refOf(t *robotv1.Task) wire.TaskReference {
	return wire.TaskReference{
		UID: string(t.UID), Attempt: t.Status.Attempt, Started: hasStarted(t), Query: isLostAttempt(t), StartsNoIndex: startsNoIndex(t), StartsNoRun: startsNoRun(t),
	}
}

// equalAttempts ignores Started, which matters only to an agent that has lost its
// journal and so registers, after which it gets a list anyway.
func equalAttempts(a, b wire.TaskReference) bool {
	return a.UID == b.UID && a.Attempt == b.Attempt && a.Query == b.Query && a.StartsNoIndex == b.StartsNoIndex && a.StartsNoRun == b.StartsNoRun
}

// encodeFittingList encodes the list with as many canceled attempts as fit into one message. Without the
// others it stops the same tasks, and it names them once some of the first have been answered.
func encodeFittingList(tasks []*robotv1.Task, protocol string, ours wire.TaskList) []byte {
	payload := encodeList(tasks, protocol, ours)
	if len(payload) <= wire.MaxPayload || len(ours.Canceled) == 0 {
		return payload
	}
	over := ours.Canceled
	ours.Canceled = nil
	room := wire.MaxPayload - len(encodeList(tasks, protocol, ours)) - len(`,"canceled":[]`)
	for n, ref := range over {
		one, _ := json.Marshal(ref)
		if room -= len(one) + len(","); room < 0 {
			over = over[:n]
			break
		}
	}
	ours.Canceled = over
	return encodeList(tasks, protocol, ours)
}

// encodeList encodes the list in the robot's protocol.
func encodeList(tasks []*robotv1.Task, protocol string, ours wire.TaskList) []byte {
	if protocol == robotv1.ProtocolV2 {
		payload, _ := json.Marshal(ours)
		return payload
	}
	payload, _ := json.Marshal(struct {
		Tasks []json.RawMessage `json:"tasks"`
	}{legacyTasks(tasks)})
	return payload
}

// legacyTasks returns the oldest Tasks that fit into one message. The others are
// dispatched anyway; the list only restores a legacy agent's memory.
func legacyTasks(tasks []*robotv1.Task) []json.RawMessage {
	slices.SortFunc(tasks, func(a, b *robotv1.Task) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	out, room := []json.RawMessage{}, wire.MaxPayload-len(`{"tasks":[]}`)
	for _, t := range tasks {
		one, err := json.Marshal(portableTask(t, robotv1.ProtocolV1))
		if err != nil || len(one)+1 > room {
			continue
		}
		out, room = append(out, one), room-len(one)-1
	}
	return out
}
