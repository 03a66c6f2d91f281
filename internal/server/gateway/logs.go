package gateway

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/server/logstore"
)

const (
	// logWorkers is the number of concurrent writers; each task has one.
	logWorkers = 4
	// logQueue and logQueueBytes bound what waits for them. What is over is
	// dropped, and robots send it again.
	logQueue      = 4096
	logQueueBytes = 32 << 20
	// logQueueOfRobot bounds what waits of one robot, so that it leaves room for others.
	logQueueOfRobot = 256
	// syncEvery is the minimum time between two syncs; one sync serves all pieces of
	// that time.
	syncEvery = 100 * time.Millisecond
)

// logWriter stores the output of tasks and the records of their runs, and acknowledges what is synced to disk.
type logWriter struct {
	store    logstore.Store // nil: logs are dropped
	objects  *objectIndex
	now      func() time.Time
	sendAck  func(robotID string, ofRuns bool, a wire.LogAck)
	onChange func(types.UID) // a log has grown
	isGone   func() bool     // a task that is not in the index is certainly deleted
	onError  func(robotID string, err error)
	m        *metrics
	log      logr.Logger

	workers [logWorkers]*logWorker

	mu      sync.Mutex
	queued  int            // bytes
	ofRobot map[string]int // number of queued pieces, by robot
}

// logItem is a piece of a log, or a line of the server.
type logItem struct {
	robot   string // empty: a line of the server
	uid     types.UID
	ofRuns  bool // the records of runs
	payload []byte

	key  logstore.Key
	at   time.Time
	line string
}

func (it logItem) kind() wire.Kind {
	if it.ofRuns {
		return wire.KindRuns
	}
	return wire.KindLogs
}

// logWorker writes the logs of its share of the tasks.
type logWorker struct {
	*logWriter
	queue chan logItem
	wake  chan struct{}

	mu      sync.Mutex
	pending map[logstore.Key]pendingAck
}

// pendingAck is an acknowledgement that is sent after the next sync.
type pendingAck struct {
	robot string
	seq   uint64
}

func (l *logWriter) initWorkers() {
	for i := range l.workers {
		l.workers[i] = &logWorker{logWriter: l, queue: make(chan logItem, logQueue), wake: make(chan struct{}, 1), pending: map[logstore.Key]pendingAck{}}
	}
}

func (l *logWriter) run(ctx context.Context) {
	if l.store == nil {
		return
	}
	var wg sync.WaitGroup
	for _, w := range l.workers {
		wg.Go(func() { w.runWriter(ctx) })
		wg.Go(func() { w.runSyncer(ctx) })
	}
	wg.Wait()
}

// canStore reports whether the server stores logs.
func (l *logWriter) canStore() bool { return l.store != nil }

// addPiece queues a piece of a log without blocking.
func (l *logWriter) addPiece(m inbound) {
	l.enqueueItem(logItem{robot: m.RobotID, uid: types.UID(m.TaskUID), ofRuns: m.Kind == wire.KindRuns, payload: m.payload})
}

// logStateChange writes a change of a task's state to the log of its attempt.
func (l *logWriter) logStateChange(old, t *robotv1.Task) {
	if old == nil || old.Status.State == t.Status.State || t.Status.Attempt < 1 {
		return
	}
	line := fmt.Sprintf("task changed state %s -> %s", cmp.Or(old.Status.State, "pending"), t.Status.State)
	if robot := t.CurrentRobot(); robot != "" {
		line += " on " + robot
	}
	if t.Status.Message != "" {
		line += ": " + t.Status.Message
	}
	l.enqueueItem(logItem{uid: t.UID, key: logKey(t, t.Status.Attempt), at: l.now(), line: line})
}

func (l *logWriter) enqueueItem(it logItem) {
	if l.store == nil {
		return
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(it.uid))
	if l.reserve(it) {
		select {
		case l.workers[h.Sum32()%logWorkers].queue <- it:
			return
		default:
			l.release(it)
		}
	}
	l.m.countDropped(it.kind(), dropQueueFull, 1)
}

