package bridge

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// quietLink is a downlink whose robot never answers, and how often it sent.
func quietLink() (*downlink, *view, *int) {
	sent, v := 0, newView()
	d := &downlink{
		now: func() time.Time { return clock }, view: v, dialect: func(string) string { return robotv1.ProtocolK8s4r },
		epoch: func(*robotv1.Task) uint64 { return 1 }, up: func() int64 { return 1 }, pause: repeatFirst,
		publish: func(int64, string, *robotv1.Task, []byte) bool { sent++; return true },
	}
	d.init()
	return d, v, &sent
}

func TestNewsThatComeInTheWrongOrder(t *testing.T) {
	t.Run("our own write, told late, does not take back a dispatch", func(t *testing.T) {
		d, v, sent := quietLink()
		ended := at(taskIn(lifecycle.TaskExited, 1), 7)
		again := at(taskIn(lifecycle.TaskDispatching, 2), 9)
		again.UID = ended.UID
		v.deliverTask(ended)
		v.deliverTask(again)
		d.changed(again.UID)
		d.changed(ended.UID) // of the older version
		if !d.fireOne() || *sent != 1 {
			t.Errorf("sent %d times", *sent)
		}
	})
	t.Run("a task that is gone is not remembered", func(t *testing.T) {
		d, v, sent := quietLink()
		task := at(taskIn(lifecycle.TaskDispatching, 1), 7)
		v.deliverTask(task)
		v.removeTask(task)
		d.removed(task)
		d.changed(task.UID)
		if !d.fireOne() || d.fireOne() || *sent != 1 || len(d.items) != 0 {
			t.Errorf("sent %d times, %d items left", *sent, len(d.items))
		}
	})
}

// longLink is a downlink to r1, with a document agent, at a time and over a link
// that the test moves.
type longLink struct {
	*downlink
	at       time.Time
	link     int64 // the connection that is up; zero: none
	sent     int
	released int
	silences []overdue
}

func newLongLink(tasks ...*robotv1.Task) *longLink {
	d, v, _ := quietLink()
	l := &longLink{downlink: d, at: clock, link: 1}
	d.now, d.up = func() time.Time { return l.at }, func() int64 { return l.link }
	d.dialect, d.patient = func(string) string { return robotv1.ProtocolDocument }, releaseAfter
	d.publish = func(int64, string, *robotv1.Task, []byte) bool { l.sent++; return true }
	d.release = func(types.UID) { l.released++ }
	d.silent = func(o overdue) { l.silences = append(l.silences, o) }
	v.putRobot(robotAged(namespace, "r1", 0))
	for n, task := range tasks {
		v.deliverTask(at(task, uint64(n+1)))
		d.changed(task.UID)
	}
	return l
}

// pass lets time pass, in which all is sent that is due.
func (l *longLink) pass(d time.Duration) {
	for end := l.at.Add(d); ; l.at = l.at.Add(min(l.untilDue(), end.Sub(l.at))) {
		for l.fireOne() {
		}
		if !l.at.Before(end) {
			return
		}
	}
}

func TestADispatchIsRepeatedWithGrowingPauses(t *testing.T) {
	l := newLongLink(taskIn(lifecycle.TaskDispatching, 1))
	l.pass(0)
	for i, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, repeatLast, repeatLast} {
		l.pass(pause - 1)
		early := l.sent
		l.pass(1)
		if early != i+1 || l.sent != i+2 {
			t.Errorf("pause %d is not %s: sent %d times before its end, %d then", i+1, pause, early, l.sent)
		}
	}
}

// deleted is a Task that is being deleted while its robot runs it.
func deleted() *robotv1.Task {
	t := taskIn(lifecycle.TaskRunning, 1)
	t.DeletionTimestamp, t.Finalizers = &metav1.Time{Time: clock}, []string{robotv1.FinalizerRobotTold}
	return t
}

func TestATaskIsHeldUntilItsRobotCanHearThatItIsDeleted(t *testing.T) {
	for name, cannot := range map[string]func(*longLink){
		"the broker is away":          func(l *longLink) { l.link = 0 },
		"no room for another message": func(l *longLink) { l.publish = func(int64, string, *robotv1.Task, []byte) bool { return false } },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLongLink(deleted())
			publish := l.publish
			cannot(l)
			l.pass(time.Hour)
			if l.released != 0 {
				t.Fatal("let go, although its robot never heard of it")
			}
			l.link, l.publish = 2, publish
			l.allAgain()
			l.pass(releaseAfter / 2)
			if l.sent == 0 || l.released != 0 {
				t.Errorf("sent %d times, let go %d times: the time to answer begins when it is told", l.sent, l.released)
			}
			l.pass(releaseAfter)
			if l.released == 0 {
				t.Error("never let go")
			}
		})
	}
	t.Run("the broker goes away after it was told", func(t *testing.T) {
		l := newLongLink(deleted())
		l.pass(releaseAfter / 2)
		l.link = 0
		l.pass(time.Hour)
		if l.sent == 0 || l.released != 0 {
			t.Errorf("sent %d times, let go %d times: it may have been lost with the connection", l.sent, l.released)
		}
	})
	t.Run("a robot that has never spoken is not waited for", func(t *testing.T) {
		l := newLongLink()
		l.dialect = func(string) string { return "" }
		task := deleted()
		l.view.deliverTask(at(task, 1))
		l.changed(task.UID)
		l.pass(0)
		if l.released == 0 {
			t.Error("held for a robot that listens to nobody")
		}
	})
}

func TestThatATaskIsGoneWaitsForTheLink(t *testing.T) {
	task := taskIn(lifecycle.TaskRunning, 1)
	l := newLongLink(task)
	l.link = 0
	l.removed(l.view.removeTask(task))
	l.pass(time.Hour)
	l.link = 2
	l.allAgain()
	l.pass(time.Hour)
	if l.sent != 1 || len(l.items) != 0 {
		t.Errorf("sent %d times, %d items left", l.sent, len(l.items))
	}
}

func TestARobotIsCalledDeafForWhatItCouldHearAlone(t *testing.T) {
	t.Run("dispatches that went out", func(t *testing.T) {
		l := newLongLink(taskIn(lifecycle.TaskDispatching, 1))
		l.pass(time.Hour)
		if len(l.silences) == 0 || !l.silences[0].since.Equal(clock) {
			t.Errorf("silences %+v", l.silences)
		}
	})
	t.Run("a task in unknown, which a document agent is not sent", func(t *testing.T) {
		l := newLongLink(taskIn(lifecycle.TaskUnknown, 1))
		l.pass(time.Hour)
		if l.sent != 0 || len(l.silences) != 0 {
			t.Errorf("sent %d times, silences %+v", l.sent, l.silences)
		}
	})
	t.Run("after the broker was away", func(t *testing.T) {
		l := newLongLink(taskIn(lifecycle.TaskDispatching, 1))
		l.link = 0
		l.pass(time.Hour)
		l.link = 2
		back := l.at
		l.allAgain()
		l.pass(time.Hour)
		if len(l.silences) == 0 || l.silences[0].since.Before(back) {
			t.Errorf("silences %+v, and the broker is back since %s", l.silences, back)
		}
	})
	t.Run("since its agent registered", func(t *testing.T) {
		l := newLongLink(taskIn(lifecycle.TaskDispatching, 1))
		l.pass(10 * time.Second)
		back := l.at
		l.robotHere("r1", l.view.tasksOn("r1"), true)
		l.pass(time.Hour)
		if len(l.silences) == 0 || l.silences[0].since.Before(back) {
			t.Errorf("silences %+v, and it registered at %s", l.silences, back)
		}
	})
}
