package cli

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

func notPlaced(reason, message string) func(*robotv1.Task) {
	return func(t *robotv1.Task) {
		t.Status.Conditions = []metav1.Condition{{Type: robotv1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	}
}

// twice failed on two robots. The reason is that of the state.
func twice(state, reason string) func(*robotv1.Task) {
	return func(t *robotv1.Task) {
		two, killed := int32(2), int32(137)
		t.Status.State, t.Status.Attempt, t.Status.Reason, t.Status.Message = state, 2, reason, "arm \x1b[31mjammed"
		t.Status.FailedRobots = []string{"robot-1", "robot-2"}
		t.Status.Attempts = []robotv1.TaskAttempt{
			{Attempt: 1, Robot: "robot-1", State: "failed", ExitCode: &two, Reason: "Exited"},
			{Attempt: 2, Robot: "robot-2", State: "failed", ExitCode: &killed, Signal: 9, Reason: "Timeout"},
		}
	}
}

func TestWhy(t *testing.T) {
	refused := notPlaced("NoRobotFits", "2 of 3 robots: label brush=1 missing; 1: Offline")
	retries := func(d time.Duration) func(*robotv1.Task) { return func(t *robotv1.Task) { t.Status.RetryAt = at(d) } }
	state := func(s, reason string) func(*robotv1.Task) {
		return func(t *robotv1.Task) { t.Status.State, t.Status.Reason = s, reason }
	}
	onRobot1 := func(t *robotv1.Task) { t.Spec.TargetRobot = "robot-1" }
	byHand := func(t *robotv1.Task) { t.Spec.JobName = "" }
	for _, row := range []struct {
		name, golden string
		job          *robotv1.Job
		task         []func(*robotv1.Task)
		args         []string
	}{
		{name: "no robot fits: which check refused which", golden: "why-refused", job: named("demo", "running"), task: []func(*robotv1.Task){refused}},
		{name: "nobody has looked at it", golden: "why-fresh", job: named("demo", "")},
		{name: "its job is pending", golden: "why-job-pending", job: named("demo", "pending"), task: []func(*robotv1.Task){refused}},
		{name: "its job is paused", golden: "why-job-paused", job: named("demo", "paused", desires("paused")), task: []func(*robotv1.Task){state("paused", "Paused")}},
		{name: "its job is about to be paused", golden: "why-job-pausing", job: named("demo", "running", desires("paused")), task: []func(*robotv1.Task){refused}},
		{name: "its job is canceled", golden: "why-job-canceled", job: named("demo", "canceled", desires("canceled")), task: []func(*robotv1.Task){state("canceled", "Canceled")}},
		{name: "its job is gone", golden: "why-job-gone", task: []func(*robotv1.Task){notPlaced("NoJob", "job demo does not exist")}},
		{name: "its job is being requeued", golden: "why-job-requeueing", job: named("demo", "completed", requeues(1, "all")), task: []func(*robotv1.Task){state("completed", "")}},
		{name: "it was made by hand", golden: "why-by-hand", task: []func(*robotv1.Task){byHand, refused}},
		{name: "it waits for its next try", golden: "why-retry", job: named("demo", "running"),
			task: []func(*robotv1.Task){twice("soft-failed", "Rescheduled"), retries(90 * time.Second), notPlaced("Rescheduled", "robot robot-2 failed it, another one is to try")}},
		{name: "a try that is due is nothing to wait for", golden: "why-retry-due", job: named("demo", "running"), task: []func(*robotv1.Task){twice("soft-failed", "Rescheduled"), retries(-time.Second), refused}},
		{name: "it failed for good", golden: "why-failed", job: named("demo", "failed"),
			task: []func(*robotv1.Task){twice("failed", "Timeout"), retries(time.Minute), notPlaced("Timeout", "it failed on 2 robots, and softFailLimit is 2")}},
		{name: "it is asked to stop", golden: "why-stopping", job: named("demo", "cancel-requested", desires("canceled")), task: []func(*robotv1.Task){state("running", robotv1.ReasonStopping)}},
		{name: "it is asked to leave its robot", golden: "why-evicting", job: named("demo", "running"), task: []func(*robotv1.Task){state("running", robotv1.ReasonEvicting), onRobot1}},
		{name: "its robot is lost", golden: "why-lost", job: named("demo", "running"), task: []func(*robotv1.Task){state("unknown", "RobotLost"), onRobot1}},
		{name: "its robot is lost, and it is not replaced", golden: "why-lost-waits",
			job:  named("demo", "running", func(j *robotv1.Job) { j.Spec.Disconnect = &robotv1.Disconnect{Replace: new(bool)} }),
			task: []func(*robotv1.Task){state("unknown", "RobotLost"), onRobot1}},
		{name: "another robot runs it, and the first may come back", golden: "why-original", job: named("demo", "running"),
			task: []func(*robotv1.Task){state("running", ""), func(t *robotv1.Task) {
				t.Spec.TargetRobot, t.Status.Attempt, t.Status.Original = "robot-2", 2, 1
				t.Status.Attempts = []robotv1.TaskAttempt{{Attempt: 1, Robot: "robot-1", State: "unknown"}, {Attempt: 2, Robot: "robot-2", State: "running"}}
			}}},
		{name: "it runs", golden: "why-running", job: named("demo", "running"), task: []func(*robotv1.Task){state("running", ""), onRobot1, refused}},
		{name: "it was called off while it waited: the search is over", golden: "why-canceled-waiting", job: named("demo", "canceled"), task: []func(*robotv1.Task){state("canceled", "Canceled"), refused}},
		{name: "the whole object", golden: "why-yaml", job: named("demo", "running"), args: []string{"-o", "yaml"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			waiting := task("demo", "inspect", 0, func(t *robotv1.Task) {
				for _, f := range row.task {
					f(t)
				}
			})
			objects := []client.Object{waiting}
			if row.job != nil {
				objects = append(objects, row.job)
			}
			b := newBench(t, objects...)
			golden.Equal(t, row.golden, b.transcript(b.run(append([]string{"why", "demo-inspect"}, row.args...)...)))
		})
	}
	t.Run("no such task", func(t *testing.T) {
		b := newBench(t)
		golden.Equal(t, "why-missing", b.transcript(b.run("why", "task/nope")))
	})
}
