package gateway

import (
	"testing"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// burst is the task lists of a legacy agent with some running tasks. The test controls its time.
type burst struct {
	*taskLists
	t     *testing.T
	at    time.Time
	tasks []*robotv1.Task
	out   *[]wire.TaskList
}

func newBurst(t *testing.T, tasks int) *burst {
	l, v, out := newTestLists(robotv1.ProtocolV1)
	b := &burst{taskLists: l, t: t, at: clock, out: out}
	l.now = func() time.Time { return b.at }
	for n := range tasks {
		task := atVersion(taskIn(lifecycle.TaskRunning, 1), uint64(n+1))
		v.deliverTask(task)
		b.tasks = append(b.tasks, task)
	}
	l.sendList("r1")
	return b
}

// reportEnd reports that a task has ended.
func (b *burst) reportEnd(n int) {
	b.recordEnd(report{robot: "r1", uid: b.tasks[n].UID, attempt: 1, legacy: true, Status: wire.Status{State: wire.ReportCompleted}})
}

// expectLists advances the time and checks the number of tasks in each list that is sent meanwhile.
func (b *burst) expectLists(d time.Duration, want ...int) {
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

func TestTaskList_HoldsBackDuringBurstOfEnds(t *testing.T) {
	t.Run("an empty list is sent at once", func(t *testing.T) {
		b := newBurst(t, 3)
		for n := range 3 {
			b.expectLists(10 * time.Millisecond)
			b.reportEnd(n)
		}
		b.expectLists(0, 0)
	})
	t.Run("a list with tasks waits for a pause", func(t *testing.T) {
		b := newBurst(t, 3)
		b.reportEnd(0)
		b.expectLists(holdBackFor / 2)
		b.reportEnd(1)
		b.expectLists(holdBackFor * 3 / 4)
		b.expectLists(holdBackFor/4, 1)
	})
	t.Run("without a pause the list is sent after the limit", func(t *testing.T) {
		b := newBurst(t, 100)
		for n := range 20 {
			b.reportEnd(n)
			if n < 19 {
				b.expectLists(holdBackLimit / 20)
			}
		}
		b.expectLists(holdBackLimit/20, 80)
	})
	t.Run("a new task does not shorten the delay", func(t *testing.T) {
		b := newBurst(t, 2)
		fresh := atVersion(taskIn(lifecycle.TaskDispatching, 1), 100)
		b.objects.deliverTask(fresh)
		b.onTaskChanged(nil, fresh)
		b.expectLists(holdBackFor / 2)
		b.reportEnd(0)
		b.expectLists(holdBackFor / 2)
		b.expectLists(holdBackFor/2, 2)
	})
	t.Run("the list without a deleted task is sent at once", func(t *testing.T) {
		b := newBurst(t, 3)
		b.reportEnd(0)
		gone := b.objects.removeTask(b.tasks[1])
		b.onTaskChanged(gone, nil)
		b.expectLists(0, 1)
	})
}

func TestTaskList_V2ListIsNotHeldBack(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV2)
	task := atVersion(taskIn(lifecycle.TaskDispatching, 1), 1)
	v.deliverTask(task)
	l.onTaskChanged(nil, task)
	l.now = func() time.Time { return clock.Add(listWindow) }
	l.sendDue()
	if len(*out) != 1 {
		t.Errorf("%d lists after %s", len(*out), listWindow)
	}
}
