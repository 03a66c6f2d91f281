package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/wire"
)

// listWindow is how long a change of a robot's list waits for others.
const listWindow = 200 * time.Millisecond

// lists keeps the retained word about what should be running on each robot.
//
// An agent of ours stops a task that it accepted with epoch e when a list of
// an epoch >= e does not name it. Both epochs are resource versions, raised by
// one where that is needed, so that this is safe:
//
//   - a dispatch gets an epoch above that of the list published last to its
//     robot, so a list that was made before the dispatch, and therefore may
//     lack it, is always older than it;
//   - a list gets an epoch of at least that of each dispatch sent before it to
//     its robot. It is made from a view that has those Tasks in it, so one that
//     it lacks has ended, moved or gone since, and stopping it is right;
//   - a list is at least as new as the highest resource version that an
//     informer delivered, its first list's among them, so the first list of a
//     new server, which knows nothing of what the one before it sent, outdates
//     its dispatches, also those of Tasks that were deleted in between. Our own
//     writes do not count: they may be ahead of a Task that is bound already
//     and still on its way to us.
//
// A new server publishes every list before its first dispatch.
type lists struct {
	now     func() time.Time
	view    *view
	dialect func(robotID string) string
	publish func(connection int64, robotID string, k wire.Kind, payload []byte, retain bool) bool
	tooMany func(robotID string, tasks int) // for one message
	up      func() int64                    // the connection for which sendAll has been called; zero: none
	current func() int64                    // the present connection

	mu     sync.Mutex
	dirty  map[string]time.Time // robot to when its list is due
	clocks map[string]*listClock
	over   map[types.UID]int32 // attempts whose end is heard and not written yet
	gone   map[string]bool     // robots that were deleted while the link was down
	wake   chan struct{}
}

// listClock is what one robot was told.
type listClock struct {
	list     uint64 // epoch of the last list
	dispatch uint64 // highest epoch of a dispatch
	refs     []wire.TaskRef
	over     []wire.TaskRef
	speaks   string    // empty: no list was sent
	ends     time.Time // of a document agent: the first that no list was sent after; zero: none
	quiet    time.Time // before it, no list goes out that can wait
}

func (l *lists) init() {
	l.dirty, l.clocks, l.over = map[string]time.Time{}, map[string]*listClock{}, map[types.UID]int32{}
	l.gone = map[string]bool{}
	l.wake = make(chan struct{}, 1)
}

// dispatchEpoch is the epoch of a dispatch that is about to be sent.
//
// A dispatch of what the last list does not name is followed by another list,
// even if that says the same: the Task may have been called off while it was
// being sent, and then the last list, which knows, is older than the dispatch
// and stops nothing.
func (l *lists) dispatchEpoch(t *robotv1.Task) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clock(t.RobotOfAttempt())
	epoch := max(versionOf(t.ResourceVersion), c.list+1)
	c.dispatch = max(c.dispatch, epoch)
	if c.speaks == robotv1.ProtocolK8s4r && !slices.ContainsFunc(c.refs, func(r wire.TaskRef) bool { return sameAttempt(r, refOf(t)) }) {
		c.speaks = ""
		l.ask(t.RobotOfAttempt(), listWindow)
	}
	return epoch
}

func (l *lists) clock(robotID string) *listClock {
	c := l.clocks[robotID]
	if c == nil {
		c = &listClock{}
		l.clocks[robotID] = c
	}
	return c
}

// ended takes in that a document agent has ended an attempt, before that is
// written: it forgets what has ended, and would run it again if a list named
// it.
func (l *lists) ended(r report) {
	if !r.document || !r.Terminal() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// Under the lock: read before it, the Task may have ended and been settled.
	t := l.view.task(r.uid)
	if !listed(t) || !mayReport(t, r) || t.Status.Attempt != r.attempt {
		return
	}
	l.over[r.uid] = r.attempt
	l.hush(r.robot)
}

// settled forgets what was heard of an attempt once the Task says as much.
func (l *lists) settled(uid types.UID, now *robotv1.Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if attempt, ok := l.over[uid]; ok && (!listed(now) || now.Status.Attempt != attempt) {
		delete(l.over, uid)
	}
}

// changed takes in how a Task was (nil: it is new) and is (nil: it is gone).
func (l *lists) changed(old, now *robotv1.Task) {
	if listed(old) {
		l.settled(old.UID, now)
	}
	l.moved(old, now)
	l.moved(originalOf(old), originalOf(now))
	for _, a := range slices.Concat(callsOff(old), callsOff(now)) {
		if l.asksFor(a.Robot) {
			l.mark(a.Robot, 0) // a list that says nothing new is not sent
		}
	}
}

