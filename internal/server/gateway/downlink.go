package gateway

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	// Bounds of the time between two dispatches of the same attempt.
	minRepeat = time.Second
	maxRepeat = wire.MaxRepeatInterval
	// releaseAfter is how long a deleted Task waits for a legacy agent to report that it
	// has stopped. Most agents never do.
	releaseAfter = 10 * time.Second
	// unresponsiveTries and unresponsiveAfter are how many dispatches, over what time, a
	// connected robot leaves unanswered before it is unresponsive.
	unresponsiveTries = 3
	unresponsiveAfter = 30 * time.Second
)

// downlink sends robots the actions that Tasks request, and repeats them until they are
// answered. One goroutine and one heap serve all tasks.
type downlink struct {
	now           func() time.Time
	objects       *objectIndex
	protocolOf    func(robotID string) string
	dispatchEpoch func(t *robotv1.Task) uint64
	publish       func(connection int64, robotID string, t *robotv1.Task, payload []byte) bool
	runsArrays    func(robotID string) bool // its agent does; nil: all do
	releaseTask   func(types.UID)           // the robot was notified; remove the finalizer
	addReport     func(r report) bool       // a task that cannot be sent
	onOverdue     func(o overdueDispatch)   // a dispatch has waited for long
	fetchSecrets  func(types.UID)           // reads the values of secretEnv; calls sendWithSecrets
	upConnection  func() int64              // the current connection, with task lists published; zero: none
	repeatPause   time.Duration             // before the first repeat
	legacyGrace   time.Duration             // how long a Task is held for a legacy agent
	lastSeen      func(string) time.Time    // when a robot's last message was received; zero: not by this server
	isRestoring   func() bool               // after a restore, until the robots have reported
	log           logr.Logger

	mu              sync.Mutex // locked before taskLists.mu
	items           map[types.UID]*item
	due             itemHeap
	wake            chan struct{}
	legacyHeldUntil time.Time // before it, legacy agents get no dispatches
	awaited         map[string]awaitedAnswer
}

// item is an action to send to a robot.
type item struct {
	uid         types.UID
	robot       string
	attempt     int32
	action      string
	state       string
	canWait     bool          // a delete that the robot may refuse
	turns       int           // how often it was due; determines the next pause
	tries       int           // how often it was sent
	firstSent   time.Time     // when it was first sent; zero: not yet
	timeout     time.Duration // from firstSent to the answer
	due         time.Time
	deletedTask *robotv1.Task // the Task, if it was deleted
	index       int           // in the heap; -1: nothing more to send
}

// overdueDispatch is a dispatch that a robot has not answered.
type overdueDispatch struct {
	uid     types.UID
	robot   string
	attempt int32
	tries   int
	since   time.Time
	timeout time.Duration // until the robot is lost for the task
}

func (d *downlink) initMaps() {
	d.items, d.awaited, d.wake = map[types.UID]*item{}, map[string]awaitedAnswer{}, make(chan struct{}, 1)
	if d.isRestoring == nil {
		d.isRestoring = func() bool { return false }
	}
	if d.runsArrays == nil {
		d.runsArrays = func(string) bool { return true }
	}
}

// onTaskChanged schedules the action of a changed Task. It reads the Task from the index,
// because informer events and our own writes arrive in any order.
func (d *downlink) onTaskChanged(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scheduleTaskLocked(uid)
}

// scheduleTaskLocked is onTaskChanged for callers that hold d.mu.
func (d *downlink) scheduleTaskLocked(uid types.UID) {
	t, old := d.objects.task(uid), d.items[uid]
	if old != nil && old.deletedTask != nil {
		return
	}
	action := d.wantedAction(t)
	if action == "" {
		d.dropLocked(old)
		return
	}
	next := &item{uid: t.UID, robot: t.CurrentRobot(), attempt: t.Status.Attempt, action: action, state: t.Status.State, timeout: dispatchTimeout(t), canWait: t.Status.IsInterruption()}
	if old != nil && old.isSameDispatch(next) {
		return
	}
	d.replaceLocked(old, next)
}

// replaceLocked schedules next at once, in place of old, which may be nil.
func (d *downlink) replaceLocked(old, next *item) {
	d.dropLocked(old)
	next.due = d.now()
	d.items[next.uid] = next
	heap.Push(&d.due, next)
	d.wakeUp()
}

func (i *item) isSameDispatch(o *item) bool {
	return i.robot == o.robot && i.attempt == o.attempt && i.action == o.action && i.state == o.state && i.canWait == o.canWait
}

