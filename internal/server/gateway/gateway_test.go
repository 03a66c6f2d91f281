package bridge

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit/docagent"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
	"k8s4r.io/k8s4r/internal/wire"
)

func (s *system) sim(cfg simrobot.Config) *simrobot.Robot {
	s.t.Helper()
	cfg.Broker = s.url
	if cfg.RepeatEvery == 0 {
		cfg.RepeatEvery = 200 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	r, err := simrobot.Start(ctx, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *system) doc(cfg docagent.Config) *docagent.Agent {
	s.t.Helper()
	cfg.Broker = s.url
	a, err := docagent.Start(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(a.Stop)
	eventually(s.t, cfg.RobotID+" is accepted", a.Online)
	return a
}

func TestARobotOfOursRegistersAndRunsATask(t *testing.T) {
	s := start(t)
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1", Labels: map[string]string{"site": "hall"}})
	defer r.Stop()
	task := s.create(bound("t1", "r1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	eventually(t, "every report is acknowledged", func() bool { return r.Unacknowledged() == 0 })
	eventually(t, "a heartbeat is acknowledged", func() bool { return r.HeartbeatAcked() > 0 })
	if n := r.Starts()[string(task.UID)]; n != 1 {
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

// lasts is longer than a busy machine takes to hear of a start, and less than quietFor. Until the
// start is heard of, a dispatch is sent again and again here, and a document agent that is through
// with a task runs it once more; so it does with one that a list names which crosses its end.
const lasts = quietFor * 2 / 5

func TestADocumentAgentRegistersAndRunsATask(t *testing.T) {
	s := start(t)
	s.approve()
	a := s.doc(docagent.Config{RobotID: "d1", Run: lasts, RunningAfterTerminal: true})
	task := s.create(bound("t1", "d1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	if n := a.Runs()[string(task.UID)]; n != 1 {
		t.Errorf("ran %d times", n)
	}
	if p := s.robot("d1").Status.Agent.Protocol; p != "document" {
		t.Errorf("protocol is %q", p)
	}
}

func TestADocumentAgentWhoseHabitsAreOddGetsItsTaskToTheRightEnd(t *testing.T) {
	fails := func(string, int) int32 { return 143 }
	for _, row := range []struct {
		name  string
		agent docagent.Config
		want  lifecycle.TaskState
		code  int32
	}{
		{name: "it subscribes late", agent: docagent.Config{LateSubscription: 400 * time.Millisecond}, want: lifecycle.TaskCompleted},
		{name: "it says running after the end", agent: docagent.Config{RunningAfterTerminal: true, Exit: fails}, want: lifecycle.TaskExited, code: 143},
		{name: "it says a wrong exit code first, for a timeout", agent: docagent.Config{WrongExitFirst: "Timeout", Exit: fails}, want: lifecycle.TaskExited, code: 143},
		{name: "it says a wrong exit code first, for a launch", agent: docagent.Config{WrongExitFirst: "StartFailed", Exit: fails}, want: lifecycle.TaskExited, code: 143},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := start(t)
			s.approve()
			row.agent.RobotID, row.agent.Run = "d1", lasts
			a := s.doc(row.agent)
			task := s.create(bound("t1", "d1"))
			eventually(t, "the right end", func() bool {
				got := s.task("t1").Status
				return lifecycle.TaskState(got.State) == row.want && got.ExitCode != nil && *got.ExitCode == row.code
			})
			if n := a.Runs()[string(task.UID)]; n != 1 {
				t.Errorf("ran %d times", n)
			}
		})
	}
}

func TestASecondAttemptIsATaskOfItsOwnToADocumentAgent(t *testing.T) {
	s := start(t)
	s.approve()
	a := s.doc(docagent.Config{RobotID: "d1", Run: lasts, Exit: func(uid string, _ int) int32 { return int32(len(uid) % 2) }})
	task := s.create(bound("t1", "d1"))
	second := wire.AttemptUID(string(task.UID), 2)
	eventually(t, "the first attempt completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	s.edit("t1", func(st *robotv1.TaskStatus) {
		st.State, st.Attempt = string(lifecycle.TaskDispatching), 2
		st.Attempts = append(st.Attempts, robotv1.TaskAttempt{Attempt: 2, Robot: "d1"})
	})
	eventually(t, "the second attempt completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	if runs := a.Runs(); runs[string(task.UID)] != 1 || runs[second] != 1 {
		t.Errorf("runs: %v", runs)
	}
	a.Report(string(task.UID), wire.Status{State: wire.ReportFailed, ExitCode: 5})
	a.Report(second, wire.Status{State: wire.ReportPending})
	if got := s.task("t1").Status; got.State != "completed" || *got.ExitCode != 0 {
		t.Errorf("a late word about run 1 ended run 2: %+v", got)
	}
}

func TestDeletingATaskOfADocumentAgentTellsTheRobotFirst(t *testing.T) {
	for name, silent := range map[string]bool{"it answers": false, "it says nothing": true} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.approve()
			a := s.doc(docagent.Config{RobotID: "d1", Run: -1, SilentOnDelete: silent})
			task := bound("t1", "d1")
			task.Finalizers = []string{robotv1.FinalizerRobotTold}
			s.create(task)
			eventually(t, "t1 runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
			if err := s.api.Delete(t.Context(), task); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the task is gone", func() bool { return s.task("t1") == nil })
			if len(a.Deletes()) == 0 || len(a.Running()) != 0 {
				t.Errorf("deletes %v, running %v", a.Deletes(), a.Running())
			}
			a.Restart()
			eventually(t, "it is back", a.Online)
			l := s.listener(wire.RobotTopic("d1", wire.KindState))
			eventually(t, "the list is empty", func() bool {
				payload, _ := l.heard(wire.RobotTopic("d1", wire.KindState))
				return string(payload) == `{"tasks":[]}`
			})
			if n := a.Runs()[string(task.UID)]; n != 1 {
				t.Errorf("ran %d times: the list brought it back", n)
			}
		})
	}
}

func TestARobotOfOursStopsWhatIsDeleted(t *testing.T) {
	s := start(t)
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1", Run: -1})
	defer r.Stop()
	task := s.create(bound("t1", "r1"))
	other := s.create(bound("t2", "r1"))
	eventually(t, "both run", func() bool {
		return s.state("t1") == lifecycle.TaskRunning && s.state("t2") == lifecycle.TaskRunning
	})
	if err := s.api.Delete(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	eventually(t, "t1 is stopped", func() bool { return len(r.Running()) == 1 })
	if r.Running()[0] != string(other.UID) {
		t.Errorf("running %v", r.Running())
	}
}

func TestATaskThatIsStoppingIsDeletedFromItsRobotAndEndsCanceled(t *testing.T) {
	s := start(t)
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1", Run: -1})
	defer r.Stop()
	s.create(bound("t1", "r1"))
	eventually(t, "t1 runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
	s.edit("t1", stopping)
	eventually(t, "t1 is canceled", func() bool { return s.state("t1") == lifecycle.TaskCanceled })
	if m := s.task("t1").Status.Message; m != "job j1 was canceled" {
		t.Errorf("message %q", m)
	}
}

func TestADeafRobotIsShown(t *testing.T) {
	s := startWith(t, Config{DeafAfter: 300 * time.Millisecond})
	s.approve()
	a := s.doc(docagent.Config{RobotID: "d1", DeafAfterReconnect: true, Heartbeat: 20 * time.Millisecond})
	s.create(bound("t1", "d1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	a.Reconnect()
	s.create(bound("t2", "d1"))
	eventually(t, "the condition says so", func() bool { return s.condition("d1", robotv1.ConditionResponsive) == "False NoAnswer" })
	eventually(t, "an event says so", func() bool { return len(s.warned()) == 1 })
	a.Restart()
	eventually(t, "t2 completes", func() bool { return s.state("t2") == lifecycle.TaskCompleted })
	eventually(t, "the condition is over", func() bool { return s.condition("d1", robotv1.ConditionResponsive) == "True Answers" })
}

func TestPresence(t *testing.T) {
	t.Run("a robot that dies is known at once", func(t *testing.T) {
		s := start(t)
		s.approve()
		r := s.sim(simrobot.Config{RobotID: "r1"})
		eventually(t, "connected", func() bool { return s.condition("r1", robotv1.ConditionConnected) == "True Heard" })
		s.b.robots.change("r1", true, func(w *word) { w.registered = w.registered.Add(-staleWill) })
		r.Die()
		eventually(t, "its last will is written", func() bool { return s.condition("r1", robotv1.ConditionConnected) == "False LastWill" })
	})
	t.Run("a robot that says goodbye", func(t *testing.T) {
		s := start(t)
		s.approve()
		s.sim(simrobot.Config{RobotID: "r1"}).Stop()
		eventually(t, "its goodbye is written", func() bool { return s.condition("r1", robotv1.ConditionConnected) == "False SignedOff" })
	})
	t.Run("a robot that vanishes without a will", func(t *testing.T) {
		s := startWith(t, Config{OfflineAfter: 500 * time.Millisecond})
		s.approve()
		first, err := docagent.Start(docagent.Config{RobotID: "d1", Broker: s.url, Heartbeat: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "connected", func() bool { return s.condition("d1", robotv1.ConditionConnected) == "True Heard" })
		first.Stop()
		eventually(t, "its silence is written", func() bool { return s.condition("d1", robotv1.ConditionConnected) == "False Silent" })
		s.doc(docagent.Config{RobotID: "d1", Heartbeat: 20 * time.Millisecond})
		eventually(t, "its return is written", func() bool { return s.condition("d1", robotv1.ConditionConnected) == "True Heard" })
	})
	t.Run("the last will of the connection before does not hide a robot that is back", func(t *testing.T) {
		s := start(t)
		s.approve()
		r := s.sim(simrobot.Config{RobotID: "r1", Heartbeat: 20 * time.Millisecond})
		defer r.Stop()
		presence := s.listener(wire.RobotTopic("r1", wire.KindPresence))
		if err := r.Reconnect(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the will was sent", func() bool { _, n := presence.heard(wire.RobotTopic("r1", wire.KindPresence)); return n == 1 })
		seen := r.HeartbeatAcked()
		eventually(t, "the robot speaks", func() bool { return r.HeartbeatAcked() > seen+1 })
		eventually(t, "it is connected", func() bool { return s.condition("r1", robotv1.ConditionConnected) == "True Heard" })
		if w := s.b.robots.get("r1"); w.gone != "" || !w.doubtful.IsZero() {
			t.Errorf("word is %+v", w)
		}
	})
}

func TestADoubtfulWillIsProvenBySilence(t *testing.T) {
	w := word{}
	w.register(clock, robotv1.ProtocolK8s4r, wire.Register{})
	w.part(clock.Add(time.Second), wire.Presence{})
	if w.gone != "" || w.prove(clock.Add(30*time.Second)) {
		t.Error("believed too early")
	}
	silent := w
	if !silent.prove(clock.Add(time.Second+willProof)) || silent.gone != robotv1.ReasonLastWill {
		t.Error("never believed")
	}
	w.beat(clock.Add(30*time.Second), robotv1.ProtocolK8s4r, wire.Heartbeat{N: 1})
	if w.prove(clock.Add(time.Hour)) {
		t.Error("believed although the robot spoke")
	}
}

// Nothing but the sweep looks at a robot that says nothing any more.
func TestTheLastWordBeforeASilenceIsWritten(t *testing.T) {
	r := known("Online")
	r.Status.LastHeartbeatTime = &metav1.MicroTime{Time: time.Now()}
	s := startWith(t, Config{OfflineAfter: 12 * time.Second}, r)
	last := time.Now()
	s.b.robots.change("r1", true, func(w *word) { *w = heardAt(0); w.hear(last) })
	eventually(t, "it is written", func() bool {
		return s.robot("r1").Status.LastHeartbeatTime.Time.Equal(last.Truncate(time.Microsecond))
	})
	if got := s.condition("r1", robotv1.ConditionConnected); got != "True Heard" {
		t.Errorf("not before the robot is held to be gone: %s", got)
	}
}

func TestSilenceIsNoticedOnce(t *testing.T) {
	lastWill := func(s *robotv1.RobotStatus) { setConnected(s, word{gone: robotv1.ReasonLastWill}) }
	for _, row := range []struct {
		name     string
		robot    *robotv1.Robot
		heard    bool          // by this server, at the clock's time
		listened time.Duration // so long the server has
		after    time.Duration
		want     bool
	}{
		{name: "silent for as long as it may be", robot: known("Online"), heard: true, listened: time.Hour, after: offlineAfter, want: true},
		{name: "and not before", robot: known("Online"), heard: true, listened: time.Hour, after: offlineAfter - 1},
		{name: "heard by the server before alone", robot: known("Online"), listened: offlineAfter, after: offlineAfter, want: true},
		{name: "a server that has just started has not listened long enough", robot: known("Online"), listened: offlineAfter - 1, after: time.Hour},
		{name: "that its connection broke says more", robot: known("Unknown", lastWill), listened: time.Hour, after: time.Hour},
		{name: "one that nobody has ever heard", robot: newRobot(namespace, "r1", nil, word{}), listened: time.Hour, after: time.Hour},
	} {
		b, err := New(Config{MQTTURL: "mqtt://127.0.0.1:1", OfflineAfter: offlineAfter, AllowLegacy: true, AllowAnonymous: true}, Cluster{Client: fake.NewClientBuilder().Build()}, nil, logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		now := clock.Add(row.after)
		b.synced.Store(now.Add(-row.listened).UnixNano())
		row.robot.ResourceVersion = "1"
		b.view.putRobot(row.robot)
		if row.heard {
			b.robots.change("r1", true, func(w *word) { *w = heardAt(0) })
		}
		b.sweepOnce(now)
		if got := b.robotQueue.Len() == 1; got != row.want {
			t.Errorf("%s: to be written %v", row.name, got)
			continue
		}
		if row.want {
			id, _ := b.robotQueue.Get()
			b.robotQueue.Done(id)
			b.sweepOnce(now.Add(time.Second))
			if b.robotQueue.Len() != 0 {
				t.Errorf("%s: the next sweep writes it again", row.name)
			}
		}
	}
}

func TestSteadyHeartbeatsCostNextToNothing(t *testing.T) {
	s := startWith(t, Config{OfflineAfter: time.Hour})
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1", Heartbeat: 2 * time.Millisecond})
	defer r.Stop()
	eventually(t, "it settles", func() bool {
		return s.condition("r1", robotv1.ConditionConnected) == "True Heard" && r.HeartbeatAcked() > 10
	})
	before := s.writesTo("r1")
	seen := r.HeartbeatAcked()
	eventually(t, "100 heartbeats more", func() bool { return r.HeartbeatAcked() > seen+100 })
	if n := s.writesTo("r1") - before; n > 0 {
		t.Errorf("100 heartbeats cost %d writes", n)
	}
}

func TestTheHeartbeatTimeAdvances(t *testing.T) {
	s := startWith(t, Config{OfflineAfter: 900 * time.Millisecond})
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1", Heartbeat: 10 * time.Millisecond})
	defer r.Stop()
	eventually(t, "written once", func() bool { return s.robot("r1").Status.LastHeartbeatTime != nil })
	first := s.robot("r1").Status.LastHeartbeatTime.Time
	eventually(t, "and again", func() bool { return s.robot("r1").Status.LastHeartbeatTime.After(first.Add(500 * time.Millisecond)) })
}

func TestARobotWhoseObjectWasDeletedRegistersAgain(t *testing.T) {
	s := start(t)
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1", Heartbeat: 20 * time.Millisecond})
	defer r.Stop()
	a := s.doc(docagent.Config{RobotID: "d1", Heartbeat: 20 * time.Millisecond})
	for _, id := range []string{"r1", "d1"} {
		if err := s.api.Delete(t.Context(), s.robot(id)); err != nil {
			t.Fatal(err)
		}
		eventually(t, id+" is back", func() bool { r := s.robot(id); return r != nil && r.Status.Phase == "Online" })
	}
	_ = a
}

func TestARobotThatAPersonMadeKeepsItsNamespaceAndLabels(t *testing.T) {
	made := &robotv1.Robot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "field", Name: "r1", UID: "made"},
		Spec:       robotv1.RobotSpec{RobotID: "r1", Labels: map[string]string{"site": "mine"}},
	}
	s := start(t, made)
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1", Labels: map[string]string{"site": "its", "arm": "yes"}})
	defer r.Stop()
	var got robotv1.Robot
	eventually(t, "its own labels are filled in", func() bool {
		return s.api.Get(t.Context(), client.ObjectKeyFromObject(made), &got) == nil && got.Spec.Labels["arm"] == "yes"
	})
	if got.Spec.Labels["site"] != "mine" {
		t.Errorf("labels %v", got.Spec.Labels)
	}
	if s.robot("r1") != nil {
		t.Error("a second object was made")
	}
}

func TestAServerThatStartsAgainCarriesOn(t *testing.T) {
	s := start(t)
	s.approve()
	a := s.doc(docagent.Config{RobotID: "d1", Run: -1})
	r := s.sim(simrobot.Config{RobotID: "r1", Run: -1, Heartbeat: 50 * time.Millisecond})
	defer r.Stop()
	td, tr := s.create(bound("td", "d1")), s.create(bound("tr", "r1"))
	eventually(t, "both run", func() bool {
		return s.state("td") == lifecycle.TaskRunning && s.state("tr") == lifecycle.TaskRunning
	})
	s.stop()
	late := s.create(bound("late", "d1"))
	s.serve(Config{})
	eventually(t, "what was bound meanwhile runs", func() bool { return s.state("late") == lifecycle.TaskRunning })
	seen := r.HeartbeatAcked()
	eventually(t, "heartbeats go on", func() bool { return r.HeartbeatAcked() > seen+1 })
	runs := a.Runs()
	if runs[string(td.UID)] != 1 || runs[string(late.UID)] != 1 || r.Starts()[string(tr.UID)] != 1 {
		t.Errorf("runs %v, starts %v", runs, r.Starts())
	}
	if len(r.Running()) != 1 {
		t.Errorf("running %v", r.Running())
	}
}

func TestABrokerThatForgetsEverythingIsToldAgain(t *testing.T) {
	s := start(t)
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1", Run: -1})
	task := s.create(bound("t1", "r1"))
	eventually(t, "t1 runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
	r.Die()
	s.silence()
	eventually(t, "the server sees it", func() bool { return s.b.link.ready() != nil })
	s.listen(strings.TrimPrefix(s.url, "mqtt://"))
	eventually(t, "the server is back", func() bool { return s.b.link.ready() == nil })
	l := s.listener(wire.RobotTopic("r1", wire.KindState))
	eventually(t, "the list is back", func() bool {
		payload, _ := l.heard(wire.RobotTopic("r1", wire.KindState))
		list, err := wire.Decode[wire.TaskList](payload)
		return err == nil && len(list.Refs) == 1 && list.Refs[0].UID == string(task.UID) && list.Epoch > 0
	})
}

func TestAWriteThatFailsIsTriedAgain(t *testing.T) {
	s := start(t)
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	eventually(t, "it settles", func() bool { return s.condition("r1", robotv1.ConditionConnected) == "True Heard" })
	s.mu.Lock()
	s.refuse = 3
	s.mu.Unlock()
	s.create(bound("t1", "r1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	eventually(t, "and is acknowledged", func() bool { return r.Unacknowledged() == 0 })
}

func TestReportsAboutATaskThatIsGoneAreAcknowledged(t *testing.T) {
	s := start(t)
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1", Run: -1})
	defer r.Stop()
	task := s.create(bound("t1", "r1"))
	eventually(t, "t1 runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
	s.b.synced.Store(time.Now().Add(-time.Hour).UnixNano())
	if err := s.api.Delete(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	eventually(t, "t1 is stopped", func() bool { return len(r.Running()) == 0 })
	eventually(t, "its end is acknowledged", func() bool { return r.Unacknowledged() == 0 })
}

func TestATaskThatFitsNoMessageFailsWithASentence(t *testing.T) {
	s := start(t)
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	huge := bound("t1", "r1")
	huge.Spec.Env = map[string]string{"X": strings.Repeat("x", wire.MaxPayload)}
	s.create(huge)
	eventually(t, "the attempt is over", func() bool { return s.state("t1") == lifecycle.TaskExited })
	if got := s.task("t1").Status; got.Reason != wire.ReasonRejected || !strings.Contains(got.Message, "256 KiB") {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
}

func TestNonsenseOnEveryTopicHurtsNobodyElse(t *testing.T) {
	s := start(t)
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1", Heartbeat: 20 * time.Millisecond})
	defer r.Stop()
	topics := []string{
		wire.TopicRegister, wire.TopicHeartbeat, wire.RobotTopic("r1", wire.KindRegister), wire.RobotTopic("r1", wire.KindHeartbeat),
		wire.RobotTopic("r1", wire.KindPresence), wire.TaskTopic("r1", "x", wire.KindStatus), wire.TaskTopic("r1", "NO UID", wire.KindStatus),
		wire.RobotTopic("No_Robot", wire.KindRegister), wire.RobotTopic("stranger", wire.KindHeartbeat), wire.TaskTopic("stranger", "x", wire.KindStatus),
	}
	payloads := [][]byte{
		nil, []byte("{"), []byte("null"), []byte(`[]`), []byte(`{"robotId":"a/b"}`), []byte(`{"robotId":7}`), []byte("\x00\xff\xfe\x80"),
		[]byte(`{"robotId":"someone-else","taskUid":"other","robotName":"other"}`), bytes.Repeat([]byte("{"), wire.MaxPayload),
		bytes.Repeat([]byte("["), 100_000),
	}
	l := s.listener(wire.RobotTopic("r1", wire.KindResponse))
	for _, topic := range topics {
		for _, payload := range payloads {
			l.say(topic, payload)
		}
		s.listener().shout(topic)
	}
	l.say(wire.RobotTopic("r1", wire.KindRegister), []byte("{"))
	eventually(t, "the refusal is answered", func() bool {
		// Not the last one: the robot may have registered again since.
		return slices.ContainsFunc(l.payloads(wire.RobotTopic("r1", wire.KindResponse)), func(payload []byte) bool {
			answer, err := wire.Decode[wire.Response](payload)
			return err == nil && !answer.Success && answer.Message != ""
		})
	})
	s.create(bound("t1", "r1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	var all robotv1.RobotList
	if err := s.api.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, r := range all.Items {
		if r.Name != "r1" && r.Name != "someone-else" {
			t.Errorf("nonsense made a robot %q", r.Name)
		}
	}
}

func TestADocumentAgentIsNotAskedAgainWhileItsWordIsBeingWritten(t *testing.T) {
	s := start(t)
	s.approve()
	a := s.doc(docagent.Config{RobotID: "d1"})
	eventually(t, "it settles", func() bool { return s.condition("d1", robotv1.ConditionConnected) == "True Heard" })
	s.mu.Lock()
	s.refuse = 3 // for longer than some repeats
	s.mu.Unlock()
	task := s.create(bound("t1", "d1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	if n := a.Runs()[string(task.UID)]; n != 1 {
		t.Errorf("ran %d times: it forgets what has ended", n)
	}
}

func TestAnEndWaitsForNothing(t *testing.T) {
	s := startWith(t, Config{BatchWindow: time.Hour})
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	s.create(bound("t1", "r1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
}

func TestTheListIsCorrectedWhenATaskGoes(t *testing.T) {
	for name, goes := range map[string]func(s *system, task *robotv1.Task){
		"it is deleted": func(s *system, task *robotv1.Task) {
			if err := s.api.Delete(s.t.Context(), task); err != nil {
				s.t.Fatal(err)
			}
		},
		"it is to stop":  func(s *system, _ *robotv1.Task) { s.edit("t1", stopping) },
		"it has ended":   func(s *system, _ *robotv1.Task) { s.edit("t1", func(st *robotv1.TaskStatus) { st.State = "failed" }) },
		"it is returned": func(s *system, _ *robotv1.Task) { s.edit("t1", func(st *robotv1.TaskStatus) { st.State = "pending" }) },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.approve()
			s.doc(docagent.Config{RobotID: "d1", Run: -1, SilentOnDelete: true})
			task := s.create(bound("t1", "d1"))
			topic := wire.RobotTopic("d1", wire.KindState)
			l := s.listener(topic)
			eventually(t, "the list names it", func() bool { payload, _ := l.heard(topic); return bytes.Contains(payload, []byte(task.UID)) })
			eventually(t, "t1 runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
			goes(s, task)
			eventually(t, "the list is empty", func() bool { payload, _ := l.heard(topic); return string(payload) == `{"tasks":[]}` })
		})
	}
}

func TestADocumentAgentThatRestartsAmidEndsIsToldWhatIsLeft(t *testing.T) {
	s := start(t)
	s.approve()
	a := s.doc(docagent.Config{RobotID: "d1", Run: -1})
	ends, stays := s.create(bound("ends", "d1")), s.create(bound("stays", "d1"))
	topic := wire.RobotTopic("d1", wire.KindState)
	l := s.listener(topic)
	eventually(t, "the list names both", func() bool {
		payload, _ := l.heard(topic)
		return bytes.Contains(payload, []byte(ends.UID)) && bytes.Contains(payload, []byte(stays.UID))
	})
	eventually(t, "both run", func() bool { return len(a.Running()) == 2 })
	a.Report(string(ends.UID), wire.Status{State: wire.ReportCompleted})
	// A broker acknowledges before it delivers, so the restarted agent's words
	// could overtake this one on their new connection. The list still names
	// the task: it waits for a pause in the ends.
	eventually(t, "the server has heard of the end", func() bool { return s.state("ends") == lifecycle.TaskCompleted })
	a.Restart()
	eventually(t, "it runs again what it has not ended", func() bool { return a.Runs()[string(stays.UID)] == 2 })
	if n := a.Runs()[string(ends.UID)]; n != 1 {
		t.Errorf("ran %d times: the list from before its end brought it back", n)
	}
}
