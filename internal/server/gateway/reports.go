package gateway

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
	"k8s4r.io/k8s4r/internal/platform/tracing"
	"k8s4r.io/k8s4r/internal/protocol/trace"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	// reportWorkers write at a time; the reports of one task have one writer.
	reportWorkers = 16
	// reportQueue bounds the reports that wait for one worker. Others are dropped, and
	// come again because they are not acknowledged.
	reportQueue = 4096
	// writeTimeout bounds one write.
	writeTimeout = 10 * time.Second
	// flushTimeout bounds the writes at shutdown.
	flushTimeout = 5 * time.Second
	// Bounds of the pause after a failed write.
	retryFirst = 100 * time.Millisecond
	retryLast  = 5 * time.Second
)

// reportWriter writes reports of robots to the status of Tasks.
type reportWriter struct {
	window  time.Duration
	now     func() time.Time
	objects *objectIndex
	live    client.Reader
	writer  client.SubResourceWriter
	sendAck func(robotID string, t wire.TaskAck)
	onWrite func(*robotv1.Task) // each write
	tracer  *tracing.Tracer     // of runs; nil: no traces
	isGone  func() bool         // a task that is not in the index is certainly deleted
	m       *metrics
	log     logr.Logger
	queues  [reportWorkers]chan report
}

func (q *reportWriter) initQueues() {
	for i := range q.queues {
		q.queues[i] = make(chan report, reportQueue)
	}
}

// addReport queues a report without blocking, and reports whether there was room.
func (q *reportWriter) addReport(r report) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.uid))
	select {
	case q.queues[h.Sum32()%reportWorkers] <- r:
		return true
	default:
		return false
	}
}

// run writes until ctx ends, and then writes what is queued: the broker has delivered
// it, and legacy agents send each report once.
func (q *reportWriter) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, queue := range q.queues {
		w := &reportWorker{reportWriter: q, queue: queue, waiting: map[types.UID]*batch{}}
		wg.Go(func() { w.run(ctx) })
	}
	wg.Wait()
}

// batch has the reports about one task that are not written yet.
type batch struct {
	reports  []report
	due      time.Time
	failures int
}

// maxBatch bounds the reports about one task in one write. Robots send a handful.
const maxBatch = 64

// reportWorker owns the batches of its share of the tasks.
type reportWorker struct {
	*reportWriter
	queue   chan report
	waiting map[types.UID]*batch
}

func (w *reportWorker) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			w.flushAll(context.WithoutCancel(ctx))
			return
		case r := <-w.queue:
			w.addToBatch(r)
			w.drainQueue()
		case <-timer.C:
		}
		w.writeDue(ctx)
		timer.Reset(w.untilDue())
	}
}

// flushAll tries to write everything once.
func (w *reportWorker) flushAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	w.drainQueue()
	for _, b := range w.waiting {
		b.due = w.now()
	}
	w.writeDue(ctx)
}

// drainQueue empties the queue, so that a start and an end that arrived during a write
// share the next one.
func (w *reportWorker) drainQueue() {
	for len(w.waiting) < reportQueue {
		select {
		case r := <-w.queue:
			w.addToBatch(r)
		default:
			return
		}
	}
}

func (w *reportWorker) addToBatch(r report) {
	b := w.waiting[r.uid]
	if b == nil {
		b = &batch{due: w.now().Add(w.window)}
		w.waiting[r.uid] = b
	}
	if len(b.reports) == maxBatch {
		w.m.countDropped(wire.KindStatus, dropTooMany, 1)
		return
	}
	b.reports = append(b.reports, r)
	if r.IsTerminal() && b.failures == 0 {
		b.due = w.now() // no later report can improve the write
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
		err := w.writeBatch(ctx, uid, b.reports)
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			// It would be refused again, and must not block later reports.
			w.m.countDropped(wire.KindStatus, dropRefused, len(b.reports))
			w.log.Error(err, "the API server refused a task status", "uid", uid)
			err = nil
		}
		if err != nil {
			b.failures++
			b.due = w.now().Add(min(retryFirst<<min(b.failures, 10), retryLast))
			w.log.Error(err, "write task status", "uid", uid, "failures", b.failures)
			continue
		}
		delete(w.waiting, uid)
		w.drainQueue() // an end that arrived meanwhile shares its start's write
	}
}

