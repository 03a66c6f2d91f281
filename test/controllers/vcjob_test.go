package controllers

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/vcjob"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

// waitTimeout allows for a busy machine. On an idle one the waits take about a second.
const waitTimeout = 2 * time.Minute

// onlyVCJob runs the vcjob controller alone.
var onlyVCJob = manager.Config{Controllers: []string{vcjob.Name}, StatusTick: 10 * time.Millisecond}

// TestVCJob runs the controller without Queues, PodGroups or a scheduler; the test plays the
// kubelet.
func TestVCJob(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob)
	runCases(t, "vc", s.namespace, []testCase[*space]{
		{"a Pod has Volcano's name, labels and annotations", vcPods},
		{"all Pods succeed: Completed, and the counts stay right (#4616)", vcCompletes},
		{"minSuccess decides", vcMinSuccess},
		{"too few succeed: Failed", vcFails},
		{"PodFailed and RestartJob: restarted twice, then Failed, the last failed Pods are kept", vcRestarts},
		{"TerminateJob, AbortJob and CompleteJob pass through their phases", vcStops},
		{"task policy, exit code, any event", vcPolicies},
		{"a Command aborts a Job and another resumes it", vcCommands},
		{"an action is an event with source and times", vcActionEvents},
		{"ttlSecondsAfterFinished deletes finished Jobs, not aborted ones", vcExpires},
		{"a finished Job is kept until its JobFlow has recorded its end", vcWaitsForItsFlow},
		{"a task waits for its dependency", vcDependsOn},
		{"a deleted Pod counts as evicted", vcEvicted},
		{"tasks that depend on each other fail the Job with a message", vcCycle},
		{"a Pod that the API server rejects fails the Job with a message", vcRejected},
		{"volumes: one claim is created, another is waited for", vcVolumes},
		{"svc: Service, lists of hosts and NetworkPolicy are created and deleted", vcService},
		{"ssh: a Secret with generated keys is created, and stays as it is", vcKeys},
		{"ray: the Service of the head is created and deleted", vcRay},
		{"replicas grow and shrink", vcScales},
		{"many Pods", vcMany},
	})
}

// vctask is a task of so many replicas.
func vctask(name string, replicas int32, policies ...batchv1.LifecyclePolicy) batchv1.TaskSpec {
	t := batchv1.TaskSpec{Name: name, Replicas: replicas, Policies: policies}
	t.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	t.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "image", Command: []string{"true"}}}
	return t
}

func on(event batchv1.Event, action batchv1.Action) batchv1.LifecyclePolicy {
	return batchv1.LifecyclePolicy{Event: event, Action: action}
}

// vcjob creates a Job. f may change it before.
func (s *space) vcjob(name string, f func(*batchv1.Job), tasks ...batchv1.TaskSpec) *batchv1.Job {
	s.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}, Spec: batchv1.JobSpec{Tasks: tasks}}
	if f != nil {
		f(j)
	}
	s.must(s.Create(s.Context(), j))
	return j
}

func (s *space) awaitVCJob(name string, want batchv1.JobPhase) *batchv1.Job {
	s.Helper()
	var j batchv1.Job
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("job %s is %s", name, want), func() error {
		if err := s.Get(s.Context(), s.key(name), &j); err != nil {
			return err
		}
		if j.Status.State.Phase != want {
			return fmt.Errorf("it is %+v", j.Status)
		}
		return nil
	})
	return &j
}

func (s *space) vcpods() []corev1.Pod {
	s.Helper()
	var list corev1.PodList
	s.must(s.List(s.Context(), &list, client.InNamespace(s.name)))
	return list.Items
}

// awaitPods waits until exactly these Pods exist that are not being deleted.
func (s *space) awaitPods(want ...string) []corev1.Pod {
	s.Helper()
	var pods []corev1.Pod
	slices.Sort(want)
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("pods %v", want), func() error {
		pods = s.vcpods()
		var got []string
		for _, p := range pods {
			if p.DeletionTimestamp == nil {
				got = append(got, p.Name)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("there are %v", got)
		}
		return nil
	})
	return pods
}

