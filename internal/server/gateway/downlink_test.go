package gateway

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// newTestDownlink returns a downlink whose robot never answers, and the number of messages sent.
func newTestDownlink() (*downlink, *objectIndex, *int) {
	sent, v := 0, newObjectIndex()
	d := &downlink{
		now: func() time.Time { return clock }, objects: v, protocolOf: func(string) string { return robotv1.ProtocolV2 },
		dispatchEpoch: func(*robotv1.Task) uint64 { return 1 }, upConnection: func() int64 { return 1 }, repeatPause: minRepeat,
		publish: func(int64, string, *robotv1.Task, []byte) bool { sent++; return true },
	}
	d.initMaps()
	return d, v, &sent
}

func TestDownlink_ToleratesReorderedEvents(t *testing.T) {
	t.Run("a late event of our own write does not undo a dispatch", func(t *testing.T) {
		d, v, sent := newTestDownlink()
		ended := atVersion(taskIn(lifecycle.TaskExited, 1), 7)
		again := atVersion(taskIn(lifecycle.TaskDispatching, 2), 9)
		again.UID = ended.UID
		v.deliverTask(ended)
		v.deliverTask(again)
		d.onTaskChanged(again.UID)
		d.onTaskChanged(ended.UID) // an event with an older version
		if !d.sendNext() || *sent != 1 {
			t.Errorf("sent %d times", *sent)
		}
	})
	t.Run("a deleted task is forgotten", func(t *testing.T) {
		d, v, sent := newTestDownlink()
		task := atVersion(taskIn(lifecycle.TaskDispatching, 1), 7)
		v.deliverTask(task)
		v.removeTask(task)
		d.onTaskRemoved(task)
		d.onTaskChanged(task.UID)
		if !d.sendNext() || d.sendNext() || *sent != 1 || len(d.items) != 0 {
			t.Errorf("sent %d times, %d items left", *sent, len(d.items))
		}
	})
}

// longLink is a downlink to r1, a legacy agent. The test controls its time and connection.
type longLink struct {
	*downlink
	at       time.Time
	link     int64 // the current connection; 0 if there is none
	sent     int
	released int
	version  uint64 // of the Robot
	silences []overdueDispatch
}

func newLongLink(tasks ...*robotv1.Task) *longLink {
	d, v, _ := newTestDownlink()
	l := &longLink{downlink: d, at: clock, link: 1, version: 10}
	d.now, d.upConnection = func() time.Time { return l.at }, func() int64 { return l.link }
	d.protocolOf, d.legacyGrace = func(string) string { return robotv1.ProtocolV1 }, releaseAfter
	d.publish = func(int64, string, *robotv1.Task, []byte) bool { l.sent++; return true }
	d.releaseTask = func(types.UID) { l.released++ }
	d.onOverdue = func(o overdueDispatch) { l.silences = append(l.silences, o) }
	d.lastSeen = func(string) time.Time { return l.at }
	v.putRobot(robotAged(namespace, "r1", 0))
	for n, task := range tasks {
		v.deliverTask(atVersion(task, uint64(n+1)))
		d.onTaskChanged(task.UID)
	}
	return l
}

func (l *longLink) setConnected(is metav1.ConditionStatus) {
	r := l.objects.robot("r1").DeepCopy()
	l.version++
	meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: robotv1.ConditionConnected, Status: is, Reason: "Test"})
	r.ResourceVersion = strconv.FormatUint(l.version, 10)
	l.objects.putRobot(r)
}

// passTime advances the time and sends what becomes due.
func (l *longLink) passTime(d time.Duration) {
	for end := l.at.Add(d); ; l.at = l.at.Add(min(l.untilDue(), end.Sub(l.at))) {
		for l.sendNext() {
		}
		if !l.at.Before(end) {
			return
		}
	}
}

func TestDownlink_RepeatsDispatchWithGrowingDelay(t *testing.T) {
	l := newLongLink(taskIn(lifecycle.TaskDispatching, 1))
	l.passTime(0)
	for i, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, maxRepeat, maxRepeat} {
		l.passTime(pause - 1)
		early := l.sent
		l.passTime(1)
		if early != i+1 || l.sent != i+2 {
			t.Errorf("pause %d is not %s: sent %d times before its end, %d then", i+1, pause, early, l.sent)
		}
	}
}

// newDeletedTask returns a Task that is being deleted while its robot runs it.
func newDeletedTask() *robotv1.Task {
	t := taskIn(lifecycle.TaskRunning, 1)
	t.DeletionTimestamp, t.Finalizers = &metav1.Time{Time: clock}, []string{robotv1.FinalizerRobotNotified}
	return t
}

