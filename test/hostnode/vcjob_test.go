package hostnode

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// vcjobs run with the real controller, scheduler, node and processes, and without Volcano.
// TestVCJob in test/controllers has more cases, without a node.
func TestVCJob_RunsAsProcesses(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	sys := &system{Up: testkit.StartUp(t, "--without", "server,broker,robots", "--pod-range", "10.244.83.0/24")}
	sys.connect(t)
	for i, c := range []struct {
		name string
		run  func(*jobs)
	}{
		{"name, labels and annotations; no Queue, PodGroup or scheduler of Volcano", jobPods},
		{"minAvailable and minSuccess decide", jobOutcomes},
		{"PodFailed and RestartJob: Failed at maxRetry, the last failed Pod is kept with its log", jobRestarts},
		{"terminate, abort and complete pass through their phases, and end the processes", jobStops},
		{"task policy, exit code, any event; events of an older version are ignored", jobPolicies},
		{"a Command ends the processes, another restarts them", jobCommands},
		{"ttlSecondsAfterFinished deletes Job and Pods", jobExpires},
		{"a task's processes start when its dependencies run", jobDependsOn},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := sys.in(t, fmt.Sprintf("vcjob-%d", i))
			c.run(&jobs{space: s, files: t.TempDir()})
		})
	}
}

// jobs is a namespace, and a directory of the host that all Pods see as /files.
type jobs struct {
	*space
	files string
}

// task returns a task that runs a script in each of its replicas.
func (s *jobs) task(name string, replicas int32, script string, policies ...batchv1.LifecyclePolicy) batchv1.TaskSpec {
	grace := int64(1)
	t := batchv1.TaskSpec{Name: name, Replicas: replicas, Policies: policies}
	t.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{
			Name: "c", Image: "none", Command: []string{"sh", "-c", script},
			VolumeMounts: []corev1.VolumeMount{{Name: "files", MountPath: "/files"}},
		}},
		Volumes: []corev1.Volume{{Name: "files", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: s.files}}}},
	}
	return t
}

// until returns a script that waits for a file.
func until(file string) string { return "until test -f /files/" + file + "; do sleep 0.02; done; " }

func on(event batchv1.Event, action batchv1.Action) batchv1.LifecyclePolicy {
	return batchv1.LifecyclePolicy{Event: event, Action: action}
}

func (s *jobs) run(name string, change func(*batchv1.JobSpec), tasks ...batchv1.TaskSpec) *batchv1.Job {
	s.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}}
	j.Spec = batchv1.JobSpec{Tasks: tasks, Plugins: map[string][]string{"env": {}}}
	if change != nil {
		change(&j.Spec)
	}
	if err := s.Create(s.Context(), j); err != nil {
		s.Fatal(err)
	}
	return j
}

func (s *jobs) awaitJob(name string, phase batchv1.JobPhase) *batchv1.Job {
	s.Helper()
	var j batchv1.Job
	testkit.EventuallyNoError(s.T, within, fmt.Sprintf("job %s is %s", name, phase), func() error {
		if err := s.Get(context.Background(), client.ObjectKey{Namespace: s.name, Name: name}, &j); err != nil {
			return err
		}
		if j.Status.State.Phase != phase {
			return fmt.Errorf("it is %+v", j.Status)
		}
		return nil
	})
	return &j
}

// phases follows a Job. The returned function waits until the Job has passed through exactly these
// phases, each in a separate update.
func (s *jobs) phases(name string) func(want string) {
	s.Helper()
	w, err := s.Client.(client.WithWatch).Watch(s.Context(), &batchv1.JobList{}, client.InNamespace(s.name))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(w.Stop)
	var mu sync.Mutex
	seen := ""
	go func() {
		for e := range w.ResultChan() {
			j, ok := e.Object.(*batchv1.Job)
			if !ok || j.Name != name {
				continue
			}
			mu.Lock()
			if p := " " + string(j.Status.State.Phase); p != " " && !strings.HasSuffix(seen, p) {
				seen += p
			}
			mu.Unlock()
		}
	}()
	return func(want string) {
		s.Helper()
		testkit.EventuallyNoError(s.T, within, "the phases of "+name, func() error {
			mu.Lock()
			defer mu.Unlock()
			if got := strings.TrimPrefix(seen, " "); got != want {
				return fmt.Errorf("they are %s, want %s", got, want)
			}
			return nil
		})
	}
}

