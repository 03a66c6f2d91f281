package gateway

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/restart"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
)

const (
	ignoresStartsNoRun brokenRule = "the agent starts a run although it is to start none"
	restartsStopped    brokenRule = "the agent starts a run although it was asked to stop the task"
	repeatsRun         brokenRule = "the agent starts a run again that it has started before it crashed"
	runsPastDeadline   brokenRule = "the agent starts a run past the self-stop deadline"
	restartsForAgent   brokenRule = "the manager restarts an attempt that the agent has restarted"
	acceptsLateRuns    brokenRule = "the server accepts a late report of an earlier run"
)

// TestRunsStartOnce runs random interleavings of all events around robots that restart tasks, often
// without contact.
func TestRunsStartOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newRestartingModel(t)
		m.runRestarts()
		m.settleWithoutFailures()
	})
}

// TestRunsEndWithAttempt lets tasks fail again and again, while one thing after another happens to their
// robots and their job.
func TestRunsEndWithAttempt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newRunsModel(t, "")
		m.runFailures()
		m.settleWithoutFailures()
	})
}

// TestModelFindsBrokenRulesOfRuns breaks each rule in turn, and expects a violation of the invariants.
func TestModelFindsBrokenRulesOfRuns(t *testing.T) {
	expectViolations(t, func(t *rapid.T, rule brokenRule) bool {
		m := newRunsModel(t, rule)
		return findsViolation(m.runFailures)
	}, ignoresStartsNoRun, restartsStopped, repeatsRun, runsPastDeadline, restartsForAgent, acceptsLateRuns)
}

// newRestartingModel returns a model whose tasks are restarted as a drawn policy defines, and have no array.
func newRestartingModel(t *rapid.T) *model {
	m := newModel(t)
	def := &m.job.Spec.TaskGroups[0]
	if def.Array != nil {
		def.Array, def.Count = nil, new(int32(2))
	}
	def.RestartPolicy = drawRestartPolicy(t)
	return m
}

// newRunsModel returns a model of a task that must not run twice, and that robots restart themselves.
func newRunsModel(t *rapid.T, rule brokenRule) *model {
	m := newModel(t)
	m.broken = rule
	for _, id := range m.robotIDs() {
		m.agents[id].restartsTasks = true
	}
	m.job.Spec.Disconnect = &robotv1.Disconnect{
		LostAfter: robotv1.NewDuration(time.Minute), StopOnRobotAfter: robotv1.NewDuration(2 * time.Minute), Reconcile: robotv1.ReconcileKeepOriginal,
	}
	def := &m.job.Spec.TaskGroups[0]
	def.Array, def.Count, def.InitTasks, def.Tasks = nil, new(int32(1)), nil, []robotv1.TaskDefinition{{Name: "a", Driver: "exec"}}
	def.RestartPolicy = drawRestartPolicy(t)
	def.RestartPolicy.Attempts = max(def.RestartPolicy.Attempts, 1)
	return m
}

// runFailures lets tasks fail, and something happen between the failures.
func (m *model) runFailures() {
	m.settle()
	for range rapid.IntRange(2, 8).Draw(m.t, "rounds") {
		m.disturbRestarts()
		for range rapid.IntRange(1, 3).Draw(m.t, "failures") {
			m.withBusyRobot((*modelRobot).failTasks)
			m.passUntilRestart()
			m.settle()
			m.checkInvariants()
		}
	}
}

// passUntilRestart lets time pass, after which the next runs may be due.
func (m *model) passUntilRestart() {
	m.passTime(time.Duration(rapid.SampledFrom([]int{1, 2, 4, 50}).Draw(m.t, "ticks")) * tick)
}

// disturbRestarts does one thing that may concern an attempt between two runs.
func (m *model) disturbRestarts() {
	mayRequest := func(g lifecycle.JobSignal) bool {
		return slices.Contains(lifecycle.JobActions(lifecycle.JobState(m.job.Status.State)), g)
	}
	switch d := m.pick("disturbance", "none", "disconnect", "connect", "pause", "resume", "evict", "crash"); {
	case d == "disconnect":
		m.withBusyRobot(m.disconnect)
	case d == "connect":
		m.withOneRobot(m.connect)
	case d == "pause" && mayRequest(lifecycle.JobPause):
		m.updateJobSpec(func(s *robotv1.JobSpec) { s.DesiredState = robotv1.DesiredPaused })
	case d == "resume" && mayRequest(lifecycle.JobResume):
		m.updateJobSpec(func(s *robotv1.JobSpec) { s.DesiredState = robotv1.DesiredRunning })
	case d == "evict":
		m.withOneTask(m.evictTask)
	case d == "crash":
		m.withBusyRobot((*modelRobot).restart)
	}
}

