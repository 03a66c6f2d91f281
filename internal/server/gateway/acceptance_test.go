package gateway

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// answerGateway is the part of a gateway that evaluates the answers of robot r1 to one dispatch. The
// test controls the time, and what the robot sends.
type answerGateway struct {
	*Gateway
	t     *testing.T
	at    time.Time
	task  *robotv1.Task
	acked []wire.TaskAck
}

// newAnswerGateway returns a gateway whose robot has registered, and that has dispatched the task.
func newAnswerGateway(t *testing.T, registration wire.Register, edit ...func(*robotv1.Task)) *answerGateway {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &answerGateway{t: t, at: clock, task: atVersion(taskIn(lifecycle.TaskDispatching, 1), 1)}
	for _, e := range edit {
		e(a.task)
	}
	d, objects, _ := newTestDownlink()
	now := func() time.Time { return a.at }
	a.Gateway = &Gateway{
		cfg: Config{UnresponsiveAfter: unresponsiveAfter, OfflineAfter: offlineAfter}, now: now, log: logr.Discard(), m: m,
		objects: objects, robots: newRobotStates(false, noUptime), robotQueue: newQueue[string](), downlink: d,
		acks:      &ackBatcher{send: func(_ string, k wire.Ack) { a.acked = append(a.acked, k.Tasks...) }},
		taskLists: &taskLists{now: now, objects: objects, protocolOf: alwaysV2},
	}
	a.taskLists.initMaps()
	a.reports = &reportWriter{now: now, objects: objects, m: m, log: logr.Discard()}
	a.reports.initWorkers()
	d.now, d.onOverdue = now, a.recordOverdue
	objects.putRobot(robotAged(namespace, "r1", 0))
	objects.deliverTask(a.task)
	a.robots.updateState("r1", true, func(w *robotState) { w.recordRegistration(now(), robotv1.ProtocolV2, registration) })
	d.onTaskChanged(a.task.UID)
	return a
}

// passTime advances the time by seconds, in which the robot sends heartbeats every 30 s if isUp.
func (a *answerGateway) passTime(d time.Duration, isUp bool) {
	for end := a.at.Add(d); a.at.Before(end); a.at = a.at.Add(time.Second) {
		if isUp && a.at.Sub(clock)%(30*time.Second) == 0 {
			a.robots.updateState("r1", true, func(w *robotState) { w.recordHeartbeat(a.at, robotv1.ProtocolV2, wire.Heartbeat{Seq: 1}) })
		}
		for a.downlink.sendNext() {
		}
		a.reportAccepted(a.at)
	}
	a.applyReports()
}

// receivePending delivers the robot's answer.
func (a *answerGateway) receivePending() {
	s := wire.Status{TaskUID: string(a.task.UID), State: wire.ReportPending, Attempt: 1, Seq: 1, UpdatedAt: a.at}
	payload, err := wire.Encode(s)
	if err != nil {
		a.t.Fatal(err)
	}
	address, err := wire.ParseTopic(wire.TaskTopic("r1", s.TaskUID, wire.KindStatus))
	if err != nil {
		a.t.Fatal(err)
	}
	if err := a.handleStatus(inbound{address, wire.TaskTopic("r1", s.TaskUID, wire.KindStatus), payload, ""}); err != nil {
		a.t.Fatal(err)
	}
}

// applyReports applies the queued reports to the task.
func (a *answerGateway) applyReports() {
	for _, r := range a.reports.takeAll() {
		a.setTask(func(t *robotv1.Task) {
			if v := applyReport(a.at, t, r); v.status != nil {
				t.Status = *v.status
			}
		})
	}
}

func (a *answerGateway) setTask(edit func(*robotv1.Task)) {
	next := a.task.DeepCopy()
	edit(next)
	a.task = atVersion(next, versionOf(a.task.ResourceVersion)+1)
	a.objects.deliverTask(a.task)
	a.downlink.onTaskChanged(a.task.UID)
}

// accepted returns status and time of the condition, as text.
func (a *answerGateway) condition() string {
	c := meta.FindStatusCondition(a.task.Status.Conditions, robotv1.ConditionAccepted)
	if c == nil {
		return "none"
	}
	return string(c.Status) + " since " + c.LastTransitionTime.Sub(clock).String()
}