// pod puts a Pod into a phase, as its kubelet does: "Running", "Succeeded", or
// "Failed" with an exit code. It waits for one that has not come to it, so that
// the test may be ahead of the controller.
func (s *space) pod(name string, phase corev1.PodPhase, code int32) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("pod %s is %s", name, phase), func() error {
		var p corev1.Pod
		if err := s.Get(s.Context(), s.key(name), &p); err != nil {
			return err
		}
		if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			return fmt.Errorf("it is %s, deleted at %v", p.Status.Phase, p.DeletionTimestamp)
		}
		c := corev1.ContainerStatus{Name: "main", Image: "image", Ready: phase == corev1.PodRunning}
		if phase == corev1.PodSucceeded || phase == corev1.PodFailed {
			c.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.Now()}
		} else {
			c.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
		}
		p.Status.Phase, p.Status.ContainerStatuses = phase, []corev1.ContainerStatus{c}
		return s.Status().Update(s.Context(), &p)
	})
}

func (s *space) podsAre(phase corev1.PodPhase, code int32, names ...string) {
	s.Helper()
	for _, name := range names {
		s.pod(name, phase, code)
	}
}

// phases follows a Job. It returns a function that waits until these are the phases
// that it has been seen in, each as an update of its own: a watch may be behind what
// a Get shows.
func (s *space) phases(name string) func(want string) {
	s.Helper()
	w, err := s.Watch(s.Context(), &batchv1.JobList{}, client.InNamespace(s.name))
	s.must(err)
	s.Cleanup(w.Stop)
	var mu sync.Mutex
	var seen []string
	go func() {
		for e := range w.ResultChan() {
			j, ok := e.Object.(*batchv1.Job)
			if !ok || j.Name != name {
				continue
			}
			mu.Lock()
			if p := string(j.Status.State.Phase); p != "" && (len(seen) == 0 || seen[len(seen)-1] != p) {
				seen = append(seen, p)
			}
			mu.Unlock()
		}
	}()
	return func(want string) {
		s.Helper()
		testkit.EventuallyNoError(s, waitTimeout, "the phases of "+name, func() error {
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(seen, " "); got != want {
				return fmt.Errorf("they are %s, want %s", got, want)
			}
			return nil
		})
	}
}

func vcPods(s *space) {
	task := vctask("", 2)
	task.Template.Labels = map[string]string{"mine": "label"}
	task.Template.Annotations = map[string]string{"mine": "annotation"}
	task.Template.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "image"}}
	j := s.vcjob("j", func(j *batchv1.Job) {
		j.Labels = map[string]string{"of-the-job": "no"}
		j.Spec.Plugins = map[string][]string{"env": {}}
	}, task)
	pods := s.awaitPods("j-default0-0", "j-default0-1")
	p := pods[1]
	for key, want := range map[string]string{
		"volcano.sh/job-name": "j", "volcano.sh/job-namespace": s.name, "volcano.sh/task-spec": "default0",
		"volcano.sh/task-index": "1", "volcano.sh/queue-name": "default", "mine": "label", "of-the-job": "",
	} {
		if p.Labels[key] != want {
			s.Errorf("label %s is %q", key, p.Labels[key])
		}
	}
	for key, want := range map[string]string{
		"volcano.sh/job-name": "j", "volcano.sh/task-spec": "default0", "volcano.sh/task-index": "1", "volcano.sh/queue-name": "default",
		"volcano.sh/job-version": "0", "volcano.sh/job-retry-count": "0", "volcano.sh/template-uid": "j-default0",
		"scheduling.k8s.io/group-name": "j-" + string(j.UID), "mine": "annotation",
	} {
		if p.Annotations[key] != want {
			s.Errorf("annotation %s is %q", key, p.Annotations[key])
		}
	}
	if !metav1.IsControlledBy(&p, j) || p.Spec.SchedulerName != "volcano" || p.Spec.RestartPolicy != corev1.RestartPolicyNever {
		s.Errorf("owner %v, scheduler %s", p.OwnerReferences, p.Spec.SchedulerName)
	}
	for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		if fmt.Sprint(c.Env) != "[{VK_TASK_INDEX 1 nil} {VC_TASK_INDEX 1 nil}]" {
			s.Errorf("container %s: %v", c.Name, c.Env)
		}
	}
}

