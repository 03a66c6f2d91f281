package cli

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// wholeField returns a cluster with objects of every kind.
func wholeField() []client.Object {
	demo := job("demo")
	demo.Status.State, demo.Status.StatusDescription = "running", `Changed to status "running": a task has started`
	demo.Status.TaskCounts = robotv1.TaskCounts{TotalTasks: 4, SucceededTasks: 1, RunningTasks: 1, PendingTasks: 1, FailedTasks: 1}
	away := job("elsewhere")
	away.Namespace = "mine"
	zero, two := int32(0), int32(2)
	return append(fleet(), demo, away, job("fresh"),
		group("demo", "inspect", demo.Status.TaskCounts, "running"),
		group("demo", "clean", robotv1.TaskCounts{TotalTasks: 1, PendingTasks: 1}, "pending"),
		task("demo", "inspect", 0, func(t *robotv1.Task) {
			t.Spec.TargetRobot = "robot-1"
			t.Status = robotv1.TaskStatus{State: "completed", Attempt: 1, ExitCode: &zero, StartedAt: at(0),
				Attempts: []robotv1.TaskAttempt{{Attempt: 1, Robot: "robot-1", ExitCode: &zero}}}
		}),
		task("demo", "inspect", 1, func(t *robotv1.Task) {
			t.Spec.TargetRobot = "robot-2"
			t.Status = robotv1.TaskStatus{State: "running", Attempt: 2, RestartCount: 1, Message: "Started on robot-2"}
		}),
		task("demo", "inspect", 2, func(t *robotv1.Task) {
			t.Spec.TargetRobot = "robot-2"
			t.Status = robotv1.TaskStatus{State: "failed", Attempt: 1, ExitCode: &two, Reason: "NoCapableRobot",
				Attempts: []robotv1.TaskAttempt{{Attempt: 1, Robot: "robot-2", ExitCode: &two, Reason: "Exited"}}}
		}),
		task("demo", "clean", 0, func(t *robotv1.Task) {
			t.Status.Conditions = []metav1.Condition{{Type: robotv1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: "NoFit",
				Message: "2 of 3 robots: label brush=1 missing; 1: Offline", LastTransitionTime: metav1.NewTime(noon.Add(-90 * time.Second))}}
		}))
}

func fleet() []client.Object {
	one := &robotv1.Robot{ObjectMeta: metaOf("robot-1")}
	one.Status = robotv1.RobotStatus{Phase: "online", RunningTasks: 2, LastHeartbeatTime: at(-10 * time.Second),
		DeviceInfo: &robotv1.DeviceInfo{Hostname: "rover", Platform: &robotv1.Platform{OS: "linux"}, CPU: &robotv1.CPU{LogicalCores: 4}},
		Agent:      &robotv1.AgentInfo{Version: "v0.1.0", Address: "10.0.0.7"}}
	two := &robotv1.Robot{ObjectMeta: metaOf("robot-2")}
	two.Status = robotv1.RobotStatus{Phase: "Offline", LastHeartbeatTime: at(-10 * time.Minute), Message: "no heartbeat for 10m"}
	three := &robotv1.Robot{ObjectMeta: metaOf("robot-3")}
	return []client.Object{one, two, three}
}

func TestGet_MatchesGolden(t *testing.T) {
	for _, row := range []struct {
		name, golden string
		args         []string
	}{
		{"jobs", "get-jobs", []string{"get", "jobs"}},
		{"jobs, wide, everywhere", "get-jobs-wide", []string{"get", "rjob", "-A", "-o", "wide"}},
		{"groups", "get-groups", []string{"get", "groups"}},
		{"tasks by label, wide", "get-tasks-wide", []string{"get", "tasks", "-l", "taskgroup=demo-inspect", "-o", "wide"}},
		{"robots, wide", "get-robots-wide", []string{"get", "robots", "-o", "wide"}},
		{"an ambiguous name prefix", "get-robot-ambiguous", []string{"get", "robot", "rob"}},
		{"everything", "get-all", []string{"get", "all"}},
		{"a Job is a tree", "get-job-tree", []string{"get", "job", "dem"}},
		{"a Job is a tree, wide", "get-job-tree-wide", []string{"get", "job/demo", "-o", "wide"}},
		{"a Job without anything", "get-job-fresh", []string{"get", "job.robot.k8s4r.io/fresh"}},
		{"two Jobs", "get-job-two", []string{"get", "job", "fresh", "demo", "-o", "name"}},
		{"one object as yaml", "get-robot-yaml", []string{"get", "robot", "robot-2", "-o", "yaml"}},
		{"a list as json", "get-jobs-json", []string{"get", "jobs", "-n", "mine", "-o", "json"}},
		{"an empty list as json", "get-empty-json", []string{"get", "jobs", "-n", "empty", "-o", "json"}},
		{"names", "get-names", []string{"get", "all", "-o", "name"}},
		{"nothing", "get-nothing", []string{"get", "jobs", "-n", "empty"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, wholeField()...)
			golden.Equal(t, row.golden, b.transcript(b.run(row.args...)))
		})
	}
}

func TestGet_ShowsDisplayNameOfJob(t *testing.T) {
	called := job("demo")
	called.Spec.Name = "Survey of \x1b[31mhall 3"
	called.Status.State = "completed"
	called.Status.TaskCounts = robotv1.TaskCounts{TotalTasks: 1, SucceededTasks: 1}
	for file, args := range map[string][]string{"get-job-called": {"get", "job", "demo"}, "watch-called": {"watch", "demo"}} {
		b := newBench(t, called)
		golden.Equal(t, file, b.transcript(b.run(args...)))
	}
}

func TestStatus_MatchesGolden(t *testing.T) {
	for _, row := range []struct {
		name, golden string
		objects      []client.Object
		kinds        []string
		args         []string
	}{
		{name: "problems are listed", golden: "status-wrong", objects: wholeField()},
		{name: "no problem", golden: "status-well", objects: fleet()[:1]},
		{name: "no objects", golden: "status-empty"},
		{name: "one namespace", golden: "status-namespace", objects: wholeField(), args: []string{"-n", "mine"}},
		{name: "kinds are missing", golden: "status-no-kinds", kinds: []string{"jobs"}},
		{name: "of many pending tasks some are shown", golden: "status-many", objects: waiting(25)},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, row.objects...)
			if row.kinds != nil {
				b.kinds = row.kinds
			}
			golden.Equal(t, row.golden, b.transcript(b.run(append([]string{"status"}, row.args...)...)))
		})
	}
}

func waiting(n int) []client.Object {
	var out []client.Object
	for i := range n {
		out = append(out, task("demo", "inspect", i, func(*robotv1.Task) {}))
	}
	return out
}

func TestOfJob_FindsTasksOfLongNames(t *testing.T) {
	long := "a-name-of-more-than-sixty-three-characters-cannot-stand-in-a-label-value"
	mine := task(long, "inspect", 0, func(t *robotv1.Task) { t.Labels = nil })
	other := task("other", "inspect", 0, func(*robotv1.Task) {})
	b := newBench(t, job(long), mine, other, group(long, "inspect", robotv1.TaskCounts{TotalTasks: 1}, "running"))
	golden.Equal(t, "get-job-long", b.transcript(b.run("get", "job", long)))
}
