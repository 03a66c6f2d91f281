package gateway

import (
	"bytes"
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	startsBeforeRecord  brokenRule = "the agent starts a run before its record is on the disk"
	repeatsRunInBoot    brokenRule = "the agent starts a run again after a reboot"
	forgetsStop         brokenRule = "the agent forgets at a reboot that it was asked to stop a task"
	forgetsPause        brokenRule = "the agent forgets at a reboot that it is to start no run"
	startsBeforeContact brokenRule = "the agent starts a task with a self-stop deadline after a reboot before it has contact"
	countsReboots       brokenRule = "the manager counts a reboot as a failure"
)

// TestRebootsStartNothingTwice runs random interleavings of all events around robots that restart tasks,
// and that lose power again and again.
func TestRebootsStartNothingTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newRestartingModel(t)
		m.stopsTakeTime = true
		m.runEventsAmong(func() { m.withOneRobot(m.failPower) }, func() { m.withOneRobot(m.boot) }, m.settle)
		m.settleWithoutFailures()
	})
}

// TestRebootsKeepRestrictions lets robots lose power right after they were asked to stop or to pause a task,
// or were disconnected.
func TestRebootsKeepRestrictions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newRunsModel(t, "")
		m.stopsTakeTime = true
		m.runReboots()
		m.settleWithoutFailures()
	})
}

// TestModelFindsBrokenRulesOfReboots breaks each rule in turn, and expects a violation of the invariants.
func TestModelFindsBrokenRulesOfReboots(t *testing.T) {
	expectViolations(t, func(t *rapid.T, rule brokenRule) bool {
		m := newRunsModel(t, rule)
		m.stopsTakeTime = true
		if rule != startsBeforeContact { // the deadline would end most attempts
			m.job.Spec.Disconnect.StopOnRobotAfter = nil
		}
		return findsViolation(m.runReboots)
	}, startsBeforeRecord, repeatsRunInBoot, forgetsStop, forgetsPause, startsBeforeContact, countsReboots)
}

// runReboots lets robots lose power while tasks fail, and something happen between the failures.
func (m *model) runReboots() {
	m.settle()
	for range rapid.IntRange(2, 8).Draw(m.t, "rounds") {
		m.disturbRestarts()
		m.settleSome()
		m.withBusyRobot(m.failPower)
		m.settleSome()
		m.withOneRobot(m.boot)
		m.checkInvariants()
		m.passUntilRestart()
		m.settleSome()
		m.checkInvariants()
		if rapid.IntRange(0, 3).Draw(m.t, "tasks fail") == 0 {
			m.withBusyRobot((*modelRobot).failTasks)
		}
	}
}

// settleSome lets the system settle, or not.
func (m *model) settleSome() {
	if rapid.IntRange(0, 2).Draw(m.t, "settles") > 0 {
		m.settle()
	}
}

// modelJournal is what a robot has written to its journal. After a power failure, a journal on a real disk
// shows what the next agent reads of it.
type modelJournal struct {
	records []journal.Record
	// synced is the number of records that are on the disk in any case.
	synced int
	boot   int
	// failsAtWrite is set if the power fails during the next write.
	failsAtWrite bool
}

// powerFailure ends what a robot was doing.
type powerFailure struct{ robot string }

func (r *modelRobot) bootID() string { return "boot-" + strconv.Itoa(r.journal.boot) }

// appendRecords writes to the journal. What follows is done only if the power does not fail meanwhile.
func (r *modelRobot) appendRecords(records ...journal.Record) {
	j := &r.journal
	isDurable := false
	for _, rec := range records {
		rec.At, rec.BootID = r.m.now, r.bootID()
		j.records = append(j.records, rec)
		isDurable = isDurable || rec.Kind != journal.Started && rec.Kind != journal.Acked && rec.Kind != journal.Dropped
	}
	if j.failsAtWrite {
		j.failsAtWrite = false
		panic(powerFailure{r.id})
	}
	if isDurable {
		j.synced = len(j.records)
	}
}

// failPower cuts the power of a robot: while it does something, in the middle of a write, or between two things.
func (m *model) failPower(r *modelRobot) {
	if r.isOff {
		return
	}
	do := map[string]func(){
		"nothing": func() {},
		"message": func() {
			if len(r.inbox) > 0 {
				r.receive(takeMessage(m, &r.inbox))
			}
		},
		"ends":    r.failTasks,
		"starts":  r.startDueRuns,
		"connect": func() { m.connect(r) },
	}
	m.failPowerDuring(r, do[m.pick("the power fails during", slices.Sorted(maps.Keys(do))...)])
	m.cutPower(r)
}

