package bridge

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/logstore"
	"k8s4r.io/k8s4r/internal/wire"
)

const (
	// logWorkers write logs at a time; those of one task have one writer.
	logWorkers = 4
	// logQueue and logQueueBytes bound what waits for them. What is over is
	// dropped, and robots send it again.
	logQueue      = 4096
	logQueueBytes = 32 << 20
	// syncEvery is how often the logs that have grown are synced at the most. One
	// sync serves all pieces of that time.
	syncEvery = 100 * time.Millisecond
)

// logs takes in what tasks write, and answers what is safe on the disk.
type logs struct {
	store   logstore.Store // nil: nobody keeps logs
	view    *view
	now     func() time.Time
	ack     func(robotID string, a wire.LogAck)
	changed func(types.UID) // a log has grown
	forget  func() bool     // whether a task that is not in the view is gone for good
	bad     func(robotID string, err error)
	m       *metrics
	log     logr.Logger

	queued  atomic.Int64 // bytes
	workers [logWorkers]*logWorker
}

// logItem is a piece of a log, or a line of the server's own.
type logItem struct {
	robot   string // empty: a line
	uid     types.UID
	payload []byte

	key  logstore.Key
	at   time.Time
	line string
}

// logWorker owns the logs of its share of the tasks.
type logWorker struct {
	*logs
	queue chan logItem
	wake  chan struct{}

	mu      sync.Mutex
	pending map[logstore.Key]answer
}

// answer is what a robot is to be told after the next sync.
type answer struct {
	robot string
	n     uint64
}

func (l *logs) init() {
	for i := range l.workers {
		l.workers[i] = &logWorker{logs: l, queue: make(chan logItem, logQueue), wake: make(chan struct{}, 1), pending: map[logstore.Key]answer{}}
	}
}

// run works until ctx ends.
func (l *logs) run(ctx context.Context) {
	if l.store == nil {
		return
	}
	var wg sync.WaitGroup
	for _, w := range l.workers {
		wg.Go(func() { w.write(ctx) })
		wg.Go(func() { w.sync(ctx) })
	}
	wg.Wait()
}

// hear takes a message of a robot in without waiting.
func (l *logs) hear(a wire.Address, payload []byte) {
	l.add(logItem{robot: a.RobotID, uid: types.UID(a.TaskUID), payload: payload})
}

// say notes a change of a task's state in the log of its attempt.
func (l *logs) say(old, t *robotv1.Task) {
	if old == nil || old.Status.State == t.Status.State || t.Status.Attempt < 1 {
		return
	}
	line := fmt.Sprintf("task changed state %s -> %s", or(old.Status.State, "pending"), t.Status.State)
	if robot := t.RobotOfAttempt(); robot != "" {
		line += " on " + robot
	}
	if t.Status.Message != "" {
		line += ": " + t.Status.Message
	}
	l.add(logItem{uid: t.UID, key: keyOf(t, t.Status.Attempt), at: l.now(), line: line})
}

func (l *logs) add(it logItem) {
	if l.store == nil {
		return
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(it.uid))
	if l.queued.Add(int64(len(it.payload))) <= logQueueBytes {
		select {
		case l.workers[h.Sum32()%logWorkers].queue <- it:
			return
		default:
		}
	}
	l.queued.Add(-int64(len(it.payload)))
	l.m.dropped.WithLabelValues(string(wire.KindLogs), "queue is full").Inc()
}

func keyOf(t *robotv1.Task, attempt int32) logstore.Key {
	return logstore.Key{Namespace: t.Namespace, Job: t.Spec.JobName, Task: t.Name, UID: string(t.UID), Attempt: attempt}
}

func (w *logWorker) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case it := <-w.queue:
			w.queued.Add(-int64(len(it.payload)))
			if err := w.take(ctx, it); err != nil {
				w.bad(it.robot, err)
			}
			w.changed(it.uid)
		}
	}
}

func (w *logWorker) take(ctx context.Context, it logItem) error {
	if it.robot == "" {
		return w.store.Say(ctx, it.key, it.at, it.line)
	}
	m, err := wire.Decode[wire.Logs](it.payload)
	if err != nil {
		return err
	}
	data, err := m.Unpack()
	if err != nil {
		return err
	}
	t, wanted := w.wanted(it, m.Attempt)
	switch {
	case !wanted:
		w.ack(it.robot, wire.LogAck{UID: string(it.uid), Attempt: m.Attempt, N: m.N, Offset: m.Offset, Done: true})
	case t != nil:
		k := keyOf(t, m.Attempt)
		if _, err := w.store.Append(ctx, k, logstore.Piece{Offset: m.Offset, Lost: m.Lost, Data: data, Last: m.Last}); err != nil {
			return err // it comes again
		}
		w.m.logBytes.Add(float64(len(data)))
		w.answer(k, it.robot, m.N)
	}
	return nil
}

// wanted finds the task that a robot sends a log of. Not wanted: nobody will ever
// want it, because the task is gone, or the attempt was never that robot's. Nil:
// that is not known yet, so the robot gets no answer and asks again.
func (w *logWorker) wanted(it logItem, attempt int32) (t *robotv1.Task, wanted bool) {
	t = w.view.task(it.uid)
	switch {
	case t == nil:
		return nil, !w.forget()
	case attempt > t.Status.Attempt && t.Status.Entry(attempt) == nil:
		return nil, true
	}
	return t, mayReport(t, report{robot: it.robot, attempt: attempt})
}

func (w *logWorker) answer(k logstore.Key, robot string, n uint64) {
	w.mu.Lock()
	w.pending[k] = answer{robot: robot, n: max(n, w.pending[k].n)}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// sync makes what was written safe, and tells the robots.
func (w *logWorker) sync(ctx context.Context) {
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
	w.pending = map[logstore.Key]answer{}
	w.mu.Unlock()
	keys := make([]logstore.Key, 0, len(pending))
	for k := range pending {
		keys = append(keys, k)
	}
	safe, err := w.store.Sync(ctx, keys)
	if err != nil {
		w.bad("", err)
	}
	for k, a := range pending {
		if s, ok := safe[k]; ok {
			w.ack(a.robot, wire.LogAck{UID: k.UID, Attempt: k.Attempt, N: a.n, Offset: s.Want, Done: s.Done})
		}
	}
}
