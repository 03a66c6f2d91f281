package bridge

import (
	"maps"
	"slices"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/wire"
)

// attemptID names one attempt of one task.
type attemptID struct {
	uid     string
	attempt int32
}

// modelRobot is one of our agents in a few lines: the rules of its journal, the
// reports that it repeats, and the fence.
type modelRobot struct {
	m  *model
	id string
	// up: its packets reach the broker.
	up bool
	// inbox is what is on its way to the robot.
	inbox []any
	live  map[string]*modelRun // by UID
	// ends are what the journal knows: nil while the attempt runs.
	ends map[attemptID]*wire.Status
	// unacked reports, the last of each attempt.
	unacked map[attemptID]wire.Status
	seq     uint64
	listed  wire.TaskList
	// acked is when the last acknowledged heartbeat was sent.
	acked time.Time
}

type modelRun struct {
	attempt int32
	said    wire.Dispatch
	started time.Time
}

// heartbeatAck acknowledges the heartbeat that was sent at this time.
type heartbeatAck struct{ sent time.Time }

func (r *modelRobot) report(uid string, attempt int32, s wire.Status) {
	r.seq++
	s.TaskUID, s.Attempt, s.Seq, s.UpdatedAt = uid, attempt, r.seq, r.m.now
	r.unacked[attemptID{uid, attempt}] = s
	r.say(s)
}

// say puts a report on its way, if there is one.
func (r *modelRobot) say(s wire.Status) {
	if r.up {
		r.m.uplink = append(r.m.uplink, modelReport{robot: r.id, Status: s})
	}
}

// sayAll repeats every report that was not acknowledged.
func (r *modelRobot) sayAll() {
	for _, id := range slices.SortedFunc(maps.Keys(r.unacked), compareAttempts) {
		r.say(r.unacked[id])
	}
}

// connect is the way back into contact: the robot repeats its reports, registers,
// and the server answers with its list. What was on its way to the robot is lost.
func (r *modelRobot) connect() {
	r.up, r.inbox = true, nil
	r.sayAll()
	r.m.server.registered(r.id)
}

func (r *modelRobot) disconnect() {
	r.up, r.inbox = false, nil
}