func vcCompletes(s *space) {
	seen := s.phases("j")
	s.vcjob("j", nil, vctask("t", 3))
	s.podsAre(corev1.PodRunning, 0, "j-t-0", "j-t-1", "j-t-2")
	s.awaitVCJob("j", batchv1.JobRunning)
	s.podsAre(corev1.PodSucceeded, 0, "j-t-0", "j-t-1", "j-t-2")
	j := s.awaitVCJob("j", batchv1.JobCompleted)
	if j.Status.Succeeded != 3 || fmt.Sprint(j.Status.TaskStatusCount) != "map[t:{map[Succeeded:3]}]" || j.Status.MinAvailable != 3 || j.Status.RunningDuration == nil {
		s.Errorf("status %+v", j.Status)
	}
	for _, p := range s.vcpods() {
		s.must(s.Delete(s.Context(), &p))
	}
	s.awaitPods()
	s.order("touch", "AbortJob", j)
	s.awaitEvents("j", vcjob.ReasonCommandRefused)
	if j := s.awaitVCJob("j", batchv1.JobCompleted); j.Status.Succeeded != 3 || fmt.Sprint(j.Status.TaskStatusCount) != "map[t:{map[Succeeded:3]}]" {
		s.Errorf("#4616: status %+v", j.Status)
	}
	seen("Pending Running Completed")
}

func vcMinSuccess(s *space) {
	one := int32(1)
	s.vcjob("j", func(j *batchv1.Job) { j.Spec.MinSuccess = &one }, vctask("t", 2))
	s.podsAre(corev1.PodRunning, 0, "j-t-0", "j-t-1")
	s.pod("j-t-1", corev1.PodSucceeded, 0)
	s.awaitVCJob("j", batchv1.JobCompleted)
	s.awaitPods("j-t-1")
}

func vcFails(s *space) {
	s.vcjob("strict", nil, vctask("t", 2))
	s.vcjob("lax", func(j *batchv1.Job) { j.Spec.MinAvailable = 1 }, vctask("t", 2))
	for _, name := range []string{"strict", "lax"} {
		s.podsAre(corev1.PodRunning, 0, name+"-t-0", name+"-t-1")
		s.pod(name+"-t-0", corev1.PodSucceeded, 0)
		s.pod(name+"-t-1", corev1.PodFailed, 1)
	}
	if j := s.awaitVCJob("strict", batchv1.JobFailed); j.Status.Succeeded != 1 || j.Status.Failed != 1 || j.Status.State.Message != "1 Pods of task t have succeeded, and its minAvailable is 2" {
		s.Errorf("status %+v", j.Status)
	}
	s.awaitVCJob("lax", batchv1.JobCompleted)
}

func vcRestarts(s *space) {
	seen := s.phases("j")
	s.vcjob("j", func(j *batchv1.Job) {
		j.Spec.Policies = []batchv1.LifecyclePolicy{on(batchv1.PodFailedEvent, batchv1.RestartJobAction)}
	}, vctask("t", 2))
	for round := range 3 {
		s.remade(round, "j-t-0", "j-t-1")
		s.podsAre(corev1.PodRunning, 0, "j-t-0", "j-t-1")
		s.awaitVCJob("j", batchv1.JobRunning)
		s.pod("j-t-1", corev1.PodFailed, 1)
	}
	j := s.awaitVCJob("j", batchv1.JobFailed)
	s.awaitPods("j-t-1")
	testkit.EventuallyNoError(s, waitTimeout, "the counts", func() error {
		if j = s.awaitVCJob("j", batchv1.JobFailed); j.Status.RetryCount != 3 || j.Status.Failed != 1 || j.Status.Terminating != 0 {
			return fmt.Errorf("%+v", j.Status)
		}
		return nil
	})
	seen("Pending Running Restarting Pending Running Restarting Pending Running Restarting Failed")
}

func vcStops(s *space) {
	for _, c := range []struct {
		action batchv1.Action
		end    batchv1.JobPhase
		want   string
	}{
		{batchv1.TerminateJobAction, batchv1.JobTerminated, "Pending Running Terminating Terminated"},
		{batchv1.AbortJobAction, batchv1.JobAborted, "Pending Running Aborting Aborted"},
		{batchv1.CompleteJobAction, batchv1.JobCompleted, "Pending Running Completing Completed"},
	} {
		name := strings.ToLower(string(c.action))
		seen := s.phases(name)
		s.vcjob(name, func(j *batchv1.Job) {
			j.Spec.Policies = []batchv1.LifecyclePolicy{on(batchv1.PodFailedEvent, c.action)}
		}, vctask("t", 2))
		s.podsAre(corev1.PodRunning, 0, name+"-t-0", name+"-t-1")
		s.awaitVCJob(name, batchv1.JobRunning)
		s.pod(name+"-t-0", corev1.PodFailed, 1)
		j := s.awaitVCJob(name, c.end)
		if j.Status.Failed != 1 || j.Status.Version != 1 {
			s.Errorf("%s: status %+v", c.action, j.Status)
		}
		seen(c.want)
	}
}