// withBusyRobot does something with one of the robots that have an attempt.
func (m *model) withBusyRobot(do func(*modelRobot)) {
	isIdle := func(id string) bool { return len(m.agents[id].live) == 0 }
	if busy := slices.DeleteFunc(m.robotIDs(), isIdle); len(busy) > 0 {
		do(m.agents[m.pick("busy robot", busy...)])
	}
}

// failTasks ends the processes of all tasks of a robot with an error.
func (r *modelRobot) failTasks() {
	for _, uid := range r.liveUIDs() {
		if !r.live[uid].runs.isWaiting() {
			r.m.record("%s of %s fails", uid, r.id)
			r.endProcess(uid, wire.ReasonExited, 1)
		}
	}
}

// runRestarts lets tasks end and start again, among all other events.
func (m *model) runRestarts() {
	passTicks := func() { m.passTime(time.Duration(rapid.IntRange(1, 5).Draw(m.t, "ticks")) * tick) }
	m.runEventsAmong(m.endProcess, passTicks, m.settle)
}

// runEventsAmong runs random events, half of which are one of these three.
func (m *model) runEventsAmong(first, second, third func()) {
	for range rapid.IntRange(20, 150).Draw(m.t, "events") {
		switch rapid.IntRange(0, 5).Draw(m.t, "kind of event") {
		case 0:
			first()
		case 1:
			second()
		case 2:
			third()
		default:
			m.runEvent()
		}
		m.checkInvariants()
	}
}

func drawRestartPolicy(t *rapid.T) *robotv1.RestartPolicy {
	p := &robotv1.RestartPolicy{
		Attempts: rapid.Int32Range(0, 3).Draw(t, "restarts"), Mode: rapid.SampledFrom([]string{robotv1.RestartFail, robotv1.RestartDelay}).Draw(t, "mode"),
		OnReboot: rapid.SampledFrom([]string{"", robotv1.OnRebootRestart, robotv1.OnRebootReport}).Draw(t, "onReboot"),
	}
	if rapid.Bool().Draw(t, "restarts are delayed") {
		p.Delay = robotv1.NewDuration(rapid.SampledFrom([]time.Duration{15 * time.Second, 6 * time.Minute}).Draw(t, "delay"))
	}
	if rapid.Bool().Draw(t, "restarts are counted in intervals") {
		p.Interval = robotv1.NewDuration(time.Minute)
	}
	return p
}

// runID identifies one run of an attempt.
type runID struct {
	attemptID
	run int64
}

// modelRuns is what the model remembers of runs. It does not depend on what the robots remember.
type modelRuns struct {
	// started has the robot that started the run, and startedAt the time.
	started   map[runID]string
	startedAt map[runID]time.Time
	// boot has the boot in which the first run of an attempt was started.
	boot map[attemptID]int
	// stopped has, by robot and UID, the last attempt that the robot was asked to stop.
	stopped map[string]int32
	// paused has, by robot, the attempts that its last list asks to start no further run.
	paused map[string]map[attemptID]bool
	// timedOut has the attempts that the manager has timed out.
	timedOut map[attemptID]bool
}

func newModelRuns() modelRuns {
	return modelRuns{started: map[runID]string{}, startedAt: map[runID]time.Time{}, boot: map[attemptID]int{}, stopped: map[string]int32{}, paused: map[string]map[attemptID]bool{}, timedOut: map[attemptID]bool{}}
}

// recordReceived records what a message that a robot receives forbids it.
func (m *model) recordReceived(r *modelRobot, message any) {
	stop := func(uid string, attempt int32) {
		m.runs.stopped[r.id+"/"+uid] = max(m.runs.stopped[r.id+"/"+uid], attempt)
	}
	switch message := message.(type) {
	case wire.Dispatch:
		last := message.Attempt
		if message.Action == wire.ActionCreate {
			last-- // it replaces those before it
		}
		stop(message.Task.Metadata.UID, last)
	case wire.TaskList:
		if message.Epoch < r.listed.Epoch {
			return
		}
		named, paused := map[attemptID]bool{}, map[attemptID]bool{}
		for _, ref := range message.Refs {
			id, live := attemptID{ref.UID, ref.Attempt}, r.live[ref.UID]
			// Another list follows the dispatch of an attempt that the robot does not know yet.
			named[id], paused[id] = true, ref.StartsNoRun && live != nil && live.attempt == ref.Attempt
		}
		m.runs.paused[r.id] = paused
		for uid, live := range r.live {
			if live.dispatch.Epoch <= message.Epoch && !named[attemptID{uid, live.attempt}] {
				stop(uid, live.attempt)
			}
		}
	}
}

