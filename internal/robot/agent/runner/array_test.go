package runner

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/internal/protocol/indexset"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// rangeShims has a shim whose indexes end as the test says.
type rangeShims struct {
	noShims
	ends   []shim.IndexEnd
	paused int
}

func (s *rangeShims) ReadState(*supervisor.Shim) (shim.State, error) {
	return shim.State{Indexes: shim.Indexes{Ends: s.ends}}, nil
}

func (s *rangeShims) Pause(*supervisor.Shim) error {
	s.paused++
	return nil
}

// rangeTest is a runner with one running range, and a clock.
type rangeTest struct {
	*Runner
	attempt *attempt
	shims   *rangeShims
	now     time.Time
}

func newRangeTest(t *testing.T) *rangeTest {
	x := &rangeTest{shims: &rangeShims{}, now: time.Unix(1000, 0)}
	x.Runner = New(Config{
		RobotID: robot, StateDir: StateDir(t.TempDir()), Shims: x.shims, Logs: noLogs{}, Reports: noReports{}, Log: slog.New(slog.DiscardHandler),
		Now:    func() time.Time { return x.now },
		Jitter: func(most time.Duration) time.Duration { return most / 2 },
	})
	x.attempt = newAttempt(wire.Dispatch{Attempt: 1, Task: shell("t1", "exit 0", func(t *wire.Task) { t.Spec.Array = &wire.TaskArray{Indexes: "0-9"} })})
	x.live["t1"] = x.attempt
	x.attachShim(x.attempt, &supervisor.Shim{})
	x.recordStart(&plan{}, x.attempt, shim.Started{At: x.now})
	return x
}

// reportAfter returns the reports that are due after a pause.
func (x *rangeTest) reportAfter(pause time.Duration) []wire.Status {
	x.now = x.now.Add(pause)
	p := &plan{}
	x.reportProgress(p)
	return p.reports
}

func TestProgress_IsReportedOncePerInterval(t *testing.T) {
	x := newRangeTest(t)
	x.shims.ends = []shim.IndexEnd{{Index: 0}, {Index: 1, Code: 3}}
	if wait, isNeeded := x.untilProgress(); !isNeeded || wait != 11*time.Second {
		t.Errorf("due in %v, %v, want the interval and its jitter", wait, isNeeded)
	}
	for _, step := range []struct {
		what  string
		pause time.Duration
		ends  int // that are added first
		want  string
	}{
		{"before the interval has passed", 10 * time.Second, 0, ""},
		{"after it", time.Second, 0, "0 1"},
		{"soon after a report, with more ends", 9 * time.Second, 1, ""},
		{"after another interval", 2 * time.Second, 1, "0,2-3 1"},
		{"without another end", time.Hour, 0, ""},
	} {
		for range step.ends {
			x.shims.ends = append(x.shims.ends, shim.IndexEnd{Index: int32(len(x.shims.ends))})
		}
		got := ""
		for _, r := range x.reportAfter(step.pause) {
			got += r.Array.Succeeded + " " + r.Array.Failed
			if r.State != wire.ReportRunning || r.StartedAt == nil {
				t.Errorf("%s: %+v", step.what, r)
			}
		}
		if got != step.want {
			t.Errorf("%s: reports %q, want %q", step.what, got, step.want)
		}
	}
}

func TestProgress_IsNoReasonToWakeUpWithoutARange(t *testing.T) {
	x := newRangeTest(t)
	x.attempt.array = nil
	if _, isNeeded := x.untilProgress(); isNeeded || len(x.reportAfter(time.Hour)) > 0 {
		t.Error("a task that is no range has progress")
	}
}

func TestPause_ReachesTheShimOfTheAttemptOnce(t *testing.T) {
	x := newRangeTest(t)
	list := func(epoch uint64, attempt int32, pauses bool) wire.TaskList {
		return wire.TaskList{Epoch: epoch, Refs: []wire.TaskReference{{UID: "t1", Attempt: attempt, StartsNoIndex: pauses}}}
	}
	for i, row := range []struct {
		list wire.TaskList
		want int
	}{{list(1, 1, false), 0}, {list(2, 2, true), 0}, {list(3, 1, true), 1}, {list(4, 1, true), 1}} {
		x.handleTaskList(&plan{}, row.list)
		if x.shims.paused != row.want {
			t.Errorf("list %d: %d requests, want %d", i, x.shims.paused, row.want)
		}
	}
	waiting := newAttempt(wire.Dispatch{Attempt: 1, Task: x.attempt.task})
	x.live["t1"] = waiting
	x.handleTaskList(&plan{}, list(5, 1, true))
	if waiting.stopReason != wire.ReasonPaused {
		t.Errorf("a range that has no shim yet is stopped for %q, want Paused", waiting.stopReason)
	}
}

