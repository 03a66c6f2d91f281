package shim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// overIndexes runs the script for each of the indexes, with K8S4R_TASK_INDEX.
func overIndexes(indexes ...int32) func(*shim.Spec) {
	return func(s *shim.Spec) {
		s.Range = &shim.Range{Indexes: indexes}
		s.Env["K8S4R_TASK_INDEX"] = shim.IndexMark
	}
}

func upTo(n int32) (indexes []int32) {
	for i := range n {
		indexes = append(indexes, i)
	}
	return indexes
}

// ends returns how the indexes ended, as INDEX:CODE or INDEX:CODE:REASON.
func ends(s shim.State) (all []string) {
	for _, e := range s.Indexes.Ends {
		text := fmt.Sprintf("%d:%d", e.Index, e.Code)
		if e.Reason != "" {
			text += ":" + e.Reason
		}
		all = append(all, text)
	}
	return all
}

func (c testShim) requireEnds(s shim.State, want ...string) {
	c.t.Helper()
	if got := ends(s); !slices.Equal(got, want) {
		c.t.Errorf("indexes ended as %q, want %q", got, want)
	}
}

// log returns the records of the task's output, as INDEX STREAM TEXT.
func (c testShim) log() (all []string) {
	c.t.Helper()
	files, _ := filepath.Glob(filepath.Join(c.dir, "logs", "*"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		must(c.t, err)
		for line := range strings.Lines(string(b)) {
			r, err := record.Parse([]byte(line))
			must(c.t, err)
			index := "-"
			if r.Index != nil {
				index = fmt.Sprint(*r.Index)
			}
			all = append(all, fmt.Sprintf("%s %s %s", index, r.Stream, r.Text))
		}
	}
	return all
}

func (c testShim) request(r shim.ControlRequest) {
	c.t.Helper()
	must(c.t, r.Send(filepath.Join(c.dir, "shim")))
}

func TestRange_RunsEachIndexOnce(t *testing.T) {
	script := `echo "$K8S4R_TASK_INDEX has $K8S4R_TASK_ITEM as $1"; [ "$K8S4R_TASK_INDEX" != 20 ] || { echo failing >&2; exit 3; }`
	c := spawn(t, script, overIndexes(7, 20, 21), func(s *shim.Spec) {
		s.Range.Items = []string{"a b", "", "${c}"}
		s.Env["K8S4R_TASK_ITEM"] = shim.ItemMark
		s.Config.Exec.Args = append(s.Config.Exec.Args, "sh", "frame-"+shim.IndexMark+"-"+shim.ItemMark)
	})
	s := c.awaitExit()
	c.requireEnds(s, "7:0", "20:3", "21:0")
	if e := s.Exit; e == nil || e.Code != 0 || e.StopReason != "" || e.CPU == 0 || e.MemoryPeak == 0 {
		t.Errorf("exit = %+v, want code 0 and what was used", s.Exit)
	}
	want := []string{"7 stdout 7 has a b as frame-7-a b", "20 stdout 20 has  as frame-20-", "20 stderr failing", "21 stdout 21 has ${c} as frame-21-${c}"}
	got := c.log()
	slices.Sort(got[1:3]) // the order of streams that are written at once is not known
	slices.Sort(want[1:3])
	if !slices.Equal(got, want) {
		t.Errorf("log = %q, want %q", got, want)
	}
	if s.Started == nil || s.Indexes.Running != nil || s.Indexes.Ends[1].Duration <= 0 || s.Indexes.Ends[1].At.IsZero() {
		t.Errorf("state = %+v, want the start, and when the indexes ended", s)
	}
}

func TestRange_EndsIncompleteLines(t *testing.T) {
	c := spawn(t, `printf "no newline"; [ $K8S4R_TASK_INDEX = 1 ] || exit 0; printf " again" >&2`, overIndexes(0, 1))
	c.awaitExit()
	got := c.log()
	slices.Sort(got)
	if want := []string{"0 stdout no newline", "1 stderr  again", "1 stdout no newline"}; !slices.Equal(got, want) {
		t.Errorf("log = %q, want %q", got, want)
	}
}

func TestRange_KillsWhatAnIndexLeaves(t *testing.T) {
	const script = `[ ! -e pid ] || kill -0 $(cat pid) 2>/dev/null && [ -e pid ] && exit 9
		setsid sh -c 'trap "" TERM; echo $$ > pid; echo late; exec sleep 600' & while [ ! -s pid ]; do sleep 0.01; done`
	c := spawn(t, script, overIndexes(0, 1, 2))
	c.requireEnds(c.awaitExit(), "0:0", "1:0", "2:0")
}

func TestRange_StreamsOfAnIndexAreItsOwn(t *testing.T) {
	// The first index makes its output non-blocking, which others that shared it would inherit.
	const script = `import fcntl, os, sys
flags = fcntl.fcntl(1, fcntl.F_GETFL)
fcntl.fcntl(1, fcntl.F_SETFL, flags | os.O_NONBLOCK)
sys.exit(4 if flags & os.O_NONBLOCK else 0)`
	c := spawn(t, "", overIndexes(0, 1), func(s *shim.Spec) { s.Config.Exec = &wire.ExecConfig{Command: "python3", Args: []string{"-c", script}} })
	c.requireEnds(c.awaitExit(), "0:0", "1:0")
}

func TestRange_TimeoutIsForEachIndex(t *testing.T) {
	const timeout = 200 * time.Millisecond
	script := `case $K8S4R_TASK_INDEX in 1) trap '' TERM; while :; do sleep 600; done;; 2) trap 'exit 0' TERM; while :; do sleep 0.01; done;; *) sleep 0.12;; esac`
	c := spawn(t, script, overIndexes(0, 1, 2, 3), func(s *shim.Spec) { s.Timeout, s.KillTimeout = timeout, 50*time.Millisecond })
	s := c.awaitExit()
	c.requireEnds(s, "0:0", "1:137:Timeout", "2:143:Timeout", "3:0")
	if e := s.Exit; e == nil || e.Code != 0 || !e.Killed {
		t.Errorf("exit = %+v, want 0, and that SIGKILL was needed", e)
	}
	if took := s.Indexes.Ends[1].Duration; took < timeout {
		t.Errorf("index 1 took %v, less than its timeout", took)
	}
}

func TestRange_StopLeavesTheRunningIndexWithoutEnd(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		code   int
	}{
		"it is killed by SIGTERM":   {"exec sleep 600", 143},
		"it ends as if it was done": {"trap 'exit 0' TERM; touch asked; while :; do sleep 0.01; done", 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := spawn(t, `[ $K8S4R_TASK_INDEX = 5 ] || exit 0; touch ready; `+test.script, overIndexes(4, 5, 6))
			c.awaitReady()
			if test.code == 0 {
				c.awaitFile("asked")
			}
			c.request(shim.ControlRequest{Stop: wire.ReasonStopped, Grace: time.Minute})
			s := c.awaitExit()
			c.requireEnds(s, "4:0")
			if e := s.Exit; e == nil || e.StopReason != wire.ReasonStopped || s.Indexes.Running == nil || *s.Indexes.Running != 5 {
				t.Errorf("exit = %+v, state = %+v, want Stopped while 5 ran", e, s)
			}
		})
	}
}