func vcPolicies(s *space) {
	three := int32(3)
	s.vcjob("task", func(j *batchv1.Job) {
		j.Spec.Policies = []batchv1.LifecyclePolicy{on(batchv1.PodFailedEvent, batchv1.AbortJobAction)}
	}, vctask("t", 1, on(batchv1.PodFailedEvent, batchv1.TerminateJobAction)))
	s.vcjob("code", func(j *batchv1.Job) {
		j.Spec.Policies = []batchv1.LifecyclePolicy{{ExitCode: &three, Action: batchv1.TerminateJobAction}, on(batchv1.PodFailedEvent, batchv1.AbortJobAction)}
	}, vctask("t", 1))
	s.vcjob("any", func(j *batchv1.Job) {
		j.Spec.Policies = []batchv1.LifecyclePolicy{on(batchv1.AnyEvent, batchv1.AbortJobAction)}
	}, vctask("t", 1))
	for _, name := range []string{"task", "code", "any"} {
		s.pod(name+"-t-0", corev1.PodRunning, 0)
		s.pod(name+"-t-0", corev1.PodFailed, 3)
	}
	s.awaitVCJob("task", batchv1.JobTerminated)
	s.awaitVCJob("code", batchv1.JobTerminated)
	s.awaitVCJob("any", batchv1.JobAborted)
}

// order creates a Command for a Job, as vcctl does.
func (s *space) order(name string, action batchv1.Action, j *batchv1.Job) {
	s.Helper()
	s.must(s.Create(s.Context(), &busv1.Command{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}, Action: string(action),
		TargetObject: metav1.NewControllerRef(j, batchv1.GroupVersion.WithKind("Job")),
	}))
	testkit.Eventually(s, waitTimeout, "command "+name+" is deleted", func() bool {
		return apierrors.IsNotFound(s.Get(s.Context(), s.key(name), &busv1.Command{}))
	})
}

// vcActionEvents reads the fields of an Event that vcctl and kubectl print.
func vcActionEvents(s *space) {
	j := s.vcjob("j", nil, vctask("t", 1))
	s.podsAre(corev1.PodRunning, 0, "j-t-0")
	s.awaitVCJob("j", batchv1.JobRunning)
	s.order("stop", batchv1.AbortJobAction, j)
	testkit.EventuallyNoError(s, waitTimeout, "an event about the action", func() error {
		var all corev1.EventList
		s.must(s.List(s.Context(), &all, client.InNamespace(s.name)))
		for _, e := range all.Items {
			if e.Reason != vcjob.ReasonExecuteAction {
				continue
			}
			if e.Message != "Start to execute action AbortJob" || e.Source.Component != "k8s4r-manager" || e.ReportingController != e.Source.Component ||
				e.InvolvedObject.Name != "j" || e.FirstTimestamp.IsZero() || e.LastTimestamp.IsZero() || e.Count != 1 {
				s.Errorf("event %+v", e)
			}
			return nil
		}
		return fmt.Errorf("%d other events", len(all.Items))
	})
}

func vcCommands(s *space) {
	j := s.vcjob("j", nil, vctask("t", 2))
	s.podsAre(corev1.PodRunning, 0, "j-t-0", "j-t-1")
	s.awaitVCJob("j", batchv1.JobRunning)
	s.order("stop", batchv1.AbortJobAction, j)
	s.awaitVCJob("j", batchv1.JobAborted)
	s.awaitEvents("j", vcjob.ReasonCommandIssued)
	s.awaitPods()
	s.order("go", batchv1.ResumeJobAction, j)
	s.podsAre(corev1.PodRunning, 0, "j-t-0", "j-t-1")
	if j := s.awaitVCJob("j", batchv1.JobRunning); j.Status.RetryCount != 1 {
		s.Errorf("resumed with %d retries", j.Status.RetryCount)
	}
	stranger := *j
	stranger.UID = "another"
	s.order("late", batchv1.TerminateJobAction, &stranger)
	s.awaitVCJob("j", batchv1.JobRunning)
}

