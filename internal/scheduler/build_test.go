package scheduler

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// newTask returns a Task of group g of job j, created a minute ago. If its state is
// active, it is on r1 with its first attempt.
func newTask(state lifecycle.TaskState, changes ...func(*v1alpha1.Task)) *v1alpha1.Task {
	yes := true
	t := &v1alpha1.Task{
		ObjectMeta: metav1.ObjectMeta{
			Name: "t", Namespace: "ns", CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute)),
			OwnerReferences: []metav1.OwnerReference{{Kind: "TaskGroup", Name: "g", Controller: &yes}},
		},
		Spec:   v1alpha1.TaskSpec{TaskDefinition: v1alpha1.TaskDefinition{Name: "t", Driver: "exec"}, JobName: "j"},
		Status: v1alpha1.TaskStatus{State: string(state)},
	}
	if state.IsActive() {
		t.Spec.TargetRobot = "r1"
		t.Status.Attempt = 1
		t.Status.Attempts = []v1alpha1.TaskAttempt{{Attempt: 1, Robot: "r1", State: string(state)}}
	}
	for _, f := range changes {
		f(t)
	}
	return t
}

// robotIn returns robot r1 in a phase.
func robotIn(p lifecycle.RobotPhase) *v1alpha1.Robot {
	return &v1alpha1.Robot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r1"},
		Status:     v1alpha1.RobotStatus{Phase: string(p), LastHeartbeatTime: &metav1.MicroTime{Time: noon}},
	}
}

// byHand makes it a task without a group and a job.
func byHand(t *v1alpha1.Task) { t.OwnerReferences, t.Spec.JobName = nil, "" }

func target(robot string) func(*v1alpha1.Task) {
	return func(t *v1alpha1.Task) { t.Spec.TargetRobot = robot }
}

// attempted sets a history of one attempt on a robot.
func attempted(n int32, robot string) func(*v1alpha1.Task) {
	return func(t *v1alpha1.Task) {
		t.Status.Attempt = n
		t.Status.Attempts = []v1alpha1.TaskAttempt{{Attempt: n, Robot: robot}}
	}
}

// interrupted sets a history of n attempts that ended through no fault of the task,
// the last one so long ago.
func interrupted(n int, ago time.Duration) func(*v1alpha1.Task) {
	return func(t *v1alpha1.Task) {
		for i := range n {
			t.Status.Attempts = append(t.Status.Attempts, v1alpha1.TaskAttempt{Attempt: int32(i + 1), Reason: wire.ReasonAgentRestarted})
		}
		t.Status.Conditions = append(t.Status.Conditions, unplaced("Interrupted", ago))
	}
}

func unplaced(reason string, ago time.Duration) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(noon.Add(-ago)),
	}
}

// replaced is a task whose first attempt was lost with r1, and whose second is on r2.
func replaced(t *v1alpha1.Task) {
	s := &t.Status
	s.LostAttempt, s.Attempt = 1, 2
	at := &metav1.MicroTime{Time: noon}
	s.Attempts = []v1alpha1.TaskAttempt{{Attempt: 1, Robot: "r1", State: "unknown", StartedAt: at}, {Attempt: 2, Robot: "r2", State: s.State, StartedAt: at}}
	t.Spec.TargetRobot = "r2"
}

// awaitsLostAttempt is a task that has failed unless its lost attempt completes.
func awaitsLostAttempt(t *v1alpha1.Task) {
	t.Status.Conditions = append(t.Status.Conditions, unplaced(taskstate.ReasonAwaitingLostAttempt, 0))
}
