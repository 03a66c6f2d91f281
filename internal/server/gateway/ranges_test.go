package gateway

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// newRangeTask returns a task of the indexes 0 to 9 in this state.
func newRangeTask(state lifecycle.TaskState, attempts int32, edit ...func(*robotv1.TaskStatus)) *robotv1.Task {
	t := taskIn(state, attempts, edit...)
	t.Spec.Array = &robotv1.TaskArray{Indexes: "0-9"}
	return t
}

// withEnds adds ends of indexes to a report.
func withEnds(r report, succeeded, failed string) report {
	r.Array = &wire.ArrayReport{Succeeded: succeeded, Failed: failed}
	return r
}

func ended(succeeded, failed string) func(*robotv1.TaskStatus) {
	return func(s *robotv1.TaskStatus) {
		s.Array = &robotv1.TaskArrayStatus{Succeeded: succeeded, Failed: failed}
	}
}

// formatRange returns the state and the ends of a range as one line for a table.
func formatRange(s robotv1.TaskStatus) string {
	line := formatStatus(s)
	if s.Array != nil {
		line += fmt.Sprintf("; succeeded %s, failed %s", s.Array.Succeeded, s.Array.Failed)
	}
	return line
}

func TestApplyReport_OfRange(t *testing.T) {
	running, done := reportOf("running", "", 0), reportOf("completed", "", 0)
	stopped := reportOf("failed", "", 143)
	stopped.Reason = wire.ReasonStopped
	for _, row := range []struct {
		name    string
		in      *robotv1.Task
		reports []report
		want    string
		unacked int // of the reports
	}{
		{"ends while it runs", newRangeTask(lifecycle.TaskRunning, 1), []report{withEnds(running, "0-3", "4")},
			"running; 1 ; succeeded 0-3, failed 4", 0},
		{"reports in the wrong order", newRangeTask(lifecycle.TaskRunning, 1), []report{withEnds(running, "0-3", "4"), withEnds(running, "0-1", "")},
			"running; 1 ; succeeded 0-3, failed 4", 0},
		{"all have ended", newRangeTask(lifecycle.TaskRunning, 1), []report{withEnds(done, "0-8", "9")},
			"completed code 0; 1 completed 0; succeeded 0-8, failed 9", 0},
		{"all have ended, some in an earlier attempt", newRangeTask(lifecycle.TaskRunning, 2, ended("0-4", "")), []report{withAttempt(2, withEnds(done, "5-9", ""))},
			"completed code 0; 1 ; 2 completed 0; succeeded 0-9, failed ", 0},
		{"completed without all ends", newRangeTask(lifecycle.TaskRunning, 1), []report{withEnds(done, "0-8", "")},
			"exited IndexesMissing code 0; 1 failed 0; succeeded 0-8, failed ", 0},
		{"completed without any end", newRangeTask(lifecycle.TaskRunning, 1), []report{done},
			"exited IndexesMissing code 0; 1 failed 0", 0},
		{"an attempt without fault keeps its ends", newRangeTask(lifecycle.TaskRunning, 1), []report{withEnds(stopped, "0-3", "4")},
			"exited Stopped code 143; 1 failed 143; succeeded 0-3, failed 4", 0},
		{"it was stopped after the last end", newRangeTask(lifecycle.TaskRunning, 1), []report{withEnds(stopped, "0-9", "")},
			"completed code 0; 1 completed 0; succeeded 0-9, failed ", 0},
		{"canceled, with the ends so far", newRangeTask(lifecycle.TaskRunning, 1, stopping), []report{withEnds(stopped, "0-3", "")},
			"canceled Canceled code 143; 1 canceled 143; succeeded 0-3, failed ", 0},
		{"an end is final", newRangeTask(lifecycle.TaskRunning, 2, ended("0-3", "4")), []report{withAttempt(2, withEnds(running, "4-6", "0"))},
			"running; 1 ; 2 ; succeeded 0-3,5-6, failed 4", 0},
		{"indexes of other ranges", newRangeTask(lifecycle.TaskRunning, 1), []report{withEnds(running, "9-20", "30")},
			"running; 1 ; succeeded 9, failed ", 0},
		{"an older attempt adds nothing", newRangeTask(lifecycle.TaskRunning, 2), []report{withEnds(stopped, "0-3", "")},
			"running; 1 failed 143; 2 ", 0},
		{"nor does an attempt that is not on its robot any more", newRangeTask(lifecycle.TaskPending, 1, closed(143)), []report{withEnds(stopped, "0-3", "")},
			"pending; 1 failed 143", 0},
		{"nor another robot", newRangeTask(lifecycle.TaskRunning, 1), []report{withRobot("r2", withEnds(running, "0-3", ""))},
			"running; 1 ", 0},
		{"nor a report of an unknown state", newRangeTask(lifecycle.TaskRunning, 1), []report{withEnds(reportOf("pausing", "", 0), "0-3", "")},
			"running; 1 ", 0},
		{"a task that is no range has no indexes", taskIn(lifecycle.TaskRunning, 1), []report{withEnds(done, "0-9", "")},
			"completed code 0; 1 completed 0", 0},
		{"progress of a lost attempt waits for the manager", newLostRange(lifecycle.TaskRunning), []report{withEnds(running, "0-3", "")},
			"running; 1 running; 2 ", 1},
		{"but not the report that it runs, without ends", newLostRange(lifecycle.TaskRunning), []report{withEnds(running, "", "")},
			"running; 1 running; 2 ", 0},
		{"so does its end", newLostRange(lifecycle.TaskRunning), []report{withEnds(done, "0-9", "")},
			"running; 1 completed 0; 2 ", 1},
		{"its end without all indexes", newLostRange(lifecycle.TaskRunning), []report{withEnds(done, "0-7", "")},
			"running; 1 failed 0; 2 ", 1},
		{"a restored attempt repeats its ends", newRangeTask(lifecycle.TaskDispatching, 1), []report{withEnds(done, "0-9", "")},
			"completed code 0; 1 completed 0; succeeded 0-9, failed ", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := formatRange(row.in.Status)
			next, outcomes := applyReports(clock, row.in, row.reports)
			if got := formatRange(next.Status); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
			unacked := 0
			for _, o := range outcomes {
				if !o.ack {
					unacked++
				}
			}
			if unacked != row.unacked {
				t.Errorf("%d reports are not acknowledged, want %d", unacked, row.unacked)
			}
			if after := formatRange(row.in.Status); after != before {
				t.Errorf("the Task of the informer was changed to %s", after)
			}
		})
	}
}