func vcExpires(s *space) {
	ttl := func(n int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = &n }
	}
	s.vcjob("now", ttl(0), vctask("t", 1))
	seen := s.phases("soon")
	s.vcjob("soon", ttl(2), vctask("t", 1))
	s.vcjob("failed", ttl(1), vctask("t", 1))
	ended := s.vcjob("ended", ttl(1), vctask("t", 1))
	aborted := s.vcjob("aborted", ttl(0), vctask("t", 1))
	for _, name := range []string{"now", "soon", "failed", "ended", "aborted"} {
		s.pod(name+"-t-0", corev1.PodRunning, 0)
	}
	s.order("terminate", batchv1.TerminateJobAction, ended)
	s.order("abort", batchv1.AbortJobAction, aborted)
	s.pod("failed-t-0", corev1.PodFailed, 1)
	s.pod("now-t-0", corev1.PodSucceeded, 0)
	s.pod("soon-t-0", corev1.PodSucceeded, 0)
	seen("Pending Running Completed") // a Get may be too late to see the last
	for _, name := range []string{"now", "soon", "failed", "ended"} {
		testkit.Eventually(s, waitTimeout, name+" is gone", func() bool {
			return apierrors.IsNotFound(s.Get(s.Context(), s.key(name), &batchv1.Job{}))
		})
	}
	s.awaitVCJob("aborted", batchv1.JobAborted)
	s.awaitPods()
}

func vcWaitsForItsFlow(s *space) {
	f := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "f"}}
	s.must(s.Create(s.Context(), f))
	s.vcjob("f-a", func(j *batchv1.Job) {
		zero := int32(0)
		j.Spec.TTLSecondsAfterFinished = &zero
		j.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(f, flowv1.GroupVersion.WithKind("JobFlow"))}
	}, vctask("t", 1))
	s.pod("f-a-t-0", corev1.PodRunning, 0)
	s.pod("f-a-t-0", corev1.PodSucceeded, 0)
	j := s.awaitVCJob("f-a", batchv1.JobCompleted)
	s.order("look", batchv1.AbortJobAction, j) // and the controller has looked again
	s.awaitEvents("f-a", vcjob.ReasonCommandRefused)
	s.awaitVCJob("f-a", batchv1.JobCompleted)
	f.Status.CompletedJobs = []string{"f-a"}
	f.Status.JobStatusList = []flowv1.JobStatus{{Name: "f-a", State: batchv1.JobCompleted}}
	s.must(s.Status().Update(s.Context(), f))
	testkit.Eventually(s, waitTimeout, "the Job is gone", func() bool {
		return apierrors.IsNotFound(s.Get(s.Context(), s.key("f-a"), &batchv1.Job{}))
	})
}

func vcDependsOn(s *space) {
	worker := vctask("worker", 2)
	worker.DependsOn = &batchv1.DependsOn{Name: []string{"master"}}
	s.vcjob("j", nil, vctask("master", 1), worker)
	s.awaitPods("j-master-0")
	testkit.EventuallyNoError(s, waitTimeout, "it says what waits", func() error {
		if j := s.awaitVCJob("j", batchv1.JobPending); j.Status.State.Message != "task worker waits for master" {
			return fmt.Errorf("message %q", j.Status.State.Message)
		}
		return nil
	})
	s.pod("j-master-0", corev1.PodRunning, 0)
	s.awaitPods("j-master-0", "j-worker-0", "j-worker-1")
	s.podsAre(corev1.PodRunning, 0, "j-worker-0", "j-worker-1")
	s.podsAre(corev1.PodSucceeded, 0, "j-master-0", "j-worker-0", "j-worker-1")
	s.awaitVCJob("j", batchv1.JobCompleted)
}

func vcEvicted(s *space) {
	s.vcjob("again", nil, vctask("t", 1))
	s.vcjob("end", func(j *batchv1.Job) {
		j.Spec.Policies = []batchv1.LifecyclePolicy{on(batchv1.PodEvictedEvent, batchv1.TerminateJobAction)}
	}, vctask("t", 2))
	s.podsAre(corev1.PodRunning, 0, "again-t-0", "end-t-0", "end-t-1")
	s.awaitVCJob("again", batchv1.JobRunning)
	s.awaitVCJob("end", batchv1.JobRunning)
	for _, name := range []string{"again-t-0", "end-t-0"} {
		s.must(s.Delete(s.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}}, client.GracePeriodSeconds(0)))
	}
	s.awaitVCJob("end", batchv1.JobTerminated)
	s.pod("again-t-0", corev1.PodRunning, 0)
	if j := s.awaitVCJob("again", batchv1.JobRunning); j.Status.RetryCount != 0 {
		s.Errorf("a Pod in the place of another is a restart: %+v", j.Status)
	}
}

