package task

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// acknowledgedBy writes, as the server does, a heartbeat that it received when its clock showed this
// time, and that it acknowledges heartbeats for a minute.
func acknowledgedBy(at time.Time) *v1alpha1.Robot {
	r := robotSeenAt(lifecycle.RobotOnline, at)
	r.Status.AcknowledgedUntil = &metav1.MicroTime{Time: at.Add(time.Minute)}
	return r
}

// The clock of the server may be ahead or behind, and may be set while a robot is lost: the manager
// counts from when it saw the server's writes.
func TestContacts_IgnoreWallClocks(t *testing.T) {
	for name, skew := range map[string]time.Duration{"right": 0, "ahead": 24 * time.Hour, "behind": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			uptime := time.Hour
			c := NewContacts(func() time.Duration { return uptime }, nil)
			k := key{Namespace: "ns", Name: "r1"}
			c.ObserveRobot(k, acknowledgedBy(noon))
			uptime += 10 * time.Second
			r := acknowledgedBy(noon.Add(skew + 10*time.Second)) // the clock is set
			c.ObserveRobot(k, r)
			uptime += 3 * time.Minute
			if got, want := c.ObserveRobot(k, r), (Contact{Silence: 3 * time.Minute, Unacknowledged: 2 * time.Minute}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			c.ObserveRobot(k, nil)
			uptime += time.Minute
			if got := c.ObserveRobot(k, nil); got.sinceHeartbeat() != time.Minute {
				t.Errorf("a robot that was deleted: %+v", got)
			}
		})
	}
}

// Only its slice shows when a robot was last in contact. The acknowledgedUntil in its status is a year
// ahead, for managers that read no slices.
func TestContacts_CountByTheSlice(t *testing.T) {
	uptime := time.Hour
	heartbeats := kit.NewHeartbeats(nil, func() time.Duration { return uptime })
	c, k := NewContacts(func() time.Duration { return uptime }, heartbeats), key{Namespace: "ns", Name: "r1"}
	r := acknowledgedBy(noon)
	r.Namespace, r.Name, r.UID = "ns", "r1", "uid"
	r.Status.AcknowledgedUntil, r.Status.HeartbeatSlice = v1alpha1.AcknowledgedBySlice(noon), "heartbeats-0"
	if got := c.ObserveRobot(k, r); got.Silence != 0 || got.Unacknowledged > -24*time.Hour {
		t.Errorf("without an entry: %+v", got)
	}
	slice := func(version string, at time.Time) *v1alpha1.HeartbeatSlice {
		return &v1alpha1.HeartbeatSlice{
			ObjectMeta:           metav1.ObjectMeta{Namespace: "ns", Name: "heartbeats-0", ResourceVersion: version},
			AcknowledgmentPeriod: metav1.Duration{Duration: time.Minute},
			Heartbeats:           []v1alpha1.RobotHeartbeat{{Robot: "r1", UID: "uid", Time: metav1.NewMicroTime(at)}},
		}
	}
	heartbeats.ObserveSlice(slice("1", noon))
	uptime += 10 * time.Minute
	heartbeats.ObserveSlice(slice("2", noon.Add(10*time.Minute)))
	uptime += 3 * time.Minute
	if got, want := c.ObserveRobot(k, r), (Contact{Silence: 3 * time.Minute, Unacknowledged: 2 * time.Minute}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	r.Status.HeartbeatSlice = "" // a server of the version before has written it
	r.Status.AcknowledgedUntil = &metav1.MicroTime{Time: noon.Add(time.Minute)}
	if got, want := c.ObserveRobot(k, r), (Contact{Silence: 13 * time.Minute, Unacknowledged: -time.Minute}); got != want {
		t.Errorf("after a write of a server without slices: %+v, want %+v", got, want)
	}
}

// A task must not run twice because the manager's clock is set forward, or the manager starts again.
func TestPlan_SelfStopDeadlineIgnoresWallClocks(t *testing.T) {
	const stopsAfter = 10 * time.Minute
	var uptime time.Duration
	restart := func() *Contacts { return NewContacts(func() time.Duration { return uptime }, nil) }
	c, k := restart(), key{Namespace: "ns", Name: "r1"}
	r := acknowledgedBy(noon)
	r.Status.Phase = string(lifecycle.RobotOffline)
	isReplaced := func(now time.Time) bool {
		w := newInput(lifecycle.TaskUnknown, othersOnline(time.Hour), stopAfter(stopsAfter), lostAfter(time.Second))
		w.Robot, w.Contact, w.OnlineSince = r, c.ObserveRobot(k, r), now.Add(-time.Hour)
		return outline(Plan(now, w)) != ""
	}
	isReplaced(noon)
	killTime := (&planner{Input: newInput(lifecycle.TaskUnknown)}).stopTime()
	due := time.Minute + stopsAfter + killTime // a minute in which heartbeats are acknowledged
	for _, step := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour} {
		if uptime = due - 1; isReplaced(noon.Add(step + uptime)) {
			t.Errorf("clock set by %s: it is replaced while its robot may run it", step)
		}
		if uptime = due; !isReplaced(noon.Add(step + uptime)) {
			t.Errorf("clock set by %s: it is not replaced", step)
		}
	}
	c = restart()
	if isReplaced(noon.Add(48 * time.Hour)) {
		t.Error("it is replaced right after a restart of the manager")
	}
}