func TestGateway_RecordsAcceptance(t *testing.T) {
	answers := wire.Register{AnswersDispatches: true}
	timeoutOf := func(d time.Duration) func(*robotv1.Task) {
		return func(t *robotv1.Task) { t.Spec.DispatchTimeout = robotv1.NewDuration(d) }
	}
	for _, c := range []struct {
		name string
		in   *answerGateway
		run  func(a *answerGateway)
		want string
	}{
		{"a robot that answers and starts within 10 s causes no write", newAnswerGateway(t, answers), func(a *answerGateway) {
			a.passTime(time.Second, true)
			a.receivePending()
			a.passTime(9*time.Second, true)
			a.setTask(func(t *robotv1.Task) { t.Status.State = string(lifecycle.TaskRunning) })
			a.passTime(time.Hour, true)
		}, "none"},
		{"one that takes longer is recorded since its answer", newAnswerGateway(t, answers), func(a *answerGateway) {
			a.passTime(time.Second, true)
			a.receivePending()
			a.passTime(time.Hour, true)
		}, "True since 1s"},
		{"a connected robot that does not answer is recorded since the first dispatch", newAnswerGateway(t, answers),
			func(a *answerGateway) { a.passTime(2*time.Minute, true) }, "False since 0s"},
		{"and not before the timeout", newAnswerGateway(t, answers), func(a *answerGateway) { a.passTime(time.Minute, true) }, "none"},
		{"the timeout can be longer", newAnswerGateway(t, answers, timeoutOf(time.Hour)), func(a *answerGateway) { a.passTime(59*time.Minute, true) }, "none"},
		{"and ends", newAnswerGateway(t, answers, timeoutOf(time.Hour)), func(a *answerGateway) { a.passTime(61*time.Minute, true) }, "False since 0s"},
		{"a robot that sends nothing is left to the rules for disconnected robots", newAnswerGateway(t, answers),
			func(a *answerGateway) { a.passTime(2*time.Minute, false) }, "none"},
		{"an agent of the previous version may be silent until the task runs", newAnswerGateway(t, wire.Register{}),
			func(a *answerGateway) { a.passTime(time.Hour, true) }, "none"},
		{"an answer after the timeout corrects the condition", newAnswerGateway(t, answers), func(a *answerGateway) {
			a.passTime(2*time.Minute, true)
			a.receivePending()
			a.passTime(time.Minute, true)
		}, "True since 2m0s"},
		{"the time does not count while a secret is missing", newAnswerGateway(t, answers), func(a *answerGateway) {
			a.passTime(50*time.Second, true)
			a.downlink.restartTimeout(a.task.UID)
			a.passTime(50*time.Second, true)
		}, "none"},
		{"a condition of a missing secret comes first", newAnswerGateway(t, answers, func(t *robotv1.Task) {
			meta.SetStatusCondition(&t.Status.Conditions, metav1.Condition{Type: robotv1.ConditionSecretsReady, Status: metav1.ConditionFalse, Reason: reasonSecretMissing})
		}), func(a *answerGateway) { a.passTime(2*time.Minute, true) }, "none"},
		{"the time starts again when the agent registers", newAnswerGateway(t, answers), func(a *answerGateway) {
			a.passTime(50*time.Second, true)
			a.downlink.onRobotRegistered("r1", a.objects.tasksOn("r1"), false)
			a.passTime(50*time.Second, true)
		}, "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.run(c.in)
			if got := c.in.condition(); got != c.want {
				t.Errorf("condition Accepted: %s, want %s", got, c.want)
			}
		})
	}
}

func TestGateway_AcknowledgesAnswerWithoutWrite(t *testing.T) {
	synctest.Test(t, testAnswerIsAcknowledged)
}

func testAnswerIsAcknowledged(t *testing.T) {
	a := newAnswerGateway(t, wire.Register{AnswersDispatches: true})
	defer a.robotQueue.ShutDown()
	a.passTime(time.Second, true)
	a.receivePending()
	if len(a.reports.takeAll()) > 0 {
		t.Error("the answer waits for a write, and would end a batch with the start too early")
	}
	time.Sleep(time.Second)
	synctest.Wait()
	if len(a.acked) != 1 || a.acked[0].Seq != 1 {
		t.Errorf("acknowledged %+v", a.acked)
	}
}

// After the timeout the robot must not start the attempt any more.
func TestWantedAction_DispatchTimeout(t *testing.T) {
	task := taskIn(lifecycle.TaskUnknown, 1, func(s *robotv1.TaskStatus) { s.Reason = robotv1.ReasonDispatchTimeout })
	if action := wantedAction(task); action != wire.ActionDelete || isListed(task) {
		t.Errorf("action %q, in the task list: %t; want a delete", action, isListed(task))
	}
	if lost := taskIn(lifecycle.TaskUnknown, 1, func(s *robotv1.TaskStatus) { s.Reason = "RobotLost" }); wantedAction(lost) != wire.ActionCreate || !isListed(lost) {
		t.Error("a task on a disconnected robot is stopped, although it may be running")
	}
}

// A start ends the time for the answer, and the condition with it.
func TestApplyReport_StartRemovesAcceptance(t *testing.T) {
	for _, state := range []string{wire.ReportRunning, wire.ReportCompleted, wire.ReportFailed} {
		task := taskIn(lifecycle.TaskDispatching, 1)
		since := &acceptance{accepted: true, since: clock}
		next, _ := applyReports(clock, task, []report{{robot: "r1", attempt: 1, acceptance: since}, reportOf(state, "", 0)})
		if len(next.Status.Conditions) != 0 {
			t.Errorf("%s: conditions %+v", state, next.Status.Conditions)
		}
	}
}

// The wire format of dispatches stays as it is: no robot needs the timeout.
func TestEncodeDispatch_OmitsDispatchTimeout(t *testing.T) {
	task := taskIn(lifecycle.TaskDispatching, 1)
	task.Spec.DispatchTimeout = robotv1.NewDuration(time.Hour)
	for _, protocol := range []string{robotv1.ProtocolV1, robotv1.ProtocolV2} {
		payload, err := encodeDispatch(wire.ActionCreate, task, protocol, 1, "uid", nil, nil, nil)
		if err != nil || strings.Contains(string(payload), "dispatchTimeout") {
			t.Errorf("%s: %s, %v", protocol, payload, err)
		}
	}
}
