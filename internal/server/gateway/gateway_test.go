package gateway

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
	"k8s4r.io/k8s4r/internal/testkit/legacyagent"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

func (s *system) startRobot(cfg simrobot.Config) *simrobot.Robot {
	s.t.Helper()
	cfg.Broker = s.url
	if cfg.RepeatEvery == 0 {
		cfg.RepeatEvery = 200 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	r, err := simrobot.Start(ctx, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *system) startLegacyAgent(cfg legacyagent.Config) *legacyagent.Agent {
	s.t.Helper()
	cfg.Broker = s.url
	a, err := legacyagent.Start(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(a.Stop)
	eventually(s.t, cfg.RobotID+" is accepted", a.IsOnline)
	return a
}

func TestGateway_V2AgentRegistersAndRunsTask(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", Labels: map[string]string{"site": "hall"}})
	defer r.Stop()
	task := s.createTask(newBoundTask("t1", "r1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	eventually(t, "every report is acknowledged", func() bool { return r.UnacknowledgedCount() == 0 })
	eventually(t, "a heartbeat is acknowledged", func() bool { return r.HeartbeatAcked() > 0 })
	if n := r.StartCounts()[string(task.UID)]; n != 1 {
		t.Errorf("started %d times", n)
	}
	if n := s.writesTo("t1"); n != 1 {
		t.Errorf("start and end took %d writes", n)
	}
	got := s.task("t1").Status
	if got.StartedAt == nil || got.FinishedAt == nil || got.ExitCode == nil || *got.ExitCode != 0 || len(got.Events) != 2 {
		t.Errorf("status is %+v", got)
	}
	if a := got.Attempts[0]; a.State != "completed" || a.FinishedAt == nil || a.StartedAt == nil {
		t.Errorf("attempt is %+v", a)
	}
	if site := s.robot("r1").Spec.Labels["site"]; site != "hall" {
		t.Errorf("label is %q", site)
	}
}

// endRunningTask lets a task exit once the server has received its start report. Until then dispatches
// are repeated, and a legacy agent that has ended the task would run it again.
func (s *system) endRunningTask(a *legacyagent.Agent, name, wireUID string) {
	s.t.Helper()
	eventually(s.t, name+" runs", func() bool { return s.state(name) == lifecycle.TaskRunning })
	a.EndTask(wireUID)
}

func TestGateway_LegacyAgentRegistersAndRunsTask(t *testing.T) {
	s := start(t)
	s.approveRobots()
	a := s.startLegacyAgent(legacyagent.Config{RobotID: "d1", Run: -1, RunningAfterTerminal: true})
	task := s.createTask(newBoundTask("t1", "d1"))
	s.endRunningTask(a, "t1", string(task.UID))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	if n := a.RunCounts()[string(task.UID)]; n != 1 {
		t.Errorf("ran %d times", n)
	}
	if p := s.robot("d1").Status.Agent.Protocol; p != robotv1.ProtocolV1 {
		t.Errorf("protocol is %q", p)
	}
}

func TestGateway_ToleratesQuirksOfLegacyAgents(t *testing.T) {
	fails := func(string, int) int32 { return 143 }
	for _, row := range []struct {
		name  string
		agent legacyagent.Config
		want  lifecycle.TaskState
		code  int32
	}{
		{name: "it subscribes late", agent: legacyagent.Config{LateSubscription: 400 * time.Millisecond}, want: lifecycle.TaskCompleted},
		{name: "it reports running after the end", agent: legacyagent.Config{RunningAfterTerminal: true, Exit: fails}, want: lifecycle.TaskExited, code: 143},
		{name: "it reports a wrong exit code first, for a timeout", agent: legacyagent.Config{WrongExitFirst: "Timeout", Exit: fails}, want: lifecycle.TaskExited, code: 143},
		{name: "it reports a wrong exit code first, for a failed start", agent: legacyagent.Config{WrongExitFirst: "StartFailed", Exit: fails}, want: lifecycle.TaskExited, code: 143},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := start(t)
			s.approveRobots()
			row.agent.RobotID, row.agent.Run = "d1", -1
			a := s.startLegacyAgent(row.agent)
			task := s.createTask(newBoundTask("t1", "d1"))
			s.endRunningTask(a, "t1", string(task.UID))
			eventually(t, "the right end", func() bool {
				got := s.task("t1").Status
				return lifecycle.TaskState(got.State) == row.want && got.ExitCode != nil && *got.ExitCode == row.code
			})
			if n := a.RunCounts()[string(task.UID)]; n != 1 {
				t.Errorf("ran %d times", n)
			}
		})
	}
}

func TestGateway_LegacyAgentGetsEachAttemptAsTask(t *testing.T) {
	s := start(t)
	s.approveRobots()
	a := s.startLegacyAgent(legacyagent.Config{RobotID: "d1", Run: -1, Exit: func(uid string, _ int) int32 { return int32(len(uid) % 2) }})
	task := s.createTask(newBoundTask("t1", "d1"))
	second := wire.AttemptUID(string(task.UID), 2)
	s.endRunningTask(a, "t1", string(task.UID))
	eventually(t, "the first attempt completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	s.editStatus("t1", func(st *robotv1.TaskStatus) {
		st.State, st.Attempt = string(lifecycle.TaskDispatching), 2
		st.Attempts = append(st.Attempts, robotv1.TaskAttempt{Attempt: 2, Robot: "d1"})
	})
	s.endRunningTask(a, "t1", second)
	eventually(t, "the second attempt completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	if runs := a.RunCounts(); runs[string(task.UID)] != 1 || runs[second] != 1 {
		t.Errorf("runs: %v", runs)
	}
	a.SendReport(string(task.UID), wire.Status{State: wire.ReportFailed, ExitCode: 5})
	a.SendReport(second, wire.Status{State: wire.ReportPending})
	if got := s.task("t1").Status; got.State != "completed" || *got.ExitCode != 0 {
		t.Errorf("a late report about attempt 1 ended attempt 2: %+v", got)
	}
}

func TestGateway_NotifiesLegacyAgentBeforeTaskIsDeleted(t *testing.T) {
	for name, silent := range map[string]bool{"it answers": false, "it does not answer": true} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.approveRobots()
			a := s.startLegacyAgent(legacyagent.Config{RobotID: "d1", Run: -1, SilentOnDelete: silent, Heartbeat: time.Second})
			task := newBoundTask("t1", "d1")
			task.Finalizers = []string{robotv1.FinalizerRobotNotified}
			s.createTask(task)
			eventually(t, "t1 runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
			if err := s.api.Delete(t.Context(), task); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the task is deleted", func() bool { return s.task("t1") == nil })
			eventually(t, "the agent has stopped it", func() bool { return len(a.ReceivedDeletes()) > 0 && len(a.RunningTasks()) == 0 })
			a.Restart()
			eventually(t, "the agent has reconnected", a.IsOnline)
			l := s.newListener(wire.RobotTopic("d1", wire.KindState))
			eventually(t, "the list is empty", func() bool {
				payload, _ := l.lastPayload(wire.RobotTopic("d1", wire.KindState))
				return string(payload) == `{"tasks":[]}`
			})
			if n := a.RunCounts()[string(task.UID)]; n != 1 {
				t.Errorf("ran %d times: the list started it again", n)
			}
		})
	}
}

