package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// footprint is the memory, goroutines and threads of an agent and its shims.
type footprint struct {
	RSSIdleMB    float64 `json:"rss_mb_idle"`
	RSSRunningMB float64 `json:"rss_mb_1000_tasks"`
	Goroutines   int     `json:"goroutines_1000_tasks"`
	Threads      int     `json:"threads_1000_tasks"`
	ShimRSSMB    float64 `json:"shim_rss_mb"`
	ShimPSSMB    float64 `json:"shim_pss_mb"`
}

// settle is the time that the agent gets to return memory after many starts.
const settle = 5 * time.Second

// measureFootprint measures with n tasks running. It ends the agent.
func (b *agentBench) measureFootprint(n int) (f footprint) {
	b.startTasks(n)
	time.Sleep(settle)
	pid := b.robot.PID()
	f.RSSRunningMB = rssMB(b.t, pid)
	f.Threads = int(statusField(b.t, pid, "Threads"))
	shims := slices.DeleteFunc(childrenOf(pid), isWarmShim)
	if len(shims) != n {
		b.t.Errorf("%d shims run, want %d", len(shims), n)
	}
	for _, shim := range shims {
		f.ShimRSSMB += rssMB(b.t, shim) / float64(n)
		f.ShimPSSMB += pssMB(b.t, shim) / float64(n)
	}
	f.Goroutines = b.countGoroutines()
	return f
}

var goroutine = regexp.MustCompile(`(?m)^goroutine [1-9]\d* `)

// countGoroutines counts the goroutines that the agent prints after SIGQUIT, which ends it.
func (b *agentBench) countGoroutines() int {
	b.robot.StopWithSignal(syscall.SIGQUIT)
	return len(goroutine.FindAll(b.robot.ReadLog(), -1))
}

func rssMB(t testing.TB, pid int) float64 { return statusField(t, pid, "VmRSS") / 1000 }

// statusField returns a number in /proc/PID/status; those with a unit are in kB.
func statusField(t testing.TB, pid int, name string) float64 {
	t.Helper()
	return readField(t, filepath.Join("/proc", strconv.Itoa(pid), "status"), name)
}

// cpuTime is the CPU time of a process and of the children that it has waited for.
type cpuTime struct{ ownMs, childrenMs float64 }

func cpuTimes(t testing.TB, pid int) (used cpuTime) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	// Four times in hundredths of a second, from the 12th field after the name.
	var ms [4]float64
	for i, field := range strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))[11:15] {
		ticks, _ := strconv.ParseFloat(field, 64)
		ms[i] = 10 * ticks
	}
	return cpuTime{ownMs: ms[0] + ms[1], childrenMs: ms[2] + ms[3]}
}

// pssMB returns the proportional resident memory of a process.
func pssMB(t testing.TB, pid int) float64 {
	t.Helper()
	return readField(t, filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"), "Pss") / 1000
}

func readField(t testing.TB, path, name string) float64 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			var n float64
			if _, err := fmt.Sscan(rest, &n); err == nil {
				return n
			}
		}
	}
	t.Fatalf("no %s in %s", name, path)
	return 0
}

// isWarmShim reports whether a process is a warm shim: its command line has room for the name of a
// task, but none in it.
func isWarmShim(pid int) bool {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return bytes.HasSuffix(line, []byte("  \x00"))
}

// childrenOf returns the child processes of a process.
func childrenOf(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}
