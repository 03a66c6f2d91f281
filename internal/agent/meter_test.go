package agent

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/isolation"
	"k8s4r.io/k8s4r/internal/proc"
	"k8s4r.io/k8s4r/internal/wire"
)

func TestUseIsSaidWhenItHasChangedMuch(t *testing.T) {
	start := time.Now()
	told := sample{
		at: start, toldAt: start, told: wire.ResourceUse{CPUPercent: 50, MemoryBytes: 100 << 20}, use: wire.ResourceUse{CPUPercent: 50, MemoryBytes: 100 << 20},
	}
	change := func(f func(*sample)) sample { s := told; f(&s); return s }
	tests := []struct {
		name  string
		s     sample
		after time.Duration
		want  bool
	}{
		{"nothing measured", sample{}, time.Hour, false},
		{"measured for the first time", sample{at: start}, 0, true},
		{"the same", told, time.Minute, false},
		{"the same for long", told, useRepeat, true},
		{"a fifth less of the processor", change(func(s *sample) { s.use.CPUPercent = 40 }), 0, false},
		{"more than that", change(func(s *sample) { s.use.CPUPercent = 39.9 }), 0, true},
		{"a quarter more memory", change(func(s *sample) { s.use.MemoryBytes = 126 << 20 }), 0, true},
		{"a trifle for whom it is much", change(func(s *sample) { s.told.CPUPercent, s.use.CPUPercent = 0.1, 2 }), 0, false},
		{"a page more of a small task", change(func(s *sample) { s.told.MemoryBytes, s.use.MemoryBytes = 4096, 8192 }), 0, false},
	}
	for _, test := range tests {
		if got := test.s.news(start.Add(test.after)); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestTheShareOfTheProcessorIsOfTheTimeBetweenTwoLooks(t *testing.T) {
	start := time.Now()
	task := LiveTask{Since: &start}
	s := sample{}.next(proc.Use{CPU: time.Second / 10}, task, start.Add(shortest/2))
	if !s.at.IsZero() {
		t.Errorf("a moment after the start: %+v, want no word yet", s)
	}
	s = s.next(proc.Use{CPU: time.Second, Memory: 7}, task, start.Add(2*time.Second))
	if s.use.CPUPercent != 50 || s.use.MemoryBytes != 7 {
		t.Errorf("%+v, want half a core since the start", s.use)
	}
	if s = s.next(proc.Use{CPU: 6 * time.Second}, task, start.Add(4*time.Second)); s.use.CPUPercent != 250 {
		t.Errorf("%+v, want two and a half cores since the last look", s.use)
	}
}

func TestOneHeartbeatDoesNotCarryEverything(t *testing.T) {
	m, now := newMeter(isolation.Host{}, nil), time.Now()
	since := now.Add(-time.Minute)
	var tasks []LiveTask
	for i := range int32(maxUses + 10) {
		tasks = append(tasks, LiveTask{UID: "t", Attempt: i, PID: 1 << 30, shim: 1 << 30, Since: &since})
	}
	if n := len(m.measure(tasks, now)); n != maxUses {
		t.Errorf("the first carries %d, want %d", n, maxUses)
	}
	if n := len(m.measure(tasks, now.Add(time.Second))); n != 10 {
		t.Errorf("the next carries %d, want the other 10", n)
	}
	m.measure(nil, now)
	if len(m.last) > 0 {
		t.Error("it remembers what does not live any more")
	}
}

// saidUse is what heartbeats have said about a task so far.
func (s *fakeServer) saidUse(uid string) (all []wire.TaskUse, beats int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.heartbeats {
		for _, u := range h.Use {
			if u.UID == uid {
				all = append(all, u)
			}
		}
	}
	return all, len(s.heartbeats)
}

func TestHeartbeatsSayWhatTasksUse(t *testing.T) {
	for name, bare := range map[string]bool{"as the host allows": false, "without control groups": true} {
		t.Run(name, func(t *testing.T) {
			s := newFakeServer(t)
			c := withSocket(s.config(t.TempDir()))
			c.Heartbeat = 50 * time.Millisecond
			startAgent(t, c, func(a *Agent) {
				if bare {
					a.runner.host, a.meter.host = isolation.Host{}, isolation.Host{}
				}
			})
			s.awaitRegistered(1)
			s.dispatch(shell("busy", "while :; do :; done"), 3)
			s.dispatch(shell("idle", "exec sleep 600"), 1)
			s.awaitRunning("busy", 3)
			s.awaitRunning("idle", 1)
			eventually(t, "the word that it works", func() bool {
				all, _ := s.saidUse("busy")
				return len(all) > 0 && all[0].Attempt == 3 && all[len(all)-1].CPUPercent > 2*leastCPU && all[len(all)-1].MemoryBytes > 0
			})
			eventually(t, "the word that the other does not", func() bool { all, _ := s.saidUse("idle"); return len(all) > 0 })
			_, from := s.saidUse("idle")
			eventually(t, "many heartbeats", func() bool { _, beats := s.saidUse("idle"); return beats > from+50 })
			if all, beats := s.saidUse("idle"); len(all) > 3 {
				t.Errorf("%d of %d heartbeats speak of a task that sleeps", len(all), beats)
			}
			h := healthOf(t, c.HealthSocket)
			if len(h.Tasks) != 2 || h.Tasks[0].Use == nil || h.Tasks[0].Use.CPUPercent == 0 {
				t.Errorf("tasks %+v", h.Tasks)
			}

			s.remove("busy", 3)
			end := s.awaitEnd("busy", 3)
			if u := end.Resources; u == nil || u.CPUSeconds < 0.1 || u.MemoryPeakBytes < 100<<10 || u.CPUPercent != 0 {
				t.Errorf("at its end it has used %+v", u)
			}
		})
	}
}

// metered is a driver whose tasks are elsewhere, and which takes its time to tell what
// they use.
type metered struct {
	driver.Exec
	takes time.Duration
	uses  map[driver.Attempt]proc.Use
}

func (m metered) Uses([]driver.Attempt) map[driver.Attempt]proc.Use {
	time.Sleep(m.takes)
	return maps.Clone(m.uses)
}

func TestADriverTellsOfTasksThatAreElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, since := driver.Attempt{UID: "t1", Number: 1, Robot: robot}, time.Now()
		uses := map[driver.Attempt]proc.Use{known: {CPU: time.Second, Memory: 5 << 20}}
		m := newMeter(isolation.Host{}, driver.Set{"elsewhere": metered{takes: 2 * time.Second, uses: uses}})
		tasks := []LiveTask{
			{UID: "t1", Attempt: 1, Driver: "elsewhere", State: TaskRunning, Since: &since, shim: 1, name: known},
			{UID: "t2", Attempt: 1, Driver: "elsewhere", State: TaskRunning, Since: &since, shim: 1, name: driver.Attempt{UID: "t2", Number: 1, Robot: robot}},
			{UID: "t3", Attempt: 1, Driver: "elsewhere", State: TaskStarting, shim: 1},
		}
		// said is what the next heartbeat says, which is not kept waiting.
		said := func() []wire.TaskUse {
			began := time.Now()
			news := m.measure(tasks, began)
			if took := time.Since(began); took > 0 {
				t.Errorf("a heartbeat waited for %v", took)
			}
			return news
		}
		answer := func() { time.Sleep(2 * time.Second); synctest.Wait() }

		if news := said(); len(news) > 0 {
			t.Errorf("said %+v before the driver has", news)
		}
		if news := said(); len(news) > 0 {
			t.Errorf("said %+v before the driver has, and asked twice", news)
		}
		answer()
		want := wire.TaskUse{UID: "t1", Attempt: 1, ResourceUse: wire.ResourceUse{CPUPercent: 50, MemoryBytes: 5 << 20}}
		if news := said(); len(news) != 1 || news[0] != want {
			t.Errorf("said %+v, want %+v alone", news, want)
		}
		uses[known] = proc.Use{CPU: 4 * time.Second, Memory: 5 << 20}
		answer()
		if news := said(); len(news) != 1 || news[0].CPUPercent != 150 {
			t.Errorf("then said %+v, want one and a half cores", news)
		}
		answer()
	})
}
