package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

// runTrace is a directory in which the runs of the tasks of one robot record themselves, and the
// scenario when the robot is disconnected. Only the order of the lines counts, not their times.
type runTrace struct {
	t   testing.TB
	dir string
	// number is the script that sets the number of a run.
	number string
}

// newRunTrace returns the trace of runs that count themselves in the directory of the task, which all runs of
// an attempt share.
func newRunTrace(t testing.TB) *runTrace {
	return &runTrace{t, t.TempDir(), "runs=$(cat runs 2>/dev/null); runs=$((runs + 1)); echo $runs > runs"}
}

// newNumberedTrace returns the trace of runs that have the numbers of the agent. One may be missing: of a run that
// was about to start when the power was cut.
func newNumberedTrace(t testing.TB) *runTrace { return &runTrace{t, t.TempDir(), "runs=$K8S4R_RUN"} }

func (l *runTrace) path() string { return filepath.Join(l.dir, "trace") }

// runScript is what each run does before its work. All processes of a task share the lock, those that it
// leaves in other sessions, too.
const runScript = `
%[2]s
run="$K8S4R_TASK_UID $K8S4R_ATTEMPT $runs"
exec 9>>%[1]s/lock-$K8S4R_TASK_UID
flock -n 9 || echo "overlap $run" >> %[1]s/trace
echo "start $run $$ $PPID" >> %[1]s/trace
leave() { echo "end $run $1 0" >> %[1]s/trace; exit $1; }
crash() { echo "end $run 137 9" >> %[1]s/trace; kill -9 $$; }
allowed() { [ -e %[1]s/$1 ]; }
await() { until allowed $1; do sleep 0.05; done; }
%[3]s`

// wrapScript returns the script of a task whose runs record themselves and then do this work. The work
// ends its run with leave CODE or crash, waits for an event with await EVENT, and looks for one with
// allowed EVENT. The number of its run is $runs.
func (l *runTrace) wrapScript(work string) string {
	return fmt.Sprintf(runScript, l.dir, l.number, work)
}

// allow causes an event that runs wait for.
func (l *runTrace) allow(event string) {
	if err := os.WriteFile(filepath.Join(l.dir, event), nil, 0o600); err != nil {
		l.t.Error(err)
	}
}

// addLine adds a line to those of the runs.
func (l *runTrace) addLine(format string, args ...any) {
	f, err := os.OpenFile(l.path(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		l.t.Error(err)
		return
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, format+"\n", args...); err != nil {
		l.t.Error(err)
	}
}

// awaitLine blocks until a line was added, but no longer than a run usually takes.
func (l *runTrace) awaitLine() {
	const maxRunTime = 2 * time.Second
	before := l.size()
	for until := time.Now().Add(maxRunTime); l.size() == before && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
}

func (l *runTrace) size() int64 {
	info, err := os.Stat(l.path())
	if err != nil {
		return 0 // nothing has run yet
	}
	return info.Size()
}

// recordedRun is one run of a task as the run has recorded it.
type recordedRun struct {
	attempt   int32
	number    int64
	pid, shim int
	isOffline bool // it started while the robot was disconnected
	hasEnded  bool // it has recorded how it ends
	code      int32
	signal    int32
}

// recordedRuns are all runs, by the task's UID, in the order of their starts.
type recordedRuns struct {
	byTask map[string][]*recordedRun
	// overlaps are the runs that started while a process of the task was running.
	overlaps []string
}

// readRuns returns the runs that have recorded themselves so far.
func (l *runTrace) readRuns() recordedRuns {
	content, _ := os.ReadFile(l.path())                    // there is none until something has run
	text := content[:bytes.LastIndexByte(content, '\n')+1] // a line may be written now
	all, isOffline := recordedRuns{byTask: map[string][]*recordedRun{}}, false
	for _, line := range testkit.SplitLines(string(text)) {
		var what, uid string
		r := recordedRun{isOffline: isOffline}
		var first, second int32
		n, _ := fmt.Sscan(line, &what, &uid, &r.attempt, &r.number, &first, &second)
		switch {
		case line == lineDisconnected, line == lineReconnected:
			isOffline = line == lineDisconnected
		case what == "start" && n == 6:
			r.pid, r.shim = int(first), int(second)
			all.byTask[uid] = append(all.byTask[uid], &r)
		case what == "end" && n == 6:
			all.recordEnd(uid, r, first, second)
		case what == "overlap" && n == 4:
			all.overlaps = append(all.overlaps, line)
		default:
			l.t.Errorf("line %q is none of a run", line)
		}
	}
	return all
}

// The lines of the scenario. The first is added after the robot was disconnected, the second before it
// is reconnected.
const (
	lineDisconnected = "disconnected"
	lineReconnected  = "reconnected"
)

func (a recordedRuns) recordEnd(uid string, of recordedRun, code, signal int32) {
	for _, r := range a.byTask[uid] {
		if r.attempt == of.attempt && r.number == of.number {
			r.hasEnded, r.code, r.signal = true, code, signal
		}
	}
}

// count returns the number of runs, and of those that started while the robot was disconnected.
func (a recordedRuns) count() (all, offline int) {
	for _, runs := range a.byTask {
		for _, r := range runs {
			all++
			if r.isOffline {
				offline++
			}
		}
	}
	return all, offline
}