// onTaskRemoved schedules a delete for the robot of a deleted Task. The task list says
// the same, but a legacy agent stops nothing because of a list, so the item waits for a
// connection.
func (d *downlink) onTaskRemoved(t *robotv1.Task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.items[t.UID]
	if !lifecycle.TaskState(t.Status.State).HoldsResources() || t.CurrentRobot() == "" {
		d.dropLocked(old)
		return
	}
	d.replaceLocked(old, &item{uid: t.UID, robot: t.CurrentRobot(), attempt: t.Status.Attempt, action: wire.ActionDelete, deletedTask: t})
}

// recordAnswer stops the repetition of what a report answers, and reports whether it is the first
// answer to a dispatch.
func (d *downlink) recordAnswer(r report) (isFirst bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.items[r.uid]
	if i == nil || i.robot != r.robot || i.attempt != r.attempt {
		return false
	}
	switch {
	case i.action == wire.ActionCreate:
		isFirst = i.index >= 0
		d.unscheduleLocked(i)
		d.stopAwaitingLocked(i)
	case r.IsTerminal() || isDeleteConfirmation(r):
		d.resendLocked(i, time.Time{}) // due at once; the zero time marks it as answered
	}
	return isFirst
}

// restartTimeout makes the time for the answer to an unanswered dispatch start with the next one,
// because it cannot be sent for now.
func (d *downlink) restartTimeout(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.items[uid]; i != nil && i.index >= 0 && i.action == wire.ActionCreate {
		i.tries, i.firstSent = 0, time.Time{}
	}
}

// onRobotRegistered resends what a robot has not answered. Agents with protocol v2
// answer repeated dispatches from their journal; a legacy agent would run an ended task
// again.
func (d *downlink) onRobotRegistered(robotID string, tasks []*robotv1.Task, isLegacy bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.awaited, robotID) // it was sent over an earlier connection
	for _, t := range tasks {
		if i := d.items[t.UID]; i != nil && i.robot == robotID && (i.index >= 0 || !isLegacy) {
			d.resendLocked(i, d.now())
		}
	}
	d.scheduleStopsLocked(robotID)
}

// resendAll resends everything that is not answered, after the broker was unavailable.
func (d *downlink) resendAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.awaited)
	for _, i := range d.items {
		if i.index >= 0 {
			d.resendLocked(i, d.now())
		}
	}
}

// holdLegacyAgents delays dispatches to legacy agents until then.
func (d *downlink) holdLegacyAgents(until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.legacyHeldUntil = until
}

// isHeldLocked reports whether an action waits for the journals of the robots after a restore, or for
// the queued messages of a legacy agent or its answer to another dispatch.
func (d *downlink) isHeldLocked(uid types.UID, robotID, action string) bool {
	return d.heldUntilLocked(uid, robotID, action).After(d.now())
}

// heldUntilLocked returns until when an action waits at most. Zero: it does not wait. After a restore
// the end is not known, and resendAll follows.
func (d *downlink) heldUntilLocked(uid types.UID, robotID, action string) time.Time {
	switch {
	case action != wire.ActionCreate:
		return time.Time{}
	case d.isRestoring():
		return d.now().Add(maxRepeat)
	case d.protocolOf(robotID) == robotv1.ProtocolV1:
		return later(d.legacyHeldUntil, d.awaitedUntilLocked(uid, robotID))
	}
	return time.Time{}
}

// sendableConnection returns the connection on which an action can be sent now. Zero:
// none. The connection is read first, because the hold is set before a connection is up;
// in the other order a task could run twice.
func (d *downlink) sendableConnection(uid types.UID, robotID, action string) (connection int64) {
	connection = d.upConnection()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isHeldLocked(uid, robotID, action) {
		return 0
	}
	return connection
}

// resendLocked schedules an item from the start: earlier tries may have gone to an old
// connection or agent. The zero time marks the item as answered by the robot.
func (d *downlink) resendLocked(i *item, due time.Time) {
	i.turns, i.tries, i.firstSent, i.due = 0, 0, time.Time{}, due
	if i.index < 0 {
		heap.Push(&d.due, i)
	} else {
		heap.Fix(&d.due, i.index)
	}
	d.wakeUp()
}

func (d *downlink) unscheduleLocked(i *item) {
	if i.index >= 0 {
		heap.Remove(&d.due, i.index)
	}
}

func (d *downlink) dropLocked(i *item) {
	if i == nil {
		return
	}
	d.unscheduleLocked(i)
	delete(d.items, i.uid)
	d.stopAwaitingLocked(i)
}

func (d *downlink) wakeUp() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run sends due items until ctx ends.
func (d *downlink) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		case <-timer.C:
		}
		for d.sendNext() && ctx.Err() == nil {
		}
		timer.Reset(d.untilDue())
	}
}