func TestRange_StopWhileAnIndexTimesOutEndsTheRange(t *testing.T) {
	c := spawn(t, `trap 'touch asked' TERM; while [ ! -e go ]; do sleep 0.01; done`, overIndexes(0, 1), func(s *shim.Spec) { s.Timeout = 50 * time.Millisecond })
	c.awaitFile("asked")
	c.request(shim.ControlRequest{Stop: wire.ReasonSuperseded, Grace: time.Minute})
	must(t, os.WriteFile(filepath.Join(c.dir, "work", "go"), nil, 0o600))
	s := c.awaitExit()
	c.requireEnds(s, "0:143:Timeout")
	if e := s.Exit; e == nil || e.StopReason != wire.ReasonSuperseded {
		t.Errorf("exit = %+v, want Superseded", e)
	}
}

// Requests must be handled even if no index runs long enough to be waited for.
func TestRange_PauseOfShortIndexes(t *testing.T) {
	c := spawn(t, "", overIndexes(upTo(1000)...), func(s *shim.Spec) {
		s.Config.Exec = &wire.ExecConfig{Command: "sh", Args: []string{"-c", "[ -e ready ] || touch ready; sleep 0.01"}}
	})
	c.awaitReady()
	c.request(shim.ControlRequest{Pause: true})
	s := c.awaitExit()
	if n := len(s.Indexes.Ends); n == 0 || n >= 1000 || s.Indexes.Running != nil {
		t.Errorf("%d indexes ended, %v runs, want some of 1000", n, s.Indexes.Running)
	}
	if e := s.Exit; e == nil || e.StopReason != wire.ReasonPaused || e.Error != "" {
		t.Errorf("exit = %+v, want Paused", e)
	}
}