// writeBatch applies the reports about one task and writes the result. After a conflict
// it applies them again to the current object.
func (w *reportWorker) writeBatch(ctx context.Context, uid types.UID, rs []report) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	t := w.objects.task(uid)
	for {
		if t == nil {
			w.dropOrphans(rs)
			return nil
		}
		next, verdicts := applyReports(w.now(), t, rs)
		err := w.updateStatus(ctx, t, next)
		if err == nil {
			w.recordTrace(t, next, rs)
			w.finishReports(rs, verdicts)
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("task %s/%s: %w", t.Namespace, t.Name, err)
		}
		if t, err = w.rereadTask(ctx, t); err != nil {
			return err
		}
	}
}

// updateStatus writes next, unless it is unchanged.
func (w *reportWorker) updateStatus(ctx context.Context, t, next *robotv1.Task) error {
	if next == t {
		return nil
	}
	next = next.DeepCopy()
	err := w.writer.Update(ctx, next)
	w.m.taskWrites.WithLabelValues(resultLabel(err)).Inc()
	if err == nil {
		w.onWrite(next)
		if t.Status.State != next.Status.State {
			w.m.transitions.WithLabelValues(t.Status.State, next.Status.State).Inc()
		}
	}
	return err
}

// recordTrace records the runs that ended with the write.
func (w *reportWorker) recordTrace(was, is *robotv1.Task, rs []report) {
	if was == is || w.tracer == nil {
		return
	}
	var dispatched trace.Context
	for _, r := range rs {
		if r.attempt == is.Status.Attempt && r.trace != (trace.Context{}) {
			dispatched = r.trace
		}
	}
	w.tracer.Record(tracing.RunSpans(was, is, dispatched)...)
}

// rereadTask reads a task without the cache. It returns nil if the task is deleted.
func (q *reportWriter) rereadTask(ctx context.Context, t *robotv1.Task) (*robotv1.Task, error) {
	var now robotv1.Task
	err := q.live.Get(ctx, client.ObjectKeyFromObject(t), &now)
	switch {
	case apierrors.IsNotFound(err), err == nil && now.UID != t.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read task %s/%s again: %w", t.Namespace, t.Name, err)
	}
	q.onWrite(&now)
	return &now, nil
}

// finishReports counts and acknowledges reports that have been applied and written.
func (w *reportWorker) finishReports(rs []report, verdicts []reportOutcome) {
	written := 0
	for i, v := range verdicts {
		switch v.drop {
		case "":
			written++
			w.observeLag(rs[i])
		case dropIllegalTransition:
			w.m.illegalTransitions.WithLabelValues(rs[i].State, string(v.signal)).Inc()
		case dropNothingNew:
		default:
			w.m.countDropped(wire.KindStatus, v.drop, 1)
		}
		if v.ack {
			w.ackReport(rs[i])
		}
	}
	w.m.coalesced.Add(float64(max(written-1, 0)))
}

// observeLag observes the time from the receipt of a report to its write.
func (w *reportWorker) observeLag(r report) {
	if !r.receivedAt.IsZero() {
		w.m.reportLag.Observe(w.now().Sub(r.receivedAt).Seconds())
	}
}

// dropOrphans drops reports about a task that does not exist. Robots know UIDs only from
// dispatches of a server that had seen the Task; so once our index has caught up, the
// Task is deleted, and the report is acknowledged. The API cannot find objects by UID.
func (w *reportWorker) dropOrphans(rs []report) {
	for _, r := range rs {
		w.m.countDropped(wire.KindStatus, dropUnknownTask, 1)
		if w.isGone() {
			w.ackReport(r)
		}
	}
}

func (w *reportWorker) ackReport(r report) {
	if !r.legacy && !r.usageOnly {
		w.sendAck(r.robot, wire.TaskAck{UID: string(r.uid), Attempt: r.attempt, Seq: r.Seq})
	}
}
