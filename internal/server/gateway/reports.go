package bridge

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/traceparent"
	"k8s4r.io/k8s4r/internal/tracing"
	"k8s4r.io/k8s4r/internal/wire"
)

const (
	// reportWorkers write at a time; the reports of one task have one writer.
	reportWorkers = 16
	// reportQueue bounds what waits for one worker. What is over is dropped
	// and comes again, because nobody acknowledged it.
	reportQueue = 4096
	// writeTimeout bounds one write.
	writeTimeout = 10 * time.Second
	// flushTimeout bounds the writes of a server that stops.
	flushTimeout = 5 * time.Second
	// The bounds of the pause after a write that failed.
	retryFirst = 100 * time.Millisecond
	retryLast  = 5 * time.Second
)

// reports turns what robots say about tasks into writes of Task status.
type reports struct {
	window time.Duration
	now    func() time.Time
	view   *view
	live   client.Reader
	writer client.SubResourceWriter
	ack    func(robotID string, t wire.TaskAck)
	wrote  func(*robotv1.Task) // each write
	tracer *tracing.Tracer     // of what has run; nil: nobody traces
	forget func() bool         // whether a task that is not in the view is gone for good
	m      *metrics
	log    logr.Logger
	queues [reportWorkers]chan report
}

func (q *reports) init() {
	for i := range q.queues {
		q.queues[i] = make(chan report, reportQueue)
	}
}

// add takes a report in without waiting. It tells whether there was room.
func (q *reports) add(r report) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.uid))
	select {
	case q.queues[h.Sum32()%reportWorkers] <- r:
		return true
	default:
		return false
	}
}

// run writes until ctx ends, and then what it has taken: the broker has it no
// more, and document agents say each thing once.
func (q *reports) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, queue := range q.queues {
		w := &reportWorker{reports: q, queue: queue, waiting: map[types.UID]*batch{}}
		wg.Go(func() { w.run(ctx) })
	}
	wg.Wait()
}

// batch is what robots said about one task and is not written yet.
type batch struct {
	reports  []report
	due      time.Time
	failures int
}

// maxBatch bounds the reports about one task that wait for one write. An
// honest robot has a handful.
const maxBatch = 64

// reportWorker owns the batches of its share of the tasks.
type reportWorker struct {
	*reports
	queue   chan report
	waiting map[types.UID]*batch
}

func (w *reportWorker) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			w.flush(context.WithoutCancel(ctx))
			return
		case r := <-w.queue:
			w.take(r)
			w.takeAllThere()
		case <-timer.C:
		}
		w.writeDue(ctx)
		timer.Reset(w.untilDue())
	}
}

// flush writes all that is there, once.
func (w *reportWorker) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	w.takeAllThere()
	for _, b := range w.waiting {
		b.due = w.now()
	}
	w.writeDue(ctx)
}

// takeAllThere empties the queue, so that a start and an end that came while
// a write was under way share the next one.
func (w *reportWorker) takeAllThere() {
	for len(w.waiting) < reportQueue {
		select {
		case r := <-w.queue:
			w.take(r)
		default:
			return
		}
	}
}

func (w *reportWorker) take(r report) {
	b := w.waiting[r.uid]
	if b == nil {
		b = &batch{due: w.now().Add(w.window)}
		w.waiting[r.uid] = b
	}
	if len(b.reports) == maxBatch {
		w.m.dropped.WithLabelValues(string(wire.KindStatus), "too many for one task").Inc()
		return
	}
	b.reports = append(b.reports, r)
	if r.Terminal() && b.failures == 0 {
		b.due = w.now() // nothing better can come
	}
}

func (w *reportWorker) untilDue() time.Duration {
	next := time.Hour
	for _, b := range w.waiting {
		next = min(next, b.due.Sub(w.now()))
	}
	return max(next, 0)
}

func (w *reportWorker) writeDue(ctx context.Context) {
	for uid, b := range w.waiting {
		if b.due.After(w.now()) || ctx.Err() != nil {
			continue
		}
		err := w.write(ctx, uid, b.reports)
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			// It never will be taken, and must not hold up what comes after.
			w.m.dropped.WithLabelValues(string(wire.KindStatus), "refused by the API server").Add(float64(len(b.reports)))
			w.log.Error(err, "task status is refused", "uid", uid)
			err = nil
		}
		if err != nil {
			b.failures++
			b.due = w.now().Add(min(retryFirst<<min(b.failures, 10), retryLast))
			w.log.Error(err, "write task status", "uid", uid, "failures", b.failures)
			continue
		}
		delete(w.waiting, uid)
		w.takeAllThere() // or an end that came meanwhile would not share its start's write
	}
}