// TestArrayReport_HasEachEndOnce compares the report with the ends that it is made of.
func TestArrayReport_HasEachEndOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		indexes := rapid.SliceOfNDistinct(rapid.Int32Range(0, 2000), 0, 200, rapid.ID).Draw(t, "indexes")
		var ends []shim.IndexEnd
		var failed []int32
		for _, i := range indexes {
			e := shim.IndexEnd{Index: i, Code: rapid.SampledFrom([]int{0, 0, 1, 143}).Draw(t, "code"), Reason: rapid.SampledFrom([]string{"", "", "Timeout"}).Draw(t, "reason")}
			e.Duration = time.Duration(rapid.Int64Range(0, 1<<60).Draw(t, "took"))
			if ends = append(ends, e); e.Code != 0 || e.Reason != "" {
				failed = append(failed, i)
			}
		}
		r := newArrayReport(ends)
		all, bad := indexset.Of(indexes...), indexset.Of(failed...)
		if r.Failed != bad.String() || r.Succeeded != all.Minus(bad).String() || len(r.Failures) != min(len(failed), wire.MaxIndexFailures) {
			t.Fatalf("%+v of %+v", r, ends)
		}
		sum := int32(0)
		for _, n := range r.Durations {
			sum += n
		}
		if int(sum) != len(ends) || len(r.Durations) > wire.MaxDurationCounts {
			t.Fatalf("durations %v of %d ends", r.Durations, len(ends))
		}
		for i, f := range r.Failures {
			if f.Index != failed[i] || f.Reason == "" {
				t.Fatalf("failure %d is %+v, want index %d with a reason", i, f, failed[i])
			}
		}
	})
}

func TestCountDuration(t *testing.T) {
	for took, want := range map[time.Duration]int{
		0: 0, 999 * time.Microsecond: 0, time.Millisecond: 1, 1999 * time.Microsecond: 1, 2 * time.Millisecond: 2, 3 * time.Millisecond: 2, 4 * time.Millisecond: 3,
		time.Second: 10, 1<<62 - 1: 31, -time.Second: 0,
	} {
		counts := countDuration(nil, took)
		if len(counts) != want+1 || counts[want] != 1 {
			t.Errorf("%v counts as %v, want place %d", took, counts, want)
		}
	}
}

// The report of the largest range fits a message with much room.
func TestArrayReport_IsSmall(t *testing.T) {
	var ends []shim.IndexEnd
	for i := range int32(wire.MaxRangeSize) {
		ends = append(ends, shim.IndexEnd{Index: 990_000 + 2*i, Code: int(i % 2), Duration: time.Hour, At: time.Unix(1<<31, 0)})
	}
	b, err := wire.Encode(wire.Status{Array: newArrayReport(ends)})
	if err != nil || len(b) > 16<<10 {
		t.Errorf("the report takes %d bytes, %v, want at most 16 KiB", len(b), err)
	}
}

func TestEnvironment_OfARange(t *testing.T) {
	r := New(Config{RobotID: robot, StateDir: StateDir("/state"), Now: time.Now})
	task := shell("t1", "echo", func(t *wire.Task) {
		t.Spec.Array = &wire.TaskArray{Indexes: "3-4", Items: []string{"a", "b"}}
		t.Spec.Env = map[string]string{"FRAME": "f-${K8S4R_TASK_INDEX}", "SAME": "x"}
		t.Spec.Config.Exec.Args = []string{"${FRAME}", "${K8S4R_TASK_ITEM}", "$${K8S4R_TASK_INDEX}"}
	})
	s := shim.Spec{WorkDir: "/work"}
	must(t, r.fillEnvironment(newAttempt(wire.Dispatch{Attempt: 1, Task: task}), &s))
	if want := []string{"f-" + shim.IndexMark, shim.ItemMark, "${K8S4R_TASK_INDEX}"}; !slices.Equal(s.Config.Exec.Args, want) {
		t.Errorf("arguments %q, want %q", s.Config.Exec.Args, want)
	}
	if s.Env["FRAME"] != "f-"+shim.IndexMark || s.Env[wire.EnvTaskIndex] != shim.IndexMark || s.Env["SAME"] != "x" {
		t.Errorf("environment %q", s.Env)
	}
	same := withoutMarks(s.Env)
	for _, name := range []string{"FRAME", wire.EnvTaskIndex, wire.EnvTaskItem} {
		if value, found := same[name]; found {
			t.Errorf("templates see %s as %q, which differs for each index", name, value)
		}
	}
	if fmt.Sprint(same["SAME"], same["K8S4R_JOB"]) != "xjob" {
		t.Errorf("templates see %q", same)
	}
}
