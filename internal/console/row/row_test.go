package row

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "n", Name: name, UID: "u", ResourceVersion: "7", CreationTimestamp: metav1.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
}

func owned(name, version, kind, by string) metav1.ObjectMeta {
	m, yes := named(name), true
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: by, UID: "o", Controller: &yes}}
	return m
}

func micros(minute int) *metav1.MicroTime {
	t := metav1.NewMicroTime(time.Date(2026, 11, 22, 12, minute, 0, 0, time.UTC))
	return &t
}

// One object of each kind, as clients receive its row.
func TestDescribe_ReturnsRowOfEachKind(t *testing.T) {
	at := metav1.NewTime(micros(1).Time)
	task := &v1alpha1.Task{ObjectMeta: owned("survey-drive-0-wheels", "robot.k8s4r.io/v1alpha1", "TaskGroup", "survey-drive")}
	task.Labels = map[string]string{"taskindex": "0"}
	task.Spec.JobName, task.Spec.TaskGroupName, task.Spec.TargetRobot = "survey", "survey-drive", "later"
	task.Status = v1alpha1.TaskStatus{State: "running", Attempt: 2, Reason: "Stopping", Message: "its job was canceled", StartedAt: micros(1),
		Attempts: []v1alpha1.TaskAttempt{{Attempt: 2, Robot: "r1"}}}
	restarts := &v1alpha1.Task{ObjectMeta: named("restarts")}
	restarts.Status = v1alpha1.TaskStatus{State: "running", Reason: "Restarting", Attempt: 2, RestartCount: 1, StartedAt: micros(2), Attempts: []v1alpha1.TaskAttempt{
		{Attempt: 1, Robot: "r1", RunCount: 9}, {Attempt: 2, Robot: "r1", StartedAt: micros(1), RunCount: 3}}}
	waits := &v1alpha1.Task{ObjectMeta: named("waits")}
	waits.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: "NoRobot", Message: "0 of 3 robots"}}
	job := &v1alpha1.Job{ObjectMeta: owned("nightly-train", "flow.volcano.sh/v1alpha1", "JobFlow", "nightly")}
	job.Annotations = map[string]string{flowv1.KeyCreatedByJobTemplate: "n.train"}
	job.Spec.Priority = new(int32)
	job.Status = v1alpha1.JobStatus{State: "failed", StatusDescription: "too many", CompletedAt: micros(2), StartedAt: micros(1),
		TaskCounts: v1alpha1.TaskCounts{TotalTasks: 10, PendingTasks: 1, SoftFailedTasks: 1, DispatchingTasks: 1, RunningTasks: 1, SucceededTasks: 2, FailedTasks: 3, CanceledTasks: 1}}
	rollout := &v1alpha1.Rollout{ObjectMeta: named("survey-5")}
	rollout.Spec.Target.Name = "survey"
	rollout.Status = v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaitingForApproval, Message: "wave fleet needs an approval", Revision: 5, FromRevision: 3, StartedAt: micros(1),
		Counts: v1alpha1.RolloutCounts{Total: 9, Waiting: 1, OutOfContact: 1, OutsideWindow: 1, Held: 1, Updating: 2, Updated: 2, Failed: 1}}
	robot := &v1alpha1.Robot{ObjectMeta: named("r1")}
	robot.Spec = v1alpha1.RobotSpec{RobotID: "r1", Drain: true, Labels: map[string]string{"arm": "yes"}, Capacity: map[string]resource.Quantity{"arm": resource.MustParse("1"), "cpu": resource.MustParse("2")}}
	robot.Status = v1alpha1.RobotStatus{Phase: "online", LastHeartbeatTime: micros(3), RunningTasks: 2, DeviceInfo: &v1alpha1.DeviceInfo{CPU: &v1alpha1.CPU{LogicalCores: 8}, Memory: &v1alpha1.Memory{Total: 1024}}}
	flow := &flowv1.JobFlow{ObjectMeta: named("nightly")}
	flow.Spec.Flows = make([]flowv1.Flow, 6)
	flow.Status = flowv1.JobFlowStatus{State: flowv1.State{Phase: flowv1.Running}, StartTime: &at, RunningJobs: []string{"a"}, CompletedJobs: []string{"b"}, FailedJobs: []string{"c"},
		Steps: []flowv1.StepStatus{{Name: "d", Skipped: true}}, FlowConditions: []metav1.Condition{{Type: flowv1.ConditionValid, Status: metav1.ConditionFalse, Reason: "TemplateNotFound", Message: "no template"}}}
	pod := &corev1.Pod{ObjectMeta: owned("v-0", "batch.volcano.sh/v1alpha1", "Job", "v")}
	pod.Labels = map[string]string{batchv1.KeyJobName: "v", batchv1.KeyTaskSpec: "main"}
	pod.Spec.NodeName = "node"
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}}
	ended := &corev1.Pod{ObjectMeta: named("w-0")}
	ended.Status = corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, FinishedAt: at}}}}}
	vcjob := &batchv1.Job{ObjectMeta: named("v")}
	vcjob.GenerateName = "v-"
	vcjob.Spec.Tasks = []batchv1.TaskSpec{{Replicas: 2}, {Replicas: 3}}
	vcjob.Status = batchv1.JobStatus{State: batchv1.JobState{Phase: batchv1.JobTerminated, LastTransitionTime: at}, Failed: 1, Succeeded: 4,
		Conditions: []batchv1.JobCondition{{Status: batchv1.JobRunning, LastTransitionTime: &at}}}
	cluster := &rayv1.RayCluster{ObjectMeta: named("ray")}
	cluster.Status = rayv1.RayClusterStatus{DesiredWorkerReplicas: 3, ReadyWorkerReplicas: 1, Reason: "no room"}
	cron := &cronv1.CronJobFlow{ObjectMeta: named("night")}
	cron.Spec.Schedule = "@daily"
	common := `"namespace":"n","name":%q,"uid":"u","resourceVersion":"7",`
	const created = `"created":"2026-11-22T12:00:00.000000Z"`
	for _, c := range []struct {
		o    client.Object
		kind Kind
		want string
	}{
		{task, Tasks, `"state":"running","severity":"running","reason":"Stopping","message":"its job was canceled",` + created + `,"started":"2026-11-22T12:01:00.000000Z","owner":{"kind":"taskgroups","name":"survey-drive"},"job":"survey","group":"drive","robot":"r1","attempt":2,"labels":{"taskindex":"0"}}`},
		{restarts, Tasks, `"state":"running","severity":"running","reason":"Restarting",` + created + `,"started":"2026-11-22T12:02:00.000000Z","robot":"r1","attempt":2,"restarts":3}`},
		{waits, Tasks, `"state":"pending","severity":"waiting","reason":"NoRobot","message":"0 of 3 robots",` + created + `}`},
		{job, Jobs, `"state":"failed","severity":"bad","message":"too many",` + created + `,"started":"2026-11-22T12:01:00.000000Z","finished":"2026-11-22T12:02:00.000000Z","owner":{"kind":"jobflows","name":"nightly"},"job":"nightly-train","flow":"nightly","step":"train","template":"train","progress":{"total":10,"waiting":2,"running":2,"done":2,"failed":3},"priority":0}`},
		{rollout, Rollouts, `"state":"WaitingForApproval","severity":"paused","message":"wave fleet needs an approval",` + created + `,"started":"2026-11-22T12:01:00.000000Z","job":"survey","progress":{"total":9,"waiting":4,"running":2,"done":2,"failed":1},"revision":5,"fromRevision":3}`},
		{robot, Robots, `"state":"Online","severity":"paused","reason":"Draining",` + created + `,"robot":"r1","labels":{"arm":"yes"},"heartbeat":"2026-11-22T12:03:00.000000Z","cordoned":true,"capacity":{"arm":"1","cpu":"2","memory":"1024"},"runningTasks":2}`},
		{flow, JobFlows, `"state":"Running","severity":"running","reason":"TemplateNotFound","message":"no template",` + created + `,"started":"2026-11-22T12:01:00.000000Z","flow":"nightly","template":"nightly","progress":{"total":6,"waiting":2,"running":1,"done":2,"failed":1}}`},
		{pod, Pods, `"state":"Pending","severity":"waiting","reason":"ErrImagePull",` + created + `,"owner":{"kind":"vcjobs","name":"v"},"job":"v","group":"main","node":"node","labels":{"volcano.sh/job-name":"v","volcano.sh/task-spec":"main"}}`},
		{ended, Pods, `"state":"Failed","severity":"bad","reason":"Error","message":"container c exited with code 3",` + created + `,"finished":"2026-11-22T12:01:00.000000Z"}`},
		{vcjob, VCJobs, `"state":"Terminated","severity":"gone",` + created + `,"started":"2026-11-22T12:01:00.000000Z","finished":"2026-11-22T12:01:00.000000Z","job":"v","template":"v","progress":{"total":5,"waiting":0,"running":0,"done":4,"failed":1}}`},
		{cluster, RayClusters, `"state":"pending","severity":"waiting","message":"no room",` + created + `,"progress":{"total":3,"waiting":2,"running":1,"done":0,"failed":0}}`},
		{cron, CronJobFlows, `"state":"Scheduled","severity":"waiting","message":"@daily",` + created + `,"template":"night"}`},
	} {
		got, err := json.Marshal(Describe(c.o))
		want := fmt.Sprintf(`{"kind":%q,`+common, c.kind, c.o.GetName()) + c.want
		if err != nil || string(got) != want {
			t.Errorf("%s %s is\n%s, want\n%s %v", c.kind, c.o.GetName(), got, want, err)
		}
	}
	if Describe(&corev1.Node{}) != nil {
		t.Error("a Node has a row")
	}
}