// failPowerDuring lets the power of a robot fail during the next write of its journal while it does something.
// A message whose handling was interrupted has not arrived.
func (m *model) failPowerDuring(r *modelRobot, do func()) (failed bool) {
	stopped, paused := maps.Clone(m.runs.stopped), maps.Clone(m.runs.paused)
	r.journal.failsAtWrite = true
	defer func() {
		r.journal.failsAtWrite = false
		if p := recover(); p == (powerFailure{r.id}) {
			m.runs.stopped, m.runs.paused, failed = stopped, paused, true
		} else if p != nil {
			panic(p)
		}
	}()
	do()
	return false
}

// cutPower ends all processes of a robot, and its connection.
func (m *model) cutPower(r *modelRobot) {
	m.record("%s loses power", r.id)
	m.disconnect(r)
	r.isOff, r.silent, r.live = true, false, map[string]*liveAttempt{}
}

// boot starts a robot that has lost power. It has no contact yet. The power may fail again meanwhile.
func (m *model) boot(r *modelRobot) {
	if !r.isOff {
		return
	}
	if !m.failuresOff && rapid.IntRange(0, 3).Draw(m.t, "the power fails again") == 0 && m.failPowerDuring(r, r.boot) {
		m.cutPower(r)
		return
	}
	if r.isOff {
		r.boot()
	}
}

// readJournal returns the attempts that are in a journal on a real disk which was cut at any byte of what was not
// synced. The rest is what the robot's journal has from now on.
func (r *modelRobot) readJournal() []journal.Entry {
	j := &r.journal
	dir, err := os.MkdirTemp("", "model-journal-")
	if err != nil {
		r.m.t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "journal")
	from := r.writeJournal(dir, j.records[:j.synced])
	to := r.writeJournal(dir, j.records[j.synced:])
	cut := from
	if from < to && !r.m.failuresOff {
		cut = rapid.Int64Range(from, to).Draw(r.m.t, "the disk has bytes")
	}
	if err := os.Truncate(path, cut); err != nil {
		r.m.t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		r.m.t.Fatal(err)
	}
	read := r.openJournal(dir)
	defer read.Close()
	j.records = j.records[:bytes.Count(text, []byte("\n"))]
	j.synced = len(j.records)
	entries := read.Entries()
	slices.SortFunc(entries, func(a, b journal.Entry) int {
		return compareAttempts(attemptID{a.UID, a.Attempt}, attemptID{b.UID, b.Attempt})
	})
	return entries
}

// writeJournal appends records to the journal in dir, and returns its size.
func (r *modelRobot) writeJournal(dir string, records []journal.Record) int64 {
	j := r.openJournal(dir)
	defer j.Close()
	if err := j.Append(records...); err != nil {
		r.m.t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "journal"))
	if err != nil {
		r.m.t.Fatal(err)
	}
	return info.Size()
}

func (r *modelRobot) openJournal(dir string) *journal.Journal {
	j, err := journal.Open(dir, journal.Options{Now: func() time.Time { return r.m.now }})
	if err != nil {
		r.m.t.Fatal(err)
	}
	return j
}

// boot starts the agent on what is left of the journal, in another boot.
func (r *modelRobot) boot() {
	r.journal.boot++
	r.m.record("%s boots", r.id)
	entries := r.readJournal()
	known := r.ends
	r.ends, r.unacked, r.listed, r.acked = map[attemptID]*wire.Status{}, map[attemptID]wire.Status{}, wire.TaskList{}, r.m.now
	r.live = map[string]*liveAttempt{}
	for _, e := range entries {
		id := attemptID{e.UID, e.Attempt}
		if r.ends[id] = e.Status; e.HasEnded() && !e.IsAcked() {
			r.unacked[id] = *e.Status
		}
	}
	for id := range known {
		if _, stillKnown := r.ends[id]; !stillKnown && r.m.started[id] == r.id {
			r.m.failWithHistory("%s has forgotten at a reboot that it started attempt %d of %s", r.id, id.attempt, id.uid)
		}
	}
	for _, e := range entries {
		if !e.HasEnded() {
			r.recoverEntry(e)
		}
	}
	r.isOff, r.awaitsContact = false, true
}