func (d *downlink) untilDue() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.due) == 0 {
		return time.Hour
	}
	return max(0, d.due[0].due.Sub(d.now()))
}

// sendNext sends the first due item, and reports whether there was one.
func (d *downlink) sendNext() bool {
	i, ok := d.takeDue()
	if !ok {
		return false
	}
	if i.deletedTask != nil {
		d.sendDelete(i)
		return true
	}
	t := d.objects.task(i.uid)
	if t == nil || d.wantedAction(t) != i.action {
		return true // a newer item will be scheduled
	}
	if d.awaitsLegacyStop(t) {
		d.sendLegacyStop(t, i)
		return true
	}
	if i.due.IsZero() || d.canRelease(t, i) {
		d.releaseTask(i.uid)
		return true
	}
	d.sendItem(t, i)
	if d.awaitsLegacyDelete(t, i) && !d.isConnected(i.robot) {
		d.forgetTries(i) // it may not have been received
	}
	return true
}

// sendWithSecrets sends a dispatch with the values of secretEnv, unless the attempt for
// which they were read is over.
func (d *downlink) sendWithSecrets(was *robotv1.Task, values wire.Secrets) {
	t, i := d.objects.task(was.UID), d.pendingDispatch(was.UID)
	if wantedAction(t) != wire.ActionCreate || i.attempt != was.Status.Attempt || t.Status.Attempt != was.Status.Attempt {
		return
	}
	d.sendItemWith(t, i, values)
}

// pendingDispatch returns a task's unanswered dispatch, or the zero item.
func (d *downlink) pendingDispatch(uid types.UID) item {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.items[uid]; i != nil && i.index >= 0 && i.action == wire.ActionCreate {
		return *i
	}
	return item{}
}

// sendDelete sends the delete of a deleted Task once, unless the robot has answered or
// does not exist.
func (d *downlink) sendDelete(i item) {
	if !i.due.IsZero() && d.protocolOf(i.robot) != "" && !d.sendTask(i.deletedTask, i.action) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.items[i.uid]; now != nil && now.deletedTask == i.deletedTask {
		d.dropLocked(now)
	}
}

// sendItem sends a due item, or requests its secrets: the API server may be slow and
// must not delay other robots.
func (d *downlink) sendItem(t *robotv1.Task, i item) {
	if needsSecrets(t, i.action) && d.protocolOf(i.robot) == robotv1.ProtocolV2 {
		if d.sendableConnection(i.uid, i.robot, i.action) != 0 {
			d.fetchSecrets(i.uid)
		}
		return
	}
	d.sendItemWith(t, i, nil)
}

// sendItemWith sends an item and counts it only if it was sent, so that a robot without
// a connection is neither notified nor unresponsive.
func (d *downlink) sendItemWith(t *robotv1.Task, i item, values wire.Secrets) {
	if !d.sendTaskWith(t, i.action, values) {
		return
	}
	d.countTry(i)
	if i.action == wire.ActionCreate && i.tries > unresponsiveTries {
		d.onOverdue(overdueDispatch{uid: i.uid, robot: i.robot, attempt: i.attempt, tries: i.tries, since: i.firstSent, timeout: i.timeout})
	}
}

func (d *downlink) countTry(was item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.items[was.uid]
	if i == nil || !i.isSameDispatch(&was) {
		return
	}
	if i.firstSent.IsZero() {
		i.firstSent = d.now()
	}
	i.tries++
	if i.isUnansweredCreate() && d.protocolOf(i.robot) == robotv1.ProtocolV1 {
		d.awaited[i.robot] = awaitedAnswer{uid: i.uid, until: d.now().Add(legacyAnswerTimeout)}
	}
}

// takeDue returns a copy of the first due item, and schedules its repetition.
func (d *downlink) takeDue() (item, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	for len(d.due) > 0 && !d.due[0].due.After(now) {
		first := d.due[0]
		until := d.heldUntilLocked(first.uid, first.robot, first.action)
		if !until.After(now) {
			break
		}
		first.due = until
		heap.Fix(&d.due, 0)
	}
	if len(d.due) == 0 || d.due[0].due.After(now) {
		return item{}, false
	}
	i := d.due[0]
	was := *i
	i.due = now.Add(min(d.repeatPause<<min(i.turns, 10), maxRepeat))
	if end := i.firstSent.Add(d.legacyGrace); i.action == wire.ActionDelete && end.After(now) && end.Before(i.due) {
		i.due = end // canRelease then
	}
	i.turns++
	heap.Fix(&d.due, 0)
	return was, true
}

