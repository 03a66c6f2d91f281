package cli

import (
	"slices"
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

// twice adds failed attempts on two robots. reason belongs to the state.
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

func TestWhy_MatchesGolden(t *testing.T) {
	refused := func(t *robotv1.Task) {
		notPlaced("NoRobotFits", "the message is not read")(t)
		t.Status.Placement = &robotv1.PlacementStatus{Robots: 3, Rejections: []robotv1.Rejection{
			{Check: "Label", Robots: 2, Want: "brush=1"}, {Check: "Phase", Robots: 1, Want: "Online", Got: "Offline"},
		}}
	}
	retries := func(d time.Duration) func(*robotv1.Task) { return func(t *robotv1.Task) { t.Status.RetryAt = at(d) } }
	state := func(s, reason string) func(*robotv1.Task) {
		return func(t *robotv1.Task) { t.Status.State, t.Status.Reason = s, reason }
	}
	onRobot1 := func(t *robotv1.Task) { t.Spec.TargetRobot = "robot-1" }
	secretMissing := func(t *robotv1.Task) {
		t.Status.Conditions = []metav1.Condition{{
			Type: robotv1.ConditionSecretsReady, Status: metav1.ConditionFalse, Reason: "SecretMissing",
			Message: "secretEnv PASSWORD: there is no Secret db; the task starts when it is there",
		}}
	}
	byHand := func(t *robotv1.Task) { t.Spec.JobName = "" }
	for _, row := range []struct {
		name, golden string
		job          *robotv1.Job
		task         []func(*robotv1.Task)
		more         []client.Object
		args         []string
	}{
		{name: "a restore holds all tasks back", golden: "why-restore", job: named("demo", "running"), task: []func(*robotv1.Task){refused}, more: []client.Object{restoreHold()}},
		{name: "rejections of all robots", golden: "why-refused", job: named("demo", "running"), task: []func(*robotv1.Task){refused}},
		{name: "not scheduled yet", golden: "why-fresh", job: named("demo", "")},
		{name: "its job is pending", golden: "why-job-pending", job: named("demo", "pending"), task: []func(*robotv1.Task){refused}},
		{name: "its job is paused", golden: "why-job-paused", job: named("demo", "paused", desires("paused")), task: []func(*robotv1.Task){state("paused", "Paused")}},
		{name: "its job is about to be paused", golden: "why-job-pausing", job: named("demo", "running", desires("paused")), task: []func(*robotv1.Task){refused}},
		{name: "its job is canceled", golden: "why-job-canceled", job: named("demo", "canceled", desires("canceled")), task: []func(*robotv1.Task){state("canceled", "Canceled")}},
		{name: "its job does not exist", golden: "why-job-gone", task: []func(*robotv1.Task){notPlaced("NoJob", "job demo does not exist")}},
		{name: "its job is being requeued", golden: "why-job-requeueing", job: named("demo", "completed", requeues(1, "all")), task: []func(*robotv1.Task){state("completed", "")}},
		{name: "it has no job", golden: "why-by-hand", task: []func(*robotv1.Task){byHand, refused}},
		{name: "it waits for its next attempt", golden: "why-retry", job: named("demo", "running"),
			task: []func(*robotv1.Task){twice("soft-failed", "Rescheduled"), retries(90 * time.Second), notPlaced("Rescheduled", "it failed on robot robot-2; another robot will be tried")}},
		{name: "its next attempt is due", golden: "why-retry-due", job: named("demo", "running"), task: []func(*robotv1.Task){twice("soft-failed", "Rescheduled"), retries(-time.Second), refused}},
		{name: "it has failed", golden: "why-failed", job: named("demo", "failed"),
			task: []func(*robotv1.Task){twice("failed", "Timeout"), retries(time.Minute), notPlaced("Timeout", "it failed on 2 robots, and softFailLimit is 2")}},
		{name: "it was evicted without fault", golden: "why-evicted", job: named("demo", "running"),
			task: []func(*robotv1.Task){state("running", ""), func(t *robotv1.Task) {
				code := int32(143)
				t.Spec.TargetRobot, t.Status.Attempt = "robot-2", 2
				t.Status.Attempts = []robotv1.TaskAttempt{
					{Attempt: 1, Robot: "robot-1", State: "failed", ExitCode: &code, Signal: 15, Reason: "Stopped"}, {Attempt: 2, Robot: "robot-2", State: "running"},
				}
			}}},
		{name: "it is being stopped", golden: "why-stopping", job: named("demo", "cancel-requested", desires("canceled")), task: []func(*robotv1.Task){state("running", robotv1.ReasonStopping)}},
		{name: "it is being evicted", golden: "why-evicting", job: named("demo", "running"), task: []func(*robotv1.Task){state("running", robotv1.ReasonEvicting), onRobot1}},
		{name: "a Secret is missing", golden: "why-secret", job: named("demo", "running"), task: []func(*robotv1.Task){state("dispatching", ""), onRobot1, secretMissing}},
		{name: "its robot is lost", golden: "why-lost", job: named("demo", "running"), task: []func(*robotv1.Task){state("unknown", "RobotLost"), onRobot1}},
		{name: "its robot is lost, and it waits for it", golden: "why-lost-waits",
			job:  named("demo", "running", func(j *robotv1.Job) { j.Spec.Disconnect = &robotv1.Disconnect{Replace: new(bool)} }),
			task: []func(*robotv1.Task){state("unknown", "RobotLost"), onRobot1}},
		{name: "a replacement runs, and the lost attempt may return", golden: "why-lost-attempt-replaced", job: named("demo", "running"),
			task: []func(*robotv1.Task){state("running", ""), func(t *robotv1.Task) {
				t.Spec.TargetRobot, t.Status.Attempt, t.Status.LostAttempt = "robot-2", 2, 1
				t.Status.Attempts = []robotv1.TaskAttempt{{Attempt: 1, Robot: "robot-1", State: "unknown"}, {Attempt: 2, Robot: "robot-2", State: "running"}}
			}}},
		{name: "it has failed, unless the lost attempt completes", golden: "why-lost-attempt-awaited", job: named("demo", "running"),
			task: []func(*robotv1.Task){twice("exited", "Exited"), func(t *robotv1.Task) { t.Status.LostAttempt = 1 },
				notPlaced("AwaitingLostAttempt", "no other robot can run it; waiting until 2026-01-01T13:00:00Z for attempt 1 on robot robot-1 to complete")}},
		{name: "it runs", golden: "why-running", job: named("demo", "running"), task: []func(*robotv1.Task){state("running", ""), onRobot1, refused}},
		{name: "it was canceled while it was pending", golden: "why-canceled-waiting", job: named("demo", "canceled"), task: []func(*robotv1.Task){state("canceled", "Canceled"), refused}},
		{name: "the whole object", golden: "why-yaml", job: named("demo", "running"), args: []string{"-o", "yaml"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			waiting := task("demo", "inspect", 0, func(t *robotv1.Task) {
				for _, f := range row.task {
					f(t)
				}
			})
			objects := append(slices.Clone(row.more), waiting)
			if row.job != nil {
				objects = append(objects, row.job)
			}
			b := newBench(t, objects...)
			golden.Equal(t, row.golden, b.transcript(b.run(append([]string{"why", "demo-inspect"}, row.args...)...)))
		})
	}
	t.Run("init tasks", whyInitTasks)
	t.Run("no such task", func(t *testing.T) {
		b := newBench(t)
		golden.Equal(t, "why-missing", b.transcript(b.run("why", "task/nope")))
	})
}

// whyInitTasks explains the last task of a replica with three tasks.
func whyInitTasks(t *testing.T) {
	onRobot := func(state, robot, reason string) func(*robotv1.Task) {
		return func(t *robotv1.Task) {
			t.Status.State, t.Status.Reason, t.Status.Attempt = state, reason, 1
			t.Status.Attempts = []robotv1.TaskAttempt{{Attempt: 1, Robot: robot}}
		}
	}
	waits := func(*robotv1.Task) {}
	awaits := notPlaced("WaitingForInitTask", "waiting for init task build on robot robot-1")
	for _, row := range []struct {
		name, golden      string
		fetch, build, run func(*robotv1.Task) // if nil, the task does not exist
	}{
		{"the first does not exist yet", "why-init-none", nil, nil, waits},
		{"one has completed, the next one runs", "why-init-runs", onRobot("completed", "robot-1", ""), onRobot("running", "robot-1", ""), awaits},
		{"one waits for its next attempt", "why-init-retries", onRobot("completed", "robot-1", ""), onRobot("soft-failed", "robot-1", "Exited"), waits},
		{"one has failed", "why-init-failed", onRobot("completed", "robot-1", ""), onRobot("failed", "robot-1", "Timeout"), onRobot("failed", "", "InitTaskFailed")},
		{"all have completed, and no robot fits", "why-init-done", onRobot("completed", "robot-1", ""), onRobot("completed", "robot-1", ""), notPlaced("NoRobotFits", "robot robot-1: task limit reached")},
		{"the task runs", "why-init-over", onRobot("completed", "robot-1", ""), onRobot("completed", "robot-1", ""), onRobot("running", "robot-1", "")},
	} {
		t.Run(row.name, func(t *testing.T) {
			group := &robotv1.TaskGroup{ObjectMeta: metaOf("demo-inspect")}
			group.Spec.InitTasks = []robotv1.TaskDefinition{{Name: "fetch"}, {Name: "build"}}
			objects := []client.Object{named("demo", "running"), group}
			for name, status := range map[string]func(*robotv1.Task){"fetch": row.fetch, "build": row.build, "run": row.run} {
				if status == nil {
					continue
				}
				objects = append(objects, task("demo", "inspect", 0, func(t *robotv1.Task) {
					t.Name, t.Spec.Name = "demo-inspect-0-"+name, name
					t.Labels[robotv1.LabelTaskIndex] = "0"
					status(t)
				}))
			}
			other := task("demo", "inspect", 1, onRobot("failed", "robot-2", "Exited"))
			other.Name, other.Spec.Name, other.Labels[robotv1.LabelTaskIndex] = "demo-inspect-1-build", "build", "1"
			b := newBench(t, append(objects, other)...)
			golden.Equal(t, row.golden, b.transcript(b.run("why", "demo-inspect-0-run")))
		})
	}
}
