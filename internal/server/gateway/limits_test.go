package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// countWrites returns how many writes of this size the robots may cause in turn within the time.
func countWrites(q *reportQuotas, robots []string, size int, within time.Duration) (n int) {
	for now := clock; now.Before(clock.Add(within)); now = now.Add(10 * time.Millisecond) {
		for i := 0; i < len(robots); {
			if wait, _ := q.takeWrite(robots[i], size, now); wait > 0 {
				i++
				continue
			}
			n++
		}
	}
	return n
}

func TestReportQuotas_BoundWritesAndBytes(t *testing.T) {
	fleet := func(n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprint("r", i))
		}
		return ids
	}
	for name, c := range map[string]struct {
		robots []string
		size   int
		want   int // a second, and quotaPeriod seconds of it at once
	}{
		"one robot":                    {robots: fleet(1), size: 100, want: reportWritesPerSecond},
		"one robot, large reports":     {robots: fleet(1), size: 16 << 10, want: 4},
		"five robots":                  {robots: fleet(5), size: 100, want: 5 * reportWritesPerSecond},
		"a namespace":                  {robots: fleet(40), size: 100, want: namespaceFactor * reportWritesPerSecond},
		"a namespace, large reports":   {robots: fleet(40), size: 16 << 10, want: namespaceFactor * 4},
		"unknown robots count as one":  {robots: []string{"x1", "x2", "x3"}, size: 100, want: reportWritesPerSecond},
		"a report larger than a quota": {robots: fleet(1), size: 1 << 30, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			q := newReportQuotas(func(id string) string {
				if strings.HasPrefix(id, "x") {
					return ""
				}
				return namespace
			})
			const seconds = 20
			want := c.want * (seconds + int(quotaPeriod/time.Second))
			if c.size > reportBytesPerSecond*int(quotaPeriod/time.Second) {
				want = 1 + seconds*int(time.Second)/int(quotaPeriod)
			}
			got := countWrites(q, c.robots, c.size, seconds*time.Second)
			if got < want-c.want-1 || got > want+c.want+1 {
				t.Errorf("%d writes in %d s, want about %d", got, seconds, want)
			}
		})
	}
}

func TestReportQuotas_NamespacesAreIndependent(t *testing.T) {
	q := newReportQuotas(func(id string) string { return id[:1] })
	for i := 0; ; i++ {
		wait, reached := q.takeWrite(fmt.Sprint("a", i%100), 10, clock)
		if wait > 0 {
			if reached != limitNamespace {
				t.Errorf("reached %q", reached)
			}
			break
		}
	}
	if wait, reached := q.takeWrite("b1", 10, clock); wait > 0 {
		t.Errorf("the robot of another namespace waits %s for %q", wait, reached)
	}
}

// newLimitedWorker returns a worker for the tasks, which are of robots r1 and r2 in turn.
func newLimitedWorker(t interface{ Fatal(...any) }, now func() time.Time, tasks int) (*reportWorker, []types.UID) {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	objects := newObjectIndex()
	var uids []types.UID
	for n := range tasks {
		task := atVersion(taskIn(lifecycle.TaskDispatching, 1), uint64(n+1))
		task.UID = types.UID(fmt.Sprint("task-", n))
		task.Spec.TargetRobot = fmt.Sprint("r", n%2+1)
		for i := range task.Status.Attempts {
			task.Status.Attempts[i].Robot = task.Spec.TargetRobot
		}
		objects.deliverTask(task)
		uids = append(uids, task.UID)
	}
	q := &reportWriter{
		now: now, objects: objects, onWrite: func(*robotv1.Task) {}, isGone: func() bool { return false }, sendAck: func(string, wire.TaskAck) {},
		m: m, log: logr.Discard(), window: 50 * time.Millisecond, onLimited: func(string, limitName) {},
		quotas: newReportQuotas(func(string) string { return namespace }),
	}
	return &reportWorker{reportWriter: q, wake: make(chan struct{}, 1), robots: map[string]*robotReports{}}, uids
}

