package taskstate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func TestReplicaOf_TaskWithoutGroupIsReplicaOfItsOwn(t *testing.T) {
	yes := true
	inGroup := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "t", Labels: map[string]string{v1alpha1.LabelTaskIndex: "3"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "TaskGroup", Name: "g", Controller: &yes}},
	}}
	if r := ReplicaOf(inGroup); r.Group.Name != "g" || r.String() != "g/3" || ReplicaIndex(inGroup) != 3 {
		t.Errorf("replica %+v, index %d", r, ReplicaIndex(inGroup))
	}
	alone := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "t"}}
	if r := ReplicaOf(alone); r.Group.Name != "" || r.Index != "ns/t" || ReplicaIndex(alone) != 0 {
		t.Errorf("replica %+v, index %d", r, ReplicaIndex(alone))
	}
}

func TestNextAttemptTime_DoublesWithEachInterruption(t *testing.T) {
	for _, c := range []struct {
		interruptions int
		want          time.Duration
	}{{1, 0}, {2, time.Second}, {5, 8 * time.Second}, {20, MaxBackoff}} {
		task := &v1alpha1.Task{}
		for range c.interruptions {
			task.Status.Attempts = append(task.Status.Attempts, v1alpha1.TaskAttempt{Reason: wire.ReasonAgentRestarted})
		}
		task.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(noon),
		}}
		want := time.Time{}
		if c.want > 0 {
			want = noon.Add(c.want)
		}
		if got := NextAttemptTime(task); !got.Equal(want) {
			t.Errorf("after %d interruptions: %s, want %s", c.interruptions, got, want)
		}
	}
}

func TestOtherOpenAttempts_ExcludesCurrentAndFinished(t *testing.T) {
	task := &v1alpha1.Task{Status: v1alpha1.TaskStatus{State: "running", Attempt: 3, LostAttempt: 1, Attempts: []v1alpha1.TaskAttempt{
		{Attempt: 1, Robot: "r1"}, {Attempt: 2, Robot: "r2", FinishedAt: &metav1.MicroTime{Time: noon}}, {Attempt: 3, Robot: "r3"},
	}}}
	if open := OtherOpenAttempts(task); len(open) != 1 || open[0].Attempt != 1 {
		t.Errorf("open attempts %+v", open)
	}
	if got := LostAttemptRobot(task); got != "r1" {
		t.Errorf("lost attempt on %q", got)
	}
	task.Status.State = "completed"
	if got := LostAttemptRobot(task); got != "" {
		t.Errorf("a completed task may restore the attempt on %q", got)
	}
}

func TestRequiredRobot_IsFreeToChangeAfterAnAttempt(t *testing.T) {
	task := &v1alpha1.Task{Spec: v1alpha1.TaskSpec{TargetRobot: "r1"}}
	task.Status.Attempt, task.Status.Attempts = 1, []v1alpha1.TaskAttempt{{Attempt: 1, Robot: "r1"}}
	if got := RequiredRobot(task); got != "r1" {
		t.Errorf("a robot that a user chose: %q", got)
	}
	task.Annotations = map[string]string{AnnotationPlacedBy: "k8s4r-manager"}
	if got := RequiredRobot(task); got != "" {
		t.Errorf("a robot that the manager chose: %q", got)
	}
	task.Spec.Type = v1alpha1.JobTypeSystem
	if got := RequiredRobot(task); got != "r1" {
		t.Errorf("a task that is tied to its robot: %q", got)
	}
}
