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
	"sync/atomic"
	"time"
)

// Values of GOGC: how much garbage there may be before the collector runs, in percent of what lives.
const (
	// mostPercent is half of Go's default. Garbage is spread between what lives, Go cannot move that
	// together later, and so a process stays about as large as its largest heap.
	mostPercent = 50
	// leastPercent holds while there is little garbage: with less, each collection would gain little.
	leastPercent = 25
)

const (
	// adjustInterval is the time between two adjustments of limit and GOGC.
	adjustInterval = 10 * time.Second
	// idleBytes is the most that an idle process allocates in adjustInterval.
	idleBytes = 50 << 20
	// idleTicks is the number of such intervals after which a process is idle. After as many again it
	// gives back its memory again.
	idleTicks = 18
)

// isSettled is set after Settle.
var isSettled atomic.Bool

// BeginStart makes the collector run more often, unless GOGC is set.
func BeginStart() { setPercent(mostPercent) }

// Settle ends what BeginStart did, and gives back what only the start needed. From then on Run sets how
// often the collector runs.
func Settle() {
	giveBack()
	isSettled.Store(true)
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

// Run bounds the memory until ctx ends, and gives it back when the process is idle. It leaves alone what
// GOMEMLIMIT and GOGC set.
func Run(ctx context.Context) error {
	tick := time.NewTicker(adjustInterval)
	defer tick.Stop()
	machine, idle := machineMemory(), idleWatcher{allocated: readStats().allocated}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s := readStats()
		if os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(softLimit(machine, s))
		}
		recent := idle.recordTick(s.allocated)
		if isSettled.Load() {
			setPercent(percentFor(s.live, recent))
		}
		if idle.mustGiveBack() {
			giveBack()
		}
	}
}

// idleWatcher finds out when a process is idle.
type idleWatcher struct {
	allocated uint64 // bytes, since the process began, until the last tick
	quiet     int    // ticks since the process was busy
}

// recordTick records how many bytes the process has allocated since it began, and returns how many of
// them since the last tick.
func (w *idleWatcher) recordTick(allocated uint64) (recent uint64) {
	recent, w.allocated = allocated-w.allocated, allocated
	w.quiet++
	if recent > idleBytes {
		w.quiet = 0
	}
	return recent
}

// mustGiveBack reports whether the process has become idle, or is idle for as long again.
func (w *idleWatcher) mustGiveBack() bool { return w.quiet > 0 && w.quiet%idleTicks == 0 }

// percentFor returns GOGC for a process in which so many bytes live, and that allocates so many in
// adjustInterval. It lets the collector run about once in that time.
func percentFor(live, recent uint64) int {
	return int(min(max(100*recent/max(live, 1), leastPercent), mostPercent))
}

// stats are figures of Go's runtime, in bytes.
type stats struct {
	live      uint64 // objects that the last collection kept
	overhead  uint64 // memory in use that is not of objects: stacks, metadata, gaps between objects
	allocated uint64 // objects since the process began
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
		"/gc/heap/live:bytes", "/gc/heap/allocs:bytes", "/memory/classes/total:bytes",
		"/memory/classes/heap/objects:bytes", "/memory/classes/heap/free:bytes", "/memory/classes/heap/released:bytes",
	}
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	return stats{live: value(0), allocated: value(1), overhead: value(2) - value(3) - value(4) - value(5)}
}
