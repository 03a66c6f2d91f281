package bridge

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/wire"
)

const (
	// The bounds of the pause between two dispatches of the same attempt.
	repeatFirst = time.Second
	repeatLast  = wire.RepeatWithin
	// releaseAfter is how long a Task that is being deleted waits for a
	// document agent to say that it has stopped. Most never say so.
	releaseAfter = 10 * time.Second
	// deafTries and deafAfter are how many dispatches, over how long, a robot
	// that lives leaves unanswered before it is called deaf.
	deafTries = 3
	deafAfter = 30 * time.Second
)

// downlink sends robots what Tasks ask of them, again and again until they
// answer. One goroutine and one heap serve all tasks.
type downlink struct {
	now     func() time.Time
	view    *view
	dialect func(robotID string) string
	epoch   func(t *robotv1.Task) uint64
	publish func(connection int64, robotID string, t *robotv1.Task, payload []byte) bool
	release func(types.UID)     // the robot was told; let the Task go
	reject  func(r report) bool // a task that cannot be sent
	silent  func(o overdue)     // a dispatch has waited for long
	fetch   func(types.UID)     // the values of its secretEnv; deliver follows if they can be had
	up      func() int64        // the connection that is up, with the robots' lists out; zero: none
	pause   time.Duration       // before the first repeat
	patient time.Duration       // how long a Task is held for a document agent
	log     logr.Logger

	mu      sync.Mutex
	items   map[types.UID]*item
	due     itemHeap
	wake    chan struct{}
	settled time.Time // before it, document agents are dispatched nothing
}

// item is one thing that a robot is to be told.
type item struct {
	uid     types.UID
	robot   string
	attempt int32
	action  string
	state   string
	turns   int       // how often it was due; its pauses grow with them
	tries   int       // how often it went out
	first   time.Time // when it first went out; zero: not yet
	due     time.Time
	gone    *robotv1.Task // the Task, which is no more; nil: it is in the view
	index   int           // in the heap; -1: nothing more to send
}

// overdue is a dispatch that a robot has not answered.
type overdue struct {
	robot string
	tries int
	since time.Time
}

func (d *downlink) init() {
	d.items, d.wake = map[types.UID]*item{}, make(chan struct{}, 1)
}

// changed takes in that a Task has changed. What it is now it reads itself:
// the informer and our own writers come here side by side, and the one with the
// older news, coming last, would take back what the newer one asks for.
func (d *downlink) changed(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, old := d.view.task(uid), d.items[uid]
	if old != nil && old.gone != nil {
		return
	}
	action := wanted(t)
	if action == "" {
		d.drop(old)
		return
	}
	next := &item{uid: t.UID, robot: t.RobotOfAttempt(), attempt: t.Status.Attempt, action: action, state: t.Status.State}
	if old != nil && old.same(next) {
		return
	}
	d.replace(old, next)
}

// replace makes next due at once in the place of old, which may be nil.
func (d *downlink) replace(old, next *item) {
	d.drop(old)
	next.due = d.now()
	d.items[next.uid] = next
	heap.Push(&d.due, next)
	d.wakeUp()
}

func (i *item) same(o *item) bool {
	return i.robot == o.robot && i.attempt == o.attempt && i.action == o.action && i.state == o.state
}

// removed takes in that a Task is gone. Its robot is told once; the list of
// what should be running there says the same for good. But a document agent
// stops nothing because of a list, so the word waits for a link that is down.
func (d *downlink) removed(t *robotv1.Task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.items[t.UID]
	if !lifecycle.TaskState(t.Status.State).OnRobot() || t.RobotOfAttempt() == "" {
		d.drop(old)
		return
	}
	d.replace(old, &item{uid: t.UID, robot: t.RobotOfAttempt(), attempt: t.Status.Attempt, action: wire.ActionDelete, gone: t})
}

// answered takes in a robot's word about a task: what it has got need not be
// sent again.
func (d *downlink) answered(r report) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.items[r.uid]
	if i == nil || i.robot != r.robot || i.attempt != r.attempt {
		return
	}
	switch {
	case i.action == wire.ActionCreate:
		d.rest(i)
	case r.Terminal() || confirmsDelete(r):
		d.again(i, time.Time{}) // long past, so that it is let go
	}
}

// robotHere takes in that a robot has registered: all that it has not answered
// is sent anew. Ours answer twice from their journal; a document agent would
// run a task again that it has ended and forgotten.
func (d *downlink) robotHere(robotID string, tasks []*robotv1.Task, document bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range tasks {
		if i := d.items[t.UID]; i != nil && i.robot == robotID && (i.index >= 0 || !document) {
			d.again(i, d.now())
		}
	}
}

