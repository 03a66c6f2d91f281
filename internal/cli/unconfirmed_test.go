package cli

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// canceledInTunnel returns a job with two tasks that were canceled while their robot was out of contact.
// Only one of them is confirmed since.
func canceledInTunnel() []client.Object {
	demo := named("demo", "canceled")
	demo.Status.StatusDescription = `Changed to status "canceled": all tasks were canceled`
	demo.Status.TaskCounts = robotv1.TaskCounts{TotalTasks: 2, CanceledTasks: 2, UnconfirmedStops: 1}
	canceled := func(t *robotv1.Task) {
		t.Spec.TargetRobot = "robot-2"
		t.Status = robotv1.TaskStatus{State: "canceled", Attempt: 1, Reason: "Canceled", Message: "job demo was canceled; robot robot-2 is disconnected",
			Attempts: []robotv1.TaskAttempt{{Attempt: 1, Robot: "robot-2", State: "running", StartedAt: at(0)}}}
	}
	return append(fleet(), demo, group("demo", "inspect", demo.Status.TaskCounts, "canceled"),
		task("demo", "inspect", 0, func(t *robotv1.Task) {
			canceled(t)
			t.Status.UnconfirmedStop = &robotv1.UnconfirmedStop{Robot: "robot-2", Attempt: 1, Since: *at(0)}
		}),
		task("demo", "inspect", 1, func(t *robotv1.Task) {
			canceled(t)
			t.Status.Attempts[0].FinishedAt = at(0)
		}))
}

func TestUnconfirmedStop_IsShown(t *testing.T) {
	for file, args := range map[string][]string{
		"unconfirmed-status": {"status"},
		"unconfirmed-tasks":  {"get", "tasks"},
		"unconfirmed-jobs":   {"get", "jobs", "-o", "wide"},
		"unconfirmed-tree":   {"get", "job", "demo"},
		"unconfirmed-why":    {"why", "demo-inspect-0-main"},
	} {
		b := newBench(t, canceledInTunnel()...)
		golden.Equal(t, file, b.transcript(b.run(args...)))
	}
}