// A robot with any number of reports waits for its quota, and another robot does not wait for it.
func TestReportWorker_HoldsBackOneRobotOnly(t *testing.T) {
	now := clock
	w, uids := newLimitedWorker(t, func() time.Time { return now }, 2000)
	var limited []string
	w.onLimited = func(robot string, limit limitName) { limited = append(limited, robot+" "+string(limit)) }
	for i, uid := range uids {
		if i%2 == 0 {
			w.addReport(report{robot: "r1", uid: uid, attempt: 1, Status: wire.Status{State: wire.ReportRunning}})
		}
	}
	w.addReport(report{robot: "r2", uid: uids[1], attempt: 1, Status: wire.Status{State: wire.ReportRunning}})
	now = now.Add(time.Second)
	var order []string
	for b := w.takeNext(now, true); b != nil; b = w.takeNext(now, true) {
		order = append(order, b.robot)
	}
	if at := slices.Index(order, "r2"); at < 0 || at > 1 {
		t.Errorf("the report of r2 is number %d", at)
	}
	if want := reportWritesPerSecond*int(quotaPeriod/time.Second) + 1; len(order) != want {
		t.Errorf("%d batches were written at once, want %d", len(order), want)
	}
	if !slices.Equal(limited, []string{"r1 reports"}) {
		t.Errorf("reported %v", limited)
	}
}

// Reports of tasks that are not the robot's are bounded, and leave room for the ends of its own.
func TestReportWorker_BoundsReportsOfForeignTasks(t *testing.T) {
	w, uids := newLimitedWorker(t, func() time.Time { return clock }, 4)
	end := wire.Status{State: wire.ReportCompleted}
	taken := 0
	for i := range 10 * maxUnassigned {
		if w.addReport(report{robot: "r1", uid: types.UID(fmt.Sprint("foreign-", i)), attempt: 1, Status: end}) {
			taken++
		}
	}
	if taken != maxUnassigned {
		t.Errorf("%d reports of foreign tasks wait", taken)
	}
	if !w.addReport(report{robot: "r1", uid: uids[0], attempt: 1, Status: end}) || !w.addReport(report{robot: "r2", uid: uids[1], attempt: 1, Status: end}) {
		t.Error("the end of a task was dropped")
	}
}

// deliveries is what a worker has written of each attempt.
type deliveries map[string][]report

func (d deliveries) record(b *batch) {
	for _, r := range b.reports {
		name := fmt.Sprint(b.robot, b.uid, r.attempt)
		d[name] = append(d[name], r)
	}
}

// Under any limits, failures and order of messages, no end of an attempt is lost, none is written
// before progress that was reported earlier, and progress is written in order.
func TestReportWorker_KeepsEndsAndOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := clock
		w, uids := newLimitedWorker(t, func() time.Time { return now }, 4)
		w.quotas.robots["r1"] = &quota{writes: newBucket(1), bytes: newBucket(100)}
		w.window = time.Duration(rapid.IntRange(0, 100).Draw(t, "window ms")) * time.Millisecond
		written, ends, seq := deliveries{}, map[string]report{}, uint64(0)
		step := func(fails bool) {
			b := w.takeNext(now, true)
			switch {
			case b == nil:
			case fails:
				b.failures++
				w.restoreBatch(b)
			default:
				written.record(b)
			}
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				now = now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
			case 1:
				step(rapid.Bool().Draw(t, "fails"))
			default:
				seq++
				n := rapid.IntRange(0, len(uids)-1).Draw(t, "task")
				r := report{
					robot: fmt.Sprint("r", n%2+1), uid: uids[n], attempt: int32(rapid.IntRange(1, 2).Draw(t, "attempt")), size: rapid.IntRange(0, 500).Draw(t, "size"),
					Status: wire.Status{State: rapid.SampledFrom([]string{wire.ReportRunning, wire.ReportRunning, wire.ReportRunning, wire.ReportCompleted, wire.ReportFailed}).Draw(t, "state"), Seq: seq},
				}
				name := fmt.Sprint(r.robot, r.uid, r.attempt)
				if !w.addReport(r) {
					t.Fatalf("no room for %s %s", name, r.State)
				}
				if _, has := ends[name]; !has && r.IsTerminal() {
					ends[name] = r
				}
			}
		}
		for range 10000 {
			now = now.Add(100 * time.Millisecond)
			step(false)
		}
		if len(w.robots) > 0 {
			t.Fatalf("%d robots still wait", len(w.robots))
		}
		for name, end := range ends {
			at := slices.IndexFunc(written[name], func(r report) bool { return r.IsTerminal() })
			if at < 0 || written[name][at].State != end.State {
				t.Errorf("the end of %s was lost: %v", name, written[name])
				continue
			}
			for _, earlier := range written[name][:at] {
				if earlier.Seq > max(end.Seq, written[name][at].Seq) {
					t.Errorf("%s: progress %d precedes the end %d", name, earlier.Seq, end.Seq)
				}
			}
		}
		for name, all := range written {
			progress := slices.DeleteFunc(all, func(r report) bool { return r.IsTerminal() })
			if !slices.IsSortedFunc(progress, func(a, b report) int { return int(a.Seq) - int(b.Seq) }) {
				t.Errorf("%s: progress is out of order", name)
			}
		}
	})
}

