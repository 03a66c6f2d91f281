package gateway

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
)

// attemptID identifies one attempt of one task.
type attemptID struct {
	uid     string
	attempt int32
}

// modelRobot is a minimal v2 agent: the rules of its journal, repeated reports, and the self-stop
// deadline.
type modelRobot struct {
	m  *model
	id string
	// up is set while its packets reach the broker.
	up bool
	// restartsTasks is set if its agent restarts tasks.
	restartsTasks bool
	// refuses is set if its agent refuses interruptions, and isHeld while a person at the robot holds it.
	refuses, isHeld bool
	// silent is set while it is connected but handles no message for its tasks.
	silent bool
	// inbox holds the messages in flight to the robot.
	inbox []any
	live  map[string]*liveAttempt // by UID; its process runs, or waits for the next run
	// ends holds the ends in the journal, nil while the attempt runs.
	ends map[attemptID]*wire.Status
	// unacked holds the last unacknowledged report of each attempt.
	unacked map[attemptID]wire.Status
	seq     uint64
	listed  wire.TaskList
	// acked is when the last acknowledged heartbeat was sent, or when the robot was started.
	acked   time.Time
	journal modelJournal
	// ranges are what the shims of ranges have written.
	ranges map[attemptID]*runningRange
	// isOff is set while the robot has no power.
	isOff bool
	// awaitsContact is set from a reboot until a heartbeat is acknowledged.
	awaitsContact bool
}

type liveAttempt struct {
	attempt  int32
	dispatch wire.Dispatch
	started  time.Time     // of the last run
	indexes  *runningRange // nil if it is no range
	runs     *agentRuns    // nil if the agent does not restart it
	// stopReason is set while the process is being stopped.
	stopReason string
	// next is a newer attempt that waits for the end of this one.
	next *wire.Dispatch
}

// heartbeatAck acknowledges the heartbeat that was sent at this time.
type heartbeatAck struct{ sent time.Time }

func (r *modelRobot) queueReport(uid string, attempt int32, s wire.Status) {
	r.queueBuilt(r.buildReport(uid, attempt, s))
}

// buildReport completes a report about an attempt.
func (r *modelRobot) buildReport(uid string, attempt int32, s wire.Status) wire.Status {
	r.seq++
	s.TaskUID, s.Attempt, s.Seq, s.UpdatedAt = uid, attempt, r.seq, r.m.now
	return s
}

func (r *modelRobot) queueBuilt(s wire.Status) {
	r.unacked[attemptID{s.TaskUID, s.Attempt}] = s
	r.sendReport(s)
}

// sendReport sends a report, if there is one.
func (r *modelRobot) sendReport(s wire.Status) {
	if r.up {
		r.m.uplink = append(r.m.uplink, modelReport{robot: r.id, Status: s})
	}
}

// resendReports repeats every report that was not acknowledged.
func (r *modelRobot) resendReports() {
	for _, id := range slices.SortedFunc(maps.Keys(r.unacked), compareAttempts) {
		r.sendReport(r.unacked[id])
	}
}

// handleInbox handles all messages in flight to the robot.
func (r *modelRobot) handleInbox() {
	for len(r.inbox) > 0 && !r.silent {
		r.receive(takeMessage(r.m, &r.inbox))
	}
}

// connect reconnects the robot: it repeats its reports and registers, and the server sends its
// list. Messages in flight to the robot are lost.
func (r *modelRobot) connect() {
	r.up, r.inbox = true, nil
	r.endUnneededWaits()
	r.resendReports()
	r.m.server.answerRegistration(r.id)
}

func (r *modelRobot) disconnect() {
	r.up, r.inbox = false, nil
}