// recordRunStart records that a robot starts a run, which must happen only once, and only if the robot has
// received nothing that forbids it.
func (m *model) recordRunStart(robot string, id runID) {
	m.record("%s starts run %d of attempt %d of %s", robot, id.run, id.attempt, id.uid)
	if other, twice := m.runs.started[id]; twice {
		m.failWithHistory("run %d of attempt %d of %s is started on %s after it was started on %s", id.run, id.attempt, id.uid, robot, other)
	}
	m.runs.started[id], m.runs.startedAt[id] = robot, m.now
	if id.run == 1 {
		m.runs.boot[id.attemptID] = m.agents[robot].journal.boot
	}
	isRebooted := m.runs.boot[id.attemptID] < m.agents[robot].journal.boot
	if m.job.Spec.Disconnect.StopOnRobotAfter != nil && isRebooted && m.agents[robot].awaitsContact {
		m.failWithHistory("run %d of attempt %d of %s is started on %s, which has had no contact since its reboot", id.run, id.attempt, id.uid, robot)
	}
	if id.attempt <= m.runs.stopped[robot+"/"+id.uid] {
		m.failWithHistory("run %d of attempt %d of %s is started on %s, which was asked to stop it", id.run, id.attempt, id.uid, robot)
	}
	if id.run > 1 && m.runs.paused[robot][id.attemptID] {
		m.failWithHistory("run %d of attempt %d of %s is started on %s, which was asked to start none", id.run, id.attempt, id.uid, robot)
	}
}

// checkRuns fails the test if a write takes back runs, or contradicts them.
func (m *model) checkRuns(seen, next *robotv1.Task) {
	for _, was := range seen.Status.Attempts {
		is := next.Status.FindAttempt(was.Attempt)
		if is == nil {
			continue
		}
		if is.RunCount < was.RunCount || len(is.Runs) < len(was.Runs) {
			m.failWithHistory("attempt %d of %s had %d runs, and now has %d", was.Attempt, seen.Name, was.RunCount, is.RunCount)
		}
		if was.StartedAt != nil && was.RunCount > 1 && !is.StartedAt.Equal(was.StartedAt) {
			m.failWithHistory("attempt %d of %s started at %s, and now at %s", was.Attempt, seen.Name, was.StartedAt, is.StartedAt)
		}
	}
	m.checkRestart(seen, next)
	from, to := lifecycle.TaskState(seen.Status.State), lifecycle.TaskState(next.Status.State)
	was, is := seen.Status.FindAttempt(seen.Status.Attempt), next.Status.FindAttempt(next.Status.Attempt)
	switch {
	case was == nil || is == nil:
	case to == lifecycle.TaskRunning && from == to && is.Attempt == was.Attempt && next.Status.StartedAt.Before(seen.Status.StartedAt):
		m.failWithHistory("the run of %s started at %s, and now at %s", seen.Name, seen.Status.StartedAt, next.Status.StartedAt)
	case to == lifecycle.TaskRunning && !next.Status.IsStopRequested() && (next.Status.Reason == wire.ReasonRestarting) != (is.NextRunAt != nil):
		m.failWithHistory("%s has reason %q, and its next run is due at %v", seen.Name, next.Status.Reason, is.NextRunAt)
	}
}

// checkRestart fails the test if the manager restarts an attempt on its robot that the robot has restarted.
// It may restart one that it has timed out itself.
func (m *model) checkRestart(seen, next *robotv1.Task) {
	was, is := seen.Status.FindAttempt(seen.Status.Attempt), next.Status.FindAttempt(next.Status.Attempt)
	if was == nil || is == nil {
		return
	}
	from, to := lifecycle.TaskState(seen.Status.State), lifecycle.TaskState(next.Status.State)
	id := attemptID{string(seen.UID), was.Attempt}
	if to == lifecycle.TaskExited && from != to && is.FinishedAt == nil {
		m.runs.timedOut[id] = true
	}
	restarts := from == lifecycle.TaskExited && to == lifecycle.TaskDispatching && is.Attempt > was.Attempt && is.Robot == was.Robot
	if restarts && was.RunCount > 0 && !m.runs.timedOut[id] {
		m.failWithHistory("the manager restarts attempt %d of %s, which had %d runs on %s", was.Attempt, seen.Name, was.RunCount, was.Robot)
	}
}