// allAgain sends anew all that is not answered: the broker was away.
func (d *downlink) allAgain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, i := range d.items {
		if i.index >= 0 {
			d.again(i, d.now())
		}
	}
}

// holdDocuments lets document agents be dispatched nothing until then.
func (d *downlink) holdDocuments(until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled = until
}

// held tells whether an action must wait for what its robot may have said. Its
// caller holds the lock.
func (d *downlink) held(robotID, action string) bool {
	return action == wire.ActionCreate && d.now().Before(d.settled) && d.dialect(robotID) == robotv1.ProtocolDocument
}

// mayTell returns the connection on which a robot can be told something now.
// Zero: none. It asks for the link first: what is held back after a connect is
// known before the link is up, and asked the other way round a connect in
// between let a task run twice.
func (d *downlink) mayTell(robotID, action string) (connection int64) {
	connection = d.up()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held(robotID, action) {
		return 0
	}
	return connection
}

// again makes an item due from the start. What went out before counts no
// longer: it may have gone to a connection, or an agent, that is no more. The
// zero time for due marks it as settled by the robot.
func (d *downlink) again(i *item, due time.Time) {
	i.turns, i.tries, i.first, i.due = 0, 0, time.Time{}, due
	if i.index < 0 {
		heap.Push(&d.due, i)
	} else {
		heap.Fix(&d.due, i.index)
	}
	d.wakeUp()
}

func (d *downlink) rest(i *item) {
	if i.index >= 0 {
		heap.Remove(&d.due, i.index)
	}
}

func (d *downlink) drop(i *item) {
	if i == nil {
		return
	}
	d.rest(i)
	delete(d.items, i.uid)
}