// take works off one message.
func (r *modelRobot) take(message any) {
	switch message := message.(type) {
	case wire.Dispatch:
		r.dispatch(message)
	case wire.TaskList:
		r.list(message)
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

func (r *modelRobot) dispatch(d wire.Dispatch) {
	uid := d.Task.Metadata.UID
	run := r.live[uid]
	switch {
	case d.Action == wire.ActionDelete:
		if run != nil && d.Attempt >= run.attempt {
			r.end(uid, wire.ReasonStopped, 143)
		} else if run == nil {
			r.conclude(d)
		}
	case run != nil && d.Attempt == run.attempt:
		if d.Epoch >= run.said.Epoch {
			run.said = d
		}
		r.report(uid, run.attempt, wire.Status{State: wire.ReportRunning, StartedAt: &run.started})
	case d.Attempt <= r.latest(uid):
		if end := r.ends[attemptID{uid, d.Attempt}]; end != nil {
			r.report(uid, d.Attempt, *end)
		} else {
			r.refuse(d, wire.ReasonSuperseded)
		}
	default:
		if run != nil {
			r.end(uid, wire.ReasonSuperseded, 143)
		}
		r.accept(d)
	}
}

func (r *modelRobot) accept(d wire.Dispatch) {
	if d.Started {
		r.refuse(d, wire.ReasonAgentRestarted)
		return
	}
	if r.fallen(0) {
		return // a dispatch may have been on its way for longer than the fence
	}
	uid := d.Task.Metadata.UID
	r.m.startsOn(r.id, attemptID{uid, d.Attempt})
	r.ends[attemptID{uid, d.Attempt}] = nil
	r.live[uid] = &modelRun{attempt: d.Attempt, said: d, started: r.m.now}
	r.report(uid, d.Attempt, wire.Status{State: wire.ReportRunning, StartedAt: &r.live[uid].started})
}

func (r *modelRobot) refuse(d wire.Dispatch, reason string) {
	s := wire.Status{State: wire.ReportFailed, ExitCode: -1, Reason: reason}
	r.ends[attemptID{d.Task.Metadata.UID, d.Attempt}] = &s
	r.report(d.Task.Metadata.UID, d.Attempt, s)
}

// latest attempt of a task that was seen here.
func (r *modelRobot) latest(uid string) (last int32) {
	for id := range r.ends {
		if id.uid == uid {
			last = max(last, id.attempt)
		}
	}
	return last
}

func (r *modelRobot) list(l wire.TaskList) {
	if l.Epoch < r.listed.Epoch {
		return
	}
	r.listed = l
	named := map[attemptID]bool{}
	for _, ref := range l.Refs {
		id := attemptID{ref.UID, ref.Attempt}
		named[id] = true
		run := r.live[ref.UID]
		switch end, known := r.ends[id]; {
		case ref.Started && !known:
			r.refuse(wire.Dispatch{Attempt: ref.Attempt, Task: wire.Task{Metadata: wire.TaskMeta{UID: ref.UID}}}, wire.ReasonAgentRestarted)
		case ref.Asked && end != nil:
			r.report(ref.UID, ref.Attempt, *end)
		case ref.Asked && run != nil && run.attempt == ref.Attempt:
			r.report(ref.UID, ref.Attempt, wire.Status{State: wire.ReportRunning, StartedAt: &run.started})
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(r.live)) {
		if run := r.live[uid]; run.said.Epoch <= l.Epoch && !named[attemptID{uid, run.attempt}] {
			r.end(uid, wire.ReasonStopped, 143)
		}
	}
	for _, ref := range l.Over {
		if run := r.live[ref.UID]; run == nil || run.attempt != ref.Attempt {
			r.conclude(wire.Dispatch{Attempt: ref.Attempt, Task: wire.Task{Metadata: wire.TaskMeta{UID: ref.UID}}})
		}
	}
}

// conclude answers for an attempt that does not run and is not to.
func (r *modelRobot) conclude(d wire.Dispatch) {
	id := attemptID{d.Task.Metadata.UID, d.Attempt}
	if end := r.ends[id]; end != nil {
		r.report(id.uid, id.attempt, *end)
		return
	}
	r.refuse(d, wire.ReasonStopped)
}

// end ends what runs of a task: its process is gone at once.
func (r *modelRobot) end(uid, reason string, code int32) {
	run := r.live[uid]
	delete(r.live, uid)
	s := wire.Status{State: wire.ReportFailed, ExitCode: code, Reason: reason, StartedAt: &run.started}
	if code == 0 {
		s.State = wire.ReportCompleted
		r.m.done[r.id+"/"+uid] = true
	}
	at := r.m.now
	s.FinishedAt = &at
	r.ends[attemptID{uid, run.attempt}] = &s
	r.report(uid, run.attempt, s)
}

// crash is a kill of the agent and its start: what ran is stopped, and the
// journal answers for the rest.
func (r *modelRobot) crash() {
	for _, uid := range slices.Sorted(maps.Keys(r.live)) {
		r.end(uid, wire.ReasonAgentRestarted, -1)
	}
	r.listed = wire.TaskList{}
	if r.up {
		r.disconnect()
		r.connect()
	}
}

// beat sends a heartbeat, as every robot does all the time.
func (r *modelRobot) beat() {
	if r.up {
		r.m.server.heard(r.id, heartbeatAck{sent: r.m.now})
	}
}

// fence stops what must not run any longer: the robot has had no acknowledged
// heartbeat for as long as the job allows. It takes as long as a task may take to
// end.
func (r *modelRobot) fence() {
	if !r.fallen(wire.DefaultKillTimeout) {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(r.live)) {
		r.end(uid, wire.ReasonStopped, 143)
	}
}

// fallen tells whether the robot has been without an acknowledged heartbeat for as
// long as the job allows, and some.
func (r *modelRobot) fallen(some time.Duration) bool {
	after := r.m.job.Spec.Disconnect.StopOnRobotAfter.Value()
	return after > 0 && r.m.now.Sub(r.acked) >= after+some
}

func compareAttempts(a, b attemptID) int {
	if a.uid != b.uid {
		return slices.Compare([]byte(a.uid), []byte(b.uid))
	}
	return int(a.attempt - b.attempt)
}

func speaksOurs(string) string { return robotv1.ProtocolK8s4r }
