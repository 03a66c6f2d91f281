package gateway

import (
	"maps"
	"slices"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
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
	// acked is when the last acknowledged heartbeat was sent.
	acked time.Time
}

type liveAttempt struct {
	attempt  int32
	dispatch wire.Dispatch
	started  time.Time     // of the last run
	indexes  *runningRange // nil if it is no range
	runs     *agentRuns    // nil if the agent does not restart it
}

// heartbeatAck acknowledges the heartbeat that was sent at this time.
type heartbeatAck struct{ sent time.Time }

func (r *modelRobot) queueReport(uid string, attempt int32, s wire.Status) {
	r.seq++
	s.TaskUID, s.Attempt, s.Seq, s.UpdatedAt = uid, attempt, r.seq, r.m.now
	r.unacked[attemptID{uid, attempt}] = s
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
		}
	case heartbeatAck:
		if message.sent.After(r.acked) {
			r.acked = message.sent
		}
	}
}

func (r *modelRobot) applyDispatch(d wire.Dispatch) {
	uid := d.Task.Metadata.UID
	live := r.live[uid]
	switch {
	case d.Action == wire.ActionDelete:
		if live != nil && d.Attempt >= live.attempt {
			r.stopAttempt(uid)
		} else if live == nil {
			r.concludeAttempt(d)
		}
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
	default:
		if live != nil {
			r.endAttempt(uid, wire.ReasonSuperseded, 143)
		}
		r.startAttempt(d)
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
	r.m.recordStart(r.id, attemptID{uid, d.Attempt})
	r.ends[attemptID{uid, d.Attempt}] = nil
	r.live[uid] = &liveAttempt{attempt: d.Attempt, dispatch: d, started: r.m.now, indexes: r.startRange(attemptID{uid, d.Attempt}, d.Task.Spec.Array), runs: r.startRuns(attemptID{uid, d.Attempt}, d.Task.Spec)}
	r.reportRunning(uid)
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
	r.ends[attemptID{d.Task.Metadata.UID, d.Attempt}] = &s
	r.queueReport(d.Task.Metadata.UID, d.Attempt, s)
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
		named[id] = true
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
		if live := r.live[uid]; live.dispatch.Epoch <= l.Epoch && !named[attemptID{uid, live.attempt}] {
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
		r.endAttempt(uid, wire.ReasonStopped, 143)
	}
}

// liveUIDs returns the UIDs of the attempts that have not ended.
func (r *modelRobot) liveUIDs() []string { return slices.Sorted(maps.Keys(r.live)) }

// endAttempt ends the attempt of a task immediately.
func (r *modelRobot) endAttempt(uid, reason string, code int32) {
	live := r.live[uid]
	delete(r.live, uid)
	s := wire.Status{State: wire.ReportFailed, ExitCode: code, Reason: reason, StartedAt: new(live.started), Array: live.indexes.report()}
	if reason == "" {
		s.State = wire.ReportCompleted
		r.m.done[r.id+"/"+uid] = true
	}
	at := r.m.now
	s.FinishedAt = &at
	if runs := live.runs; runs != nil && !runs.isWaiting() {
		runs.recordEnd(live.started, at, reason, code)
	}
	live.runs.describe(&s)
	r.ends[attemptID{uid, live.attempt}] = &s
	r.queueReport(uid, live.attempt, s)
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