// write judges the reports about one task and writes the outcome. A conflict
// means that somebody else has moved the task, so all is judged anew on what
// stands there now.
func (w *reportWorker) write(ctx context.Context, uid types.UID, rs []report) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	t := w.view.task(uid)
	for {
		if t == nil {
			w.aboutNothing(rs)
			return nil
		}
		next, verdicts := judgeAll(w.now(), t, rs)
		err := w.update(ctx, t, next)
		if err == nil {
			w.record(t, next, rs)
			w.settle(rs, verdicts)
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("task %s/%s: %w", t.Namespace, t.Name, err)
		}
		if t, err = w.read(ctx, t); err != nil {
			return err
		}
	}
}

// update writes next, unless it is what stands there already.
func (w *reportWorker) update(ctx context.Context, t, next *robotv1.Task) error {
	if next == t {
		return nil
	}
	next = next.DeepCopy()
	err := w.writer.Update(ctx, next)
	w.m.taskWrites.WithLabelValues(result(err)).Inc()
	if err == nil {
		w.wrote(next)
		if t.Status.State != next.Status.State {
			w.m.transitions.WithLabelValues(t.Status.State, next.Status.State).Inc()
		}
	}
	return err
}

// record the runs that have ended with what was written.
func (w *reportWorker) record(was, is *robotv1.Task, rs []report) {
	if was == is || w.tracer == nil {
		return
	}
	var said traceparent.Context
	for _, r := range rs {
		if r.attempt == is.Status.Attempt && r.trace != (traceparent.Context{}) {
			said = r.trace
		}
	}
	w.tracer.Record(tracing.Ran(was, is, said)...)
}

// read looks past the cache. It returns nil when the task is gone.
func (w *reportWorker) read(ctx context.Context, t *robotv1.Task) (*robotv1.Task, error) {
	var now robotv1.Task
	err := w.live.Get(ctx, client.ObjectKeyFromObject(t), &now)
	switch {
	case apierrors.IsNotFound(err), err == nil && now.UID != t.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read task %s/%s again: %w", t.Namespace, t.Name, err)
	}
	w.wrote(&now)
	return &now, nil
}

// settle counts and acknowledges what has been judged and written.
func (w *reportWorker) settle(rs []report, verdicts []verdict) {
	written := 0
	for i, v := range verdicts {
		switch v.drop {
		case "":
			written++
			w.measure(rs[i])
		case dropIllegalEdge:
			w.m.illegalEdges.WithLabelValues(rs[i].State, string(v.signal)).Inc()
		case dropNothingNew:
		default:
			w.m.dropped.WithLabelValues(string(wire.KindStatus), string(v.drop)).Inc()
		}
		if v.ack {
			w.acknowledge(rs[i])
		}
	}
	w.m.coalesced.Add(float64(max(written-1, 0)))
}

// measure how long it took to write what a robot said.
func (w *reportWorker) measure(r report) {
	if !r.heard.IsZero() {
		w.m.uplinkLag.Observe(w.now().Sub(r.heard).Seconds())
	}
}

// aboutNothing answers reports about a task that is not there. A robot knows
// a UID only from a dispatch, which some server sent after it had seen the
// Task; so once our own view has had time to catch up with that server's, the
// Task has been deleted, and nobody will ever want to know. A look past the
// cache would not help: the API finds no object by its UID.
func (w *reportWorker) aboutNothing(rs []report) {
	for _, r := range rs {
		w.m.dropped.WithLabelValues(string(wire.KindStatus), string(dropUnknownTask)).Inc()
		if w.forget() {
			w.acknowledge(r)
		}
	}
}

func (w *reportWorker) acknowledge(r report) {
	if !r.document && !r.useOnly {
		w.ack(r.robot, wire.TaskAck{UID: string(r.uid), Attempt: r.attempt, Seq: r.Seq})
	}
}
