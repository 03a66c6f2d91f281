package runner

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

func TestSample_NeedsReportAfterLargeChange(t *testing.T) {
	start := time.Now()
	unchanged := sample{
		at: start, reportedAt: start, reported: wire.ResourceUsage{CPUPercent: 50, MemoryBytes: 100 << 20}, usage: wire.ResourceUsage{CPUPercent: 50, MemoryBytes: 100 << 20},
	}
	change := func(f func(*sample)) sample { s := unchanged; f(&s); return s }
	tests := []struct {
		name  string
		s     sample
		after time.Duration
		want  bool
	}{
		{"nothing measured", sample{}, time.Hour, false},
		{"measured for the first time", sample{at: start}, 0, true},
		{"the same", unchanged, time.Minute, false},
		{"the same for long", unchanged, usageRepeat, true},
		{"a fifth less of the processor", change(func(s *sample) { s.usage.CPUPercent = 40 }), 0, false},
		{"more than that", change(func(s *sample) { s.usage.CPUPercent = 39.9 }), 0, true},
		{"a quarter more memory", change(func(s *sample) { s.usage.MemoryBytes = 126 << 20 }), 0, true},
		{"a small absolute change of an idle task", change(func(s *sample) { s.reported.CPUPercent, s.usage.CPUPercent = 0.1, 2 }), 0, false},
		{"a page more of a small task", change(func(s *sample) { s.reported.MemoryBytes, s.usage.MemoryBytes = 4096, 8192 }), 0, false},
	}
	for _, test := range tests {
		if got := test.s.needsReport(start.Add(test.after)); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestSample_CPUPercentBetweenReadings(t *testing.T) {
	start := time.Now()
	task := LiveTask{Since: &start}
	s := sample{}.nextSample(proc.Use{CPU: time.Second / 10}, task, start.Add(minSampleSpan/2))
	if !s.at.IsZero() {
		t.Errorf("a moment after the start: %+v, want no sample yet", s)
	}
	s = s.nextSample(proc.Use{CPU: time.Second, Memory: 7}, task, start.Add(2*time.Second))
	if s.usage.CPUPercent != 50 || s.usage.MemoryBytes != 7 {
		t.Errorf("%+v, want half a core since the start", s.usage)
	}
	if s = s.nextSample(proc.Use{CPU: 6 * time.Second}, task, start.Add(4*time.Second)); s.usage.CPUPercent != 250 {
		t.Errorf("%+v, want two and a half cores since the last sample", s.usage)
	}
}

func TestUsageMeter_LimitsEntriesPerHeartbeat(t *testing.T) {
	m, now := newUsageMeter(isolation.Host{}, nil), time.Now()
	since := now.Add(-time.Minute)
	var tasks []LiveTask
	for i := range int32(maxUsageEntries + 10) {
		tasks = append(tasks, LiveTask{UID: "t", Attempt: i, PID: 1 << 30, shimPID: 1 << 30, Since: &since})
	}
	if n := len(m.measureTasks(tasks, now)); n != maxUsageEntries {
		t.Errorf("the first carries %d, want %d", n, maxUsageEntries)
	}
	if n := len(m.measureTasks(tasks, now.Add(time.Second))); n != 10 {
		t.Errorf("the next carries %d, want the other 10", n)
	}
	m.measureTasks(nil, now)
	if len(m.last) > 0 {
		t.Error("it remembers tasks that have ended")
	}
}

// slowDriver is a driver that measures its tasks itself, and slowly.
type slowDriver struct {
	driver.Exec
	takes time.Duration
	uses  map[driver.Attempt]proc.Use
}

func (m slowDriver) MeasureUse([]driver.Attempt) map[driver.Attempt]proc.Use {
	time.Sleep(m.takes)
	return maps.Clone(m.uses)
}

func TestUsageMeter_QueriesDriversWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, since := driver.Attempt{UID: "t1", Number: 1, Robot: robot}, time.Now()
		uses := map[driver.Attempt]proc.Use{known: {CPU: time.Second, Memory: 5 << 20}}
		m := newUsageMeter(isolation.Host{}, driver.Set{"elsewhere": slowDriver{takes: 2 * time.Second, uses: uses}})
		tasks := []LiveTask{
			{UID: "t1", Attempt: 1, Driver: "elsewhere", State: TaskRunning, Since: &since, shimPID: 1, driverAttempt: known},
			{UID: "t2", Attempt: 1, Driver: "elsewhere", State: TaskRunning, Since: &since, shimPID: 1, driverAttempt: driver.Attempt{UID: "t2", Number: 1, Robot: robot}},
			{UID: "t3", Attempt: 1, Driver: "elsewhere", State: TaskStarting, shimPID: 1},
		}
		// next returns what the next heartbeat sends, and checks that it did not wait.
		next := func() []wire.TaskUsage {
			began := time.Now()
			sent := m.measureTasks(tasks, began)
			if took := time.Since(began); took > 0 {
				t.Errorf("a heartbeat waited for %v", took)
			}
			return sent
		}
		answer := func() { time.Sleep(2 * time.Second); synctest.Wait() }

		if sent := next(); len(sent) > 0 {
			t.Errorf("sent %+v before the driver replied", sent)
		}
		if sent := next(); len(sent) > 0 {
			t.Errorf("sent %+v before the driver replied, and queried twice", sent)
		}
		answer()
		want := wire.TaskUsage{UID: "t1", Attempt: 1, ResourceUsage: wire.ResourceUsage{CPUPercent: 50, MemoryBytes: 5 << 20}}
		if sent := next(); len(sent) != 1 || sent[0] != want {
			t.Errorf("sent %+v, want %+v alone", sent, want)
		}
		uses[known] = proc.Use{CPU: 4 * time.Second, Memory: 5 << 20}
		answer()
		if sent := next(); len(sent) != 1 || sent[0].CPUPercent != 150 {
			t.Errorf("then sent %+v, want one and a half cores", sent)
		}
		answer()
	})
}