// recoverEntry continues an attempt whose process ended with the last boot, or that waited for a run.
func (r *modelRobot) recoverEntry(e journal.Entry) {
	live := r.restoreAttempt(e)
	r.live[e.UID] = live
	r.appendRecords(journal.Record{Kind: journal.Adopted, UID: e.UID, Attempt: e.Attempt})
	instead := r.endInsteadOfRun(e)
	switch {
	case live.runs == nil:
		r.endAttempt(e.UID, cmp.Or(instead, wire.ReasonAgentRestarted), -1)
	case e.AwaitsRun() && instead != "":
		r.endAttempt(e.UID, instead, live.runs.code)
	case e.AwaitsRun():
		live.runs.next = restart.Decision{At: e.LastEnd.At.Add(e.LastEnd.Restart.Wait), EndsWithContact: e.LastEnd.Restart.EndsWithContact}
	case r.m.broken == repeatsRunInBoot:
		live.runs.number--
		live.runs.next = restart.Decision{At: r.m.now}
	case instead != "":
		r.endAttempt(e.UID, instead, -1)
	default:
		r.continueAfterReboot(e.UID)
	}
}

// endInsteadOfRun returns why the agent starts no run of an attempt after a reboot, or the empty string.
func (r *modelRobot) endInsteadOfRun(e journal.Entry) string {
	switch {
	case e.NoRunReason != "":
		return e.NoRunReason
	case r.m.job.Spec.Disconnect.StopOnRobotAfter.Value() > 0 && r.m.broken != startsBeforeContact:
		return wire.ReasonSelfStopped
	}
	return ""
}

// restoreAttempt returns the attempt of an entry.
func (r *modelRobot) restoreAttempt(e journal.Entry) *liveAttempt {
	live := &liveAttempt{attempt: e.Attempt, started: r.m.runs.startedAt[runID{attemptID{e.UID, e.Attempt}, e.Run}]}
	live.dispatch = wire.Dispatch{Action: wire.ActionCreate, Attempt: e.Attempt, Epoch: e.Dispatched.Epoch, Task: *e.Task}
	if a := e.Task.Spec.Array; a != nil {
		live.indexes = r.ranges[attemptID{e.UID, e.Attempt}]
	}
	if e.Run == 0 {
		return live
	}
	live.runs = newRuns(e.Task.Spec, e.Run)
	if end := e.LastEnd; end != nil {
		live.runs.count = restart.Count{Restarts: end.Restart.Restarts, Since: end.At.Add(-end.Restart.Age)}
		live.runs.reason, live.runs.code, live.runs.ended = end.Status.Reason, end.Status.ExitCode, slices.Clone(end.Status.Runs)
	}
	return live
}

// continueAfterReboot starts the next run of an attempt whose run ended with the last boot, or reports that.
func (r *modelRobot) continueAfterReboot(uid string) {
	live := r.live[uid]
	runs := live.runs
	next := runs.policy.AfterReboot(runs.count, r.m.now)
	if next.IsExhausted {
		r.endAttempt(uid, wire.ReasonRobotRebooted, -1)
		return
	}
	r.awaitRun(uid, next, wire.ReasonRobotRebooted, -1)
}

// checkFailureList fails the test if the manager adds a robot to the failures of a task for an attempt that
// has not ended, or that ended without a fault.
func (m *model) checkFailureList(seen, next *robotv1.Task) {
	for _, robot := range next.Status.FailedRobots {
		if slices.Contains(seen.Status.FailedRobots, robot) {
			continue
		}
		a := seen.Status.FindAttempt(seen.Status.Attempt)
		if a == nil || a.Robot != robot || a.FinishedAt == nil && lifecycle.TaskState(seen.Status.State) != lifecycle.TaskExited || a.Reason != wire.ReasonPolicyViolation && wire.IsWithoutFault(a.Reason) {
			m.failWithHistory("%s counts a failure on %s, whose last attempt is %+v", seen.Name, robot, a)
		}
	}
}

// planWithoutReboots runs a planner that takes the reboot of a robot for a failure of its task.
func (m *model) planWithoutReboots(t *robotv1.Task, plan func() *robotv1.TaskStatus) {
	change := func(attempts []robotv1.TaskAttempt, from, to string) {
		for i := range attempts {
			if attempts[i].Reason == from {
				attempts[i].Reason = to
			}
		}
	}
	const disguised = "Disguised"
	change(t.Status.Attempts, wire.ReasonRobotRebooted, disguised)
	if next := plan(); next != nil {
		change(next.Attempts, disguised, wire.ReasonRobotRebooted)
	}
}
