package main

import (
	"fmt"
	"time"
)

// The limits of the agent's resident memory.
const (
	maxIdleMB  = 15.8
	maxFloodMB = 67
)

// measureIdle returns the resident memory of the agent while no task runs. The agent returns
// memory to the kernel in steps after its start, so it waits for that.
func (b *agentBench) measureIdle() (mb float64) {
	for until := time.Now().Add(settle); ; time.Sleep(100 * time.Millisecond) {
		if mb = rssMB(b.t, b.robot.PID()); mb <= maxIdleMB {
			return mb
		}
		if time.Now().After(until) {
			b.t.Errorf("the idle agent has %.1f MB resident, want at most %.1f", mb, maxIdleMB)
			return mb
		}
	}
}

// flood is the cost of a task that writes to its log as fast as possible.
type flood struct {
	MBPerS float64 `json:"flood_mb_per_s"`
	RSSMB  float64 `json:"rss_mb_flood"`
	// SlowestTaskMs is the longest time from the dispatch of another task to its end.
	SlowestTaskMs float64 `json:"flood_slowest_task_ms"`
}

// measureFlood runs a task that writes this number of bytes to its log, and others at the same time.
func (b *agentBench) measureFlood(bytes int64) (f flood) {
	began := time.Now()
	uid := b.dispatch("raw_exec", "/bin/sh", "-c", fmt.Sprintf("yes 'the arm is at 12.5 degrees and moves on' | head -c %d", bytes))
	for !b.hasEnded(uid) {
		requestedAt := time.Now()
		other := b.dispatch("raw_exec", "/bin/true")
		b.await("the end of a task beside a flood", func() bool { return b.ended[other] })
		f.SlowestTaskMs = max(f.SlowestTaskMs, float64(time.Since(requestedAt).Microseconds())/1000)
		f.RSSMB = max(f.RSSMB, rssMB(b.t, b.robot.PID()))
	}
	f.MBPerS = float64(bytes) / 1e6 / time.Since(began).Seconds()
	if f.RSSMB > maxFloodMB {
		b.t.Errorf("the agent has %.1f MB resident beside a flood, want at most %d", f.RSSMB, maxFloodMB)
	}
	return f
}

// hasEnded reports whether a task has ended.
func (b *agentBench) hasEnded(uid string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended[uid]
}