// Completed states are good, failed states are bad, and each state has a severity.
func TestSeverities_MatchStates(t *testing.T) {
	count := map[Severity]int{}
	for _, s := range lifecycle.TaskStates {
		o := &v1alpha1.Task{}
		o.Status.State = string(s)
		r := DescribeTask(o)
		if r.State != string(s) || (s == lifecycle.TaskCompleted) != (r.Severity == Good) || (s == lifecycle.TaskPaused) != (r.Severity == Paused) {
			t.Errorf("a task that is %s is shown as %s, %s", s, r.State, r.Severity)
		}
		count[r.Severity]++
	}
	for _, s := range lifecycle.JobStates {
		if severity := jobSeverity(s); (s == lifecycle.JobCompleted) != (severity == Good) || (s == lifecycle.JobFailed) != (severity == Bad) || (s == lifecycle.JobRunning) != (severity == Running) {
			t.Errorf("a job that is %s is %s", s, severity)
		}
	}
	for phase, severity := range rolloutSeverities {
		if (phase == v1alpha1.RolloutComplete) != (severity == Good) || (phase == v1alpha1.RolloutPaused || phase == v1alpha1.RolloutWaitingForApproval) != (severity == Paused) {
			t.Errorf("a Rollout that is %s is %s", phase, severity)
		}
	}
	for _, p := range lifecycle.FlowPhases {
		if severity := flowSeverity(p, true); p.StartsSteps() != (severity == Paused) || (p == lifecycle.FlowTerminating) != (severity == Gone) {
			t.Errorf("a suspended flow that is %s is %s", p, severity)
		}
	}
	for _, p := range lifecycle.RobotPhases {
		if severity := robotSeverity(p, false); (p == lifecycle.RobotOnline) != (severity == Good) || (p == lifecycle.RobotOffline) != (severity == Bad) {
			t.Errorf("a robot that is %s is %s", p, severity)
		}
	}
	for _, severity := range Severities {
		if count[severity] == 0 {
			t.Errorf("no task is ever %s", severity)
		}
	}
}