func vcCycle(s *space) {
	a, b := vctask("a", 1), vctask("b", 1)
	a.DependsOn, b.DependsOn = &batchv1.DependsOn{Name: []string{"b"}}, &batchv1.DependsOn{Name: []string{"a"}}
	s.vcjob("j", nil, a, b)
	j := s.awaitVCJob("j", batchv1.JobFailed)
	if want := "spec.tasks: the tasks depend on each other: a after b after a; remove one of these dependsOn"; j.Status.State.Message != want || j.Status.State.Reason != "InvalidSpec" {
		s.Errorf("state %+v", j.Status.State)
	}
	s.awaitEvents("j", "Failed")
}

func vcRejected(s *space) {
	bad := vctask("t", 2)
	bad.Template.Spec.Containers[0].Name = "No Name"
	s.vcjob("j", nil, bad)
	if j := s.awaitVCJob("j", batchv1.JobFailed); !strings.Contains(j.Status.State.Message, "spec.containers[0].name") {
		s.Errorf("state %+v", j.Status.State)
	}
}

func vcVolumes(s *space) {
	spec := corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}
	spec.Resources.Requests = capacityOf("storage", "1Gi")
	s.vcjob("j", func(j *batchv1.Job) {
		j.Spec.Volumes = []batchv1.VolumeSpec{{MountPath: "/own", VolumeClaim: &spec}, {MountPath: "/data", VolumeClaimName: "data"}}
	}, vctask("t", 1))
	testkit.EventuallyNoError(s, waitTimeout, "it says what it waits for", func() error {
		if j := s.awaitVCJob("j", batchv1.JobPending); j.Status.State.Reason != "NoVolumeClaim" {
			return fmt.Errorf("state %+v", j.Status.State)
		}
		return nil
	})
	s.awaitPods()
	s.must(s.Create(s.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "data"}, Spec: spec}))
	p := s.awaitPods("j-t-0")[0]
	var claims []string
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claims = append(claims, v.PersistentVolumeClaim.ClaimName)
		}
	}
	if len(claims) != 2 || !strings.HasPrefix(claims[0], "j-pvc-") || len(claims[0]) != len("j-pvc-")+12 || claims[1] != "data" {
		s.Fatalf("claims %v", claims)
	}
	s.must(s.Get(s.Context(), s.key(claims[0]), &corev1.PersistentVolumeClaim{}))
	if j := s.awaitVCJob("j", batchv1.JobPending); j.Status.ControlledResources["volume-pvc-"+claims[0]] == "" {
		s.Errorf("controlled %v", j.Status.ControlledResources)
	}
}

func vcService(s *space) {
	seven := vctask("ps", 2)
	j := s.vcjob("j", func(j *batchv1.Job) {
		j.Spec.Plugins = map[string][]string{"svc": {"--publish-not-ready-addresses=true"}, "env": {}}
	}, seven, vctask("work-er", 1))
	pods := s.awaitPods("j-ps-0", "j-ps-1", "j-work-er-0")
	if pods[1].Spec.Hostname != "j-ps-1" || pods[1].Spec.Subdomain != "j" {
		s.Errorf("%s.%s", pods[1].Spec.Hostname, pods[1].Spec.Subdomain)
	}
	var svc corev1.Service
	s.must(s.Get(s.Context(), s.key("j"), &svc))
	if svc.Spec.ClusterIP != "None" || !svc.Spec.PublishNotReadyAddresses || svc.Spec.Selector["volcano.sh/job-name"] != "j" {
		s.Errorf("service %+v", svc.Spec)
	}
	s.must(s.Get(s.Context(), s.key("j"), &networkingv1.NetworkPolicy{}))
	var hosts corev1.ConfigMap
	s.must(s.Get(s.Context(), s.key("j-svc"), &hosts))
	for key, want := range map[string]string{
		"ps.host": "j-ps-0.j\nj-ps-1.j", "VC_PS_HOSTS": "j-ps-0.j,j-ps-1.j", "VC_PS_NUM": "2",
		"work-er.host": "j-work-er-0.j", "VC_WORK_ER_HOSTS": "j-work-er-0.j", "VC_WORK_ER_NUM": "1",
	} {
		if hosts.Data[key] != want {
			s.Errorf("%s is %q", key, hosts.Data[key])
		}
	}
	env := map[string]string{}
	for _, e := range pods[0].Spec.Containers[0].Env {
		if e.ValueFrom != nil {
			env[e.Name] = e.ValueFrom.ConfigMapKeyRef.Key
		}
	}
	if env["VC_PS_HOSTS"] != "VC_PS_HOSTS" || env["VC_WORK_ER_NUM"] != "VC_WORK_ER_NUM" {
		s.Errorf("env %v", env)
	}
	s.order("end", batchv1.TerminateJobAction, j)
	s.awaitVCJob("j", batchv1.JobTerminated)
	for _, o := range []client.Object{&svc, &hosts} {
		testkit.Eventually(s, waitTimeout, o.GetName()+" is gone", func() bool {
			return apierrors.IsNotFound(s.Get(s.Context(), client.ObjectKeyFromObject(o), o))
		})
	}
}

