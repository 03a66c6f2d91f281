package main

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// cutEverywhere as the number of drawn offsets selects all offsets.
const cutEverywhere = 0

// concurrentAgents is how many agents run at the same time.
const concurrentAgents = 2

// journalCuts truncates the journal of a killed agent at each offset, or at so many drawn ones and
// around all ends of lines, and starts an agent on the rest. The agent must start, run nothing
// again, and report each end or that it does not know it.
func journalCuts(t testing.TB, seed uint64, drawn int) figures {
	run := runAndKillAgent(t, seed)
	restarts := newRestarts(t, run)
	offsets := cutOffsets(run.journal, seed, drawn)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range concurrentAgents {
		r := realrobot.NewJoined(t, restarts.broker)
		wg.Go(func() {
			for i := next.Add(1); int(i) <= len(offsets) && !t.Failed(); i = next.Add(1) {
				cut := offsets[i-1]
				restarts.startAgent(r, diskState{description: cutAt(cut), journal: run.journal[:cut], states: run.states, started: true})
			}
		})
	}
	wg.Wait()
	f := restarts.checkFigures(map[string]any{"offsets": len(offsets), "journal_bytes": len(run.journal)})
	f.Kills = len(offsets)
	return f
}

// cutOffsets returns the offsets at which a file of lines is truncated, sorted.
func cutOffsets(lines []byte, seed uint64, drawn int) []int {
	chosen := map[int]bool{0: true}
	for i, b := range lines {
		if drawn == cutEverywhere || b == '\n' {
			chosen[i], chosen[i+1] = true, true
		}
	}
	r := rand.New(rand.NewPCG(seed, 0xc07))
	for range drawn {
		chosen[r.IntN(len(lines))] = true
	}
	return slices.Sorted(maps.Keys(chosen))
}