// newLostRange returns a range whose first attempt was lost with r1 and whose second is on r2.
func newLostRange(state lifecycle.TaskState) *robotv1.Task {
	t := newLostTask(state)
	t.Spec.Array = &robotv1.TaskArray{Indexes: "0-9"}
	return t
}

func TestApplyReport_DescribesFailedIndexes(t *testing.T) {
	r := withEnds(reportOf("completed", "", 0), "0-2,4-9", "3")
	r.Array.Failures = []wire.IndexFailure{{Index: 3, ExitCode: 7, Reason: wire.ReasonExited, FinishedAt: clock.Add(time.Second)}}
	r.Array.Durations = []int32{0, 10}
	in := newRangeTask(lifecycle.TaskRunning, 1)
	in.Status.Attempts[0].RobotNamespace = "fleet"
	next, _ := applyReports(clock, in, []report{r})
	s := next.Status.Array
	if want := "1 of 10 indexes failed"; next.Status.Message != want {
		t.Errorf("message %q, want %q", next.Status.Message, want)
	}
	if len(s.Failures) != 1 || len(s.Durations) != 1 || !reflect.DeepEqual(s.Durations[0], robotv1.IndexDurations{Attempt: 1, Counts: []int32{0, 10}}) {
		t.Fatalf("%+v", s)
	}
	f := s.Failures[0]
	if f.Index != 3 || f.Robot != "r1" || f.RobotNamespace != "fleet" || *f.ExitCode != 7 || f.Reason != wire.ReasonExited || !f.FinishedAt.Equal(robotTime(clock, new(clock.Add(time.Second)))) {
		t.Errorf("%+v", f)
	}
}