// checkLateReport fails the test if the report of an earlier run than that in the status changes its state.
func (m *model) checkLateReport(seen *robotv1.Task, r report, next *robotv1.TaskStatus) {
	a := seen.Status.FindAttempt(r.attempt)
	if a != nil && next != nil && r.State == wire.ReportRunning && r.Run > 0 && r.Run < a.RunCount && next.State != seen.Status.State {
		m.failWithHistory("a report of run %d of %s, which has had %d, changes its state from %s to %s", r.Run, seen.Name, a.RunCount, seen.Status.State, next.State)
	}
}

// seenByServer returns the Task to which the server applies a report.
func (m *model) seenByServer(t *robotv1.Task) *robotv1.Task {
	if m.broken == acceptsLateRuns {
		t = t.DeepCopy()
		for i := range t.Status.Attempts {
			t.Status.Attempts[i].RunCount, t.Status.Attempts[i].NextRunAt = 0, nil
		}
	}
	return t
}

// planRestarts runs a planner, which does not see the runs of attempts if that rule is broken.
func (m *model) planRestarts(t *robotv1.Task, plan func() *robotv1.TaskStatus) {
	if m.broken == countsReboots {
		m.planWithoutReboots(t, plan)
		return
	}
	if m.broken != restartsForAgent {
		plan()
		return
	}
	counts := map[int32]int64{}
	for i := range t.Status.Attempts {
		a := &t.Status.Attempts[i]
		counts[a.Attempt], a.RunCount = a.RunCount, 0
	}
	if next := plan(); next != nil {
		for i := range next.Attempts {
			next.Attempts[i].RunCount = counts[next.Attempts[i].Attempt]
		}
	}
}

// agentRuns are the runs of an attempt whose agent restarts it. Nil if it does not.
type agentRuns struct {
	policy restart.Policy
	isKept bool // it starts again also if it has not failed
	count  restart.Count
	// number of the last run, from 1, and its result if it has ended.
	number int64
	reason string
	code   int32
	ended  []wire.Run // the last of them
	// next is the start of the next run. Its time is zero while the process runs.
	next        restart.Decision
	startsNoRun bool
	// isUnreported is set while a report about the last run is delayed.
	isUnreported bool
}

// newRuns returns the runs of an attempt whose last one has this number.
func newRuns(spec wire.TaskSpec, number int64) *agentRuns {
	runs := &agentRuns{number: number, policy: restart.DefaultPolicy(spec.Type), isKept: restart.IsKeptRunning(spec.Type)}
	if p := spec.RestartPolicy; p != nil {
		runs.policy = restart.NewPolicy(spec.Type, restart.Fields{Attempts: p.Attempts, Interval: time.Duration(p.Interval), Delay: time.Duration(p.Delay), Mode: p.Mode, OnReboot: p.OnReboot})
	}
	return runs
}

// isWaiting reports whether no process runs until the next run.
func (a *agentRuns) isWaiting() bool { return a != nil && !a.next.At.IsZero() }

// describe adds the runs to a report.
func (a *agentRuns) describe(s *wire.Status) {
	if a == nil {
		return
	}
	s.Run = a.number
	if a.number > 1 {
		s.Runs = slices.Clone(a.ended)
	}
	if s.IsTerminal() {
		return
	}
	if a.isWaiting() {
		s.Reason, s.NextRunAt = wire.ReasonRestarting, &a.next.At
		return
	}
	if a.number > 1 {
		s.Runs = append(s.Runs, wire.Run{Run: a.number, StartedAt: s.StartedAt})
	}
}

// recordEnd records the end of the last run.
func (a *agentRuns) recordEnd(started, ended time.Time, reason string, code int32) {
	a.reason, a.code = reason, code
	a.ended = append(a.ended, wire.Run{Run: a.number, StartedAt: &started, FinishedAt: &ended, ExitCode: code, Reason: reason})
	a.ended = a.ended[max(len(a.ended)-wire.MaxRuns, 0):]
}

// endProcess ends the process of a task. The agent starts the next run later, or ends the attempt.
func (r *modelRobot) endProcess(uid, reason string, code int32) {
	live := r.live[uid]
	runs := live.runs
	if runs == nil || runs.startsNoRun || reason == "" && !runs.isKept {
		r.endAttempt(uid, reason, code)
		return
	}
	next := runs.policy.Next(runs.count, r.m.now, r.up)
	switch {
	case next.IsExhausted:
		r.endAttempt(uid, reason, code)
	case live.stopReason != "":
		r.endAttempt(uid, live.stopReason, code)
	default:
		r.awaitRun(uid, next, reason, code)
	}
}