func vcKeys(s *space) {
	j := s.vcjob("j", func(j *batchv1.Job) { j.Spec.Plugins = map[string][]string{"mpi": {}} }, vctask("master", 1), vctask("worker", 1))
	pods := s.awaitPods("j-master-0", "j-worker-0")
	if v := pods[0].Spec.Volumes; len(v) < 2 || v[0].Name != "j-svc" || v[1].Name != "j-ssh" || *v[1].Secret.DefaultMode != 0o600 {
		s.Errorf("volumes %+v", v)
	}
	var secret corev1.Secret
	s.must(s.Get(s.Context(), s.key("j-ssh"), &secret))
	first := secret.ResourceVersion
	if config := string(secret.Data["config"]); len(secret.Data) != 4 || !strings.Contains(config, "Host j-worker-* !*.*\n  HostName %h.j\n") {
		s.Errorf("%d files, config %s", len(secret.Data), config)
	}
	testkit.EventuallyNoError(s, waitTimeout, "grow", func() error {
		s.must(s.Get(s.Context(), s.key("j"), j))
		j.Spec.Tasks[1].Replicas = 2
		return s.Update(s.Context(), j)
	})
	s.awaitPods("j-master-0", "j-worker-0", "j-worker-1")
	s.order("end", batchv1.TerminateJobAction, j)
	s.awaitVCJob("j", batchv1.JobTerminated)
	if s.must(s.Get(s.Context(), s.key("j-ssh"), &secret)); secret.ResourceVersion != first || !metav1.IsControlledBy(&secret, j) {
		s.Errorf("the keys have changed, or have lost their owner: %+v", secret.ObjectMeta)
	}
}

func vcRay(s *space) {
	task := vctask("head", 1)
	task.Template.Spec.Containers[0].Name = "head"
	j := s.vcjob("j", func(j *batchv1.Job) { j.Spec.Plugins = map[string][]string{"ray": {}} }, task)
	s.awaitPods("j-head-0")
	var svc corev1.Service
	s.must(s.Get(s.Context(), s.key("j-head-svc"), &svc))
	if svc.Spec.Selector["volcano.sh/task-spec"] != "head" || len(svc.Spec.Ports) != 3 || svc.Spec.ClusterIP == "None" {
		s.Errorf("service %+v", svc.Spec)
	}
	s.order("end", batchv1.TerminateJobAction, j)
	s.awaitVCJob("j", batchv1.JobTerminated)
	testkit.Eventually(s, waitTimeout, "the Service is gone", func() bool {
		return apierrors.IsNotFound(s.Get(s.Context(), s.key("j-head-svc"), &svc))
	})
}

func vcScales(s *space) {
	one := int32(1)
	task := vctask("t", 2)
	task.MinAvailable = &one
	s.vcjob("j", func(j *batchv1.Job) {
		j.Spec.Policies = []batchv1.LifecyclePolicy{on(batchv1.PodEvictedEvent, batchv1.TerminateJobAction)}
	}, task)
	s.podsAre(corev1.PodRunning, 0, "j-t-0", "j-t-1")
	s.awaitVCJob("j", batchv1.JobRunning)
	for _, n := range []int32{3, 1} {
		testkit.EventuallyNoError(s, waitTimeout, "resize", func() error {
			var j batchv1.Job
			s.must(s.Get(s.Context(), s.key("j"), &j))
			j.Spec.Tasks[0].Replicas = n
			return s.Update(s.Context(), &j)
		})
		if n == 3 {
			s.pod("j-t-2", corev1.PodRunning, 0)
		}
	}
	s.awaitPods("j-t-0")
	s.pod("j-t-0", corev1.PodSucceeded, 0)
	s.awaitVCJob("j", batchv1.JobCompleted)
}