func TestApplyReport_ProgressIsNoEvent(t *testing.T) {
	var reports []report
	for _, succeeded := range []string{"", "0", "0-1", "0-2"} {
		r := withEnds(reportOf(wire.ReportRunning, "Progress", 0), succeeded, "")
		r.Message = "indexes " + succeeded + " have ended"
		reports = append(reports, r)
	}
	reports[0].Event = "Started"
	next, _ := applyReports(clock, newRangeTask(lifecycle.TaskDispatching, 1), reports)
	if e := next.Status.Events; len(e) != 1 || e[0].Type != "Started" {
		t.Errorf("events %+v", e)
	}
}

func TestApplyReport_NamesMissingIndexes(t *testing.T) {
	next, _ := applyReports(clock, newRangeTask(lifecycle.TaskRunning, 1), []report{withEnds(reportOf("completed", "", 0), "0-2,5-9", "")})
	if want := "the robot reported that the task has completed, but not the end of 2 indexes: 3-4"; next.Status.Message != want {
		t.Errorf("message %q, want %q", next.Status.Message, want)
	}
}

// TestApplyReport_AcknowledgedEndsAreStored shuffles, repeats and drops the reports of an attempt, in
// batches: the ends in an acknowledged report are in the status, and no end ever changes.
func TestApplyReport_AcknowledgedEndsAreStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := indexset.UpTo(10)
		fails := indexset.Of(rapid.SliceOf(rapid.Int32Range(0, 9)).Draw(t, "fails")...)
		reports := make([]report, 0, 12)
		for n := range all.Len() + 1 {
			ends := all.Slice(0, n)
			r := withEnds(reportOf(wire.ReportRunning, "", 0), ends.Minus(fails).String(), ends.Intersect(fails).String())
			r.Seq = uint64(n + 1)
			reports = append(reports, r)
		}
		last := reports[rapid.IntRange(0, len(reports)-1).Draw(t, "stopped after")]
		last.State, last.Reason, last.Seq = wire.ReportFailed, wire.ReasonStopped, 99
		reports = append(reports[:len(slices.Collect(last.indexes().All()))+1], last)
		task := newRangeTask(lifecycle.TaskDispatching, 1)
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			b := &batch{}
			for range rapid.IntRange(1, 6).Draw(t, "reports") {
				b.addReport(rapid.SampledFrom(reports).Draw(t, "report"), rapid.Bool().Draw(t, "compacts"))
			}
			before := task
			next, outcomes := applyReports(clock, task, b.reports)
			task = next
			was, is := endsIn(before), endsIn(task)
			if !was[0].Minus(is[0]).IsEmpty() || !was[1].Minus(is[1]).IsEmpty() || !is[0].Intersect(is[1]).IsEmpty() {
				t.Fatalf("%s becomes %s", formatRange(before.Status), formatRange(task.Status))
			}
			for i, o := range outcomes {
				for _, sent := range reports {
					if o.ack && sent.Seq <= b.reports[i].Seq && !sent.indexes().Minus(is[0].Union(is[1])).IsEmpty() {
						t.Fatalf("report %d is acknowledged with %d; the status is %s", sent.Seq, b.reports[i].Seq, formatRange(task.Status))
					}
				}
			}
		}
	})
}

func (r report) indexes() indexset.Set {
	succeeded, _ := indexset.Parse(r.Array.Succeeded)
	failed, _ := indexset.Parse(r.Array.Failed)
	return succeeded.Union(failed)
}