// sendCommand creates a Command for a Job, and waits until it is handled.
func (s *jobs) sendCommand(j *batchv1.Job, action batchv1.Action) {
	s.Helper()
	c := &busv1.Command{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, GenerateName: "c-"}, Action: string(action),
		TargetObject: metav1.NewControllerRef(j, batchv1.GroupVersion.WithKind("Job")),
	}
	if err := s.Create(s.Context(), c); err != nil {
		s.Fatal(err)
	}
	testkit.Eventually(s.T, within, "the Command is deleted", func() bool {
		return apierrors.IsNotFound(s.Get(context.Background(), client.ObjectKeyFromObject(c), c))
	})
}

// awaitProcesses waits until want processes run `sleep` with this number, which is unique to a
// test.
func (s *jobs) awaitProcesses(number string, want int) {
	s.Helper()
	testkit.EventuallyNoError(s.T, within, fmt.Sprintf("%d processes of sleep %s", want, number), func() error {
		if got := len(processes("sleep\x00" + number + "\x00")); got != want {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

func jobPods(s *jobs) {
	j := s.run("j", nil, s.task("t", 2, "echo I am $VC_TASK_INDEX of $HOSTNAME"))
	s.awaitJob("j", batchv1.JobCompleted)
	p := s.pod("j-t-1")
	for key, want := range map[string]string{"job-name": "j", "job-namespace": s.name, "task-spec": "t", "task-index": "1", "queue-name": "default"} {
		if got := p.Labels["volcano.sh/"+key]; got != want {
			s.Errorf("label %s is %q", key, got)
		}
	}
	for key, want := range map[string]string{
		"volcano.sh/job-name": "j", "volcano.sh/task-spec": "t", "volcano.sh/task-index": "1", "volcano.sh/queue-name": "default", "volcano.sh/job-version": "0",
		"volcano.sh/job-retry-count": "0", "volcano.sh/template-uid": "j-t", "scheduling.k8s.io/group-name": "j-" + string(j.UID),
	} {
		if got := p.Annotations[key]; got != want {
			s.Errorf("annotation %s is %q", key, got)
		}
	}
	if !metav1.IsControlledBy(p, j) || p.Spec.SchedulerName != "volcano" || p.Spec.NodeName == "" {
		s.Errorf("owners %v, scheduler %s, node %s", p.OwnerReferences, p.Spec.SchedulerName, p.Spec.NodeName)
	}
	s.expectLog("j-t-1", "c", "I am 1 of j-t-1")
}

func jobOutcomes(s *jobs) {
	one := int32(1)
	script := "exit $VC_TASK_INDEX" // the second fails
	s.run("strict", nil, s.task("t", 2, script))
	s.run("lax", func(j *batchv1.JobSpec) { j.MinAvailable = 1 }, s.task("t", 2, script))
	s.run("enough", func(j *batchv1.JobSpec) { j.MinSuccess = &one }, s.task("t", 2, "test $VC_TASK_INDEX = 0 && exit 0; exec sleep 4731"))
	s.run("short", func(j *batchv1.JobSpec) { j.MinAvailable, j.MinSuccess = 1, new(int32(2)) }, s.task("t", 2, script))
	for name, want := range map[string]batchv1.JobPhase{
		"strict": batchv1.JobFailed, "lax": batchv1.JobCompleted, "enough": batchv1.JobCompleted, "short": batchv1.JobFailed,
	} {
		if j := s.awaitJob(name, want); j.Status.Succeeded != 1 || name != "enough" && j.Status.Failed != 1 {
			s.Errorf("%s: %+v", name, j.Status)
		}
	}
	s.awaitProcesses("4731", 0)
}

func jobRestarts(s *jobs) {
	seen := s.phases("j")
	s.run("j", func(j *batchv1.JobSpec) {
		j.Policies = []batchv1.LifecyclePolicy{on(batchv1.PodFailedEvent, batchv1.RestartJobAction)}
	}, s.task("t", 1, until("fail")+"rm /files/fail; echo fails; exit 3"), s.task("other", 1, "exec sleep 4732"))
	for round := range 3 {
		testkit.Eventually(s.T, within, fmt.Sprintf("Pods of round %d run", round), func() bool {
			var p corev1.Pod
			err := s.Get(context.Background(), client.ObjectKey{Namespace: s.name, Name: "j-t-0"}, &p)
			return err == nil && p.Annotations[batchv1.KeyJobRetryCount] == fmt.Sprint(round) && running("c")(&p)
		})
		s.awaitJob("j", batchv1.JobRunning)
		touch(s.T, s.files, "fail")
	}
	if j := s.awaitJob("j", batchv1.JobFailed); j.Status.RetryCount != 3 {
		s.Errorf("%+v", j.Status)
	}
	seen("Pending Running Restarting Pending Running Restarting Pending Running Restarting Failed")
	s.awaitProcesses("4732", 0)
	if p := s.pod("j-t-0"); p.Status.Phase != corev1.PodFailed || p.Annotations[batchv1.KeyJobRetryCount] != "2" {
		s.Errorf("the pod that failed last is %s, of retry %s", p.Status.Phase, p.Annotations[batchv1.KeyJobRetryCount])
	}
	s.expectLog("j-t-0", "c", "fails")
}

func jobStops(s *jobs) {
	for i, c := range []struct {
		action batchv1.Action
		want   string
	}{
		{batchv1.TerminateJobAction, "Pending Running Terminating Terminated"},
		{batchv1.AbortJobAction, "Pending Running Aborting Aborted"},
		{batchv1.CompleteJobAction, "Pending Running Completing Completed"},
	} {
		name, number := strings.ToLower(string(c.action)), fmt.Sprint(4733+i)
		seen := s.phases(name)
		s.run(name, func(j *batchv1.JobSpec) {
			j.Policies = []batchv1.LifecyclePolicy{on(batchv1.PodFailedEvent, c.action)}
		}, s.task("bad", 1, until(name)+"exit 1"), s.task("good", 2, "exec sleep "+number))
		s.awaitJob(name, batchv1.JobRunning)
		s.awaitProcesses(number, 2)
		touch(s.T, s.files, name)
		seen(c.want)
		s.awaitProcesses(number, 0)
	}
}

func jobPolicies(s *jobs) {
	three := int32(3)
	code := batchv1.LifecyclePolicy{ExitCode: &three, Action: batchv1.TerminateJobAction}
	abort := func(event batchv1.Event) func(*batchv1.JobSpec) {
		return func(j *batchv1.JobSpec) {
			j.Policies = []batchv1.LifecyclePolicy{on(event, batchv1.AbortJobAction)}
		}
	}
	s.run("task", abort(batchv1.PodFailedEvent), s.task("t", 1, "exit 1", on(batchv1.PodFailedEvent, batchv1.TerminateJobAction)))
	s.run("code", func(j *batchv1.JobSpec) {
		j.Policies = []batchv1.LifecyclePolicy{code, on(batchv1.PodFailedEvent, batchv1.AbortJobAction)}
	}, s.task("t", 1, "exit 3"))
	s.run("other-code", func(j *batchv1.JobSpec) {
		j.Policies = []batchv1.LifecyclePolicy{code, on(batchv1.PodFailedEvent, batchv1.AbortJobAction)}
	}, s.task("t", 1, "exit 4"))
	s.run("any", abort(batchv1.AnyEvent), s.task("t", 1, "exit 1"))
	s.awaitJob("task", batchv1.JobTerminated)
	s.awaitJob("code", batchv1.JobTerminated)
	s.awaitJob("other-code", batchv1.JobAborted)
	s.awaitJob("any", batchv1.JobAborted)

	// Pods that are stopped fail, which must not cause a second restart.
	s.run("stale", func(j *batchv1.JobSpec) {
		j.Policies = []batchv1.LifecyclePolicy{on(batchv1.PodFailedEvent, batchv1.RestartJobAction)}
	}, s.task("a", 1, "test -f /files/again && exec sleep 4737; touch /files/again; exit 1"), s.task("b", 2, "trap 'exit 9' TERM; sleep 4737 & wait"))
	s.awaitProcesses("4737", 3)
	if j := s.awaitJob("stale", batchv1.JobRunning); j.Status.RetryCount != 1 || j.Status.Version != 1 {
		s.Errorf("%+v", j.Status)
	}
	s.sendCommand(s.awaitJob("stale", batchv1.JobRunning), batchv1.TerminateJobAction)
	s.awaitJob("stale", batchv1.JobTerminated)
}

func jobCommands(s *jobs) {
	j := s.run("j", nil, s.task("t", 2, "exec sleep 4738"))
	s.awaitJob("j", batchv1.JobRunning)
	s.awaitProcesses("4738", 2)
	s.sendCommand(j, batchv1.AbortJobAction)
	s.awaitJob("j", batchv1.JobAborted)
	s.awaitProcesses("4738", 0)
	s.sendCommand(j, batchv1.ResumeJobAction)
	s.awaitProcesses("4738", 2)
	if j := s.awaitJob("j", batchv1.JobRunning); j.Status.RetryCount != 1 {
		s.Errorf("%+v", j.Status)
	}
	s.sendCommand(j, batchv1.TerminateJobAction)
	s.awaitJob("j", batchv1.JobTerminated)
	s.awaitProcesses("4738", 0)
}

func jobExpires(s *jobs) {
	ttl := func(n int32) func(*batchv1.JobSpec) {
		return func(j *batchv1.JobSpec) { j.TTLSecondsAfterFinished = &n }
	}
	seen := s.phases("soon")
	s.run("now", ttl(0), s.task("t", 1, "true"))
	s.run("soon", ttl(2), s.task("t", 1, "true"))
	s.run("failed", ttl(1), s.task("t", 1, "false"))
	ended := s.run("ended", ttl(1), s.task("t", 1, "exec sleep 4739"))
	aborted := s.run("aborted", ttl(0), s.task("t", 1, "exec sleep 4739"))
	s.awaitProcesses("4739", 2)
	s.sendCommand(ended, batchv1.TerminateJobAction)
	s.sendCommand(aborted, batchv1.AbortJobAction)
	seen("Pending Running Completed")
	for _, name := range []string{"now", "soon", "failed", "ended"} {
		testkit.Eventually(s.T, within, name+" is gone", func() bool {
			return apierrors.IsNotFound(s.Get(context.Background(), client.ObjectKey{Namespace: s.name, Name: name}, &batchv1.Job{}))
		})
		s.awaitGone(name + "-t-0")
	}
	s.awaitJob("aborted", batchv1.JobAborted)
	s.awaitProcesses("4739", 0)
}

func jobDependsOn(s *jobs) {
	worker := s.task("worker", 2, "test -f /files/began && echo after the master")
	worker.DependsOn = &batchv1.DependsOn{Name: []string{"master"}}
	master := s.task("master", 1, until("end")+"true")
	master.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1,
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-f", "/files/began"}}}}
	s.run("j", nil, master, worker)
	s.awaitPhaseOf("j-master-0", corev1.PodRunning)
	testkit.EventuallyNoError(s.T, within, "its state names the waiting tasks", func() error {
		if j := s.awaitJob("j", batchv1.JobPending); j.Status.State.Message != "task worker waits for master" {
			return fmt.Errorf("its state is %+v", j.Status.State)
		}
		return nil
	})
	for _, name := range []string{"j-worker-0", "j-worker-1"} {
		if err := s.Get(s.Context(), client.ObjectKey{Namespace: s.name, Name: name}, &corev1.Pod{}); !apierrors.IsNotFound(err) {
			s.Errorf("%s does not wait: %v", name, err)
		}
	}
	touch(s.T, s.files, "began")
	s.awaitPhaseOf("j-worker-0", corev1.PodSucceeded)
	s.expectLog("j-worker-0", "c", "after the master")
	touch(s.T, s.files, "end")
	s.awaitJob("j", batchv1.JobCompleted)
}

// awaitPhaseOf is awaitPhase for a Pod that may not exist yet.
func (s *jobs) awaitPhaseOf(name string, phase corev1.PodPhase) {
	s.Helper()
	testkit.Eventually(s.T, within, name+" exists", func() bool {
		return s.Get(context.Background(), client.ObjectKey{Namespace: s.name, Name: name}, &corev1.Pod{}) == nil
	})
	s.awaitPhase(name, phase)
}
