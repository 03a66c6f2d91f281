package bridge

import (
	"testing"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/wire"
)

// burst is the lists of a document agent with some running tasks, at a time
// that the test moves.
type burst struct {
	*lists
	t     *testing.T
	at    time.Time
	tasks []*robotv1.Task
	out   *[]wire.TaskList
}

func newBurst(t *testing.T, tasks int) *burst {
	l, v, out := told(robotv1.ProtocolDocument)
	b := &burst{lists: l, t: t, at: clock, out: out}
	l.now = func() time.Time { return b.at }
	for n := range tasks {
		task := at(taskIn(lifecycle.TaskRunning, 1), uint64(n+1))
		v.deliverTask(task)
		b.tasks = append(b.tasks, task)
	}
	l.send("r1")
	return b
}

// end is the word of the agent that a task has ended.
func (b *burst) end(n int) {
	b.ended(report{robot: "r1", uid: b.tasks[n].UID, attempt: 1, document: true, Status: wire.Status{State: wire.ReportCompleted}})
}

// after lets time pass, and checks how many tasks each list that went out
// meanwhile names.
func (b *burst) after(d time.Duration, want ...int) {
	b.t.Helper()
	before := len(*b.out)
	b.at = b.at.Add(d)
	b.sendDue()
	got := (*b.out)[before:]
	if len(got) != len(want) {
		b.t.Fatalf("after %s: %d lists, want %d", b.at.Sub(clock), len(got), len(want))
	}
	for i := range got {
		if len(got[i].Tasks) != want[i] {
			b.t.Errorf("after %s: a list of %d tasks, want %d", b.at.Sub(clock), len(got[i].Tasks), want[i])
		}
	}
}

func TestNoListCrossesWithABurstOfEnds(t *testing.T) {
	t.Run("the one that names nothing goes out at once", func(t *testing.T) {
		b := newBurst(t, 3)
		for n := range 3 {
			b.after(10 * time.Millisecond)
			b.end(n)
		}
		b.after(0, 0)
	})
	t.Run("the one that names what goes on waits for a pause", func(t *testing.T) {
		b := newBurst(t, 3)
		b.end(0)
		b.after(quietFor / 2)
		b.end(1)
		b.after(quietFor * 3 / 4)
		b.after(quietFor/4, 1)
	})
	t.Run("ends without a pause are waited out for so long", func(t *testing.T) {
		b := newBurst(t, 100)
		for n := range 20 {
			b.end(n)
			if n < 19 {
				b.after(quietLimit / 20)
			}
		}
		b.after(quietLimit/20, 80)
	})
	t.Run("what is new does not hurry a list into the ends", func(t *testing.T) {
		b := newBurst(t, 2)
		fresh := at(taskIn(lifecycle.TaskDispatching, 1), 100)
		b.view.deliverTask(fresh)
		b.changed(nil, fresh)
		b.after(quietFor / 2)
		b.end(0)
		b.after(quietFor / 2)
		b.after(quietFor/2, 2)
	})
	t.Run("a delete waits for nothing", func(t *testing.T) {
		b := newBurst(t, 3)
		b.end(0)
		gone := b.view.removeTask(b.tasks[1])
		b.changed(gone, nil)
		b.after(0, 1)
	})
}

func TestOursAreToldOfNewWorkWithoutWaitingForEnds(t *testing.T) {
	l, v, out := told(robotv1.ProtocolK8s4r)
	task := at(taskIn(lifecycle.TaskDispatching, 1), 1)
	v.deliverTask(task)
	l.changed(nil, task)
	l.now = func() time.Time { return clock.Add(listWindow) }
	l.sendDue()
	if len(*out) != 1 {
		t.Errorf("%d lists after %s", len(*out), listWindow)
	}
}