func endsIn(t *robotv1.Task) [2]indexset.Set {
	succeeded, failed := indexset.Set{}, indexset.Set{}
	if t.Status.Array != nil {
		succeeded, _ = indexset.Parse(t.Status.Array.Succeeded)
		failed, _ = indexset.Parse(t.Status.Array.Failed)
	}
	return [2]indexset.Set{succeeded, failed}
}

func TestBatch_KeepsNewestEndsOfIndexes(t *testing.T) {
	progress := func(seq uint64, succeeded string) report {
		r := reportOf(wire.ReportRunning, "", 0)
		if succeeded != "" {
			r = withEnds(r, succeeded, "")
		}
		r.Seq = seq
		return r
	}
	for name, c := range map[string]struct {
		reports []report
		want    string
	}{
		"a newer report replaces an older one":           {[]report{progress(1, "0"), progress(2, "0-3")}, "0-3"},
		"an older report that arrives late does not":     {[]report{progress(2, "0-3"), progress(1, "0")}, "0-3"},
		"a report without ends does not remove any":      {[]report{progress(1, "0-3"), progress(2, "")}, "0-3"},
		"a report without ends that arrives late, too":   {[]report{progress(2, "0-3"), progress(1, "")}, "0-3"},
		"ends are added to a report without any of them": {[]report{progress(1, ""), progress(2, "0-3")}, "0-3"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &batch{}
			for _, r := range c.reports {
				b.addReport(r, true)
			}
			if len(b.reports) != 1 || b.reports[0].Seq != 2 || b.reports[0].Array.Succeeded != c.want {
				t.Errorf("%+v", b.reports)
			}
		})
	}
}

// A second end with other indexes has its own place, because the first one does not acknowledge them.
func TestBatch_KeepsEndsWithOtherIndexes(t *testing.T) {
	b := &batch{}
	for _, succeeded := range []string{"0-3", "0-3", "0-4"} {
		b.addReport(withEnds(reportOf(wire.ReportFailed, "", 143), succeeded, ""), true)
	}
	if len(b.reports) != 2 {
		t.Errorf("%d reports", len(b.reports))
	}
}

// TestReportWorker_BoundsProgressOfAllRobots checks that progress beyond the bound is dropped without
// an acknowledgement, and that starts and ends are not.
func TestReportWorker_BoundsProgressOfAllRobots(t *testing.T) {
	const ranges, bound = 20, 5
	q := newTestReportWriter(t)
	q.progress = rate.NewLimiter(bound, bound)
	written, acks, version := 0, 0, uint64(100)
	q.sendAck = func(string, wire.TaskAck) { acks++ }
	q.writer = slowWriter{during: func(t *robotv1.Task) { written++; version++; q.objects.deliverTask(atVersion(t, version)) }}
	w := &reportWorker{reportWriter: q, wake: make(chan struct{}, 1), robots: map[string]*robotReports{}}
	var uids []types.UID
	for n := range ranges {
		task := atVersion(newRangeTask(lifecycle.TaskDispatching, 1), uint64(n+1))
		uids = append(uids, task.UID)
		q.objects.deliverTask(task)
	}
	for _, step := range []struct {
		name    string
		report  report
		written int
	}{
		{"starts", withEnds(reportOf(wire.ReportRunning, "", 0), "0", ""), ranges},
		{"progress", withEnds(reportOf(wire.ReportRunning, "", 0), "0-3", ""), bound},
		{"ends", withEnds(reportOf(wire.ReportCompleted, "", 0), "0-9", ""), ranges},
	} {
		written, acks = 0, 0
		for _, uid := range uids {
			step.report.uid = uid
			w.addReport(step.report)
		}
		w.writeDue(t.Context())
		if written != step.written || acks != step.written {
			t.Errorf("%s: %d writes, %d acknowledgements, want %d", step.name, written, acks, step.written)
		}
	}
	if got := sumCounter(t, q.m.dropped); got != ranges-bound {
		t.Errorf("%v reports are counted as dropped, want %d", got, ranges-bound)
	}
}

