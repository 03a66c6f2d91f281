package gateway

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// stopLink is a link to a legacy agent that was out of contact when a task of it was canceled.
type stopLink struct {
	*longLink
	task    *robotv1.Task
	reports []report
}

func newStopLink() *stopLink {
	task := taskIn(lifecycle.TaskCanceled, 1, unconfirmed)
	l := &stopLink{longLink: newLongLink(task), task: task}
	l.addReport = func(r report) bool { l.reports = append(l.reports, r); return true }
	return l
}

func TestDownlink_StopsEndedTaskOfLegacyAgent(t *testing.T) {
	t.Run("nothing is sent before it is connected", func(t *testing.T) {
		l := newStopLink()
		l.passTime(time.Hour)
		if l.sent != 0 || len(l.reports) != 0 {
			t.Errorf("sent %d times, %d reports", l.sent, len(l.reports))
		}
	})
	t.Run("the end is recorded when the agent has had time to stop the task", func(t *testing.T) {
		l := newStopLink()
		l.passTime(time.Hour)
		l.setConnected(metav1.ConditionTrue)
		l.passTime(maxRepeat)
		if l.sent == 0 || len(l.reports) != 0 {
			t.Fatalf("sent %d times, %d reports", l.sent, len(l.reports))
		}
		l.passTime(releaseAfter)
		if len(l.reports) != 1 {
			t.Fatalf("%d reports", len(l.reports))
		}
		v := applyReport(l.at, l.task, l.reports[0])
		if a := v.status.FindAttempt(1); a.FinishedAt == nil || a.Reason != wire.ReasonStopped || v.status.State != string(lifecycle.TaskCanceled) {
			t.Errorf("the task is %s, its attempt %+v", v.status.State, a)
		}
	})
	t.Run("the time starts again when it disconnects", func(t *testing.T) {
		l := newStopLink()
		l.setConnected(metav1.ConditionTrue)
		l.passTime(releaseAfter - time.Second)
		l.setConnected(metav1.ConditionFalse)
		l.passTime(time.Hour)
		if l.sent == 0 || len(l.reports) != 0 {
			t.Errorf("sent %d times, %d reports", l.sent, len(l.reports))
		}
	})
	t.Run("it counts as stopped only if the agent sends messages", func(t *testing.T) {
		l := newStopLink()
		l.setConnected(metav1.ConditionTrue)
		for _, silentSince := range []time.Time{{}, l.at.Add(-time.Hour), l.at.Add(releaseAfter - 1)} {
			l.lastSeen = func(string) time.Time { return silentSince }
			l.passTime(time.Hour)
			if l.sent == 0 || len(l.reports) != 0 {
				t.Errorf("silent since %s: sent %d times, %d reports", silentSince, l.sent, len(l.reports))
			}
		}
		heard := l.at
		l.lastSeen = func(string) time.Time { return heard }
		l.passTime(maxRepeat)
		if len(l.reports) == 0 {
			t.Error("its end is not recorded after another message")
		}
	})
	t.Run("its answer ends the wait", func(t *testing.T) {
		l := newStopLink()
		l.setConnected(metav1.ConditionTrue)
		l.passTime(maxRepeat / 30)
		l.recordAnswer(report{robot: "r1", uid: l.task.UID, attempt: 1, legacy: true, Status: wire.Status{State: wire.ReportRunning, Event: eventFailed}})
		l.passTime(0)
		if len(l.reports) != 1 {
			t.Errorf("%d reports", len(l.reports))
		}
	})
	t.Run("nothing follows once the stop is confirmed", func(t *testing.T) {
		l := newStopLink()
		l.setConnected(metav1.ConditionTrue)
		done := atVersion(l.task.DeepCopy(), 100)
		done.Status.Attempts[0].FinishedAt = &metav1.MicroTime{Time: clock}
		l.objects.deliverTask(done)
		l.onTaskChanged(done.UID)
		l.passTime(time.Hour)
		if l.sent != 0 || len(l.reports) != 0 || len(l.items) != 0 {
			t.Errorf("sent %d times, %d reports, %d items", l.sent, len(l.reports), len(l.items))
		}
	})
	t.Run("a current agent is stopped by its list", func(t *testing.T) {
		l := newStopLink()
		l.protocolOf = func(string) string { return robotv1.ProtocolV2 }
		l.onTaskChanged(l.task.UID)
		l.setConnected(metav1.ConditionTrue)
		l.passTime(time.Hour)
		if l.sent != 0 || len(l.reports) != 0 {
			t.Errorf("sent %d times, %d reports", l.sent, len(l.reports))
		}
	})
}

// When a server starts, the Tasks may arrive before the Robots.
func TestGateway_StopsEndedTaskOfLegacyAgentAfterRestart(t *testing.T) {
	legacy := func(s *robotv1.RobotStatus) { s.Agent.Protocol = robotv1.ProtocolV1 }
	unknown := func(s *robotv1.RobotStatus) { s.Agent = nil }
	for _, row := range []struct {
		name  string
		robot *robotv1.Robot
		then  func(g *Gateway, r *robotv1.Robot)
		items int
	}{
		{name: "its Robot arrives after the Task", robot: newKnownRobot("Online", legacy), items: 1},
		{name: "its protocol is not known", robot: newKnownRobot("Online", unknown)},
		{"it registers", newKnownRobot("Online", unknown), func(g *Gateway, _ *robotv1.Robot) {
			_ = g.registerRobot("r1", robotv1.ProtocolV1, wire.Register{RobotID: "r1"})
		}, 1},
		{"it sends a heartbeat", newKnownRobot("Online", unknown), func(g *Gateway, r *robotv1.Robot) {
			g.recordHeartbeat("r1", robotv1.ProtocolV1, wire.Heartbeat{RobotID: "r1"}, r)
		}, 1},
		{name: "a current agent is stopped by its list", robot: newKnownRobot("Online")},
	} {
		g := newSweepingGateway(t, robotAged(namespace, "r2", 0))
		task := atVersion(taskIn(lifecycle.TaskCanceled, 1, unconfirmed), 7)
		g.handleTaskUpdate(task)
		row.robot.ResourceVersion = "8"
		g.handleRobotUpdate(row.robot)
		if row.then != nil {
			row.then(g, row.robot)
		}
		if i := g.downlink.items[task.UID]; len(g.downlink.items) != row.items || i != nil && (i.action != wire.ActionDelete || i.index < 0) {
			t.Errorf("%s: %d items, %+v", row.name, len(g.downlink.items), i)
		}
	}
}

func TestDownlink_StopsEndedTaskAgainAfterRegistration(t *testing.T) {
	l := newStopLink()
	l.setConnected(metav1.ConditionTrue)
	l.passTime(releaseAfter - time.Second)
	sent := l.sent
	l.onRobotRegistered("r1", l.objects.tasksOn("r1"), true)
	l.passTime(releaseAfter - time.Second)
	if l.sent == sent || len(l.reports) != 0 {
		t.Errorf("sent %d times, %d times then, %d reports: its agent has another connection", sent, l.sent-sent, len(l.reports))
	}
}
