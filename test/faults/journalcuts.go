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

// everyOffset cuts at all of them.
const everyOffset = 0

// sideBySide is how many agents are started at a time.
const sideBySide = 2

// journalCuts ends the journal of a robot that was killed at each offset, or at so
// many drawn ones and around all ends of lines, and starts an agent on what is
// left. It must start, run nothing again, and know each end or say that it does
// not.
func journalCuts(t testing.TB, seed uint64, drawn int) figures {
	life := runAndKillAgent(t, seed)
	heirs := newRestarts(t, life)
	offsets := cutOffsets(life.journal, seed, drawn)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range sideBySide {
		r := realrobot.New(t, heirs.broker)
		wg.Go(func() {
			for i := next.Add(1); int(i) <= len(offsets) && !t.Failed(); i = next.Add(1) {
				cut := offsets[i-1]
				heirs.startAgent(r, diskState{what: cutAt(cut), journal: life.journal[:cut], states: life.states, started: true})
			}
		})
	}
	wg.Wait()
	f := heirs.checkFigures(map[string]any{"offsets": len(offsets), "journal_bytes": len(life.journal)})
	f.Kills = len(offsets)
	return f
}

// cutOffsets are the offsets to cut what is written in lines at.
func cutOffsets(lines []byte, seed uint64, drawn int) []int {
	chosen := map[int]bool{0: true}
	for i, b := range lines {
		if drawn == everyOffset || b == '\n' {
			chosen[i], chosen[i+1] = true, true
		}
	}
	r := rand.New(rand.NewPCG(seed, 0xc07))
	for range drawn {
		chosen[r.IntN(len(lines))] = true
	}
	return slices.Sorted(maps.Keys(chosen))
}