func TestTaskList_AsksRangeToStartNoIndex(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV2)
	task := newRangeTask(lifecycle.TaskRunning, 2)
	put := func(pauseAttempt int32, version uint64) {
		old := task
		task = atVersion(task, version)
		task.Spec.Array = &robotv1.TaskArray{Indexes: "0-9", PauseAttempt: pauseAttempt}
		v.deliverTask(task)
		l.onTaskChanged(old, task)
		l.sendDue()
	}
	put(0, 7)
	l.sendList("r1")
	put(1, 8) // of an older attempt
	put(2, 9)
	last := func() wire.TaskReference { return (*out)[len(*out)-1].Refs[0] }
	if len(*out) != 2 || (*out)[0].Refs[0].StartsNoIndex || !last().StartsNoIndex {
		t.Fatalf("lists %+v", *out)
	}
	l.dispatchEpoch(task)
	l.passHour()
	if len(*out) != 3 || !last().StartsNoIndex {
		t.Errorf("no list follows the dispatch: %+v", *out)
	}
}

func TestEncodeDispatch_HasIndexesLeft(t *testing.T) {
	task := newRangeTask(lifecycle.TaskDispatching, 2, ended("0-4", "6"))
	task.Spec.Array.PauseAttempt = 1
	for i := range 10 {
		task.Spec.Array.Items = append(task.Spec.Array.Items, strings.Repeat("x", i))
	}
	payload, err := encodeDispatch(wire.ActionCreate, task, robotv1.ProtocolV2, 1, "uid", nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := wire.Decode[wire.Dispatch](payload)
	if want := (&wire.TaskArray{Indexes: "5,7-9", Items: []string{"xxxxx", "xxxxxxx", "xxxxxxxx", "xxxxxxxxx"}}); err != nil || !reflect.DeepEqual(d.Task.Spec.Array, want) {
		t.Errorf("%+v, %v, want %+v", d.Task.Spec.Array, err, want)
	}
	if strings.Contains(string(payload), "pauseAttempt") {
		t.Errorf("%s", payload)
	}
}

func TestDownlink_OfArrays(t *testing.T) {
	for name, c := range map[string]struct {
		task     *robotv1.Task
		supports bool
		sent     int
		reported string
	}{
		"a range":                            {newRangeTask(lifecycle.TaskDispatching, 1), true, 1, ""},
		"a range on an agent without arrays": {newRangeTask(lifecycle.TaskDispatching, 1), false, 0, "failed Rejected"},
		"its start was reported":             {newRangeTask(lifecycle.TaskUnknown, 1, startedAttempt), false, 1, ""},
		"another task":                       {taskIn(lifecycle.TaskDispatching, 1), false, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d, v, sent := newTestDownlink()
			reported := ""
			d.runsArrays = func(string) bool { return c.supports }
			d.addReport = func(r report) bool { reported = r.State + " " + r.Reason; return true }
			v.deliverTask(atVersion(c.task, 7))
			d.onTaskChanged(c.task.UID)
			if d.sendNext(); *sent != c.sent || reported != c.reported {
				t.Errorf("sent %d, reported %q", *sent, reported)
			}
		})
	}
}

func startedAttempt(s *robotv1.TaskStatus) {
	s.Attempts[len(s.Attempts)-1].StartedAt = robotTime(clock, nil)
}

// Agents of the legacy protocol have none of the capabilities.
func TestCapabilitiesOfAgent_AreWritten(t *testing.T) {
	for protocol, want := range map[string]bool{robotv1.ProtocolV2: true, robotv1.ProtocolV1: false} {
		w := robotState{}
		w.recordRegistration(clock, protocol, wire.Register{RunsArrays: true, RestartsTasks: true})
		if s := nextRobotStatus(newKnownRobot("Online").Status, w); s.Agent.RunsArrays != want || s.Agent.RestartsTasks != want {
			t.Errorf("%s: %+v", protocol, s.Agent)
		}
	}
}