func TestDownlink_ReleasesDeletedTaskAfterNotification(t *testing.T) {
	for name, cannot := range map[string]func(*longLink){
		"the broker is unavailable":   func(l *longLink) { l.link = 0 },
		"no room for another message": func(l *longLink) { l.publish = func(int64, string, *robotv1.Task, []byte) bool { return false } },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLongLink(newDeletedTask())
			l.setConnected(metav1.ConditionTrue)
			publish := l.publish
			cannot(l)
			l.passTime(time.Hour)
			if l.released != 0 {
				t.Fatal("released before its robot was notified")
			}
			l.link, l.publish = 2, publish
			l.resendAll()
			l.passTime(releaseAfter / 2)
			if l.sent == 0 || l.released != 0 {
				t.Errorf("sent %d times, released %d times: the grace period must begin when the delete is sent", l.sent, l.released)
			}
			l.passTime(releaseAfter)
			if l.released == 0 {
				t.Error("not released")
			}
		})
	}
	t.Run("the broker becomes unavailable after the delete was sent", func(t *testing.T) {
		l := newLongLink(newDeletedTask())
		l.setConnected(metav1.ConditionTrue)
		l.passTime(releaseAfter / 2)
		l.link = 0
		l.passTime(time.Hour)
		if l.sent == 0 || l.released != 0 {
			t.Errorf("sent %d times, released %d times: the delete may have been lost with the connection", l.sent, l.released)
		}
	})
	t.Run("a robot out of contact is waited for", func(t *testing.T) {
		l := newLongLink(newDeletedTask())
		l.setConnected(metav1.ConditionFalse)
		l.passTime(time.Hour)
		l.setConnected(metav1.ConditionTrue)
		l.onRobotRegistered("r1", l.objects.tasksOn("r1"), true)
		l.passTime(releaseAfter - 1)
		if l.released != 0 {
			t.Errorf("released %d times before it had time to stop the task", l.released)
		}
		l.passTime(1)
		if l.released == 0 {
			t.Error("not released")
		}
	})
	t.Run("a robot that is silent is waited for until its next message", func(t *testing.T) {
		l := newLongLink(newDeletedTask())
		l.setConnected(metav1.ConditionTrue)
		last := l.at.Add(releaseAfter - 1)
		l.lastSeen = func(string) time.Time { return last }
		l.passTime(time.Hour)
		if l.onLegacyHeartbeat("r1"); l.sendNext() || l.released != 0 {
			t.Errorf("released %d times although it may have left", l.released)
		}
		last = l.at
		if l.onLegacyHeartbeat("r1"); !l.sendNext() || l.released == 0 {
			t.Error("not released after its next message")
		}
	})
	t.Run("a robot that has never sent a message is not waited for", func(t *testing.T) {
		l := newLongLink()
		l.protocolOf = func(string) string { return "" }
		task := newDeletedTask()
		l.objects.deliverTask(atVersion(task, 1))
		l.onTaskChanged(task.UID)
		l.passTime(0)
		if l.released == 0 {
			t.Error("not released for a robot without a protocol")
		}
	})
}

func TestDownlink_DeletionWaitsForConnection(t *testing.T) {
	task := taskIn(lifecycle.TaskRunning, 1)
	l := newLongLink(task)
	l.link = 0
	l.onTaskRemoved(l.objects.removeTask(task))
	l.passTime(time.Hour)
	l.link = 2
	l.resendAll()
	l.passTime(time.Hour)
	if l.sent != 1 || len(l.items) != 0 {
		t.Errorf("sent %d times, %d items left", l.sent, len(l.items))
	}
}

func TestDownlink_CountsOnlySentDispatchesAsUnanswered(t *testing.T) {
	t.Run("dispatches that were sent", func(t *testing.T) {
		l := newLongLink(taskIn(lifecycle.TaskDispatching, 1))
		l.passTime(time.Hour)
		if len(l.silences) == 0 || !l.silences[0].since.Equal(clock) {
			t.Errorf("overdue dispatches: %+v", l.silences)
		}
	})
	t.Run("a task in unknown, which a legacy agent is not sent", func(t *testing.T) {
		l := newLongLink(taskIn(lifecycle.TaskUnknown, 1))
		l.passTime(time.Hour)
		if l.sent != 0 || len(l.silences) != 0 {
			t.Errorf("sent %d times, overdue dispatches: %+v", l.sent, l.silences)
		}
	})
	t.Run("after the broker was unavailable", func(t *testing.T) {
		l := newLongLink(taskIn(lifecycle.TaskDispatching, 1))
		l.link = 0
		l.passTime(time.Hour)
		l.link = 2
		back := l.at
		l.resendAll()
		l.passTime(time.Hour)
		if len(l.silences) == 0 || l.silences[0].since.Before(back) {
			t.Errorf("overdue dispatches: %+v; the broker has been available since %s", l.silences, back)
		}
	})
	t.Run("since its agent registered", func(t *testing.T) {
		l := newLongLink(taskIn(lifecycle.TaskDispatching, 1))
		l.passTime(10 * time.Second)
		back := l.at
		l.onRobotRegistered("r1", l.objects.tasksOn("r1"), true)
		l.passTime(time.Hour)
		if len(l.silences) == 0 || l.silences[0].since.Before(back) {
			t.Errorf("overdue dispatches: %+v; it registered at %s", l.silences, back)
		}
	})
}
