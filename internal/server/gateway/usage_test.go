package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

func useOf(uid string, attempt int32, percent float64, bytes uint64) wire.TaskUsage {
	return wire.TaskUsage{UID: uid, Attempt: attempt, ResourceUsage: wire.ResourceUsage{CPUPercent: percent, MemoryBytes: bytes}}
}

// gaugeValue returns the value of a gauge.
func gaugeValue(t *testing.T, g prometheus.Gauge) float64 {
	t.Helper()
	var m dto.Metric
	if err := g.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}

func TestUsageTracker_LimitsWrites(t *testing.T) {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	u := newUsageTracker(m)
	steps := []struct {
		after   time.Duration
		attempt int32
		want    bool
	}{
		{0, 1, false}, // it may end soon
		{usageWriteInterval - 1, 1, false},
		{usageWriteInterval, 1, true},
		{usageWriteInterval + time.Minute, 1, false},
		{2 * usageWriteInterval, 1, true},
		{3 * usageWriteInterval, 2, false}, // another attempt
		{4 * usageWriteInterval, 2, true},
	}
	for _, s := range steps {
		if got := u.recordUsage(clock.Add(s.after), useOf("t1", s.attempt, 50, 7)); got != s.want {
			t.Errorf("attempt %d after %v is written: %v, want %v", s.attempt, s.after, got, s.want)
		}
	}
}

func TestUsage_SumsRunningTasks(t *testing.T) {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	u := newUsageTracker(m)
	sums := func() string {
		return fmt.Sprintf("%.2f %.0f", gaugeValue(t, m.usedCores), gaugeValue(t, m.usedMemory))
	}
	u.recordUsage(clock, useOf("t1", 1, 50, 100))
	u.recordUsage(clock, useOf("t2", 1, 100, 20))
	u.recordUsage(clock, useOf("t1", 1, 25, 10))
	if got := sums(); got != "1.25 30" {
		t.Errorf("of two: %s", got)
	}
	u.forgetTask("t2")
	u.forgetTask("t2")
	if got := sums(); got != "0.25 10" {
		t.Errorf("of one: %s", got)
	}
	u.forgetTask("t1")
	if got := sums(); got != "0.00 0" {
		t.Errorf("of none: %s", got)
	}
}

func TestApplyReport_UsageChangesNoState(t *testing.T) {
	use := report{robot: "r1", attempt: 1, usageOnly: true, Status: wire.Status{Resources: &wire.ResourceUsage{CPUPercent: 12.5, MemoryBytes: 7}}}
	for _, state := range lifecycle.TaskStates {
		v := applyReport(clock, taskIn(state, 1), use)
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
	for name, r := range map[string]report{"an older attempt": use, "another robot": withRobot("r2", withAttempt(2, use)), "a newer attempt": withAttempt(3, use)} {
		if v := applyReport(clock, running, r); v.status != nil || v.ack {
			t.Errorf("%s: %+v, want nothing", name, v)
		}
	}
}

func TestUsage_CausesFewWrites(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", Run: -1})
	defer r.Stop()
	s.createTask(newBoundTask("t1", "r1"))
	eventually(t, "the task runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
	uid := s.task("t1").UID
	n := uint64(1 << 40)
	beat := func(percent float64) {
		n++
		payload, err := wire.Encode(wire.Heartbeat{Seq: n, Usage: []wire.TaskUsage{useOf(string(uid), 1, percent, 7), useOf("stranger", 1, 1, 1)}})
		if err != nil {
			t.Fatal(err)
		}
		s.gateway.receive(wire.RobotTopic("r1", wire.KindHeartbeat), payload, "")
	}
	eventually(t, "the server has observed that it runs", func() bool { return isRunningOn(s.gateway.objects.task(uid), "r1", 1) })
	before := s.writesTo("t1")
	for i := range 100 {
		beat(float64(i))
	}
	if got := gaugeValue(t, s.gateway.m.usedCores); got != 0.99 {
		t.Errorf("%v cores in the metrics, want the last reported value", got)
	}
	if s.task("t1").Status.Resources != nil {
		t.Error("it was written at once")
	}
	s.gateway.usage.age(uid, usageWriteInterval)
	beat(150)
	eventually(t, "the usage is written", func() bool { r := s.task("t1").Status.Resources; return r != nil && r.CPUPercent == 150 })
	if got := s.writesTo("t1"); got != before+1 {
		t.Errorf("%d writes, want one", got-before)
	}
	s.editStatus("t1", func(st *robotv1.TaskStatus) { st.State = string(lifecycle.TaskExited) })
	eventually(t, "its usage is removed from the metrics", func() bool { return gaugeValue(t, s.gateway.m.usedCores) == 0 })
}

// age makes the records of a task older.
func (u *usageTracker) age(uid types.UID, by time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.byUID[uid].written = u.byUID[uid].written.Add(-by)
}
