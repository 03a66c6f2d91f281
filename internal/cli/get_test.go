package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
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
			t.Status = robotv1.TaskStatus{State: "running", Attempt: 2, RestartCount: 1, Message: "Started on robot-2",
				Attempts: []robotv1.TaskAttempt{{Attempt: 2, Robot: "robot-2", RunCount: 3}}}
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

// otherKinds returns one object of each kind that does not run on robots, in the namespace other.
func otherKinds() []client.Object {
	meta := func(name string) metav1.ObjectMeta {
		m := metaOf(name)
		m.Namespace = "other"
		return m
	}
	flow := &flowv1.JobFlow{ObjectMeta: meta("nightly"), Spec: flowv1.JobFlowSpec{Flows: []flowv1.Flow{{Name: "a"}, {Name: "b"}}}}
	flow.Status.State.Phase = flowv1.Running
	zone, last := "Europe/Berlin", metav1.NewTime(noon.Add(-time.Hour))
	cron := &cronv1.CronJobFlow{ObjectMeta: meta("every-night"), Spec: cronv1.CronJobFlowSpec{Schedule: "0 2 * * *", TimeZone: &zone},
		Status: cronv1.CronJobFlowStatus{ActiveCount: 1, LastScheduleTime: &last}}
	train := &batchv1.Job{ObjectMeta: meta("train"), Spec: batchv1.JobSpec{Queue: "default"}}
	train.Status.State, train.Status.Running, train.Status.Failed = batchv1.JobState{Phase: batchv1.JobRunning}, 2, 1
	ray := &rayv1.RayCluster{ObjectMeta: meta("sim")}
	ray.Status = rayv1.RayClusterStatus{State: rayv1.StateReady, DesiredWorkerReplicas: 3, ReadyWorkerReplicas: 2, DesiredCPU: resource.MustParse("6"), DesiredMemory: resource.MustParse("12Gi")}
	pod := &corev1.Pod{ObjectMeta: meta("train-0"), Spec: corev1.PodSpec{NodeName: "hostnode", Containers: make([]corev1.Container, 2)}}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, PodIP: "10.1.2.3", ContainerStatuses: []corev1.ContainerStatus{
		{Ready: true, RestartCount: 1}, {State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}}
	return []client.Object{flow, cron, train, ray, &robotv1.JobTemplate{ObjectMeta: meta("survey")}, pod}
}

func TestGet_ListsWhatItMay(t *testing.T) {
	missing := func(resource string) error {
		return apierrors.NewGenericServerResponse(404, "GET", schema.GroupResource{Resource: resource}, "", "", 0, true)
	}
	denied := apierrors.NewForbidden(schema.GroupResource{Group: "flow.volcano.sh", Resource: "jobflows"}, "", errors.New("no"))
	for _, row := range []struct {
		name            string
		flows, jobs     error
		args            []string
		status          int
		wantOut, wantEr string
	}{
		{"flows are not installed", missing("jobflows"), nil, []string{"get"}, ExitOK, "robot.robot.k8s4r.io/robot-1", ""},
		{"flows alone are not installed", missing("jobflows"), nil, []string{"get", "flows"}, ExitFailed, "", "not installed"},
		{"Jobs are not installed", nil, missing("jobs"), []string{"get"}, ExitFailed, "", "not installed"},
		{"flows are forbidden", denied, nil, []string{"get"}, ExitFailed, "robot.robot.k8s4r.io/robot-1", "list jobflows: jobflows.flow.volcano.sh is forbidden"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, wholeField()...)
			b.hooks.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				switch list.(type) {
				case *flowv1.JobFlowList:
					if row.flows != nil {
						return row.flows
					}
				case *robotv1.JobList:
					if row.jobs != nil {
						return row.jobs
					}
				}
				return c.List(ctx, list, opts...)
			}
			status := b.run(row.args...)
			if status != row.status || !strings.Contains(b.out.String(), row.wantOut) || !strings.Contains(b.err.String(), row.wantEr) {
				t.Errorf("exit %d, stdout %q, stderr %q", status, b.out.String(), b.err.String())
			}
		})
	}
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
		{"no type: everything", "get-all", []string{"get"}},
		{"flows", "get-flows", []string{"get", "flows", "-n", "other"}},
		{"flows, wide", "get-flows-wide", []string{"get", "jobflow", "-n", "other", "-o", "wide"}},
		{"schedules, wide", "get-cronjobflows", []string{"get", "cjf", "-n", "other", "-o", "wide"}},
		{"pod jobs, wide", "get-vcjobs", []string{"get", "vcjobs", "-n", "other", "-o", "wide"}},
		{"Ray clusters, wide", "get-rayclusters", []string{"get", "rayclusters", "-n", "other", "-o", "wide"}},
		{"templates", "get-jobtemplates", []string{"get", "jobtemplates", "-n", "other"}},
		{"Pods, wide", "get-pods", []string{"get", "pods", "-n", "other", "-o", "wide"}},
		{"a named pod job is no tree", "get-vcjob", []string{"get", "vcjob/train", "-n", "other"}},
		{"names of all kinds", "get-names-other", []string{"get", "-n", "other", "-o", "name"}},
		{"nothing", "get-nothing", []string{"get", "jobs", "-n", "empty"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, append(wholeField(), otherKinds()...)...)
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