// Newer progress replaces older progress only while a robot is held back, and keeps what only the
// older one had.
func TestBatch_ReplacesProgress(t *testing.T) {
	start := clock
	running := func(seq uint64, event string, outputs map[string]string) report {
		return report{attempt: 1, Status: wire.Status{State: wire.ReportRunning, Seq: seq, Event: event, Outputs: outputs}}
	}
	first := running(1, "Started", map[string]string{"a": "1", "b": "1"})
	first.StartedAt = &start
	for name, c := range map[string]struct {
		compacts bool
		want     int
	}{"in general all are written": {false, 3}, "the last one while it is held back": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			b := &batch{}
			for _, r := range []report{first, running(2, "Restarted", map[string]string{"b": "2"}), running(3, "Ready", nil)} {
				b.addReport(r, c.compacts)
			}
			last := b.reports[len(b.reports)-1]
			if len(b.reports) != c.want || last.Event != "Ready" {
				t.Fatalf("reports %+v", b.reports)
			}
			if c.compacts && (last.StartedAt != &start || last.Outputs["a"] != "1" || last.Outputs["b"] != "2") {
				t.Errorf("the last one is %+v", last)
			}
		})
	}
}

func TestBatch_KeepsExitCodes(t *testing.T) {
	end := func(code int32) report {
		return report{attempt: 1, legacy: true, Status: wire.Status{State: wire.ReportFailed, ExitCode: code}}
	}
	for name, c := range map[string]struct{ codes, want []int32 }{
		"the first known one":            {[]int32{3, 4, exitCodeUnknown}, []int32{3}},
		"one that follows an unknown":    {[]int32{exitCodeUnknown, 143, 7}, []int32{exitCodeUnknown, 143}},
		"unknown ones count as one":      {[]int32{exitCodeUnknown, exitCodeUnknown}, []int32{exitCodeUnknown}},
		"more than a batch of them fits": {slices.Repeat([]int32{exitCodeUnknown}, 2*maxBatch), []int32{exitCodeUnknown}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &batch{}
			for _, code := range c.codes {
				if !b.addReport(end(code), true) {
					t.Fatal("no room")
				}
			}
			var got []int32
			for _, r := range b.reports {
				got = append(got, r.ExitCode)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("codes %v, want %v", got, c.want)
			}
		})
	}
}

// A robot whose device changes all the time costs one write a minute, and the newest is written.
func TestPlanRobot_WritesDeviceOnceAMinute(t *testing.T) {
	w := seenAt(0, func(w *robotState) { w.registered = clock })
	r := newRobot(namespace, "r1", nil, w)
	writes := 0
	var retryAfter time.Duration
	for second := range 180 {
		now := clock.Add(time.Duration(second) * time.Second)
		w.recordHeartbeat(now, robotv1.ProtocolV2, wire.Heartbeat{DeviceInfo: &wire.DeviceInfo{Hostname: fmt.Sprint("host-", second)}})
		s := planRobot(now, "r1", w, r, period)
		retryAfter = s.retryAfter
		if s.status == nil {
			continue
		}
		if !equalDevices(r.Status.DeviceInfo, s.status.DeviceInfo) {
			writes++
			w.deviceWrittenAt = now
		}
		r.Status = *s.status
	}
	if writes != 3 || r.Status.DeviceInfo.Hostname != "host-120" || retryAfter != time.Second {
		t.Errorf("%d writes in three minutes, the last of %s; the next after %s", writes, r.Status.DeviceInfo.Hostname, retryAfter)
	}
	now := clock.Add(3 * time.Minute)
	if s := planRobot(now, "r1", w, r, period); s.status == nil || s.status.DeviceInfo.Hostname != "host-179" {
		t.Errorf("after the minute: %+v", s)
	}
}