// reserve reserves room for an item, and reports whether there was any. The server's own lines
// count as those of a robot without a name, of which there are few.
func (l *logWriter) reserve(it logItem) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if it.robot != "" && l.ofRobot[it.robot] >= logQueueOfRobot || l.queued+len(it.payload) > logQueueBytes {
		return false
	}
	l.queued += len(it.payload)
	if l.ofRobot == nil {
		l.ofRobot = map[string]int{}
	}
	l.ofRobot[it.robot]++
	return true
}

// release releases the room of an item.
func (l *logWriter) release(it logItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queued -= len(it.payload)
	if l.ofRobot[it.robot]--; l.ofRobot[it.robot] == 0 {
		delete(l.ofRobot, it.robot)
	}
}

func logKey(t *robotv1.Task, attempt int32) logstore.Key {
	return logstore.Key{Namespace: t.Namespace, Job: t.Spec.JobName, Task: t.Name, UID: string(t.UID), Attempt: attempt}
}

func (w *logWorker) runWriter(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case it := <-w.queue:
			w.release(it)
			if err := w.writeItem(ctx, it); err != nil {
				w.onError(it.robot, err)
			}
			w.onChange(it.uid)
		}
	}
}

func (w *logWorker) writeItem(ctx context.Context, it logItem) error {
	if it.robot == "" {
		return w.store.AppendServerLine(ctx, it.key, it.at, it.line)
	}
	m, err := wire.Decode[wire.Logs](it.payload)
	if err != nil {
		return err
	}
	data, err := m.Unpack()
	if err != nil {
		return err
	}
	t, wanted := w.findTask(it, m.Attempt)
	switch {
	case !wanted:
		w.sendAck(it.robot, it.ofRuns, wire.LogAck{UID: string(it.uid), Attempt: m.Attempt, Seq: m.Seq, Offset: m.Offset, Done: true})
	case t != nil:
		k := logKey(t, m.Attempt)
		k.OfRuns = it.ofRuns
		if _, err := w.store.Append(ctx, k, logstore.Piece{Offset: m.Offset, Lost: m.Lost, Data: data, Last: m.Last}); err != nil {
			return err // the robot sends it again
		}
		w.m.logBytes.Add(float64(len(data)))
		w.queueAck(k, it.robot, m.Seq)
	}
	return nil
}

// findTask finds the task of a piece of a log. It is not wanted if the task is deleted,
// or the attempt was never that robot's. A nil task that is wanted is unknown yet: the
// robot gets no answer and sends again.
func (w *logWorker) findTask(it logItem, attempt int32) (t *robotv1.Task, wanted bool) {
	t = w.objects.task(it.uid)
	switch {
	case t == nil:
		return nil, !w.isGone()
	case attempt > t.Status.Attempt && t.Status.FindAttempt(attempt) == nil:
		return nil, true
	}
	return t, canReport(t, report{robot: it.robot, attempt: attempt})
}

func (w *logWorker) queueAck(k logstore.Key, robot string, n uint64) {
	w.mu.Lock()
	w.pending[k] = pendingAck{robot: robot, seq: max(n, w.pending[k].seq)}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// runSyncer syncs what was written, and acknowledges it.
func (w *logWorker) runSyncer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		w.syncOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(syncEvery):
		}
	}
}

func (w *logWorker) syncOnce(ctx context.Context) {
	w.mu.Lock()
	pending := w.pending
	w.pending = map[logstore.Key]pendingAck{}
	w.mu.Unlock()
	keys := make([]logstore.Key, 0, len(pending))
	for k := range pending {
		keys = append(keys, k)
	}
	safe, err := w.store.Sync(ctx, keys)
	if err != nil {
		w.onError("", err)
	}
	for k, a := range pending {
		if s, ok := safe[k]; ok {
			w.sendAck(a.robot, k.OfRuns, wire.LogAck{UID: k.UID, Attempt: k.Attempt, Seq: a.seq, Offset: s.NextOffset, Done: s.Done})
		}
	}
}
