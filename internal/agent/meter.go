package agent

import (
	"context"
	"math"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/isolation"
	"k8s4r.io/k8s4r/internal/proc"
	"k8s4r.io/k8s4r/internal/wire"
)

const (
	// usePatience is how long a heartbeat waits for the runner to say what lives:
	// it is worth more than what it carries.
	usePatience = 100 * time.Millisecond
	// useRepeat is when use is said again that has not changed: what was said once
	// may be lost, with the server's memory for one.
	useRepeat = 10 * time.Minute
	// maxUses bounds what one heartbeat carries. The rest rides with the next.
	maxUses = 256
	// shortest is the least time over which a share of the processor says anything.
	shortest = 500 * time.Millisecond
)

// A change of use is worth a word when it is more than a fifth, and more than this.
const (
	leastCPU    = 2 // percent of a core
	leastMemory = 1 << 20
)

// meter reads what tasks use, and knows what of it the server was told.
type meter struct {
	host isolation.Host
	// drivers whose tasks are no processes of this machine tell of them.
	drivers driver.Set

	mu     sync.Mutex
	last   map[attemptKey]sample
	heard  map[driver.Attempt]reading // of drivers that tell
	asking bool                       // and their answer is awaited
}

// reading is what a task had used at some time.
type reading struct {
	at  time.Time
	use proc.Use
}

// sample is what a task had used at some time.
type sample struct {
	at  time.Time
	cpu time.Duration
	use wire.ResourceUse

	told   wire.ResourceUse
	toldAt time.Time // zero: not told
}

func newMeter(host isolation.Host, drivers driver.Set) *meter {
	return &meter{host: host, drivers: drivers, last: map[attemptKey]sample{}}
}

// use measures all tasks, and returns what the server is to be told.
func (a *Agent) use(ctx context.Context) []wire.TaskUse {
	ctx, cancel := context.WithTimeout(ctx, usePatience)
	defer cancel()
	tasks, err := a.ask(ctx)
	if err != nil {
		return nil // the next heartbeat tries again
	}
	return a.meter.measure(tasks, time.Now())
}

// measure samples all tasks, and forgets others.
func (m *meter) measure(tasks []LiveTask, now time.Time) []wire.TaskUse {
	processes := sync.OnceValue(proc.Now)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.askElsewhere(tasks)
	before := m.last
	m.last = make(map[attemptKey]sample, len(tasks))
	var news []wire.TaskUse
	for _, t := range tasks {
		key := attemptKey{t.UID, t.Attempt}
		s, known := before[key]
		if r, ok := m.read(t, processes, now); ok {
			s, known = s.next(r.use, t, r.at), true
		}
		if !known {
			continue
		}
		if s.news(now) && len(news) < maxUses {
			s.told, s.toldAt = s.use, now
			news = append(news, wire.TaskUse{UID: t.UID, Attempt: t.Attempt, ResourceUse: s.use})
		}
		m.last[key] = s
	}
	return news
}

// askElsewhere asks the drivers of tasks that are no processes of this machine, for the
// next time: an engine that takes long, or never answers, delays no heartbeat.
func (m *meter) askElsewhere(tasks []LiveTask) {
	names := map[string][]driver.Attempt{}
	for _, t := range tasks {
		if t.PID == 0 && t.State == TaskRunning {
			names[t.Driver] = append(names[t.Driver], t.name)
		}
	}
	if len(names) == 0 {
		m.heard = nil
	} else if !m.asking {
		m.asking = true
		go m.hear(names)
	}
}

func (m *meter) hear(names map[string][]driver.Attempt) {
	heard := map[driver.Attempt]reading{}
	for name, attempts := range names {
		for a, use := range m.drivers.Uses(name, attempts) {
			heard[a] = reading{time.Now(), use}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard, m.asking = heard, false
}

// read is what a task has used so far, by its driver, by its control group, or else by
// what its shim has started.
func (m *meter) read(t LiveTask, processes func() proc.Processes, now time.Time) (reading, bool) {
	if r, ok := m.heard[t.name]; ok {
		return r, true
	}
	if t.PID == 0 || t.shim == 0 {
		return reading{}, false
	}
	if group, err := m.host.Cgroup(t.cgroup); err == nil {
		if u, err := group.Usage(); err == nil && u.CPU > 0 {
			return reading{now, proc.Use{CPU: u.CPU, Memory: u.Memory}}, true
		}
	}
	return reading{now, processes().Below(t.shim)}, true
}

// next is the sample after this one.
func (s sample) next(u proc.Use, t LiveTask, now time.Time) sample {
	s.use.MemoryBytes = uint64(max(u.Memory, 0))
	since := s.at
	if since.IsZero() && t.Since != nil {
		since = *t.Since
	}
	if span := now.Sub(since); span >= shortest {
		s.use.CPUPercent = math.Round(1000*float64(max(u.CPU-s.cpu, 0))/float64(span)) / 10
		s.at, s.cpu = now, u.CPU
	}
	return s
}

// news tells whether the server is to be told.
func (s sample) news(now time.Time) bool {
	return !s.at.IsZero() && (now.Sub(s.toldAt) >= useRepeat ||
		differ(s.use.CPUPercent, s.told.CPUPercent, leastCPU) ||
		differ(float64(s.use.MemoryBytes), float64(s.told.MemoryBytes), leastMemory))
}

func differ(a, b, least float64) bool {
	d := math.Abs(a - b)
	return d > least && d > 0.2*max(a, b)
}

// fill says of tasks what was measured last.
func (m *meter) fill(tasks []LiveTask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, t := range tasks {
		if s, known := m.last[attemptKey{t.UID, t.Attempt}]; known {
			tasks[i].Use = &s.use
		}
	}
}