// canRelease reports whether a deleted Task does not need to wait for its robot: nothing runs
// there, the robot is unknown, or has protocol v2 (its list stops the task). A legacy
// agent must have had enough time, since it was notified on the current connection.
func (d *downlink) canRelease(t *robotv1.Task, i item) bool {
	if t.DeletionTimestamp == nil || !hasRobotFinalizer(t) {
		return false
	}
	protocol := d.protocolOf(i.robot)
	switch {
	case !lifecycle.TaskState(t.Status.State).HoldsResources(), d.objects.robot(i.robot) == nil, protocol == "":
		return true
	case i.tries == 0:
		return false // send it once at least
	case protocol != robotv1.ProtocolV1:
		return true
	}
	return d.upConnection() != 0 && d.isConnected(i.robot) && d.hadTimeToStop(i)
}

// sendTask dispatches a Task in the robot's protocol. Robots without a known protocol
// get nothing, and no robot gets anything before its task list. It reports whether the
// message was sent, or never can be.
func (d *downlink) sendTask(t *robotv1.Task, action string) bool {
	return d.sendTaskWith(t, action, nil)
}

// sendTaskWith is sendTask with the values of secretEnv. If nil, they were not read.
func (d *downlink) sendTaskWith(t *robotv1.Task, action string, values wire.Secrets) bool {
	robotID := t.CurrentRobot()
	connection := d.sendableConnection(t.UID, robotID, action)
	if connection == 0 {
		return false
	}
	protocol := d.protocolOf(robotID)
	forgets := protocol == robotv1.ProtocolV1 && lifecycle.TaskState(t.Status.State) == lifecycle.TaskUnknown
	if protocol == "" || action == wire.ActionCreate && (forgets || d.objects.isForOtherNamespace(t, robotID)) {
		return false
	}
	if why := d.describeUnsupported(t, action); why != "" {
		d.rejectTask(t, why)
		return true
	}
	if needsSecrets(t, action) && values == nil {
		return false // the robot had a legacy agent a moment ago
	}
	// A delete needs no epoch above the list's. Repeated to a disconnected robot, it would
	// raise the list epochs above all resource versions, and the robot would ignore the
	// lists of the next server.
	epoch := versionOf(t.ResourceVersion)
	if action == wire.ActionCreate {
		epoch = d.dispatchEpoch(t)
	}
	order, due := interruptionOf(d.now(), t)
	if !due {
		return false
	}
	payload, err := encodeDispatch(action, t, protocol, epoch, d.objects.robotUID(robotID), attributesFor(t, d.objects.robot(robotID)), values, order)
	if err != nil {
		d.rejectUnsendable(t, action, err)
		return true
	}
	return d.publish(connection, robotID, t, payload)
}

// describeUnsupported returns why the agent of a robot cannot run a task that it was not sent yet, or "".
func (d *downlink) describeUnsupported(t *robotv1.Task, action string) string {
	robotID := t.CurrentRobot()
	switch {
	case needsSecrets(t, action) && d.protocolOf(robotID) == robotv1.ProtocolV1:
		return "the robot's agent does not support secretEnv; it is a legacy agent (protocol v1)"
	case t.Spec.Array != nil && action == wire.ActionCreate && !hasStarted(t) && !d.runsArrays(robotID):
		return "the robot's agent does not run arrays; update it"
	}
	return ""
}

// rejectUnsendable fails the attempt of a task that exceeds the message size.
func (d *downlink) rejectUnsendable(t *robotv1.Task, action string, err error) {
	if action != wire.ActionCreate || !errors.Is(err, wire.ErrTooLarge) {
		d.log.Error(err, "dispatch task", "task", t.Namespace+"/"+t.Name, "action", action)
		return
	}
	what := "the task does"
	if usesSecrets(t) {
		what = "the task and the values of its secretEnv do"
	}
	d.rejectTask(t, what+" not fit into one message to a robot: "+err.Error())
}

// rejectTask fails an attempt that is never sent to its robot.
func (d *downlink) rejectTask(t *robotv1.Task, message string) {
	d.addReport(report{robot: t.CurrentRobot(), uid: t.UID, attempt: t.Status.Attempt, legacy: true, Status: wire.Status{
		State: wire.ReportFailed, ExitCode: exitCodeUnknown, Reason: wire.ReasonRejected, Event: wire.ReasonRejected,
		Message: message, UpdatedAt: d.now(),
	}})
}

// itemHeap is ordered by due time.
type itemHeap []*item

func (h itemHeap) Len() int           { return len(h) }
func (h itemHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h itemHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *itemHeap) Push(x any) {
	i := x.(*item)
	i.index = len(*h)
	*h = append(*h, i)
}

// Pop implements heap.Interface.
func (h *itemHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	last.index = -1
	return last
}