// receive processes one message.
func (r *modelRobot) receive(message any) {
	r.m.recordReceived(r, message)
	switch message := message.(type) {
	case wire.Dispatch:
		r.applyDispatch(message)
	case wire.TaskList:
		r.applyList(message)
	case wire.TaskAck:
		id := attemptID{message.UID, message.Attempt}
		if s, ok := r.unacked[id]; ok && s.Seq <= message.Seq {
			delete(r.unacked, id)
			if r.ends[id] != nil {
				r.appendRecords(journal.Record{Kind: journal.Acked, UID: id.uid, Attempt: id.attempt})
			}
		}
	case heartbeatAck:
		if message.sent.After(r.acked) {
			r.acked, r.awaitsContact = message.sent, false
		}
	}
}

func (r *modelRobot) applyDelete(live *liveAttempt, d wire.Dispatch) {
	uid := d.Task.Metadata.UID
	switch {
	case r.mayRefuse(live, d):
		r.reportRefusal(uid)
	case live != nil && d.Attempt >= live.attempt:
		r.m.checkHold(r, uid)
		r.refuseNext(live, func(next wire.Dispatch) bool { return next.Attempt <= d.Attempt })
		r.stopAttempt(uid)
	case live == nil:
		r.concludeAttempt(d)
	}
}

func (r *modelRobot) applyDispatch(d wire.Dispatch) {
	uid := d.Task.Metadata.UID
	live := r.live[uid]
	switch {
	case d.Action == wire.ActionDelete:
		r.applyDelete(live, d)
	case live != nil && d.Attempt == live.attempt:
		if d.Epoch >= live.dispatch.Epoch {
			live.dispatch = d
		}
		r.reportRunning(uid)
	case d.Attempt <= r.latestAttempt(uid):
		if end := r.ends[attemptID{uid, d.Attempt}]; end != nil {
			r.queueReport(uid, d.Attempt, *end)
		} else {
			r.refuseAttempt(d, wire.ReasonSuperseded)
		}
	case live == nil:
		r.startAttempt(d)
	default:
		if live.next == nil || live.next.Attempt <= d.Attempt {
			live.next = &d
		}
		r.queueReport(uid, live.next.Attempt, wire.Status{State: wire.ReportPending})
		r.requestStop(uid, wire.ReasonSuperseded)
	}
}

func (r *modelRobot) startAttempt(d wire.Dispatch) {
	if d.Started {
		r.refuseAttempt(d, wire.ReasonAgentRestarted)
		return
	}
	if r.isPastDeadline(0) {
		return // a dispatch may have been in flight for longer than the self-stop deadline
	}
	uid := d.Task.Metadata.UID
	id, runs := attemptID{uid, d.Attempt}, (*agentRuns)(nil)
	records := []journal.Record{{Kind: journal.Accepted, UID: uid, Attempt: d.Attempt, Task: &d.Task, Dispatched: &journal.DispatchStamp{Epoch: d.Epoch}}}
	if r.restartsTasks && d.Task.Spec.Array == nil {
		runs = newRuns(d.Task.Spec, 1)
		records = append(records, journal.Record{Kind: journal.Run, UID: uid, Attempt: d.Attempt, Run: 1})
	}
	r.startAfterRecords(func() {
		r.m.recordStart(r.id, id)
		if runs != nil {
			r.m.recordRunStart(r.id, runID{id, 1})
		}
	}, records...)
	r.ends[id] = nil
	r.live[uid] = &liveAttempt{attempt: d.Attempt, dispatch: d, started: r.m.now, indexes: r.startRange(id, d.Task.Spec.Array), runs: runs}
	r.ranges[id] = r.live[uid].indexes
	r.reportRunning(uid)
}

// startAfterRecords writes records, and then starts what they are about.
func (r *modelRobot) startAfterRecords(start func(), records ...journal.Record) {
	if r.m.broken == startsBeforeRecord {
		start()
		start = func() {}
	}
	r.appendRecords(records...)
	start()
}

// reportRunning reports that a task runs or waits for its next run, with the ends of its indexes so far.
func (r *modelRobot) reportRunning(uid string) {
	live := r.live[uid]
	s := wire.Status{State: wire.ReportRunning, StartedAt: new(live.started), Array: live.indexes.report()}
	live.runs.describe(&s)
	r.queueReport(uid, live.attempt, s)
}