// TestAdoptAttempt_OfRange restores a backup without the attempts of a range: the last one, which ran what
// the others had left, completes, and the indexes of the others run again, without fault.
func TestAdoptAttempt_OfRange(t *testing.T) {
	task := restoredTask(lifecycle.TaskRunning, 1)
	task.Spec.Array = &robotv1.TaskArray{Indexes: "0-9"}
	task.Status.Outputs = map[string]string{"a": "1"}
	ended("0-1", "")(&task.Status)
	s := adoptAttempt(task, journaled("r2", 3, wire.ReportRunning), attemptRange{known: 1, first: epochStart})
	if s == nil || s.Attempt != 3 || s.Array.Succeeded != "0-1" || s.Outputs["a"] != "1" {
		t.Fatalf("adopted: %+v", s)
	}
	task.Status = *s
	of3 := func(r report) report { return withRobot("r2", withAttempt(3, r)) }
	next, outcomes := applyReports(clock, task, []report{of3(withEnds(reportOf("running", "", 0), "5-7", "")), of3(withEnds(reportOf("completed", "", 0), "5-9", ""))})
	if got, want := formatRange(next.Status), "exited AgentRestarted code 0; 1 canceled; 3 failed 0; succeeded 0-1,5-9, failed "; got != want || !outcomes[1].ack {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !wire.IsWithoutFault(next.Status.FindAttempt(3).Reason) {
		t.Errorf("attempt %+v", next.Status.FindAttempt(3))
	}
}

func TestGateway_RunsRange(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", IndexExit: func(index, _ int32) int32 { return index % 2 }})
	defer r.Stop()
	task := newBoundTask("t1", "r1")
	task.Spec.Array = &robotv1.TaskArray{Indexes: "0-4,9"}
	s.createTask(task)
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	eventually(t, "every report is acknowledged", func() bool { return r.UnacknowledgedCount() == 0 })
	got := s.task("t1").Status
	if a := got.Array; a == nil || a.Succeeded != "0,2,4" || a.Failed != "1,3,9" || len(a.Failures) != 3 || len(a.Durations) != 1 {
		t.Errorf("ends %+v", a)
	}
	if want := "3 of 6 indexes failed"; got.Message != want {
		t.Errorf("message %q, want %q", got.Message, want)
	}
	if starts := r.IndexStarts()[string(task.UID)]; !slices.Equal(starts, []int32{0, 1, 2, 3, 4, 9}) {
		t.Errorf("started %v", starts)
	}
}

func TestGateway_PausedRangeContinuesWithTheRest(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", IndexRun: 5 * time.Millisecond, ProgressEvery: time.Millisecond})
	defer r.Stop()
	task := newBoundTask("t1", "r1")
	task.Spec.Array = &robotv1.TaskArray{Indexes: "0-199"}
	s.createTask(task)
	eventually(t, "an index has ended", func() bool { return s.task("t1").Status.Array != nil })
	patch := []byte(`{"spec":{"array":{"pauseAttempt":1}}}`)
	if err := s.api.Patch(t.Context(), s.task("t1"), client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the attempt ends", func() bool { return s.state("t1") == lifecycle.TaskExited })
	paused := s.task("t1")
	left := array.Left(paused)
	if paused.Status.Reason != wire.ReasonPaused || left.IsEmpty() {
		t.Errorf("%s: %s left", formatRange(paused.Status), left)
	}
	s.editStatus("t1", func(st *robotv1.TaskStatus) {
		st.State, st.Attempt = string(lifecycle.TaskDispatching), 2
		st.Attempts = append(st.Attempts, robotv1.TaskAttempt{Attempt: 2, Robot: "r1"})
	})
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	starts := r.IndexStarts()[string(task.UID)]
	slices.Sort(starts)
	if !slices.Equal(starts, slices.Collect(indexset.UpTo(200).All())) {
		t.Errorf("the indexes that were started are %v", indexset.Of(starts...))
	}
}
