package gateway

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// legacyLists is the task lists of a legacy agent with some running tasks.
type legacyLists struct {
	*taskLists
	t     *testing.T
	tasks []*robotv1.Task
	out   *[]wire.TaskList
}

func newLegacyLists(t *testing.T, tasks int) *legacyLists {
	l, v, out := newTestLists(robotv1.ProtocolV1)
	b := &legacyLists{taskLists: l, t: t, out: out}
	v.putRobot(newRobot(namespace, "r1", nil, robotState{}))
	for n := range tasks {
		task := atVersion(taskIn(lifecycle.TaskRunning, 1), uint64(n+1))
		v.deliverTask(task)
		b.tasks = append(b.tasks, task)
	}
	return b
}

func (b *legacyLists) reportEnd(n int) {
	b.recordEnd(report{robot: "r1", uid: b.tasks[n].UID, attempt: 1, legacy: true, Status: wire.Status{State: wire.ReportCompleted}})
}

func (b *legacyLists) addTask() {
	fresh := atVersion(taskIn(lifecycle.TaskRunning, 1), 100)
	b.objects.deliverTask(fresh)
	b.onTaskChanged(nil, fresh)
}

func (b *legacyLists) deleteTask(n int) { b.onTaskChanged(b.objects.removeTask(b.tasks[n]), nil) }

func (b *legacyLists) register() {
	b.resendList("r1")
	b.sendRegistrationList("r1")
}

func TestTaskList_OfLegacyAgent(t *testing.T) {
	for _, row := range []struct {
		name string
		do   func(*legacyLists)
		want []int // the number of tasks in each list
	}{
		{"a registration is answered with all tasks", func(*legacyLists) {}, []int{3}},
		{"a new task changes nothing", (*legacyLists).addTask, []int{3}},
		{"an end empties the list", func(b *legacyLists) { b.reportEnd(0) }, []int{3, 0}},
		{"more ends and tasks change nothing", func(b *legacyLists) {
			b.reportEnd(0)
			b.passHour()
			b.addTask()
			b.reportEnd(1)
		}, []int{3, 0}},
		{"a deleted task leaves the list", func(b *legacyLists) { b.deleteTask(1) }, []int{3, 2}},
		{"the end of another attempt changes nothing", func(b *legacyLists) {
			b.recordEnd(report{robot: "r1", uid: b.tasks[0].UID, attempt: 2, legacy: true, Status: wire.Status{State: wire.ReportCompleted}})
		}, []int{3}},
		{"the next registration restores what has not ended", func(b *legacyLists) {
			b.reportEnd(0)
			b.passHour()
			b.addTask()
			b.register()
		}, []int{3, 0, 3}},
		{"a registration lacks what is about to be dispatched", func(b *legacyLists) {
			b.unanswered = func(string) map[types.UID]bool { return map[types.UID]bool{b.tasks[0].UID: true} }
			b.register()
		}, []int{3, 2}},
		{"a new connection to the broker changes nothing", func(b *legacyLists) { b.sendAll(1) }, []int{3}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newLegacyLists(t, 3)
			b.register()
			row.do(b)
			b.passHour()
			var got []int
			for _, list := range *b.out {
				got = append(got, len(list.Tasks))
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("lists of %v tasks, want %v", got, row.want)
			}
		})
	}
}

// A new server does not know what the list of the last one names, nor which ends are on their way.
func TestTaskList_NewServerEmptiesListOfLegacyAgent(t *testing.T) {
	b := newLegacyLists(t, 3)
	b.sendAll(1)
	if len(*b.out) != 1 || len((*b.out)[0].Tasks) != 0 {
		t.Errorf("lists %+v, want an empty one", *b.out)
	}
}