func TestRange_PauseLetsTheRunningIndexEnd(t *testing.T) {
	const script = `touch ready; while [ ! -e go ]; do sleep 0.01; done; exit 3`
	for name, test := range map[string]struct {
		indexes []int32
		reason  string
	}{
		"some are left": {[]int32{0, 1}, wire.ReasonPaused},
		"none is left":  {[]int32{0}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := spawn(t, script, overIndexes(test.indexes...))
			c.awaitReady()
			c.request(shim.ControlRequest{Pause: true})
			must(t, os.WriteFile(filepath.Join(c.dir, "work", "go"), nil, 0o600))
			s := c.awaitExit()
			c.requireEnds(s, "0:3")
			if e := s.Exit; e == nil || e.StopReason != test.reason {
				t.Errorf("exit = %+v, want reason %q", e, test.reason)
			}
		})
	}
}

func TestRange_StopOverridesPause(t *testing.T) {
	c := spawn(t, "touch ready; exec sleep 600", overIndexes(0, 1))
	c.awaitReady()
	c.request(shim.ControlRequest{Pause: true})
	c.request(shim.ControlRequest{Stop: wire.ReasonStopped, Grace: time.Minute})
	if e := c.awaitExit().Exit; e == nil || e.StopReason != wire.ReasonStopped {
		t.Errorf("exit = %+v, want Stopped", e)
	}
}

func TestRange_ShutdownOfTheRobotIsNoFault(t *testing.T) {
	c := spawn(t, "[ $K8S4R_TASK_INDEX = 1 ] || exit 0; echo $$ > pid; touch ready; exec sleep 600", waitLong, overIndexes(0, 1, 2))
	c.awaitReady()
	text, err := os.ReadFile(filepath.Join(c.dir, "work", "pid"))
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	c.send(syscall.SIGSTOP)
	c.endTask(pid, syscall.SIGTERM)
	c.send(syscall.SIGTERM)
	c.send(syscall.SIGCONT)
	s := c.awaitExit()
	c.requireEnds(s, "0:0")
	if e := s.Exit; e == nil || e.StopReason != wire.ReasonAgentStopped {
		t.Errorf("exit = %+v, want AgentStopped", e)
	}
}

func TestRange_SignalWithoutShutdownIsAFaultOfTheIndex(t *testing.T) {
	c := spawn(t, "[ $K8S4R_TASK_INDEX = 1 ] || exit 0; kill -TERM $$", overIndexes(0, 1, 2), func(s *shim.Spec) { s.ShutdownWait = time.Millisecond })
	c.requireEnds(c.awaitExit(), "0:0", "1:143", "2:0")
}

func TestRange_EndsAtSelfStopDeadline(t *testing.T) {
	c := spawn(t, "touch ready; sleep 0.01", overIndexes(upTo(1000)...), func(s *shim.Spec) {
		s.SelfStopAfter = 300 * time.Millisecond
		writeLastSeen(t, s.LastSeenDir, shim.SinceBoot())
	})
	s := c.awaitExit()
	if e := s.Exit; e == nil || e.StopReason != wire.ReasonSelfStopped || len(s.Indexes.Ends) >= 1000 {
		t.Errorf("exit = %+v after %d indexes, want SelfStopped", e, len(s.Indexes.Ends))
	}
}