func TestGateway_RobotStopsDeletedTask(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", Run: -1})
	defer r.Stop()
	task := s.createTask(newBoundTask("t1", "r1"))
	other := s.createTask(newBoundTask("t2", "r1"))
	eventually(t, "both run", func() bool {
		return s.state("t1") == lifecycle.TaskRunning && s.state("t2") == lifecycle.TaskRunning
	})
	if err := s.api.Delete(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	eventually(t, "t1 is stopped", func() bool { return len(r.RunningTasks()) == 1 })
	if r.RunningTasks()[0] != string(other.UID) {
		t.Errorf("running %v", r.RunningTasks())
	}
}

func TestGateway_StoppingTaskIsCanceled(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", Run: -1})
	defer r.Stop()
	s.createTask(newBoundTask("t1", "r1"))
	eventually(t, "t1 runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
	s.editStatus("t1", stopping)
	eventually(t, "t1 is canceled", func() bool { return s.state("t1") == lifecycle.TaskCanceled })
	if m := s.task("t1").Status.Message; m != "job j1 was canceled" {
		t.Errorf("message %q", m)
	}
}

func TestGateway_MarksUnresponsiveRobot(t *testing.T) {
	s := startWith(t, Config{UnresponsiveAfter: 300 * time.Millisecond})
	s.approveRobots()
	a := s.startLegacyAgent(legacyagent.Config{RobotID: "d1", NoTasksAfterReconnect: true, Heartbeat: 20 * time.Millisecond})
	s.createTask(newBoundTask("t1", "d1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	warnings := len(s.warned()) // on a slow machine t1 may have been overdue
	a.Reconnect()
	s.createTask(newBoundTask("t2", "d1"))
	eventually(t, "the condition is False", func() bool { return s.condition("d1", robotv1.ConditionResponsive) == "False DispatchUnanswered" })
	eventually(t, "there is an event", func() bool { return len(s.warned()) > warnings })
	a.Restart()
	eventually(t, "t2 completes", func() bool { return s.state("t2") == lifecycle.TaskCompleted })
	eventually(t, "the condition is True again", func() bool { return s.condition("d1", robotv1.ConditionResponsive) == "True DispatchAnswered" })
}

func TestGateway_RecordsPresence(t *testing.T) {
	t.Run("a robot whose connection breaks", func(t *testing.T) {
		s := start(t)
		s.approveRobots()
		r := s.startRobot(simrobot.Config{RobotID: "r1"})
		eventually(t, "connected", func() bool { return s.condition("r1", robotv1.ConditionConnected) == "True HeartbeatReceived" })
		r.LoseConnection()
		eventually(t, "its last will is written", func() bool { return s.condition("r1", robotv1.ConditionConnected) == "False LastWill" })
	})
	t.Run("a robot that disconnects normally", func(t *testing.T) {
		s := start(t)
		s.approveRobots()
		s.startRobot(simrobot.Config{RobotID: "r1"}).Stop()
		eventually(t, "the disconnect is written", func() bool { return s.condition("r1", robotv1.ConditionConnected) == "False Disconnected" })
	})
	t.Run("a robot that becomes unresponsive and has no last will", func(t *testing.T) {
		s := startWith(t, Config{OfflineAfter: 500 * time.Millisecond})
		s.approveRobots()
		first, err := legacyagent.Start(legacyagent.Config{RobotID: "d1", Broker: s.url, Heartbeat: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "connected", func() bool { return s.condition("d1", robotv1.ConditionConnected) == "True HeartbeatReceived" })
		first.Stop()
		eventually(t, "the condition is False", func() bool { return s.condition("d1", robotv1.ConditionConnected) == "False Unresponsive" })
		s.startLegacyAgent(legacyagent.Config{RobotID: "d1", Heartbeat: 20 * time.Millisecond})
		eventually(t, "the condition is True again", func() bool { return s.condition("d1", robotv1.ConditionConnected) == "True HeartbeatReceived" })
	})
	t.Run("a robot of an earlier version whose connection breaks", func(t *testing.T) {
		s := start(t)
		s.approveRobots()
		r := s.startRobot(simrobot.Config{RobotID: "r1", OmitsConnectionID: true})
		eventually(t, "connected", func() bool { return s.condition("r1", robotv1.ConditionConnected) == "True HeartbeatReceived" })
		s.gateway.robots.updateState("r1", true, func(w *robotState) { w.registered = w.registered.Add(-staleWillWindow) })
		r.LoseConnection()
		eventually(t, "its last will is written", func() bool { return s.condition("r1", robotv1.ConditionConnected) == "False LastWill" })
	})
	t.Run("a late last will of the previous connection does not disconnect a robot of an earlier version", func(t *testing.T) {
		s := start(t)
		s.approveRobots()
		r := s.startRobot(simrobot.Config{RobotID: "r1", Heartbeat: 20 * time.Millisecond, OmitsConnectionID: true})
		defer r.Stop()
		presence := s.newListener(wire.RobotTopic("r1", wire.KindPresence))
		if err := r.Reconnect(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the will was sent", func() bool { _, n := presence.lastPayload(wire.RobotTopic("r1", wire.KindPresence)); return n == 1 })
		seen := r.HeartbeatAcked()
		eventually(t, "the next heartbeats are acknowledged", func() bool { return r.HeartbeatAcked() > seen+1 })
		eventually(t, "it is connected", func() bool { return s.condition("r1", robotv1.ConditionConnected) == "True HeartbeatReceived" })
		if w := s.gateway.robots.stateOf("r1"); w.disconnectReason != "" || !w.unconfirmedWill.IsZero() {
			t.Errorf("state is %+v", w)
		}
	})
}

func TestRobotState_ConfirmsLastWillAfterSilence(t *testing.T) {
	w := robotState{}
	w.recordRegistration(clock, robotv1.ProtocolV2, wire.Register{})
	w.recordPresence(clock.Add(time.Second), wire.Presence{})
	if w.disconnectReason != "" || w.confirmLastWill(clock.Add(30*time.Second)) {
		t.Error("the last will was confirmed too early")
	}
	silent := w
	if !silent.confirmLastWill(clock.Add(time.Second+willConfirmAfter)) || silent.disconnectReason != robotv1.ReasonUnresponsive {
		t.Error("the last will was not confirmed")
	}
	w.recordHeartbeat(clock.Add(30*time.Second), robotv1.ProtocolV2, wire.Heartbeat{Seq: 1})
	if w.confirmLastWill(clock.Add(time.Hour)) {
		t.Error("the last will was confirmed although the robot sent a heartbeat")
	}
}

// A last will with a connection id leaves no doubt about the connection that it is of.
func TestRobotState_ConnectionOfLastWill(t *testing.T) {
	registered := func(connection string) robotState {
		w := robotState{}
		w.recordRegistration(clock, robotv1.ProtocolV2, wire.Register{ConnectionID: connection})
		return w
	}
	for _, c := range []struct {
		name       string
		robot      robotState
		will       wire.Presence
		want       string
		unconfirms bool
	}{
		{name: "of the connection that has just registered", robot: registered("b"), will: wire.Presence{ConnectionID: "b"}, want: robotv1.ReasonLastWill},
		{name: "of an earlier connection", robot: registered("b"), will: wire.Presence{ConnectionID: "a"}},
		{name: "an orderly end of an earlier connection", robot: registered("b"), will: wire.Presence{ConnectionID: "a", Graceful: true}},
		{name: "of an earlier connection of an earlier version", robot: registered("b"), will: wire.Presence{}},
		{name: "of an earlier connection of a later version", robot: registered(""), will: wire.Presence{ConnectionID: "a"}},
		{name: "of a connection of an earlier version", robot: registered(""), will: wire.Presence{}, unconfirms: true},
		{name: "to a server that has received no registration", will: wire.Presence{ConnectionID: "a"}, want: robotv1.ReasonLastWill},
		{name: "with an id that exceeds the bound", robot: registered(strings.Repeat("b", 1<<16)), will: wire.Presence{ConnectionID: strings.Repeat("b", 1<<16)}, want: robotv1.ReasonLastWill},
	} {
		w := c.robot
		w.recordPresence(clock.Add(time.Second), c.will)
		if w.disconnectReason != c.want || w.unconfirmedWill.IsZero() == c.unconfirms {
			t.Errorf("%s: disconnected because of %q, in doubt since %v", c.name, w.disconnectReason, w.unconfirmedWill)
		}
		if len(w.connectionID) > maxText {
			t.Errorf("%s: %d bytes are kept", c.name, len(w.connectionID))
		}
	}
}

// The manager counts lostAfter from this write on if the doubtful last will is confirmed.
func TestPlanRobot_WritesContactOfDoubtfulWill(t *testing.T) {
	r := newKnownRobot("Online")
	w := seenAt(time.Second, func(w *robotState) { w.registered = clock })
	if s := planRobot(clock.Add(2*time.Second), "r1", w, r, period); s.status != nil && s.status.LastHeartbeatTime != nil && s.status.Agent == r.Status.Agent {
		t.Error("each message is written")
	}
	w.unconfirmedWill = clock.Add(2 * time.Second)
	s := planRobot(clock.Add(2*time.Second), "r1", w, r, period)
	if s.status == nil || !s.status.LastHeartbeatTime.Equal(&metav1.MicroTime{Time: clock.Add(time.Second)}) {
		t.Errorf("status %+v, want the time of the last message", s.status)
	}
}

// A manager that was cut off may mark a robot Offline that this server has seen since.
func TestSweepRobots_QueuesHeartbeatOfOfflineRobot(t *testing.T) {
	for phase, want := range map[string]int{"Online": 0, "Offline": 1} {
		g := newSweepingGateway(t, newKnownRobot(phase))
		g.robots.updateState("r1", true, func(w *robotState) { *w = seenAt(time.Second) })
		g.sweepRobotsOnce(clock.Add(2 * time.Second))
		if got := g.robotQueue.Len(); got != want {
			t.Errorf("%s: %d robots queued, want %d", phase, got, want)
		}
	}
}

// The sweep examines a robot when its check is due, and not each time.
func TestSweepRobots_ExaminesOnlyDueRobots(t *testing.T) {
	g := newSweepingGateway(t, newKnownRobot("Online"))
	g.robots.updateState("r1", true, func(w *robotState) { *w = seenAt(0) })
	g.sweepRobotsOnce(clock)
	if ids := g.checks.takeDue(clock.Add(offlineAfter - 1)); len(ids) != 0 {
		t.Errorf("%v are examined although nothing can have happened", ids)
	}
	if ids := g.checks.takeDue(clock.Add(offlineAfter)); len(ids) != 1 {
		t.Errorf("%v are examined when the robot may be silent", ids)
	}
}

// newSweepingGateway returns a gateway that is not started and knows one robot.
func newSweepingGateway(t *testing.T, r *robotv1.Robot) *Gateway {
	t.Helper()
	g, err := New(Config{MQTTURL: "mqtt://127.0.0.1:1", OfflineAfter: offlineAfter, AllowLegacy: true, AllowAnonymous: true},
		Cluster{Client: fakeapi.NewBuilder(clientgoscheme.Scheme).Build()}, nil, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	r.ResourceVersion = "1"
	g.now = func() time.Time { return clock }
	g.handleRobotUpdate(r)
	return g
}

func TestSweepRobots_QueuesUnresponsiveRobotOnce(t *testing.T) {
	lastWill := func(s *robotv1.RobotStatus) { setConnected(s, robotState{disconnectReason: robotv1.ReasonLastWill}) }
	for _, row := range []struct {
		name     string
		robot    *robotv1.Robot
		received bool          // by this server, at the clock's time
		listened time.Duration // how long the server has been subscribed
		after    time.Duration
		want     bool
	}{
		{name: "no message for offlineAfter", robot: newKnownRobot("Online"), received: true, listened: time.Hour, after: offlineAfter, want: true},
		{name: "no message for less than offlineAfter", robot: newKnownRobot("Online"), received: true, listened: time.Hour, after: offlineAfter - 1},
		{name: "seen only by the previous server", robot: newKnownRobot("Online"), listened: offlineAfter, after: offlineAfter, want: true},
		{name: "a server that has just started has not listened long enough", robot: newKnownRobot("Online"), listened: offlineAfter - 1, after: time.Hour},
		{name: "already disconnected by its last will", robot: newKnownRobot("Unknown", lastWill), listened: time.Hour, after: time.Hour},
		{name: "one that has never sent a message", robot: newRobot(namespace, "r1", nil, robotState{}), listened: time.Hour, after: time.Hour},
	} {
		b := newSweepingGateway(t, row.robot)
		now := clock.Add(row.after)
		b.uptime = func() time.Duration { return 24 * time.Hour }
		b.syncedAt.Store(int64(24*time.Hour - row.listened))
		if row.received {
			b.robots.updateState("r1", true, func(w *robotState) { *w = seenAt(0) })
		}
		b.sweepRobotsOnce(now)
		if got := b.robotQueue.Len() == 1; got != row.want {
			t.Errorf("%s: queued: %v", row.name, got)
			continue
		}
		if row.want {
			id, _ := b.robotQueue.Get()
			b.robotQueue.Done(id)
			b.sweepRobotsOnce(now.Add(time.Second))
			if b.robotQueue.Len() != 0 {
				t.Errorf("%s: queued again by the next sweep", row.name)
			}
		}
	}
}

func TestGateway_HeartbeatsCauseNoWrites(t *testing.T) {
	s := startWith(t, Config{OfflineAfter: time.Hour})
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", Heartbeat: 2 * time.Millisecond})
	defer r.Stop()
	eventually(t, "it settles", func() bool {
		return s.condition("r1", robotv1.ConditionConnected) == "True HeartbeatReceived" && r.HeartbeatAcked() > 10
	})
	before := s.writesTo("r1")
	seen := r.HeartbeatAcked()
	eventually(t, "100 heartbeats more", func() bool { return r.HeartbeatAcked() > seen+100 })
	if n := s.writesTo("r1") - before; n > 0 {
		t.Errorf("100 heartbeats caused %d writes", n)
	}
}

func TestGateway_WritesHeartbeatsToSlice(t *testing.T) {
	s := startWith(t, Config{OfflineAfter: 900 * time.Millisecond})
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", Heartbeat: 10 * time.Millisecond})
	defer r.Stop()
	eventually(t, "written once", func() bool { return s.robot("r1").LastHeartbeat(s.sliceOf("r1")) != nil })
	first, writes := s.robot("r1").LastHeartbeat(s.sliceOf("r1")).Time, s.writesTo("r1")
	eventually(t, "and again", func() bool {
		return s.robot("r1").LastHeartbeat(s.sliceOf("r1")).After(first.Add(500 * time.Millisecond))
	})
	if n := s.writesTo("r1") - writes; n > 1 { // which named the slice
		t.Errorf("%d writes of the status", n)
	}
}

// sliceOf returns the slice that the status of a robot names, or nil.
func (s *system) sliceOf(id string) *robotv1.HeartbeatSlice {
	slice := &robotv1.HeartbeatSlice{}
	if s.api.Get(s.t.Context(), client.ObjectKey{Namespace: namespace, Name: s.robot(id).Status.HeartbeatSlice}, slice) != nil {
		return nil
	}
	return slice
}

// A restarted server keeps the robots in their slices, acknowledges heartbeats after one write of each,
// and writes no status.
func TestGateway_KeepsSlicesAfterRestart(t *testing.T) {
	s := startWith(t, Config{OfflineAfter: time.Hour})
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", Heartbeat: 10 * time.Millisecond})
	defer r.Stop()
	eventually(t, "a heartbeat is acknowledged", func() bool { return r.HeartbeatAcked() > 0 })
	before, acked := s.robot("r1").Status, r.HeartbeatAcked()
	s.stop()
	s.startServer(Config{OfflineAfter: time.Hour})
	eventually(t, "another is acknowledged", func() bool { return r.HeartbeatAcked() > acked+1 })
	if is := s.robot("r1").Status; is.HeartbeatSlice != before.HeartbeatSlice || !is.LastHeartbeatTime.Equal(before.LastHeartbeatTime) {
		t.Errorf("the status was written: %+v", is)
	}
}

// An administrator may delete a slice. Robots that are deleted leave it.
func TestGateway_CreatesDeletedSliceAgainAndDeletesEmptyOne(t *testing.T) {
	s := startWith(t, Config{OfflineAfter: 900 * time.Millisecond})
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", Heartbeat: 10 * time.Millisecond})
	eventually(t, "there is a slice", func() bool { return s.sliceOf("r1").FindHeartbeat(s.robot("r1")) != nil })
	if err := s.api.Delete(t.Context(), s.sliceOf("r1")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is created again", func() bool { return s.sliceOf("r1").FindHeartbeat(s.robot("r1")) != nil })
	r.Stop()
	slice := s.sliceOf("r1")
	if err := s.api.Delete(t.Context(), s.robot("r1")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the empty slice is deleted", func() bool {
		return apierrors.IsNotFound(s.api.Get(t.Context(), client.ObjectKeyFromObject(slice), slice))
	})
}

// If a slice is lost while no server runs, its silent robots get an entry again: the manager waits for it.
func TestGateway_AssignsRobotsOfLostSlice(t *testing.T) {
	r := newKnownRobot("Online", func(s *robotv1.RobotStatus) { s.HeartbeatSlice = sliceName(0) })
	g := newSweepingGateway(t, r)
	g.assignRobots()
	w := g.slices.planWrite(sliceKey(0))
	if w == nil || w.object.FindHeartbeat(r) == nil {
		t.Errorf("the slice is not written with the robot: %+v", w)
	}
}

// A heartbeat that cannot be acknowledged does not wait for the period of the slice.
func TestGateway_WritesSliceForHeartbeatThatCannotBeAcknowledged(t *testing.T) {
	r := newKnownRobot("Online")
	g := newSweepingGateway(t, r)
	g.recordHeartbeat("r1", robotv1.ProtocolV2, wire.Heartbeat{Seq: 1}, r)
	if n := g.sliceQueue.Len(); n != 1 {
		t.Errorf("%d slices are to be written", n)
	}
}

// After a conflict the slice is read past the cache, which may be behind, and written again.
func TestSyncSlice_ReadsAgainAfterConflict(t *testing.T) {
	r := newKnownRobot("Online")
	g := newSweepingGateway(t, r)
	g.client = fakeapi.NewBuilder(scheme(t)).Build()
	g.apiReader = g.client
	g.recordHeartbeat("r1", robotv1.ProtocolV2, wire.Heartbeat{Seq: 1}, r)
	stored := &robotv1.HeartbeatSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: sliceName(0)}}
	if err := g.client.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{"created", "updated", "deleted"} {
		if err := g.syncSlice(t.Context(), sliceKey(0)); !errors.Is(err, errStale) {
			t.Errorf("%s by another server: %v", change, err)
		}
		if err := g.syncSlice(t.Context(), sliceKey(0)); err != nil {
			t.Errorf("%s by another server, at the second try: %v", change, err)
		}
		if _, isCovered := g.slices.coverageOf("r1", g.uptime()); !isCovered {
			t.Errorf("%s by another server: the heartbeat cannot be acknowledged", change)
		}
		g.recordHeartbeat("r1", robotv1.ProtocolV2, wire.Heartbeat{Seq: 2}, r)
		err := g.client.Get(t.Context(), sliceKey(0), stored)
		if change == "created" {
			stored.AcknowledgmentPeriod.Duration++
			err = errors.Join(err, g.client.Update(t.Context(), stored))
		} else {
			err = errors.Join(err, g.client.Delete(t.Context(), stored))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The manager of the version before removes the field that it does not know. For it, the heartbeats
// are written to the status.
func TestGateway_WritesStatusForManagerWithoutSlices(t *testing.T) {
	g := newSweepingGateway(t, newKnownRobot("Online", func(s *robotv1.RobotStatus) { s.HeartbeatSlice = "heartbeats-0" }))
	now := 24 * time.Hour
	g.uptime = func() time.Duration { return now }
	if p := g.statusPeriod("r1"); p < 16*time.Minute {
		t.Errorf("with a manager that reads slices, the status is written every %s", p)
	}
	r := newKnownRobot("Online")
	r.ResourceVersion = "2"
	g.handleRobotUpdate(r)
	if p := g.statusPeriod("r1"); p > offlineAfter/3 {
		t.Errorf("the status is written every %s", p)
	}
	now += formerManagerFor + 1
	if p := g.statusPeriod("r1"); p < 16*time.Minute {
		t.Errorf("an hour after its last write, the status is written every %s", p)
	}
}

func TestGateway_DeletedRobotRegistersAgain(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", Heartbeat: 20 * time.Millisecond})
	defer r.Stop()
	a := s.startLegacyAgent(legacyagent.Config{RobotID: "d1", Heartbeat: 20 * time.Millisecond})
	for _, id := range []string{"r1", "d1"} {
		if err := s.api.Delete(t.Context(), s.robot(id)); err != nil {
			t.Fatal(err)
		}
		eventually(t, id+" is back", func() bool { r := s.robot(id); return r != nil && r.Status.Phase == "Online" })
	}
	_ = a
}

func TestGateway_UserCreatedRobotKeepsNamespaceAndLabels(t *testing.T) {
	existing := &robotv1.Robot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "field", Name: "r1", UID: "made"},
		Spec:       robotv1.RobotSpec{RobotID: "r1", Labels: map[string]string{"site": "mine"}},
	}
	s := start(t, existing)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", Labels: map[string]string{"site": "its", "arm": "yes"}})
	defer r.Stop()
	var got robotv1.Robot
	eventually(t, "the labels that the robot reports are added", func() bool {
		return s.api.Get(t.Context(), client.ObjectKeyFromObject(existing), &got) == nil && got.Spec.Labels["arm"] == "yes"
	})
	if got.Spec.Labels["site"] != "mine" {
		t.Errorf("labels %v", got.Spec.Labels)
	}
	if s.robot("r1") != nil {
		t.Error("a second Robot was created")
	}
}

func TestGateway_ContinuesAfterRestart(t *testing.T) {
	s := start(t)
	s.approveRobots()
	a := s.startLegacyAgent(legacyagent.Config{RobotID: "d1", Run: -1})
	r := s.startRobot(simrobot.Config{RobotID: "r1", Run: -1, Heartbeat: 50 * time.Millisecond})
	defer r.Stop()
	td, tr := s.createTask(newBoundTask("td", "d1")), s.createTask(newBoundTask("tr", "r1"))
	eventually(t, "both run", func() bool {
		return s.state("td") == lifecycle.TaskRunning && s.state("tr") == lifecycle.TaskRunning
	})
	s.stop()
	late := s.createTask(newBoundTask("late", "d1"))
	s.startServer(Config{})
	eventually(t, "the task that was bound while no server ran starts", func() bool { return s.state("late") == lifecycle.TaskRunning })
	seen := r.HeartbeatAcked()
	eventually(t, "heartbeats are acknowledged again", func() bool { return r.HeartbeatAcked() > seen+1 })
	runs := a.RunCounts()
	if runs[string(td.UID)] != 1 || runs[string(late.UID)] != 1 || r.StartCounts()[string(tr.UID)] != 1 {
		t.Errorf("runs %v, starts %v", runs, r.StartCounts())
	}
	if len(r.RunningTasks()) != 1 {
		t.Errorf("running %v", r.RunningTasks())
	}
}

func TestGateway_ResendsAfterBrokerRestart(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", Run: -1})
	task := s.createTask(newBoundTask("t1", "r1"))
	eventually(t, "t1 runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
	r.LoseConnection()
	s.stopBroker()
	eventually(t, "the server notices the disconnect", func() bool { return s.gateway.mqtt.checkUp() != nil })
	s.startBroker(strings.TrimPrefix(s.url, "mqtt://"))
	eventually(t, "the server has reconnected", func() bool { return s.gateway.mqtt.checkUp() == nil })
	l := s.newListener(wire.RobotTopic("r1", wire.KindState))
	eventually(t, "the list is published again", func() bool {
		payload, _ := l.lastPayload(wire.RobotTopic("r1", wire.KindState))
		list, err := wire.Decode[wire.TaskList](payload)
		return err == nil && len(list.Refs) == 1 && list.Refs[0].UID == string(task.UID) && list.Epoch > 0
	})
}

func TestGateway_RetriesFailedWrites(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	eventually(t, "it settles", func() bool { return s.condition("r1", robotv1.ConditionConnected) == "True HeartbeatReceived" })
	s.mu.Lock()
	s.refuse = 3
	s.mu.Unlock()
	s.createTask(newBoundTask("t1", "r1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	eventually(t, "and is acknowledged", func() bool { return r.UnacknowledgedCount() == 0 })
}

func TestGateway_AcknowledgesReportsOfDeletedTask(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", Run: -1})
	defer r.Stop()
	task := s.createTask(newBoundTask("t1", "r1"))
	eventually(t, "t1 runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
	s.gateway.syncedAt.Store(int64(s.gateway.uptime() - time.Hour))
	if err := s.api.Delete(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	eventually(t, "t1 is stopped", func() bool { return len(r.RunningTasks()) == 0 })
	eventually(t, "its end is acknowledged", func() bool { return r.UnacknowledgedCount() == 0 })
}

func TestGateway_RejectsTooLargeTask(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	huge := newBoundTask("t1", "r1")
	huge.Spec.Env = map[string]string{"X": strings.Repeat("x", wire.MaxPayload)}
	s.createTask(huge)
	eventually(t, "the attempt is over", func() bool { return s.state("t1") == lifecycle.TaskExited })
	if got := s.task("t1").Status; got.Reason != wire.ReasonRejected || !strings.Contains(got.Message, "256 KiB") {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
}

func TestGateway_InvalidMessagesDoNotAffectOthers(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", Heartbeat: 20 * time.Millisecond})
	defer r.Stop()
	topics := []string{
		wire.TopicRegister, wire.TopicHeartbeat, wire.RobotTopic("r1", wire.KindRegister), wire.RobotTopic("r1", wire.KindHeartbeat),
		wire.RobotTopic("r1", wire.KindPresence), wire.TaskTopic("r1", "x", wire.KindStatus), wire.TaskTopic("r1", "NO UID", wire.KindStatus),
		wire.RobotTopic("No_Robot", wire.KindRegister), wire.RobotTopic("unknown", wire.KindHeartbeat), wire.TaskTopic("unknown", "x", wire.KindStatus),
	}
	payloads := [][]byte{
		nil, []byte("{"), []byte("null"), []byte(`[]`), []byte(`{"robotId":"a/b"}`), []byte(`{"robotId":7}`), []byte("\x00\xff\xfe\x80"),
		[]byte(`{"robotId":"someone-else","taskUid":"other","robotName":"other"}`), bytes.Repeat([]byte("{"), wire.MaxPayload),
		bytes.Repeat([]byte("["), 100_000),
	}
	l := s.newListener(wire.RobotTopic("r1", wire.KindResponse))
	for _, topic := range topics {
		for _, payload := range payloads {
			l.publishPayload(topic, payload)
		}
		s.newListener().publishTooLarge(topic)
	}
	l.publishPayload(wire.RobotTopic("r1", wire.KindRegister), []byte("{"))
	eventually(t, "the refusal is answered", func() bool {
		// It may not be the last payload: the robot may have registered again since.
		return slices.ContainsFunc(l.payloads(wire.RobotTopic("r1", wire.KindResponse)), func(payload []byte) bool {
			answer, err := wire.Decode[wire.Response](payload)
			return err == nil && !answer.Success && answer.Message != ""
		})
	})
	s.createTask(newBoundTask("t1", "r1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	var all robotv1.RobotList
	if err := s.api.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, r := range all.Items {
		if r.Name != "r1" && r.Name != "someone-else" {
			t.Errorf("an invalid message created robot %q", r.Name)
		}
	}
}

func TestTaskList_OmitsEndedAttemptOfLegacyAgentBeforeWrite(t *testing.T) {
	s := start(t)
	s.approveRobots()
	a := s.startLegacyAgent(legacyagent.Config{RobotID: "d1", Run: -1})
	task := s.createTask(newBoundTask("t1", "d1"))
	eventually(t, "t1 runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
	s.set(func() { s.refuse = math.MaxInt })
	a.EndTask(string(task.UID))
	eventually(t, "the server has received the end", func() bool { return s.gateway.taskLists.hasEndRecorded(task.UID) })
	l := s.newListener(wire.RobotTopic("d1", wire.KindState))
	s.gateway.sendAll("d1", robotv1.ProtocolV1) // as when it registers again
	eventually(t, "the list is empty", func() bool {
		payload, _ := l.lastPayload(wire.RobotTopic("d1", wire.KindState))
		return string(payload) == `{"tasks":[]}`
	})
	s.set(func() { s.refuse = 0 })
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	if n := a.RunCounts()[string(task.UID)]; n != 1 {
		t.Errorf("ran %d times: a list named the ended attempt", n)
	}
}

func (l *taskLists) hasEndRecorded(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endedAttempts[uid] > 0
}

func TestGateway_WritesFinalReportAtOnce(t *testing.T) {
	s := startWith(t, Config{BatchWindow: time.Hour})
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	s.createTask(newBoundTask("t1", "r1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
}

func TestTaskList_DropsTaskThatEnds(t *testing.T) {
	for name, goes := range map[string]func(s *system, task *robotv1.Task){
		"it is deleted": func(s *system, task *robotv1.Task) {
			if err := s.api.Delete(s.t.Context(), task); err != nil {
				s.t.Fatal(err)
			}
		},
		"it is being stopped": func(s *system, _ *robotv1.Task) { s.editStatus("t1", stopping) },
		"it has ended": func(s *system, _ *robotv1.Task) {
			s.editStatus("t1", func(st *robotv1.TaskStatus) { st.State = "failed" })
		},
		"it waits for a robot again": func(s *system, _ *robotv1.Task) {
			s.editStatus("t1", func(st *robotv1.TaskStatus) { st.State = "pending" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.approveRobots()
			s.startLegacyAgent(legacyagent.Config{RobotID: "d1", Run: -1, SilentOnDelete: true})
			task := s.createTask(newBoundTask("t1", "d1"))
			topic := wire.RobotTopic("d1", wire.KindState)
			l := s.newListener(topic)
			eventually(t, "t1 runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
			s.gateway.sendAll("d1", robotv1.ProtocolV1) // as when the agent registers again
			eventually(t, "the list names it", func() bool { payload, _ := l.lastPayload(topic); return bytes.Contains(payload, []byte(task.UID)) })
			goes(s, task)
			eventually(t, "the list is empty", func() bool { payload, _ := l.lastPayload(topic); return string(payload) == `{"tasks":[]}` })
		})
	}
}

func TestTaskList_RestartedLegacyAgentGetsRemainingTasks(t *testing.T) {
	s := start(t)
	s.approveRobots()
	a := s.startLegacyAgent(legacyagent.Config{RobotID: "d1", Run: -1})
	ends, stays := s.createTask(newBoundTask("ends", "d1")), s.createTask(newBoundTask("stays", "d1"))
	eventually(t, "both run", func() bool {
		return s.state("ends") == lifecycle.TaskRunning && s.state("stays") == lifecycle.TaskRunning
	})
	a.SendReport(string(ends.UID), wire.Status{State: wire.ReportCompleted})
	// A broker acknowledges before it delivers, so messages of the restarted agent on its new
	// connection could overtake this one.
	eventually(t, "the server has written the end", func() bool { return s.state("ends") == lifecycle.TaskCompleted })
	a.Restart()
	eventually(t, "the agent runs the other task again", func() bool { return a.RunCounts()[string(stays.UID)] == 2 })
	if n := a.RunCounts()[string(ends.UID)]; n != 1 {
		t.Errorf("ran %d times: an outdated list started it again", n)
	}
}