func vcMany(s *space) {
	begin := time.Now()
	s.vcjob("j", func(j *batchv1.Job) { j.Spec.MinAvailable = 1 }, vctask("t", 700))
	testkit.EventuallyNoError(s, waitTimeout, "all Pods", func() error {
		if n := len(s.vcpods()); n != 700 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	s.Logf("700 Pods were created within %s", time.Since(begin))
	j := s.awaitVCJob("j", batchv1.JobPending)
	s.order("end", batchv1.TerminateJobAction, j)
	s.awaitVCJob("j", batchv1.JobTerminated)
	s.awaitPods()
}

func capacityOf(name corev1.ResourceName, amount string) corev1.ResourceList {
	q := capacity(string(name), amount)[string(name)]
	return corev1.ResourceList{name: q}
}

// TestVCJob_AfterRestarts restarts the controller at any point: it handles the events that it
// missed, and nothing happens twice.
func TestVCJob_AfterRestarts(t *testing.T) {
	t.Parallel()
	s := startApart(t, apartServer, onlyVCJob, "restarts").namespace(t, "restarts")
	again := func(meanwhile func()) {
		s.stop()
		meanwhile()
		s.manage(onlyVCJob)
	}
	evict := func(name string) {
		s.must(s.Delete(s.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}}, client.GracePeriodSeconds(0)))
	}
	s.vcjob("j", func(j *batchv1.Job) {
		j.Spec.MaxRetry = 10
		j.Spec.Policies = []batchv1.LifecyclePolicy{on(batchv1.PodFailedEvent, batchv1.RestartJobAction), on(batchv1.PodEvictedEvent, batchv1.RestartTaskAction)}
	}, vctask("t", 2), vctask("u", 1))
	all := []string{"j-t-0", "j-t-1", "j-u-0"}
	s.podsAre(corev1.PodRunning, 0, all...)
	s.awaitVCJob("j", batchv1.JobRunning)

	again(func() { s.pod("j-t-0", corev1.PodFailed, 1) })
	s.remade(1, all...)
	s.podsAre(corev1.PodRunning, 0, all...)
	s.awaitVCJob("j", batchv1.JobRunning)

	testkit.Eventually(s, waitTimeout, "the Pods are counted", func() bool { return s.awaitVCJob("j", batchv1.JobRunning).Status.Running == 3 })
	again(func() { evict("j-t-0") })
	s.remade(2, "j-t-0", "j-t-1")
	s.remade(1, "j-u-0") // of another task
	s.podsAre(corev1.PodRunning, 0, "j-t-0", "j-t-1")
	j := s.awaitVCJob("j", batchv1.JobRunning)

	again(func() {
		s.must(s.Create(s.Context(), &busv1.Command{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "c"}, Action: "RestartJob",
			TargetObject: metav1.NewControllerRef(j, batchv1.GroupVersion.WithKind("Job")),
		}))
	})
	s.remade(3, all...)
	again(func() {})
	again(func() {})
	s.podsAre(corev1.PodRunning, 0, all...)
	s.podsAre(corev1.PodSucceeded, 0, all...)
	again(func() {})
	if j := s.awaitVCJob("j", batchv1.JobCompleted); j.Status.RetryCount != 3 {
		s.Errorf("%d retries", j.Status.RetryCount)
	}
}

// remade waits until these Pods are those that were made at that retry.
func (s *space) remade(retry int, names ...string) {
	s.Helper()
	for _, name := range names {
		testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("pod %s of retry %d", name, retry), func() error {
			var p corev1.Pod
			if err := s.Get(s.Context(), s.key(name), &p); err != nil {
				return err
			}
			if got := p.Annotations[batchv1.KeyJobRetryCount]; got != fmt.Sprint(retry) || p.DeletionTimestamp != nil {
				return fmt.Errorf("it is of retry %s", got)
			}
			return nil
		})
	}
}

// TestVCJob_YieldsToVolcano runs beside a Lease of Volcano's own controller.
func TestVCJob_YieldsToVolcano(t *testing.T) {
	t.Parallel()
	s := startApart(t, flowServer, onlyVCJob, "volcano-system").namespace(t, "volcano-system")
	holder, ends := "vc-controllers-0", time.Now().Add(5*time.Second)
	renewed := metav1.NewMicroTime(ends.Add(-time.Minute))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: vcjob.VolcanoLease},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed, HolderIdentity: &holder},
	}
	s.stop()
	s.must(s.Create(s.Context(), lease))
	s.manage(onlyVCJob)
	s.vcjob("theirs", nil, vctask("t", 1))
	s.awaitPods("theirs-t-0")
	if made := s.vcpods()[0].CreationTimestamp; made.Before(&metav1.Time{Time: ends.Truncate(time.Second)}) {
		s.Errorf("it acted at %s, before the Lease of Volcano's controller expired at %s", made, ends)
	}
}