func (r *modelRobot) refuseAttempt(d wire.Dispatch, reason string) {
	s := wire.Status{State: wire.ReportFailed, ExitCode: -1, Reason: reason}
	r.recordEnd(attemptID{d.Task.Metadata.UID, d.Attempt}, s)
}

// recordEnd journals and reports the end of an attempt.
func (r *modelRobot) recordEnd(id attemptID, s wire.Status) {
	s = r.buildReport(id.uid, id.attempt, s)
	r.appendRecords(journal.Record{Kind: journal.Ended, UID: id.uid, Attempt: id.attempt, Status: &s})
	r.ends[id] = &s
	r.queueBuilt(s)
}

// refuseNext drops the attempt that waits for the end of another, and reports it if it is refused.
func (r *modelRobot) refuseNext(live *liveAttempt, mustNotStart func(wire.Dispatch) bool) {
	if next := live.next; next != nil && mustNotStart(*next) {
		live.next = nil
		r.refuseAttempt(*next, wire.ReasonStopped)
	}
}

// latestAttempt returns the latest attempt of a task that the robot has seen.
func (r *modelRobot) latestAttempt(uid string) (last int32) {
	for id := range r.ends {
		if id.uid == uid {
			last = max(last, id.attempt)
		}
	}
	return last
}

func (r *modelRobot) applyList(l wire.TaskList) {
	if l.Epoch < r.listed.Epoch {
		return
	}
	r.listed = l
	named := map[attemptID]bool{}
	for _, ref := range l.Refs {
		id := attemptID{ref.UID, ref.Attempt}
		t := r.m.taskByUID(types.UID(ref.UID))
		named[id] = r.m.broken != unlistsInterrupted || t == nil || !t.Status.IsInterruption()
		live := r.live[ref.UID]
		switch end, known := r.ends[id]; {
		case ref.Started && !known:
			r.refuseAttempt(wire.Dispatch{Attempt: ref.Attempt, Task: wire.Task{Metadata: wire.TaskMeta{UID: ref.UID}}}, wire.ReasonAgentRestarted)
		case ref.Query && end != nil:
			r.queueReport(ref.UID, ref.Attempt, *end)
		case ref.Query && live != nil && live.attempt == ref.Attempt:
			r.reportRunning(ref.UID)
		}
		if live != nil && live.attempt == ref.Attempt && live.indexes != nil {
			live.indexes.startsNoIndex = ref.StartsNoIndex
		}
		if live != nil && live.attempt == ref.Attempt {
			r.startNoRun(ref.UID, ref.StartsNoRun)
		}
	}
	for _, uid := range r.liveUIDs() {
		live := r.live[uid]
		if next := live.next; next != nil && next.Epoch <= l.Epoch && !named[attemptID{uid, next.Attempt}] {
			live.next = nil
		}
		if live.dispatch.Epoch <= l.Epoch && !named[attemptID{uid, live.attempt}] {
			r.m.checkHold(r, uid)
			r.stopAttempt(uid)
		}
	}
	for _, ref := range l.Canceled {
		if r.m.broken == ignoresCanceled {
			break
		}
		if live := r.live[ref.UID]; live == nil || live.attempt != ref.Attempt {
			r.concludeAttempt(wire.Dispatch{Attempt: ref.Attempt, Task: wire.Task{Metadata: wire.TaskMeta{UID: ref.UID}}})
		}
	}
}

// concludeAttempt reports the end of an attempt that does not run and must not start.
func (r *modelRobot) concludeAttempt(d wire.Dispatch) {
	id := attemptID{d.Task.Metadata.UID, d.Attempt}
	if end := r.ends[id]; end != nil {
		r.queueReport(id.uid, id.attempt, *end)
		return
	}
	r.refuseAttempt(d, wire.ReasonStopped)
}

