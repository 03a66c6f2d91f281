// Package memory keeps the memory of this process small. A start makes more garbage than the process
// then lives on, so the collector runs often until Settle. Run bounds the memory under load, and gives
// it back to the machine when little happens.
package memory

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// startPercent is GOGC during a start. What the start leaves is spread over the largest heap that
	// it had, and Go cannot move it together later.
	startPercent = 50
	// settledPercent is GOGC after it, the default of Go.
	settledPercent = 100
	// limitInterval is the time between two adjustments of the limit.
	limitInterval = 10 * time.Second
	// idleInterval is the time after which an idle process gives back its memory.
	idleInterval = 3 * time.Minute
	// idleCycles is the largest number of collections of an idle process in idleInterval: Go collects
	// every two minutes anyway.
	idleCycles = 3
)

// BeginStart makes the collector run more often, unless GOGC is set.
func BeginStart() { setPercent(startPercent) }

// Settle ends what BeginStart did, and gives back what only the start needed.
func Settle() {
	setPercent(settledPercent)
	giveBack()
}

func setPercent(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// giveBack returns free memory to the machine, and the pages of the program, which are read again when
// they are needed.
func giveBack() {
	debug.FreeOSMemory()
	_ = releaseProgram() // the kernel can drop these pages by itself
}

// Run bounds the memory until ctx ends, unless GOMEMLIMIT is set, and gives it back when the process is
// idle.
func Run(ctx context.Context) error {
	limits, idle := time.NewTicker(limitInterval), time.NewTicker(idleInterval)
	defer limits.Stop()
	defer idle.Stop()
	machine := machineMemory()
	watcher := idleWatcher{cycles: readStats().cycles}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-limits.C:
			if os.Getenv("GOMEMLIMIT") == "" {
				debug.SetMemoryLimit(softLimit(machine, readStats()))
			}
		case <-idle.C:
			if watcher.isIdle(readStats().cycles) {
				giveBack()
				watcher.cycles = readStats().cycles
			}
		}
	}
}

// idleWatcher finds out when a process has become idle.
type idleWatcher struct {
	cycles  uint64 // collections until the last call
	wasIdle bool   // then
}

// isIdle reports whether the process has become idle since the last call. cycles is the number of
// collections since the process began.
func (w *idleWatcher) isIdle(cycles uint64) bool {
	idle := cycles-w.cycles <= idleCycles
	became := idle && !w.wasIdle
	w.cycles, w.wasIdle = cycles, idle
	return became
}

// stats are figures of Go's runtime, in bytes.
type stats struct {
	live     uint64 // objects that the last collection kept
	overhead uint64 // memory in use that is not of objects: stacks, metadata, gaps between objects
	cycles   uint64 // collections
}

// softLimit returns the limit of the memory of this process: a quarter of the machine, but at least
// twice what lives. With less the process would mainly collect. If the memory of the machine is zero,
// it is not known, and there is no limit.
func softLimit(machine uint64, s stats) int64 {
	if machine == 0 {
		return math.MaxInt64
	}
	return int64(min(max(machine/4, 2*s.live+s.overhead), math.MaxInt64))
}

func readStats() stats {
	names := []string{
		"/gc/heap/live:bytes", "/gc/cycles/total:gc-cycles", "/memory/classes/total:bytes",
		"/memory/classes/heap/objects:bytes", "/memory/classes/heap/free:bytes", "/memory/classes/heap/released:bytes",
	}
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	return stats{live: value(0), cycles: value(1), overhead: value(2) - value(3) - value(4) - value(5)}
}