// No step of the manager's clock, and no clock of a robot, ends an attempt or the wait for its stop
// while its robot may run it.
func TestPlan_TimeLimitsIgnoreWallClocks(t *testing.T) {
	startedAt := func(at time.Time) func(*Input) {
		return func(w *Input) { w.Task.Status.StartedAt = &metav1.MicroTime{Time: at} }
	}
	stopTime := wire.DefaultKillTimeout + stopMargin
	for name, c := range map[string]struct {
		in  Input
		due time.Duration
	}{
		"timeout":                               {newInput(lifecycle.TaskRunning, timeout(time.Minute), startedAt(noon)), time.Minute + stopTime},
		"timeout, clock of the robot is behind": {newInput(lifecycle.TaskRunning, timeout(time.Minute), startedAt(noon.Add(-24*time.Hour))), time.Minute + stopTime},
		"eviction":                              {newInput(lifecycle.TaskRunning, mustLeave, evicting(0)), stopTime},
		"stop of the job":                       {newInput(lifecycle.TaskRunning, inJob(lifecycle.JobFailed), stopping(0)), stopTime},
	} {
		t.Run(name, func(t *testing.T) {
			var uptime time.Duration
			contacts := NewContacts(func() time.Duration { return uptime }, nil)
			isEnded := func(now time.Time) bool {
				c.in.Ages = contacts.ObserveTask(c.in.Task)
				return outline(Plan(now, c.in)) != ""
			}
			isEnded(noon)
			for _, step := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour} {
				if uptime = c.due - 1; isEnded(noon.Add(step + uptime)) {
					t.Errorf("clock set by %s: it is ended while its robot may run it", step)
				}
				if uptime = c.due; !isEnded(noon.Add(step + uptime)) {
					t.Errorf("clock set by %s: it is not ended", step)
				}
			}
			c.in.Task.Status.LastRestartTime, c.in.Task.Status.Conditions = &metav1.MicroTime{Time: noon}, nil
			if name == "timeout" && isEnded(noon.Add(c.due)) {
				t.Error("a restart does not have the whole timeout")
			}
		})
	}
}

func TestContacts_CountUnansweredDispatchFromItsStart(t *testing.T) {
	var uptime time.Duration
	c := NewContacts(func() time.Duration { return uptime }, nil)
	w := newInput(lifecycle.TaskUnknown, unanswered(24*time.Hour))
	w.Task.Spec.DispatchTimeout = v1alpha1.NewDuration(20 * time.Second)
	c.ObserveTask(w.Task)
	uptime = 10 * time.Second
	if got := c.ObserveTask(w.Task).Unanswered; got != 30*time.Second {
		t.Errorf("unanswered for %s", got)
	}
	if got := c.ObserveTask(newInput(lifecycle.TaskUnknown).Task).Unanswered; got != 0 {
		t.Errorf("without the condition: %s", got)
	}
}