// An answer to a heartbeat asks for the device again while it waits, so that a restart of the server
// loses no change.
func TestGateway_AsksForPendingDeviceAgain(t *testing.T) {
	s := startWith(t, Config{Tokens: oneToken{}}, newJoinedRobot("r1"))
	acks := s.newListener(wire.RobotTopic("r1", wire.KindAck))
	eventually(t, "the robot is known", func() bool { return s.gateway.objects.robot("r1") != nil })
	beat := func(seq int, host string) wire.Ack {
		t.Helper()
		var ack wire.Ack
		eventually(t, fmt.Sprintf("heartbeat %d is acknowledged", seq), func() bool {
			s.receiveMessage(wire.RobotTopic("r1", wire.KindHeartbeat), fmt.Sprintf(`{"seq":%d,"deviceInfo":{"hostname":%q}}`, seq, host))
			payload, _ := acks.lastPayload(wire.RobotTopic("r1", wire.KindAck))
			ack, _ = wire.Decode[wire.Ack](payload)
			return ack.Heartbeat == uint64(seq)
		})
		return ack
	}
	if ack := beat(1, "a"); ack.DevicePending {
		t.Errorf("the first device is pending: %+v", ack)
	}
	eventually(t, "the server knows that it is stored", func() bool {
		d := s.gateway.objects.robot("r1").Status.DeviceInfo
		return d != nil && d.Hostname == "a"
	})
	if ack := beat(2, "b"); !ack.DevicePending {
		t.Errorf("a change in the same minute is not pending: %+v", ack)
	}
	if ack := beat(3, "a"); ack.DevicePending || s.robot("r1").Status.DeviceInfo.Hostname != "a" {
		t.Errorf("the device that is stored is pending: %+v", ack)
	}
}

// A robot that floods the server with registrations gets its list and dispatches a few times only,
// and an event explains it.
func TestGateway_LimitsRegistrationsOfOneRobot(t *testing.T) {
	s := startWith(t, Config{Tokens: oneToken{}}, newJoinedRobot("r1"), newJoinedRobot("r2"))
	payload := `{"robotId":"r1","labels":{"n":"1"}}`
	eventually(t, "the robot is known", func() bool { return s.gateway.objects.robot("r2") != nil && s.gateway.objects.robot("r1") != nil })
	for range 10 * registrationsAtOnce {
		s.receiveMessage(wire.RobotTopic("r1", wire.KindRegister), payload)
	}
	if n := s.countDropped(wire.KindRegister, dropTooFast); n < 8*registrationsAtOnce {
		t.Errorf("%v registrations were dropped", n)
	}
	s.receiveMessage(wire.RobotTopic("r2", wire.KindRegister), `{"robotId":"r2"}`)
	if s.gateway.robots.stateOf("r2").registered.IsZero() {
		t.Error("the registration of another robot was dropped")
	}
	eventually(t, "an event", func() bool { return s.countWarnings(robotv1.ReasonRateLimited) == 1 })
}

// countWarnings returns the number of events with a reason.
func (s *system) countWarnings(reason string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.warnings {
		if strings.Contains(w, reason) {
			n++
		}
	}
	return n
}

// A piece of a log of one robot finds room however many pieces of another one wait.
func TestLogWriter_BoundsQueueOfOneRobot(t *testing.T) {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &logWriter{m: m}
	for i := range 2 * logQueueOfRobot {
		if taken := l.reserve(logItem{robot: "r1", payload: []byte("x")}); taken != (i < logQueueOfRobot) {
			t.Fatalf("piece %d: %v", i, taken)
		}
	}
	if !l.reserve(logItem{robot: "r2"}) || !l.reserve(logItem{}) {
		t.Error("no room for another robot or the server")
	}
	l.release(logItem{robot: "r1", payload: []byte("x")})
	if !l.reserve(logItem{robot: "r1", payload: []byte("x")}) || l.queued != logQueueOfRobot {
		t.Errorf("the room of a written piece is not free: %d bytes", l.queued)
	}
}
