package gateway

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/legacyagent"
)

// recordDispatches makes a downlink record the tasks that it dispatches.
func (l *longLink) recordDispatches() *[]types.UID {
	var sent []types.UID
	l.publish = func(_ int64, _ string, t *robotv1.Task, _ []byte) bool {
		sent = append(sent, t.UID)
		return true
	}
	return &sent
}

func (l *longLink) answer(uid types.UID) {
	l.recordAnswer(report{robot: "r1", uid: uid, attempt: 1, legacy: true, Status: wire.Status{State: wire.ReportPending}})
}

func newDispatches(n int) (tasks []*robotv1.Task) {
	for range n {
		tasks = append(tasks, taskIn(lifecycle.TaskDispatching, 1))
	}
	return tasks
}

func TestDownlink_LegacyAgentGetsOneDispatchAtATime(t *testing.T) {
	t.Run("the next is sent when the last was answered", func(t *testing.T) {
		l := newLongLink(newDispatches(30)...)
		sent := l.recordDispatches()
		for n := range 30 {
			l.passTime(0)
			if len(*sent) != n+1 {
				t.Fatalf("%d dispatches after %d answers", len(*sent), n)
			}
			l.answer((*sent)[n])
		}
	})
	t.Run("or after the timeout", func(t *testing.T) {
		l := newLongLink(newDispatches(2)...)
		sent := l.recordDispatches()
		l.passTime(legacyAnswerTimeout - 1)
		first := map[types.UID]bool{}
		for _, uid := range *sent {
			first[uid] = true
		}
		if len(first) != 1 {
			t.Fatalf("%d tasks were dispatched before the timeout", len(first))
		}
		l.passTime(time.Hour)
		for _, uid := range *sent {
			first[uid] = true
		}
		if len(first) != 2 {
			t.Error("a dispatch without an answer blocks all others")
		}
	})
	t.Run("the deletion of the unanswered task lets the next be sent", func(t *testing.T) {
		l := newLongLink(newDispatches(2)...)
		sent := l.recordDispatches()
		l.passTime(0)
		l.onTaskRemoved(l.objects.removeTask(l.objects.task((*sent)[0])))
		l.passTime(0)
		if tasks := slices.Compact(slices.Sorted(slices.Values(*sent))); len(*sent) != 3 || len(tasks) != 2 {
			t.Errorf("sent %v, want a delete and the other dispatch", *sent)
		}
	})
	t.Run("an agent of protocol v2 gets all at once", func(t *testing.T) {
		l := newLongLink(newDispatches(3)...)
		l.protocolOf = func(string) string { return robotv1.ProtocolV2 }
		sent := l.recordDispatches()
		l.passTime(0)
		if len(*sent) != 3 {
			t.Errorf("%d dispatches", len(*sent))
		}
	})
}

func TestDownlink_WaitsTenSecondsForSilentLegacyAgent(t *testing.T) {
	l := newLongLink(newDeletedTask())
	l.setConnected(metav1.ConditionTrue)
	l.passTime(releaseAfter - time.Millisecond)
	if l.released != 0 {
		t.Error("released too early")
	}
	l.passTime(time.Millisecond)
	if l.released == 0 {
		t.Error("not released after 10 s")
	}
}

// Two legacy agents that wait for themselves while they handle a message complete a burst of tasks,
// whether they are connected when the tasks are created, or connect later.
func TestGateway_LegacyAgentsCompleteBurst(t *testing.T) {
	for _, connectFirst := range []bool{true, false} {
		t.Run(map[bool]string{true: "agents first", false: "tasks first"}[connectFirst], func(t *testing.T) {
			s := start(t)
			s.approveRobots()
			connect := func() {
				for _, id := range []string{"d1", "d2"} {
					s.startLegacyAgent(legacyagent.Config{RobotID: id, WaitsInHandler: true, NoTasksAfterReconnect: true, Run: 100 * time.Millisecond})
				}
			}
			if connectFirst {
				connect()
			}
			var names []string
			for n := range 30 {
				names = append(names, "t"+string(rune('a'+n%26))+string(rune('a'+n/26)))
				s.createTask(newBoundTask(names[n], []string{"d1", "d2"}[n%2]))
			}
			if !connectFirst {
				connect()
			}
			for _, name := range names {
				eventually(t, name+" completes", func() bool { return s.state(name) == lifecycle.TaskCompleted })
			}
		})
	}
}

func TestGateway_DropsReportWithoutAttempt(t *testing.T) {
	for _, attempt := range []string{"", `"attempt":0,`, `"attempt":-1,`, `"attempt":null,`} {
		s := start(t, newJoinedRobot("r1"))
		s.receiveMessage(wire.RobotTopic("r1", wire.KindRegister), `{}`)
		s.createTask(newBoundTask("t1", "r1"))
		eventually(t, "the server has seen the task", func() bool { return s.gateway.objects.task(s.task("t1").UID) != nil })
		uid := string(s.task("t1").UID)
		s.receiveMessage(wire.TaskTopic("r1", uid, wire.KindStatus), `{`+attempt+`"state":"completed"}`)
		if n := s.countDropped(wire.KindStatus, dropMalformed); n != 1 {
			t.Errorf("%q: %v reports were dropped", attempt, n)
		}
		s.receiveMessage(wire.TaskTopic("r1", uid, wire.KindStatus), `{"attempt":1,"state":"running"}`)
		eventually(t, "the next report is stored", func() bool { return s.state("t1") == lifecycle.TaskRunning })
	}
}

func TestGateway_RefusesRobotWithNameOfProgram(t *testing.T) {
	s := start(t)
	for _, topic := range []string{wire.TopicRegister, wire.RobotTopic(wire.ServerName, wire.KindRegister), wire.TopicHeartbeat} {
		s.receiveMessage(topic, `{"robotId":"`+wire.ServerName+`"}`)
	}
	eventually(t, "it is logged", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(strings.Join(s.log, "\n"), "reserved for a program")
	})
	if s.robot(wire.ServerName) != nil {
		t.Error("a robot was created")
	}
}
