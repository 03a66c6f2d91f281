package runner

import (
	"math"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

const (
	// usageTimeout is how long a heartbeat waits for the runner's tasks. The heartbeat is
	// more important than the usage that it carries.
	usageTimeout = 100 * time.Millisecond
	// usageRepeat is when unchanged usage is sent again: a restarted server has forgotten it.
	usageRepeat = 10 * time.Minute
	// maxUsageEntries bounds what one heartbeat carries. The next one carries the rest.
	maxUsageEntries = 256
	// minSampleSpan is the shortest time over which CPU usage is computed.
	minSampleSpan = 500 * time.Millisecond
)

// A change of usage is sent if it is more than a fifth, and more than this.
const (
	minCPUChange    = 2 // percent of a core
	minMemoryChange = 1 << 20
)

// usageMeter measures what tasks use, and remembers what was sent to the server.
type usageMeter struct {
	host isolation.Host
	// drivers measure tasks that are not processes of this machine.
	drivers driver.Set

	mu             sync.Mutex
	last           map[attemptKey]sample
	driverReadings map[driver.Attempt]reading // of tasks that drivers measure
	isQuerying     bool                       // queryDriversLocked has not finished
}

// reading is what a task had used in total at some time.
type reading struct {
	at    time.Time
	usage proc.Use
}

// sample is the usage of a task between two readings.
type sample struct {
	at    time.Time
	cpu   time.Duration
	usage wire.ResourceUsage

	reported   wire.ResourceUsage
	reportedAt time.Time // zero: not sent
}

func newUsageMeter(host isolation.Host, drivers driver.Set) *usageMeter {
	return &usageMeter{host: host, drivers: drivers, last: map[attemptKey]sample{}}
}

// measureTasks samples all tasks, forgets others, and returns the usage to send.
func (m *usageMeter) measureTasks(tasks []LiveTask, now time.Time) []wire.TaskUsage {
	processes := sync.OnceValue(proc.ReadProcesses)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queryDriversLocked(tasks)
	before := m.last
	m.last = make(map[attemptKey]sample, len(tasks))
	var changed []wire.TaskUsage
	for _, t := range tasks {
		if t.State == TaskRestarting {
			continue
		}
		key := attemptKey{t.UID, t.Attempt}
		s, known := before[key]
		if r, ok := m.readUsageLocked(t, processes, now); ok {
			s, known = s.nextSample(r.usage, t, r.at), true
		}
		if !known {
			continue
		}
		if s.needsReport(now) && len(changed) < maxUsageEntries {
			s.reported, s.reportedAt = s.usage, now
			changed = append(changed, wire.TaskUsage{UID: t.UID, Attempt: t.Attempt, ResourceUsage: s.usage})
		}
		m.last[key] = s
	}
	return changed
}

// queryDriversLocked starts a query of the drivers whose tasks are not processes of this
// machine. Its result serves the next call: a slow engine must not delay a heartbeat.
func (m *usageMeter) queryDriversLocked(tasks []LiveTask) {
	names := map[string][]driver.Attempt{}
	for _, t := range tasks {
		if t.PID == 0 && t.State == TaskRunning {
			names[t.Driver] = append(names[t.Driver], t.driverAttempt)
		}
	}
	if len(names) == 0 {
		m.driverReadings = nil
	} else if !m.isQuerying {
		m.isQuerying = true
		go m.collectDriverUsage(names)
	}
}

func (m *usageMeter) collectDriverUsage(names map[string][]driver.Attempt) {
	readings := map[driver.Attempt]reading{}
	for name, attempts := range names {
		for a, use := range m.drivers.MeasureUse(name, attempts) {
			readings[a] = reading{time.Now(), use}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.driverReadings, m.isQuerying = readings, false
}

// readUsageLocked returns what a task has used so far: as its driver measured, by its
// control group, or by the descendants of its shim.
func (m *usageMeter) readUsageLocked(t LiveTask, processes func() proc.Processes, now time.Time) (reading, bool) {
	if r, ok := m.driverReadings[t.driverAttempt]; ok {
		return r, true
	}
	if t.PID == 0 || t.shimPID == 0 {
		return reading{}, false
	}
	if group, err := m.host.Cgroup(t.cgroupName); err == nil {
		if u, err := group.Usage(); err == nil && u.CPU > 0 {
			return reading{now, proc.Use{CPU: u.CPU, Memory: u.Memory}}, true
		}
	}
	return reading{now, processes().UseBelow(t.shimPID)}, true
}

// nextSample returns the sample from s to now.
func (s sample) nextSample(u proc.Use, t LiveTask, now time.Time) sample {
	s.usage.MemoryBytes = uint64(max(u.Memory, 0))
	since := s.at
	if since.IsZero() && t.Since != nil {
		since = *t.Since
	}
	if span := now.Sub(since); span >= minSampleSpan {
		s.usage.CPUPercent = math.Round(1000*float64(max(u.CPU-s.cpu, 0))/float64(span)) / 10
		s.at, s.cpu = now, u.CPU
	}
	return s
}

// needsReport reports whether the sample must be sent to the server.
func (s sample) needsReport(now time.Time) bool {
	return !s.at.IsZero() && (now.Sub(s.reportedAt) >= usageRepeat ||
		hasChanged(s.usage.CPUPercent, s.reported.CPUPercent, minCPUChange) ||
		hasChanged(float64(s.usage.MemoryBytes), float64(s.reported.MemoryBytes), minMemoryChange))
}

func hasChanged(a, b, least float64) bool {
	d := math.Abs(a - b)
	return d > least && d > 0.2*max(a, b)
}

// fillUsage sets the usage of tasks to what was measured last.
func (m *usageMeter) fillUsage(tasks []LiveTask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, t := range tasks {
		if s, known := m.last[attemptKey{t.UID, t.Attempt}]; known {
			tasks[i].Usage = &s.usage
		}
	}
}