// asksFor tells whether a robot's list asks for ends. A document agent's does
// not, and one that came early would name what it has just ended.
func (l *lists) asksFor(robotID string) bool { return l.dialect(robotID) != robotv1.ProtocolDocument }

// overOn are the attempts whose end a robot's list asks for.
func (l *lists) overOn(robotID string) []wire.TaskRef {
	if !l.asksFor(robotID) {
		return nil
	}
	return inOrder(l.view.overOn(robotID))
}

// moved asks for the lists in which a run stood, and is to stand.
func (l *lists) moved(old, now *robotv1.Task) {
	was, is := listed(old), listed(now)
	switch {
	case was && is && old.RobotOfAttempt() == now.RobotOfAttempt() && old.Status.Attempt == now.Status.Attempt:
	case was && is:
		l.mark(old.RobotOfAttempt(), 0)
		l.mark(now.RobotOfAttempt(), 0)
	case was:
		// A document agent runs what it finds in a list that is out of date.
		l.mark(old.RobotOfAttempt(), correctionWindow(now))
	case is:
		l.mark(now.RobotOfAttempt(), listWindow)
	}
}

// correctionWindow is how long the list may go on naming a task: not at all
// when it was deleted or is to stop.
func correctionWindow(now *robotv1.Task) time.Duration {
	if now == nil || now.DeletionTimestamp != nil || now.Status.AskedToStop() {
		return 0
	}
	return listWindow
}

// mark asks for a robot's list within so long.
func (l *lists) mark(robotID string, within time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ask(robotID, within)
}

// ask is mark for who holds the lock.
func (l *lists) ask(robotID string, within time.Duration) {
	due := l.now().Add(within)
	if within > 0 && l.dialect(robotID) == robotv1.ProtocolDocument {
		due = l.afterEnds(robotID)
	}
	if there, ok := l.dirty[robotID]; ok && !due.Before(there) {
		return
	}
	l.dirty[robotID] = due
	l.wakeUp()
}

// wakeUp lets run look at what is due.
func (l *lists) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// refresh asks for a robot's list at once, even if it says nothing new.
func (l *lists) refresh(robotID string) {
	l.mu.Lock()
	l.clock(robotID).speaks = ""
	l.mu.Unlock()
	l.mark(robotID, 0)
}

// sendAll publishes the lists of all robots, changed or not. Those of document
// agents that name anything wait for the time by which all is known that they
// have said.
func (l *lists) sendAll(connection int64, settled time.Time) {
	for _, id := range l.view.robotIDs() {
		if !l.putOff(id, settled) {
			l.sendOn(connection, id)
		}
	}
	for _, id := range l.farewells() {
		l.sendOn(connection, id)
		l.drop(id)
	}
}

// farewells are the robots that are to hear that they have nothing to do.
func (l *lists) farewells() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.gone))
}

// putOff makes a robot's list news, and puts it off if it can wait and has to.
func (l *lists) putOff(robotID string, until time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clock(robotID)
	c.speaks = ""
	waits := until.After(l.now()) && l.dialect(robotID) == robotv1.ProtocolDocument && len(l.unfinished(robotID)) > 0
	if waits {
		c.quiet = until
		delete(l.dirty, robotID) // asked for before
		l.ask(robotID, quietFor)
	}
	return waits
}

// forget drops what was told to a robot that is gone, after a last, empty list:
// at once, or with the next connection.
func (l *lists) forget(robotID string) {
	if l.up() == 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.gone[robotID] = true
		return
	}
	l.send(robotID)
	l.drop(robotID)
}

func (l *lists) drop(robotID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.clocks, robotID)
	delete(l.dirty, robotID)
	delete(l.gone, robotID)
}