// A command that cannot be started is no fault of an index, and the others would fail as well.
func TestRange_EndsIfTheCommandCannotStart(t *testing.T) {
	c := spawn(t, "", overIndexes(3, 4), func(s *shim.Spec) { s.Config.Exec = &wire.ExecConfig{Command: "no-such-thing"} })
	s := c.awaitExit()
	c.requireEnds(s)
	if e := s.Exit; e == nil || e.Code != -1 || !strings.Contains(e.Error, `index 3: command "no-such-thing" not found`) || !e.CommandNotFound {
		t.Errorf("exit = %+v, want the error of index 3", e)
	}
}

func TestRange_MergesOutputs(t *testing.T) {
	script := `[ ! -e out ] || exit 9; case $K8S4R_TASK_INDEX in 0) printf 'a=0\nb=0\n' > out;; 1) echo b=1 > out; exit 1;; 3) mkdir out;; esac`
	c := spawn(t, script, overIndexes(0, 1, 2, 3), func(s *shim.Spec) { s.OutputsFile, s.Outputs = filepath.Join(s.WorkDir, "out"), []string{"a", "b"} })
	s := c.awaitExit()
	c.requireEnds(s, "0:0", "1:1", "2:0", "3:0")
	if got := s.Exit.Outputs; len(got) != 2 || got["a"] != "0" || got["b"] != "1" {
		t.Errorf("outputs = %v, want those of each index, the later ones first", got)
	}
}

func TestRange_OutputsAreBoundedTogether(t *testing.T) {
	script := `{ printf "v$K8S4R_TASK_INDEX="; head -c 30000 /dev/zero | tr '\0' x; echo; } > out`
	c := spawn(t, script, overIndexes(0, 1, 2, 3), func(s *shim.Spec) {
		s.OutputsFile, s.Outputs = filepath.Join(s.WorkDir, "out"), []string{"v0", "v1", "v2", "v3"}
	})
	if got := c.awaitExit().Exit.Outputs; len(got) != 2 || len(got["v0"]) != 30_000 || len(got["v1"]) != 30_000 {
		t.Errorf("%d outputs, want the two that fit", len(got))
	}
}

// After a crash only the state file is left: an index has an end there, or it counts as not ended.
func TestRange_KilledShimLeavesTheEndsThatItRecorded(t *testing.T) {
	c := spawn(t, "[ $K8S4R_TASK_INDEX = 2 ] || exit $K8S4R_TASK_INDEX; touch ready; exec sleep 600", overIndexes(0, 1, 2, 3))
	c.awaitReady()
	must(t, syscall.Kill(c.pid, syscall.SIGKILL))
	s := c.awaitExit()
	c.requireEnds(s, "0:0", "1:1")
	if s.Exit != nil || !s.MayHaveStarted || s.Indexes.Running == nil || *s.Indexes.Running != 2 {
		t.Errorf("state = %+v, want no exit, and that 2 ran", s)
	}
}

func TestRange_StateOfAThousandIndexesIsSmall(t *testing.T) {
	c := spawn(t, "", overIndexes(upTo(1000)...), func(s *shim.Spec) {
		s.Config.Exec = &wire.ExecConfig{Command: "/bin/false"}
		s.Env = map[string]string{"PATH": driver.DefaultPath}
	})
	s := c.awaitExit()
	if n := len(s.Indexes.Ends); n != 1000 {
		t.Errorf("%d indexes ended, want 1000", n)
	}
	info, err := os.Stat(filepath.Join(c.dir, "shim", "state"))
	must(t, err)
	if info.Size() > 48<<10 {
		t.Errorf("the state of 1000 indexes takes %d bytes, want at most 48 KiB", info.Size())
	}
}
