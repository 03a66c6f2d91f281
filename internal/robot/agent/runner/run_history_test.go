package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/logship"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// recordedLogs records which logs were followed and ended.
type recordedLogs struct{ calls []string }

func (l *recordedLogs) AddLog(a logship.Attempt, _ string) { l.record("add", a) }
func (l *recordedLogs) EndLog(a logship.Attempt)           { l.record("end", a) }

func (l *recordedLogs) record(what string, a logship.Attempt) {
	if call := fmt.Sprint(what, " ", a.Attempt); a.OfRuns && !slices.Contains(l.calls, call) {
		l.calls = append(l.calls, call)
	}
}

// recordLogs lets the runner send its logs to a recorder.
func (x *restartTest) recordLogs() *recordedLogs {
	l := &recordedLogs{}
	x.logs = l
	return l
}

func (x *restartTest) historyDir() string { return x.dirs.HistoryDir("t1", 1) }

// readHistory returns the runs of attempt 1 that have records.
func (x *restartTest) readHistory() runlog.Page {
	x.t.Helper()
	c := runlog.NewCollector(runlog.Query{Limit: runlog.MaxLimit})
	c.AddLines(x.readHistoryLines())
	return c.BuildPage(1)
}

func (x *restartTest) readHistoryLines() (all []byte) {
	x.t.Helper()
	r, buf := segment.Reader{Dir: x.historyDir()}, make([]byte, 64<<10)
	for at := int64(0); ; {
		c, err := r.ReadAt(at, buf)
		must(x.t, err)
		if len(c.Data) == 0 {
			return all
		}
		all, at = append(all, c.Data...), c.End()
	}
}

// requireHistory checks which runs have records: each has its number as exit code, and one line.
func (x *restartTest) requireHistory(what string, want ...int64) {
	x.t.Helper()
	var got []int64
	for _, r := range x.readHistory().Items {
		got = append(got, r.Run)
		if r.ExitCode == nil || int64(*r.ExitCode) != r.Run || r.FinishedAt == nil || r.Reason != wire.ReasonExited {
			x.t.Errorf("%s: record %+v", what, r)
		}
	}
	if lines := strings.Count(string(x.readHistoryLines()), "\n"); !slices.Equal(got, want) || lines != len(want) {
		x.t.Fatalf("%s: records of %v in %d lines, want %v", what, got, lines, want)
	}
}

// makeRuns makes runs whose exit codes are their numbers, and lets the task wait for the next one.
func (x *restartTest) makeRuns(from, to int) {
	x.t.Helper()
	for run := from; run <= to; run++ {
		x.begin()
		x.end(shim.Exit{Code: run})
		x.pass(time.Second)
	}
}

func TestRunHistory_HasAllRunsOfARestartedTask(t *testing.T) {
	x := newRestartTest(t, restarting(24, time.Second))
	logs := x.recordLogs()
	x.dispatch(1)
	x.makeRuns(1, 25)
	x.requireEnd(wire.ReasonExited, 25)
	var all []int64
	for run := range int64(25) {
		all = append(all, run+1)
	}
	x.requireHistory("after the end", all...)
	if want := []string{"add 1", "end 1"}; !slices.Equal(logs.calls, want) {
		t.Errorf("the log of runs: %v, want %v", logs.calls, want)
	}
}

func TestRunHistory_OfOneRunIsNotWritten(t *testing.T) {
	x := newRestartTest(t, restarting(0, time.Second))
	logs := x.recordLogs()
	x.dispatch(1)
	x.makeRuns(1, 1)
	x.requireEnd(wire.ReasonExited, 1)
	if _, err := os.Stat(x.historyDir()); err == nil || logs.calls != nil {
		t.Errorf("the status has the only run, but there is a record: %v", logs.calls)
	}
}

// A crash after a write of the journal may lose the records of runs, and an interrupted write a part of one.
func TestRunHistory_IsCompletedFromTheJournal(t *testing.T) {
	for name, cut := range map[string]func(t *testing.T, dir string){
		"nothing is lost":   func(*testing.T, string) {},
		"a record is cut":   func(t *testing.T, dir string) { cutHistory(t, dir, 2, 7) },
		"records are lost":  func(t *testing.T, dir string) { cutHistory(t, dir, 3, 0) },
		"all of it is lost": func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newRestartTest(t, restarting(9, time.Second))
			x.dispatch(1)
			x.makeRuns(1, 3)
			x.begin()
			x.end(shim.Exit{Code: 4})
			cut(t, x.historyDir())
			x.restartAgent()
			x.requireHistory("after a crash between runs", 1, 2, 3, 4)
			x.pass(time.Second)
			x.begin()
			x.left = shim.State{Exit: &shim.Exit{Code: 5, At: x.wall}}
			cut(t, x.historyDir())
			x.restartAgent()
			x.requireHistory("after a crash in which a run ended", 1, 2, 3, 4, 5)
		})
	}
}

// cutHistory removes the last records, and then some bytes of the one before.
func cutHistory(t *testing.T, dir string, records, bytes int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	must(t, err)
	text, err := os.ReadFile(files[len(files)-1])
	must(t, err)
	lines := slices.Collect(strings.Lines(string(text)))
	rest := strings.Join(lines[:max(len(lines)-records, 0)], "")
	must(t, os.WriteFile(files[len(files)-1], []byte(rest[:max(len(rest)-bytes, 0)]), 0o600))
}