// Measured values do not count as a difference; all other fields do.
func TestLooksEqual_IgnoresMeasuredValues(t *testing.T) {
	task, robot, cluster := &v1alpha1.Task{}, &v1alpha1.Robot{}, &rayv1.RayCluster{}
	robot.Status.DeviceInfo = &v1alpha1.DeviceInfo{CPU: &v1alpha1.CPU{LogicalCores: 4}}
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.Task, *v1alpha1.Robot, *rayv1.RayCluster)
		same   bool
	}{
		{"resourceVersion and managedFields", func(t *v1alpha1.Task, _ *v1alpha1.Robot, _ *rayv1.RayCluster) {
			t.ResourceVersion, t.Generation = "9", 2
		}, true},
		{"resource usage of a task", func(t *v1alpha1.Task, _ *v1alpha1.Robot, _ *rayv1.RayCluster) {
			t.Status.Resources = &v1alpha1.ResourceUse{CPUPercent: 1}
		}, true},
		{"measured values of a robot", func(_ *v1alpha1.Task, r *v1alpha1.Robot, _ *rayv1.RayCluster) {
			r.Status.DeviceInfo.CPU.UsagePercent, r.Status.DeviceInfo.Uptime = 50, 7
		}, true},
		{"the last update time of a cluster", func(_ *v1alpha1.Task, _ *v1alpha1.Robot, c *rayv1.RayCluster) {
			c.Status.LastUpdateTime = &metav1.Time{Time: time.Now()}
		}, true},
		{"an attempt", func(t *v1alpha1.Task, _ *v1alpha1.Robot, _ *rayv1.RayCluster) {
			t.Status.Attempts = []v1alpha1.TaskAttempt{{Attempt: 1}}
		}, false},
		{"a label", func(t *v1alpha1.Task, _ *v1alpha1.Robot, _ *rayv1.RayCluster) { t.Labels = map[string]string{"a": "b"} }, false},
		{"a heartbeat", func(_ *v1alpha1.Task, r *v1alpha1.Robot, _ *rayv1.RayCluster) { r.Status.LastHeartbeatTime = micros(1) }, false},
		{"a driver of a robot", func(_ *v1alpha1.Task, r *v1alpha1.Robot, _ *rayv1.RayCluster) {
			r.Status.DeviceInfo.Drivers = []string{"exec"}
		}, false},
		{"a worker", func(_ *v1alpha1.Task, _ *v1alpha1.Robot, c *rayv1.RayCluster) { c.Status.ReadyWorkerReplicas++ }, false},
	} {
		t2, r2, c2 := task.DeepCopy(), robot.DeepCopy(), cluster.DeepCopy()
		c.change(t2, r2, c2)
		if got := LooksEqual(task, t2) && LooksEqual(robot, r2) && LooksEqual(cluster, c2); got != c.same {
			t.Errorf("%s: same %v, want %v", c.name, got, c.same)
		}
	}
}
