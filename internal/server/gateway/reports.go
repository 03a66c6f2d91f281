package gateway

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
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
	// maxUnassigned bounds the tasks of one robot's reports in one worker that the index does not
	// assign to the robot. Others are dropped, and come again because they are not acknowledged.
	maxUnassigned = 64
	// writeTimeout bounds one write.
	writeTimeout = 10 * time.Second
	// flushTimeout bounds the writes at shutdown.
	flushTimeout = 5 * time.Second
	// Bounds of the pause after a failed write.
	retryFirst = 100 * time.Millisecond
	retryLast  = 5 * time.Second
	// minLimitPause is the shortest pause of a robot that has reached a limit.
	minLimitPause = 50 * time.Millisecond
)

// reportWriter writes reports of robots to the status of Tasks. The reports of each robot wait on
// their own, within the bounds of its tasks, and robots take turns. So a robot with many reports
// delays no others.
type reportWriter struct {
	window    time.Duration
	now       func() time.Time
	objects   *objectIndex
	live      client.Reader
	writer    client.SubResourceWriter
	sendAck   func(robotID string, t wire.TaskAck)
	onWrite   func(*robotv1.Task)                   // each write
	tracer    *tracing.Tracer                       // of runs; nil: no traces
	isGone    func() bool                           // a task that is not in the index is certainly deleted
	quotas    *reportQuotas                         // of the writes; nil: no bound
	progress  *rate.Limiter                         // of the writes for isProgressOf; nil: no bound
	onLimited func(robotID string, limit limitName) // a quota is used up
	m         *metrics
	log       logr.Logger
	workers   [reportWorkers]*reportWorker
}

func (q *reportWriter) initWorkers() {
	for i := range q.workers {
		q.workers[i] = &reportWorker{reportWriter: q, wake: make(chan struct{}, 1), robots: map[string]*robotReports{}}
	}
}

// addReport adds a report without blocking, and reports whether there was room. There always is
// for the ends of the robot's tasks.
func (q *reportWriter) addReport(r report) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.uid))
	return q.workers[h.Sum32()%reportWorkers].addReport(r)
}

// run writes until ctx ends, and then writes what waits: the broker has delivered it, and legacy
// agents send each report once.
func (q *reportWriter) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, w := range q.workers {
		wg.Go(func() { w.run(ctx) })
	}
	wg.Wait()
}

// reportWorker writes the reports of its share of the tasks.
type reportWorker struct {
	*reportWriter
	wake chan struct{}

	mu        sync.Mutex
	robots    map[string]*robotReports // that have reports
	turns     uint64                   // counts batches that were taken
	runWrites map[types.UID]time.Time  // last writes about the runs of tasks, within runWritePeriod
}

// robotReports has the reports of one robot in one worker.
type robotReports struct {
	tasks      map[types.UID]*batch
	unassigned int       // number of batches with isUnassigned
	lastTurn   uint64    // when one was taken last; at first, when the first was added
	heldUntil  time.Time // before it, a limit is reached
}

func (w *reportWorker) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			w.flushAll(context.WithoutCancel(ctx))
			return
		case <-w.wake:
		case <-timer.C:
		}
		w.writeDue(ctx)
		timer.Reset(w.untilDue())
	}
}

// flushAll tries to write everything once, also what a limit has delayed.
func (w *reportWorker) flushAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	var all []*batch
	for b := w.takeNext(w.now().Add(time.Hour), false); b != nil; b = w.takeNext(w.now().Add(time.Hour), false) {
		all = append(all, b)
	}
	for _, b := range all {
		if ctx.Err() == nil {
			w.writeReports(ctx, b)
		}
	}
}

// addReport is addReport of the writer, for tasks of this worker.
func (w *reportWorker) addReport(r report) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.batchOfLocked(r)
	if b == nil {
		return false
	}
	robot := w.robots[r.robot]
	if !b.addReport(r, robot.heldUntil.After(w.now())) {
		w.m.countDropped(wire.KindStatus, dropTooMany, 1)
		return true
	}
	if r.IsTerminal() && b.failures == 0 {
		b.due = w.now() // no later report can improve the write
	}
	w.delayRunLocked(b, r)
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return true
}

// batchOfLocked returns the batch for a report, which is created if necessary. Nil: there is no
// room for it.
func (w *reportWorker) batchOfLocked(r report) *batch {
	robot := w.robots[r.robot]
	if robot != nil && robot.tasks[r.uid] != nil {
		return robot.tasks[r.uid]
	}
	b := &batch{robot: r.robot, uid: r.uid, due: w.now().Add(w.window), isUnassigned: !w.isAssigned(r)}
	if robot != nil && b.isUnassigned && robot.unassigned >= maxUnassigned {
		return nil
	}
	w.putLocked(b)
	return b
}

// isAssigned reports whether the index assigns the attempt of a report to its robot.
func (q *reportWriter) isAssigned(r report) bool {
	t := q.objects.task(r.uid)
	return t != nil && canReport(t, r)
}

// putLocked adds a batch to those that wait.
func (w *reportWorker) putLocked(b *batch) {
	robot := w.robots[b.robot]
	if robot == nil {
		robot = &robotReports{tasks: map[types.UID]*batch{}, lastTurn: w.turns}
		w.robots[b.robot] = robot
	}
	robot.tasks[b.uid] = b
	if b.isUnassigned {
		robot.unassigned++
	}
}