func TestRunHistory_OfAnEndedAttempt(t *testing.T) {
	end := func(t *testing.T) *restartTest {
		x := newRestartTest(t, restarting(2, time.Second))
		x.dispatch(1)
		x.makeRuns(1, 3)
		x.requireEnd(wire.ReasonExited, 3)
		return x
	}
	t.Run("is completed", func(t *testing.T) {
		x := end(t)
		cutHistory(t, x.historyDir(), 2, 0)
		x.restartAgent()
		x.requireHistory("after a crash", 1, 2, 3)
	})
	t.Run("is not written again once the server has it", func(t *testing.T) {
		x := end(t)
		must(t, os.RemoveAll(x.historyDir()))
		x.restartAgent()
		if _, err := os.Stat(x.historyDir()); err == nil {
			t.Error("there are records again")
		}
	})
}

func TestRunHistory_MarksRunsWithoutContact(t *testing.T) {
	x := newRestartTest(t, restarting(20, time.Second))
	x.dispatch(1)
	x.makeRuns(1, 2)
	lost := x.wall
	x.SetConnected(false)
	x.round()
	x.makeRuns(3, 5)
	back := x.wall
	for range 3 { // it comes and goes
		x.SetConnected(true)
		x.round()
		x.SetConnected(false)
		x.pass(time.Millisecond)
	}
	x.SetConnected(true)
	x.makeRuns(6, 6)
	p := x.readHistory()
	var without []int64
	for _, r := range p.Items {
		if r.WithoutContact {
			without = append(without, r.Run)
		}
	}
	if !slices.Equal(without, []int64{3, 4, 5}) || len(p.Gaps) != 1 || !p.Gaps[0].From.Equal(lost) || !p.Gaps[0].To.Equal(back) || p.Gaps[0].Count() != 3 {
		t.Errorf("runs %v without contact, gaps %+v, want one from %s to %s", without, p.Gaps, lost, back)
	}
	if lines := strings.Count(string(x.readHistoryLines()), "\n"); lines != 7 {
		t.Errorf("%d lines, want those of 6 runs and of the contact", lines)
	}
}

// silentProblems counts what would be logged.
type silentProblems struct{ n int }

func (p *silentProblems) Warn(string, error)        { p.n++ }
func (p *silentProblems) WarnDropped(string, error) {}

func TestRunHistory_OnAFullDisk_LeavesAGap(t *testing.T) {
	x := newRestartTest(t, restarting(30, time.Second))
	problems := &silentProblems{}
	x.problems = problems
	x.dispatch(1)
	x.makeRuns(1, 2)
	must(t, os.Rename(x.historyDir(), x.historyDir()+"-kept"))
	must(t, os.WriteFile(x.historyDir(), nil, 0o600)) // a file stands where the directory should be
	x.makeRuns(3, 15)
	must(t, os.Remove(x.historyDir()))
	must(t, os.Rename(x.historyDir()+"-kept", x.historyDir()))
	x.makeRuns(16, 16)
	x.requireHistory("after the disk works again", 1, 2, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
	gaps := x.readHistory().Gaps
	if len(gaps) != 1 || gaps[0].Reason != runlog.NotRecorded || gaps[0].FirstRun != 3 || gaps[0].LastRun != 6 || gaps[0].From == nil || gaps[0].To == nil {
		t.Errorf("gaps %+v, want runs 3 to 6 with their times", gaps)
	}
	if problems.n != 13 {
		t.Errorf("%d problems, want one of each run", problems.n)
	}
}

// appendFailedRuns adds the runs from first on to the history in dir.
func appendFailedRuns(t *testing.T, dir string, first, count int64) {
	t.Helper()
	at, h := time.Unix(1_000_000, 0).UTC(), runHistory{}
	for n := first; n < first+count; n++ {
		h.runs = append(h.runs, wire.Run{Run: n, StartedAt: &at, FinishedAt: &at, ExitCode: 1, Reason: wire.ReasonExited, NoContactSince: &at})
	}
	must(t, h.appendTo(dir))
}

func TestRunHistory_IsBounded(t *testing.T) {
	dir := t.TempDir()
	const last = 100_000
	for run := int64(1); run <= last; run += 1000 {
		appendFailedRuns(t, dir, run, 1000)
	}
	begin, end, err := segment.Reader{Dir: dir}.Bounds()
	must(t, err)
	kept, err := readLastRun(dir, end)
	must(t, err)
	if size := end - begin; begin == 0 || size > historySegment*historySegments || size < historySegment*(historySegments-1) || kept != last {
		t.Errorf("%d bytes from %d on, last run %d", size, begin, kept)
	}
	if perRun := end / last; (end-begin)/perRun < 15_000 {
		t.Errorf("records of %d runs are kept", (end-begin)/perRun)
	}
}

// After a new segment was started, the last records are in two of them.
func TestRunHistory_FindsTheLastRunInANewSegment(t *testing.T) {
	dir := t.TempDir()
	for run := int64(1); run <= 10_000; run += 5 {
		appendFailedRuns(t, dir, run, 5)
		_, end, err := segment.Reader{Dir: dir}.Bounds()
		must(t, err)
		if last, err := readLastRun(dir, end); err != nil || last != run+4 {
			t.Fatalf("the last run is %d, %v, want %d", last, err, run+4)
		}
	}
}

// A record that only the log has, and that the server gets before a power cut, would be in the place of another.
func TestRunHistory_SyncsWhatTheJournalHasNot(t *testing.T) {
	for name, test := range map[string]struct {
		h             runHistory
		last, written int64
		want          bool
	}{
		"runs of which the journal has the last ones":  {runHistory{}, 1, 4, false},
		"more runs than the journal has":               {runHistory{}, 4, 5, true},
		"the return of contact":                        {runHistory{contactAt: time.Unix(1, 0)}, 4, 4, true},
		"the end of the attempt, whose journal may go": {runHistory{ended: true}, 4, 4, true},
	} {
		if got := test.h.mustSync(test.last, test.written); got != test.want {
			t.Errorf("%s: synced %t, want %t", name, got, test.want)
		}
	}
}