// stopAttempt ends an attempt because the server has requested it.
func (r *modelRobot) stopAttempt(uid string) {
	if r.mayStop(uid) {
		r.requestStop(uid, wire.ReasonStopped)
	}
}

// requestStop stops the process of an attempt, which may take until endStopping. The first reason counts.
func (r *modelRobot) requestStop(uid, reason string) {
	live := r.live[uid]
	if live.runs.isWaiting() || !r.m.stopsTakeTime || r.m.failuresOff || rapid.IntRange(0, 2).Draw(r.m.t, "stops at once") == 0 {
		r.endAttempt(uid, cmp.Or(live.stopReason, reason), 143)
		return
	}
	if live.runs != nil && live.stopReason == "" && r.m.broken != forgetsStop {
		r.appendRecords(journal.Record{Kind: journal.NoRun, UID: uid, Attempt: live.attempt, Reason: reason})
	}
	live.stopReason = cmp.Or(live.stopReason, reason)
}

// endStopping ends the attempts whose processes are being stopped.
func (r *modelRobot) endStopping() {
	for _, uid := range r.liveUIDs() {
		if reason := r.live[uid].stopReason; reason != "" {
			r.endAttempt(uid, reason, 143)
		}
	}
}

// liveUIDs returns the UIDs of the attempts that have not ended.
func (r *modelRobot) liveUIDs() []string { return slices.Sorted(maps.Keys(r.live)) }

// endAttempt ends the attempt of a task immediately, and starts the one that waits for that.
func (r *modelRobot) endAttempt(uid, reason string, code int32) {
	live, at := r.live[uid], r.m.now
	s := wire.Status{State: wire.ReportFailed, ExitCode: code, Reason: reason, StartedAt: new(live.started), FinishedAt: &at, Array: live.indexes.report()}
	if reason == "" {
		s.State = wire.ReportCompleted
	}
	if runs := live.runs; runs != nil && !runs.isWaiting() {
		runs.recordEnd(live.started, at, reason, code)
	}
	live.runs.describe(&s)
	delete(r.live, uid)
	r.recordEnd(attemptID{uid, live.attempt}, s)
	if reason == "" {
		r.m.done[r.id+"/"+uid] = true
	}
	if live.next != nil {
		r.startAttempt(*live.next)
	}
}

// restart kills and restarts the agent: running attempts are stopped, and the journal has the others.
func (r *modelRobot) restart() {
	for _, uid := range r.liveUIDs() {
		r.recoverAttempt(uid)
	}
	r.listed, r.silent = wire.TaskList{}, false
	if r.up {
		r.disconnect()
		r.connect()
	}
}

// sendHeartbeat sends a heartbeat.
func (r *modelRobot) sendHeartbeat() {
	if r.up {
		r.m.server.receiveHeartbeat(r.id, heartbeatAck{sent: r.m.now})
	}
}

// stopExpiredTasks stops attempts past their self-stop deadline. Ending them takes as long as a
// task may take.
func (r *modelRobot) stopExpiredTasks() {
	if !r.isPastDeadline(wire.DefaultKillTimeout) {
		return
	}
	for _, uid := range r.liveUIDs() {
		if !r.live[uid].runs.isWaiting() || r.m.broken != runsPastDeadline {
			r.endAttempt(uid, wire.ReasonStopped, 143)
		}
	}
}

// isPastDeadline reports whether the last acknowledged heartbeat is older than the self-stop
// deadline plus some.
func (r *modelRobot) isPastDeadline(some time.Duration) bool {
	after := r.m.job.Spec.Disconnect.StopOnRobotAfter.Value()
	return after > 0 && r.m.now.Sub(r.acked) >= after+some
}

func compareAttempts(a, b attemptID) int {
	if a.uid != b.uid {
		return slices.Compare([]byte(a.uid), []byte(b.uid))
	}
	return int(a.attempt - b.attempt)
}

func alwaysV2(string) string { return robotv1.ProtocolV2 }