// takeNext removes and returns the next batch that is due by then, or nil. Robots take turns. If
// limited, it holds back the reports of robots whose quota is used up.
func (w *reportWorker) takeNext(due time.Time, limited bool) *batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		robot, b := w.nextLocked(due, limited)
		if b == nil || !limited || !w.holdBackLocked(robot, b) {
			w.removeLocked(robot, b)
			return b
		}
	}
}

// nextLocked returns the first due batch of the robot whose last turn is longest ago.
func (w *reportWorker) nextLocked(due time.Time, limited bool) (next *robotReports, first *batch) {
	for _, robot := range w.robots {
		if limited && robot.heldUntil.After(due) || next != nil && robot.lastTurn >= next.lastTurn {
			continue
		}
		if b := robot.firstDue(); !b.due.After(due) {
			next, first = robot, b
		}
	}
	return next, first
}

// firstDue returns the batch that is due first.
func (r *robotReports) firstDue() (first *batch) {
	for _, b := range r.tasks {
		if first == nil || b.due.Before(first.due) {
			first = b
		}
	}
	return first
}

// holdBackLocked takes the quota for a batch. If it is used up, it holds back all reports of the
// robot until it is not, and reports so. Newer reports of progress then replace older ones.
func (w *reportWorker) holdBackLocked(robot *robotReports, b *batch) bool {
	if w.quotas == nil || !slices.ContainsFunc(b.reports, w.isAssigned) {
		return false // it causes no write
	}
	now := w.now()
	wait, reached := w.quotas.takeWrite(b.robot, b.size(), now)
	if wait <= 0 {
		return false
	}
	robot.heldUntil = now.Add(max(wait, minLimitPause))
	for _, each := range robot.tasks {
		each.compact()
	}
	w.onLimited(b.robot, reached)
	return true
}

// removeLocked removes a batch, which may be nil, from those that wait.
func (w *reportWorker) removeLocked(robot *robotReports, b *batch) {
	if b == nil {
		return
	}
	w.turns++
	robot.lastTurn = w.turns
	delete(robot.tasks, b.uid)
	if b.isUnassigned {
		robot.unassigned--
	}
	if len(robot.tasks) == 0 {
		delete(w.robots, b.robot)
	}
}

func (w *reportWorker) untilDue() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	next, now := time.Hour, w.now()
	for _, robot := range w.robots {
		next = min(next, max(robot.firstDue().due.Sub(now), robot.heldUntil.Sub(now)))
	}
	return max(next, 0)
}

// writeDue writes what is due. Reports that arrive during a write are in the next one of their
// task, so that an end shares the write of its start.
func (w *reportWorker) writeDue(ctx context.Context) {
	for ctx.Err() == nil {
		b := w.takeNext(w.now(), true)
		if b == nil {
			return
		}
		if w.exceedsProgress(b) {
			w.m.countDropped(wire.KindStatus, dropTooMuchProgress, len(b.reports))
			continue // without an acknowledgement, so that the robot reports it again
		}
		w.writeReports(ctx, b)
	}
}

// exceedsProgress reports whether a batch has only progress of a range, and too much of that was written
// in the last second.
func (w *reportWorker) exceedsProgress(b *batch) bool {
	t := w.objects.task(b.uid)
	if t == nil || w.progress == nil || slices.ContainsFunc(b.reports, func(r report) bool { return !isProgressOf(t, r) }) {
		return false
	}
	return !w.progress.AllowN(w.now(), 1)
}

// writeReports writes a batch that was taken. If that fails, the batch waits again.
func (w *reportWorker) writeReports(ctx context.Context, b *batch) {
	err := w.writeBatch(ctx, b.uid, b.reports)
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		// It would be refused again, and must not block later reports.
		w.m.countDropped(wire.KindStatus, dropRefused, len(b.reports))
		w.log.Error(err, "the API server refused a task status", "uid", b.uid)
		err = nil
	}
	if err != nil {
		b.failures++
		w.log.Error(err, "write task status", "uid", b.uid, "failures", b.failures)
		w.restoreBatch(b)
	}
}

// restoreBatch puts a batch whose write has failed before the reports that came since.
func (w *reportWorker) restoreBatch(b *batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b.due = w.now().Add(min(retryFirst<<min(b.failures, 10), retryLast))
	if robot := w.robots[b.robot]; robot != nil && robot.tasks[b.uid] != nil {
		newer := robot.tasks[b.uid]
		newer.prepend(b.reports)
		newer.due, newer.failures = b.due, b.failures
		return
	}
	w.putLocked(b)
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
			if next != t {
				w.recordRunWrite(rs)
			}
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
		case dropRepeated:
			w.m.repeatedReports.WithLabelValues(rs[i].State).Inc()
		case dropNothingNew:
		default:
			w.m.countDropped(wire.KindStatus, v.drop, 1)
		}
		if rs[i].repeats > 0 {
			w.m.repeatedReports.WithLabelValues(rs[i].State).Add(float64(rs[i].repeats))
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