// run publishes lists until ctx ends.
func (l *lists) run(ctx context.Context) {
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
func (l *lists) sendDue() {
	for _, id := range l.due() {
		l.sendIfDue(id)
	}
}

func (l *lists) due() []string {
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

// sendIfDue publishes a list unless it was put off meanwhile, and not before the
// link is up, when all that must wait is put off: a list that went out beside
// the robots' backlog named what a document agent had ended, and it ran again.
func (l *lists) sendIfDue(robotID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.dirty[robotID]
	connection := l.up()
	if !ok || at.After(l.now()) || connection == 0 {
		return
	}
	delete(l.dirty, robotID)
	l.tell(connection, robotID)
}

// untilDue is the time until the next list is due. While the link is down
// nothing is: the next connect wakes us.
func (l *lists) untilDue() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := time.Hour
	if l.up() == 0 {
		return wait
	}
	for _, at := range l.dirty {
		wait = min(wait, at.Sub(l.now()))
	}
	return max(wait, 0)
}

// send publishes a robot's list now, unless it was told the same before.
func (l *lists) send(robotID string) { l.sendOn(l.current(), robotID) }

func (l *lists) sendOn(connection int64, robotID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell(connection, robotID)
}

// tell is sendOn for who holds the lock. What was decided for a connection that
// is no more is neither sent nor remembered as said: the next one tells all.
func (l *lists) tell(connection int64, robotID string) {
	if connection != l.current() {
		return
	}
	speaks := l.dialect(robotID)
	if speaks == "" {
		return // comes with its registration
	}
	// The epoch first: what the view learns after it is only newer.
	epoch := l.view.highest()
	tasks := l.unfinished(robotID)
	c := l.clock(robotID)
	c.ends = time.Time{}
	refs, over := refsOf(tasks), l.overOn(robotID)
	if c.speaks == speaks && slices.EqualFunc(c.refs, refs, sameAttempt) && slices.EqualFunc(c.over, over, sameAttempt) {
		return
	}
	epoch = max(epoch, c.dispatch, c.list)
	payload := encodeList(tasks, speaks, wire.TaskList{Tasks: []wire.Task{}, Refs: refs, Over: over, Epoch: epoch, Era: l.view.era(robotID)})
	if len(payload) > wire.MaxPayload {
		// The broker would end our connection, and with it that of all robots.
		// The list before stays: it is too old to stop anything that should run.
		l.tooMany(robotID, len(refs))
		return
	}
	if !l.publish(connection, robotID, wire.KindState, payload, true) {
		l.ask(robotID, listWindow)
		return
	}
	c.list, c.refs, c.over, c.speaks = epoch, refs, over, speaks
}

// unfinished is what should be running on a robot, as far as anybody has heard.
//
// A document agent runs what it does not know, so it is never told of an original,
// nor of a task that it would run without its secretEnv.
func (l *lists) unfinished(robotID string) []*robotv1.Task {
	document := l.dialect(robotID) == robotv1.ProtocolDocument
	return slices.DeleteFunc(l.view.tasksOn(robotID), func(t *robotv1.Task) bool {
		attempt, over := l.over[t.UID]
		return !listed(t) || over && attempt == t.Status.Attempt || document && (isOriginal(t) || wantsSecrets(t))
	})
}

func refsOf(tasks []*robotv1.Task) []wire.TaskRef {
	refs := []wire.TaskRef{}
	for _, t := range tasks {
		refs = append(refs, refOf(t))
	}
	return inOrder(refs)
}

func inOrder(refs []wire.TaskRef) []wire.TaskRef {
	slices.SortFunc(refs, func(a, b wire.TaskRef) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Attempt, b.Attempt))
	})
	return refs
}

func refOf(t *robotv1.Task) wire.TaskRef {
	return wire.TaskRef{UID: string(t.UID), Attempt: t.Status.Attempt, Started: hasStarted(t), Asked: isOriginal(t)}
}

// sameAttempt leaves out whether it has started. That is news only to an agent
// that has lost its memory, which registers, and then gets a list in any case;
// a list for every start would double their number.
func sameAttempt(a, b wire.TaskRef) bool {
	return a.UID == b.UID && a.Attempt == b.Attempt && a.Asked == b.Asked
}

// encodeList writes the list in the robot's dialect.
func encodeList(tasks []*robotv1.Task, speaks string, ours wire.TaskList) []byte {
	if speaks == robotv1.ProtocolK8s4r {
		payload, _ := json.Marshal(ours)
		return payload
	}
	payload, _ := json.Marshal(struct {
		Tasks []json.RawMessage `json:"tasks"`
	}{wholeTasks(tasks)})
	return payload
}

// wholeTasks are the oldest Tasks that fit one message. What does not fit is
// dispatched all the same; the list is a document agent's memory only.
func wholeTasks(tasks []*robotv1.Task) []json.RawMessage {
	slices.SortFunc(tasks, func(a, b *robotv1.Task) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	out, room := []json.RawMessage{}, wire.MaxPayload-len(`{"tasks":[]}`)
	for _, t := range tasks {
		one, err := json.Marshal(portable(t, robotv1.ProtocolDocument))
		if err != nil || len(one)+1 > room {
			continue
		}
		out, room = append(out, one), room-len(one)-1
	}
	return out
}