// awaitRun records the end of a run, and lets the attempt wait for the next one.
func (r *modelRobot) awaitRun(uid string, next restart.Decision, reason string, code int32) {
	live := r.live[uid]
	runs := live.runs
	runs.recordEnd(live.started, r.m.now, reason, code)
	r.appendRecords(journal.Record{
		Kind: journal.RunEnded, UID: uid, Attempt: live.attempt,
		Status: &wire.Status{State: wire.ReportFailed, ExitCode: code, Reason: reason, Run: runs.number, Runs: slices.Clone(runs.ended)},
		Restart: &journal.Restart{
			Wait: next.At.Sub(r.m.now), Restarts: next.Count.Restarts, Age: r.m.now.Sub(next.Count.Since), EndsWithContact: next.EndsWithContact,
		},
	})
	runs.next, runs.count = next, next.Count
	r.reportRun(uid)
}

// reportRun reports that a run has ended or started, now or with the next of these reports.
func (r *modelRobot) reportRun(uid string) {
	r.live[uid].runs.isUnreported = true
	if r.m.failuresOff || rapid.IntRange(0, 3).Draw(r.m.t, "delays the report") > 0 {
		r.reportDelayedRuns()
	}
}

// reportDelayedRuns reports the runs whose reports were delayed.
func (r *modelRobot) reportDelayedRuns() {
	for _, uid := range r.liveUIDs() {
		if runs := r.live[uid].runs; runs != nil && runs.isUnreported {
			runs.isUnreported = false
			r.reportRunning(uid)
		}
	}
}

// startDueRuns starts the runs that are due.
func (r *modelRobot) startDueRuns() {
	r.reportDelayedRuns()
	for _, uid := range r.liveUIDs() {
		live := r.live[uid]
		switch {
		case !live.runs.isWaiting() || r.m.now.Before(live.runs.next.At):
		case r.isPastDeadline(0) && r.m.broken != runsPastDeadline:
			r.endAttempt(uid, wire.ReasonSelfStopped, live.runs.code)
		default:
			r.startNextRun(uid)
		}
	}
}

// startNextRun starts the next run of an attempt that waits for it.
func (r *modelRobot) startNextRun(uid string) {
	live := r.live[uid]
	id := runID{attemptID{uid, live.attempt}, live.runs.number + 1}
	r.startAfterRecords(func() { r.m.recordRunStart(r.id, id) }, journal.Record{Kind: journal.Run, UID: uid, Attempt: live.attempt, Run: id.run})
	live.runs.next, live.runs.number, live.started = restart.Decision{}, id.run, r.m.now
	r.reportRun(uid)
}

// endUnneededWaits ends attempts that wait for a run only because the robot had no contact.
func (r *modelRobot) endUnneededWaits() {
	for _, uid := range r.liveUIDs() {
		if runs := r.live[uid].runs; runs.isWaiting() && runs.next.EndsWithContact {
			r.endAttempt(uid, runs.reason, runs.code)
		}
	}
}

// startNoRun applies what the task list states about further runs of an attempt.
func (r *modelRobot) startNoRun(uid string, startsNoRun bool) {
	runs := r.live[uid].runs
	if runs == nil || r.m.broken == ignoresStartsNoRun {
		return
	}
	if runs.startsNoRun != startsNoRun && r.m.broken != forgetsPause && r.live[uid].stopReason == "" {
		r.appendRecords(journal.Record{Kind: journal.NoRun, UID: uid, Attempt: r.live[uid].attempt, Reason: pausedReason(startsNoRun)})
	}
	if runs.startsNoRun = startsNoRun; startsNoRun && runs.isWaiting() {
		r.endAttempt(uid, runs.reason, runs.code)
	}
}

func pausedReason(startsNoRun bool) string {
	if startsNoRun {
		return wire.ReasonPaused
	}
	return ""
}

// mayStop reports whether the agent stops an attempt that it is to stop.
func (r *modelRobot) mayStop(uid string) bool {
	return r.m.broken != restartsStopped || !r.live[uid].runs.isWaiting()
}

// recoverAttempt continues an attempt after a crash in which its process was killed.
func (r *modelRobot) recoverAttempt(uid string) {
	live := r.live[uid]
	switch {
	case live.runs.isWaiting():
	case live.runs != nil && r.m.broken == repeatsRun:
		live.runs.number--
		live.runs.next = restart.Decision{At: r.m.now}
	default:
		r.endAttempt(uid, wire.ReasonAgentRestarted, -1)
	}
}
