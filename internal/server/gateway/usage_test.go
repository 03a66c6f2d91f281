package bridge

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
	"k8s4r.io/k8s4r/internal/wire"
)

func useOf(uid string, attempt int32, percent float64, bytes uint64) wire.TaskUse {
	return wire.TaskUse{UID: uid, Attempt: attempt, ResourceUse: wire.ResourceUse{CPUPercent: percent, MemoryBytes: bytes}}
}

// reads is what a gauge shows.
func reads(t *testing.T, g prometheus.Gauge) float64 {
	t.Helper()
	var m dto.Metric
	if err := g.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}

func TestUseIsWrittenOnceInAWhile(t *testing.T) {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	u := newUses(m)
	steps := []struct {
		after   time.Duration
		attempt int32
		want    bool
	}{
		{0, 1, false}, // it may be over soon
		{useEvery - 1, 1, false},
		{useEvery, 1, true},
		{useEvery + time.Minute, 1, false},
		{2 * useEvery, 1, true},
		{3 * useEvery, 2, false}, // another run
		{4 * useEvery, 2, true},
	}
	for _, s := range steps {
		if got := u.hear(clock.Add(s.after), useOf("t1", s.attempt, 50, 7)); got != s.want {
			t.Errorf("attempt %d after %v is written: %v, want %v", s.attempt, s.after, got, s.want)
		}
	}
}

func TestWhatRunningTasksUseIsSummedUp(t *testing.T) {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	u := newUses(m)
	sums := func() string {
		return fmt.Sprintf("%.2f %.0f", reads(t, m.usedCores), reads(t, m.usedMemory))
	}
	u.hear(clock, useOf("t1", 1, 50, 100))
	u.hear(clock, useOf("t2", 1, 100, 20))
	u.hear(clock, useOf("t1", 1, 25, 10))
	if got := sums(); got != "1.25 30" {
		t.Errorf("of two: %s", got)
	}
	u.forget("t2")
	u.forget("t2")
	if got := sums(); got != "0.25 10" {
		t.Errorf("of one: %s", got)
	}
	u.forget("t1")
	if got := sums(); got != "0.00 0" {
		t.Errorf("of none: %s", got)
	}
}

func TestUseMovesNothing(t *testing.T) {
	use := report{robot: "r1", attempt: 1, useOnly: true, Status: wire.Status{Resources: &wire.ResourceUse{CPUPercent: 12.5, MemoryBytes: 7}}}
	for _, state := range lifecycle.TaskStates {
		v := judge(clock, taskIn(state, 1), use)
		if state != lifecycle.TaskRunning {
			if v.status != nil || v.ack {
				t.Errorf("%s: %+v, want nothing", state, v)
			}
			continue
		}
		if v.status == nil || v.status.State != string(state) || *v.status.Resources != (robotv1.ResourceUse{CPUPercent: 12.5, MemoryBytes: 7}) || v.ack {
			t.Errorf("%s: %+v", state, v)
		}
	}
	running := taskIn(lifecycle.TaskRunning, 2)
	for name, r := range map[string]report{"an older attempt": use, "another robot": from("r2", about(2, use)), "a newer attempt": about(3, use)} {
		if v := judge(clock, running, r); v.status != nil || v.ack {
			t.Errorf("%s: %+v, want nothing", name, v)
		}
	}
}

func TestHeartbeatsThatSayWhatTasksUseCostFewWrites(t *testing.T) {
	s := start(t)
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1", Run: -1})
	defer r.Stop()
	s.create(bound("t1", "r1"))
	eventually(t, "the task runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
	uid := s.task("t1").UID
	n := uint64(1 << 40)
	beat := func(percent float64) {
		n++
		payload, err := wire.Encode(wire.Heartbeat{N: n, Use: []wire.TaskUse{useOf(string(uid), 1, percent, 7), useOf("stranger", 1, 1, 1)}})
		if err != nil {
			t.Fatal(err)
		}
		s.b.receive(wire.RobotTopic("r1", wire.KindHeartbeat), payload, "")
	}
	eventually(t, "the server sees that it runs", func() bool { return runsOn(s.b.view.task(uid), "r1", 1) })
	before := s.writesTo("t1")
	for i := range 100 {
		beat(float64(i))
	}
	if got := reads(t, s.b.m.usedCores); got != 0.99 {
		t.Errorf("%v cores in the metrics, want the last that was said", got)
	}
	if s.task("t1").Status.Resources != nil {
		t.Error("it was written at once")
	}
	s.b.uses.age(uid, useEvery)
	beat(150)
	eventually(t, "the use is written", func() bool { r := s.task("t1").Status.Resources; return r != nil && r.CPUPercent == 150 })
	if got := s.writesTo("t1"); got != before+1 {
		t.Errorf("%d writes, want one", got-before)
	}
	s.edit("t1", func(st *robotv1.TaskStatus) { st.State = string(lifecycle.TaskExited) })
	eventually(t, "it counts no more", func() bool { return reads(t, s.b.m.usedCores) == 0 })
}

// age makes what is known of a task older.
func (u *uses) age(uid types.UID, by time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.byUID[uid].written = u.byUID[uid].written.Add(-by)
}