func (d *downlink) wakeUp() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run sends what is due until ctx ends.
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
		for d.fireOne() && ctx.Err() == nil {
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

// fireOne sends the first item that is due, and tells whether there was one.
func (d *downlink) fireOne() bool {
	i, ok := d.next()
	if !ok {
		return false
	}
	if i.gone != nil {
		d.sayGone(i)
		return true
	}
	t := d.view.task(i.uid)
	if t == nil || wanted(t) != i.action {
		return true // the change is on its way to us
	}
	if i.due.IsZero() || d.letGo(t, i) {
		d.release(i.uid)
		return true
	}
	d.tell(t, i)
	return true
}

// deliver sends a dispatch with the values that it was waiting for. They are those
// of a Task as it was when they were read: its attempt may be over by now.
func (d *downlink) deliver(was *robotv1.Task, values wire.Secrets) {
	t, i := d.view.task(was.UID), d.waiting(was.UID)
	if wanted(t) != wire.ActionCreate || i.attempt != was.Status.Attempt || t.Status.Attempt != was.Status.Attempt {
		return
	}
	d.tellWith(t, i, values)
}

// waiting is the item of a task as it stands, or the zero one: nothing is to be sent.
func (d *downlink) waiting(uid types.UID) item {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.items[uid]; i != nil && i.index >= 0 && i.action == wire.ActionCreate {
		return *i
	}
	return item{}
}

// sayGone tells a robot once of a Task that is gone, unless it has answered or
// there is nobody to tell any more.
func (d *downlink) sayGone(i item) {
	if !i.due.IsZero() && d.dialect(i.robot) != "" && !d.send(i.gone, i.action) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.items[i.uid]; now != nil && now.gone == i.gone {
		d.drop(now)
	}
}

// tell sends an item that is due, or asks for what must go with it: the API server
// may be slow, and all other robots would wait.
func (d *downlink) tell(t *robotv1.Task, i item) {
	if goesWithSecrets(t, i.action) && d.dialect(i.robot) == robotv1.ProtocolK8s4r {
		if d.mayTell(i.robot, i.action) != 0 {
			d.fetch(i.uid)
		}
		return
	}
	d.tellWith(t, i, nil)
}

// tellWith sends an item, and only if it went out counts that. What the robot
// could not hear is neither a delete that it was told nor a dispatch that it
// leaves unanswered.
func (d *downlink) tellWith(t *robotv1.Task, i item, values wire.Secrets) {
	if !d.sendWith(t, i.action, values) {
		return
	}
	d.count(i)
	if i.action == wire.ActionCreate && i.tries > deafTries {
		d.silent(overdue{robot: i.robot, tries: i.tries, since: i.first})
	}
}

func (d *downlink) count(was item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.items[was.uid]
	if i == nil || !i.same(&was) {
		return
	}
	if i.first.IsZero() {
		i.first = d.now()
	}
	i.tries++
}

// next takes the first item that is due, as it was, and puts off its repeat.
func (d *downlink) next() (item, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	for len(d.due) > 0 && !d.due[0].due.After(now) && d.held(d.due[0].robot, d.due[0].action) {
		d.due[0].due = d.settled
		heap.Fix(&d.due, 0)
	}
	if len(d.due) == 0 || d.due[0].due.After(now) {
		return item{}, false
	}
	i := d.due[0]
	was := *i
	i.due = now.Add(min(d.pause<<min(i.turns, 10), repeatLast))
	i.turns++
	heap.Fix(&d.due, 0)
	return was, true
}

// letGo tells whether a Task that is being deleted need not be held for its
// robot any longer: nothing runs there, the robot has never spoken, is one of
// ours (which learns the rest from its list) or none, or it has had its time
// since it was told, on a connection that still stands.
func (d *downlink) letGo(t *robotv1.Task, i item) bool {
	if t.DeletionTimestamp == nil || !heldForRobot(t) {
		return false
	}
	speaks := d.dialect(i.robot)
	switch {
	case !lifecycle.TaskState(t.Status.State).OnRobot(), d.view.robot(i.robot) == nil, speaks == "":
		return true
	case i.tries == 0:
		return false // tell it once at least
	case speaks != robotv1.ProtocolDocument:
		return true
	}
	return d.up() != 0 && d.now().Sub(i.first) >= d.patient
}

// send dispatches a Task in the dialect of its robot. A robot that has never
// spoken gets nothing: it listens to nobody. Nobody gets anything before the
// list that belongs to it. It tells whether the message went out, or never can.
func (d *downlink) send(t *robotv1.Task, action string) bool { return d.sendWith(t, action, nil) }

// sendWith is send with the values of the Task's secretEnv. Nil: they were not read.
func (d *downlink) sendWith(t *robotv1.Task, action string, values wire.Secrets) bool {
	robotID := t.RobotOfAttempt()
	connection := d.mayTell(robotID, action)
	if connection == 0 {
		return false
	}
	speaks := d.dialect(robotID)
	forgets := speaks == robotv1.ProtocolDocument && lifecycle.TaskState(t.Status.State) == lifecycle.TaskUnknown
	if speaks == "" || action == wire.ActionCreate && (forgets || d.view.isForAnother(t, robotID)) {
		return false
	}
	if goesWithSecrets(t, action) && speaks == robotv1.ProtocolDocument {
		d.refuse(t, "The robot's agent takes no secretEnv: it speaks the document's protocol")
		return true
	}
	if goesWithSecrets(t, action) && values == nil {
		return false // its robot had another agent a moment ago
	}
	// One that ends a task starts nothing that a list would have to stop. Repeated to a robot
	// that is away it would carry the epochs of its lists ahead of all resource versions, and
	// the robot would take no list of the next server.
	epoch := versionOf(t.ResourceVersion)
	if action == wire.ActionCreate {
		epoch = d.epoch(t)
	}
	payload, err := encodeDispatch(action, t, speaks, epoch, d.view.era(robotID), factsFor(t, d.view.robot(robotID)), values)
	if err != nil {
		d.cannotSend(t, action, err)
		return true
	}
	return d.publish(connection, robotID, t, payload)
}

// cannotSend ends the attempt of a task that fits no message, with a sentence
// where its owner will look.
func (d *downlink) cannotSend(t *robotv1.Task, action string, err error) {
	if action != wire.ActionCreate || !errors.Is(err, wire.ErrTooLarge) {
		d.log.Error(err, "dispatch task", "task", t.Namespace+"/"+t.Name, "action", action)
		return
	}
	what := "The task does"
	if wantsSecrets(t) {
		what = "The task and the values of its secretEnv do"
	}
	d.refuse(t, what+" not fit one message to a robot: "+err.Error())
}

// refuse ends the attempt of a task that its robot is never sent.
func (d *downlink) refuse(t *robotv1.Task, message string) {
	d.reject(report{robot: t.RobotOfAttempt(), uid: t.UID, attempt: t.Status.Attempt, document: true, Status: wire.Status{
		State: wire.ReportFailed, ExitCode: codeUnknown, Reason: wire.ReasonRejected, Event: wire.ReasonRejected,
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

// Push appends an item.
func (h *itemHeap) Push(x any) {
	i := x.(*item)
	i.index = len(*h)
	*h = append(*h, i)
}

// Pop takes the last item off.
func (h *itemHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	last.index = -1
	return last
}
