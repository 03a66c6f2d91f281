package vcjob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

// TestPlan_Transitions covers each rule of the state machine with a Job that is about to
// change its phase.
func TestPlan_Transitions(t *testing.T) {
	two := func(phase batchv1.JobPhase) *batchv1.Job { return job(phase, 2) }
	minAvailable := func(n int32) func(*batchv1.Job) { return func(j *batchv1.Job) { j.Spec.MinAvailable = n } }
	minSuccess := func(n int32) func(*batchv1.Job) { return func(j *batchv1.Job) { j.Spec.MinSuccess = &n } }
	policies := func(p ...batchv1.LifecyclePolicy) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.Policies = p }
	}
	retried := func(n int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Status.RetryCount, j.Status.Version = n, n }
	}
	counted := func(n int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Status.TaskStatusCount = map[string]batchv1.TaskState{"a": {Phase: map[corev1.PodPhase]int32{"Running": n}}}
		}
	}
	version := func(n int32) func(*batchv1.Job) { return func(j *batchv1.Job) { j.Status.Version = n } }
	all := func(j *batchv1.Job, fs ...func(*batchv1.Job)) *batchv1.Job {
		for _, f := range fs {
			f(j)
		}
		return j
	}
	taskPolicy := func(p ...batchv1.LifecyclePolicy) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.Tasks[0].Policies = p }
	}
	dependsOn := func(it batchv1.Iteration, names ...string) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Spec.Tasks[len(j.Spec.Tasks)-1].DependsOn = &batchv1.DependsOn{Name: names, Iteration: it}
		}
	}
	partitions := func(j *batchv1.Job) {
		j.Spec.Tasks[0].PartitionPolicy = &batchv1.PartitionPolicySpec{TotalPartitions: 2, PartitionSize: 2}
	}
	const restartJob, restartTask, restartPod = batchv1.RestartJobAction, batchv1.RestartTaskAction, batchv1.RestartPodAction
	const podFailed, podEvicted = batchv1.PodFailedEvent, batchv1.PodEvictedEvent

	for _, c := range []struct {
		name string
		in   Input
		now  time.Duration
		// phase, Pods to create, mark and stop, and what the status says.
		want, create, mark, stop string
		retry, version           int32
	}{
		{name: "a new Job is Pending, and its Pods are created at once", in: newInput(two("")), want: "Pending", create: "a0 a1"},
		{name: "minAvailable not reached: stays Pending", in: newInput(two("Pending"), "a0 Running", "a1 Pending"), want: "Pending"},
		{name: "minAvailable Pods run: Running", in: newInput(two("Pending"), "a0 Running", "a1 Running"), want: "Running"},
		{name: "minAvailable Pods run or have ended: Running", in: newInput(two("Pending"), "a0 Succeeded", "a1 Failed"), want: "Running"},
		{name: "a smaller minAvailable: Running", in: newInput(all(two("Pending"), minAvailable(1)), "a0 Running", "a1 Pending"), want: "Running"},
		{name: "too many Pods are pending again: Pending", in: newInput(two("Running"), "a0 Running", "a1 Pending"), want: "Pending"},
		{name: "a Job without replicas stays Running", in: newInput(job("Running", 0)), want: "Running"},
		{name: "6.44 all succeeded: Completed", in: newInput(two("Running"), "a0 Succeeded", "a1 Succeeded"), want: "Completed"},
		{name: "6.44 one failed of a task that needs both: Failed", in: newInput(two("Running"), "a0 Succeeded", "a1 Failed"), want: "Failed"},
		{name: "6.44 one failed and minAvailable is met: Completed", in: newInput(all(two("Running"), minAvailable(1)), "a0 Succeeded", "a1 Failed"), want: "Completed"},
		{name: "6.44 too few succeeded for minAvailable: Failed", in: newInput(all(two("Running"), minAvailable(1)), "a0 Failed", "a1 Failed"), want: "Failed"},
		{name: "6.44 minSuccess is met: Completed at once, the rest is stopped", in: newInput(all(two("Running"), minSuccess(1)), "a0 Succeeded", "a1 Running"), want: "Completed", stop: "a1"},
		{name: "6.44 minSuccess is not met: Failed", in: newInput(all(two("Running"), minAvailable(1), minSuccess(2)), "a0 Succeeded", "a1 Failed"), want: "Failed"},
		{name: "6.45 PodFailed, RestartJob: all Pods are stopped", in: newInput(all(two("Running"), policies(policy(podFailed, restartJob))), "a0 Running", "a1 Failed"), want: "Restarting", stop: "a0 a1", retry: 1, version: 1},
		{name: "6.45 the last restart keeps failed Pods", in: newInput(all(two("Running"), policies(policy(podFailed, restartJob)), retried(2)), "a0 Running", "a1 Failed"), want: "Restarting", stop: "a0", retry: 3, version: 3},
		{name: "6.45 restarted too often: Failed", in: newInput(all(two("Restarting"), retried(3)), "a1 Failed -old"), want: "Failed", retry: 3, version: 3},
		{name: "Restarting waits for the Pods that are stopped", in: newInput(all(two("Restarting"), retried(1)), "a0 Running -old", "a1 Running -old -deleted"), want: "Restarting", stop: "a0", retry: 1, version: 1},
		{name: "Restarting, enough replicas can start: Pending, and Pods with a free name are created", in: newInput(all(two("Restarting"), retried(1), minAvailable(1)), "a0 Running -old -deleted"), want: "Pending", create: "a1", retry: 1, version: 1},
		{name: "RestartTask stops only the Pods of its task", in: newInput(all(job("Running", 2, 1), policies(policy(podFailed, restartTask))), "a0 Running", "a1 Failed", "b0 Running"), want: "Restarting", mark: "a0 a1", stop: "a0 a1", retry: 1},
		{name: "RestartPod stops one Pod", in: newInput(all(two("Running"), policies(policy(podFailed, restartPod))), "a0 Running", "a1 Failed"), want: "Restarting", mark: "a1", stop: "a1", retry: 1},
		{name: "RestartPod of two at once is one restart", in: newInput(all(two("Running"), policies(policy(podFailed, restartPod))), "a0 Failed", "a1 Failed"), want: "Restarting", mark: "a0 a1", stop: "a0 a1", retry: 1},
		{name: "the last RestartPod keeps the failed Pod", in: newInput(all(two("Running"), policies(policy(podFailed, restartPod)), retried(2)), "a0 Running", "a1 Failed"), want: "Restarting", retry: 3, version: 2},
		{name: "RestartPartition stops the partition", in: newInput(all(job("Running", 4), partitions, policies(policy(podFailed, batchv1.RestartPartitionAction))), "a0 Running", "a1 Running", "a2 Failed", "a3 Running"), want: "Restarting", mark: "a2 a3", stop: "a2 a3", retry: 1},
		{name: "a Pod that is being stopped triggers no policy", in: newInput(all(two("Pending"), policies(policy(podFailed, restartPod)), func(j *batchv1.Job) { j.Status.RetryCount = 1 }), "a0 Running", "a1 Failed -marked -deleted"), want: "Pending", retry: 1},
		{name: "a Pod whose restart is counted triggers no policy", in: newInput(all(two("Pending"), policies(policy(podFailed, restartTask)), func(j *batchv1.Job) { j.Status.RetryCount = 1 }), "a0 Running", "a1 Failed -counted"), want: "Pending", stop: "a1", retry: 1},
		{name: "an interrupted restart with all marks is completed", in: newInput(all(two("Running"), policies(policy(podFailed, restartTask))), "a0 Running -intended", "a1 Failed -intended"), want: "Restarting", mark: "a0 a1", stop: "a0 a1", retry: 1},
		{name: "an interrupted restart with one mark is completed", in: newInput(all(two("Running"), policies(policy(podFailed, restartTask))), "a0 Running", "a1 Failed -intended"), want: "Restarting", mark: "a0 a1", stop: "a0 a1", retry: 1},
		{name: "an interrupted restart is completed even if its cause is gone", in: newInput(all(two("Running"), policies(policy(podFailed, restartTask))), "a0 Running -intended", "a1 Running"), want: "Restarting", stop: "a0", retry: 1},
		{name: "6.46 AbortJob", in: newInput(all(two("Running"), policies(policy(podFailed, batchv1.AbortJobAction))), "a0 Running", "a1 Failed"), want: "Aborting", stop: "a0", version: 1},
		{name: "6.46 Aborting, a Pod is terminating: stays Aborting", in: newInput(all(two("Aborting"), version(1)), "a0 Running -old -deleted", "a1 Failed -old"), want: "Aborting", version: 1},
		{name: "6.46 Aborting, no live Pods: Aborted", in: newInput(all(two("Aborting"), version(1)), "a1 Failed -old"), want: "Aborted", version: 1},
		{name: "6.46 TerminateJob", in: newInput(all(two("Running"), policies(policy(podFailed, batchv1.TerminateJobAction))), "a0 Running", "a1 Failed"), want: "Terminating", stop: "a0", version: 1},
		{name: "6.46 Terminating, no live Pods: Terminated", in: newInput(all(two("Terminating"), version(1)), "a1 Failed -old"), want: "Terminated", version: 1},
		{name: "6.46 CompleteJob", in: newInput(all(job("Running", 1, 1), policies(policy(batchv1.TaskCompletedEvent, batchv1.CompleteJobAction))), "a0 Succeeded", "b0 Running"), want: "Completing", stop: "b0", version: 1},
		{name: "6.46 Completing, no live Pods: Completed", in: newInput(all(job("Completing", 1, 1), version(1)), "a0 Succeeded -old"), want: "Completed", version: 1},
		{name: "6.47 the task's policy takes precedence over the Job's", in: newInput(all(two("Running"), policies(policy(podFailed, restartJob)), taskPolicy(policy(podFailed, batchv1.AbortJobAction))), "a0 Running", "a1 Failed"), want: "Aborting", stop: "a0", version: 1},
		{name: "6.47 an exit code", in: newInput(all(two("Running"), policies(exit(3, batchv1.TerminateJobAction), policy(podFailed, restartJob))), "a0 Running", "a1 Failed 3"), want: "Terminating", stop: "a0", version: 1},
		{name: "6.47 another exit code", in: newInput(all(two("Running"), policies(exit(3, batchv1.TerminateJobAction), policy(podFailed, restartJob))), "a0 Running", "a1 Failed 4"), want: "Restarting", stop: "a0 a1", retry: 1, version: 1},
		{name: "6.47 any event", in: newInput(all(two("Running"), policies(policy("*", batchv1.AbortJobAction))), "a0 Running", "a1 Failed"), want: "Aborting", stop: "a0", version: 1},
		{name: "6.47 any event does not include PodPending", in: newInput(all(two("Pending"), policies(policy("*", batchv1.AbortJobAction))), "a0 Running", "a1 Pending"), want: "Pending"},
		{name: "6.47 a Pod of an older version triggers no policy", in: newInput(all(two("Pending"), policies(policy("*", batchv1.AbortJobAction)), retried(1)), "a0 Running", "a1 Failed -old"), want: "Pending", stop: "a1", retry: 1, version: 1},
		{name: "a deleted Pod counts as evicted", in: newInput(all(two("Running"), policies(policy(podEvicted, restartJob))), "a0 Running", "a1 Running -deleted"), want: "Restarting", stop: "a0", retry: 1, version: 1},
		{name: "a Pod that no longer exists was evicted", in: newInput(all(two("Running"), policies(policy(podEvicted, restartTask)), counted(2)), "a1 Running"), want: "Restarting", mark: "a1", stop: "a1", retry: 1},
		{name: "a missing Pod is created again", in: newInput(all(two("Running"), counted(2)), "a1 Running"), want: "Running", create: "a0"},
		{name: "a Pod that never existed was not evicted", in: newInput(all(two("Running"), policies(policy(podEvicted, restartJob)), counted(1)), "a1 Running"), want: "Running", create: "a0"},
		{name: "TaskFailed: its containers were restarted too often", in: crashed(all(two("Running"), policies(policy(batchv1.TaskFailedEvent, batchv1.AbortJobAction))), 3), want: "Aborting", stop: "a0 a1", version: 1},
		{name: "TaskFailed: not before maxRetry restarts", in: crashed(all(two("Running"), policies(policy(batchv1.TaskFailedEvent, batchv1.AbortJobAction))), 2), want: "Running"},
		{name: "a timeout delays", in: newInput(all(two("Pending"), policies(after(time.Minute, policy(batchv1.PodPendingEvent, batchv1.AbortJobAction)))), "a0 Running", "a1 Pending"), now: 59 * time.Second, want: "Pending"},
		{name: "a timeout is over", in: newInput(all(two("Pending"), policies(after(time.Minute, policy(batchv1.PodPendingEvent, batchv1.AbortJobAction)))), "a0 Running", "a1 Pending"), now: time.Minute, want: "Aborting", stop: "a0 a1", version: 1},
		{name: "a timeout has no effect once the Pod is running", in: newInput(all(two("Running"), policies(after(time.Minute, policy(batchv1.PodPendingEvent, batchv1.AbortJobAction)))), "a0 Running", "a1 Running"), now: time.Hour, want: "Running"},
		{name: "a failed Pod whose restart is due later does not fail the Job", in: newInput(all(job("Running", 1), policies(after(time.Minute, policy(podFailed, restartPod)))), "a0 Failed"), want: "Running"},
		{name: "6.48 a Command aborts", in: order(newInput(two("Running"), "a0 Running", "a1 Running"), "AbortJob"), want: "Aborting", stop: "a0 a1", version: 1},
		{name: "6.48 a Command resumes, and what has ended is stopped as well", in: order(newInput(all(two("Aborted"), version(1)), "a0 Failed -old"), "ResumeJob"), want: "Restarting", stop: "a0", retry: 1, version: 2},
		{name: "a Command takes precedence over policies", in: order(newInput(all(two("Running"), policies(policy(podFailed, restartJob))), "a0 Running", "a1 Failed"), "TerminateJob"), want: "Terminating", stop: "a0", version: 1},
		{name: "6.50 a task waits for the one that it depends on", in: newInput(all(job("Pending", 1, 1), dependsOn("", "a"))), want: "Pending", create: "a0"},
		{name: "6.50 a task is created once its dependency is ready", in: newInput(all(job("Pending", 1, 1), dependsOn("", "a")), "a0 Running"), want: "Pending", create: "b0"},
		{name: "6.50 iteration all: waits for all tasks", in: newInput(all(job("Pending", 1, 1, 1), dependsOn("all", "a", "b")), "a0 Running", "b0 Pending"), want: "Pending"},
		{name: "6.50 iteration any: waits for one task", in: newInput(all(job("Pending", 1, 1, 1), dependsOn("any", "a", "b")), "a0 Running", "b0 Pending"), want: "Pending", create: "c0"},
		{name: "a task whose dependency has failed cannot start: Failed", in: newInput(all(job("Pending", 1, 1), dependsOn("", "a")), "a0 Failed"), want: "Failed"},
		{name: "tasks that depend on each other: Failed", in: newInput(all(job("Pending", 1, 1), func(j *batchv1.Job) { j.Spec.Tasks[0].DependsOn = &batchv1.DependsOn{Name: []string{"b"}} }, dependsOn("", "a"))), want: "Failed"},
		{name: "fewer replicas: surplus Pods are stopped and do not count as evicted", in: newInput(all(job("Running", 1), counted(2), policies(policy(podEvicted, restartJob))), "a0 Running", "a1 Running"), want: "Running", stop: "a1"},
		{name: "more replicas are created", in: newInput(all(job("Running", 3), minAvailable(1)), "a0 Running", "a1 Running"), want: "Running", create: "a2"},
		{name: "Pods wait for a claim that does not exist", in: func() Input { w := newInput(two("Pending")); w.MissingClaims = []string{"data"}; return w }(), want: "Pending"},
		{name: "a Pod that the API server rejects: Failed", in: func() Input { w := newInput(two("Pending")); w.Rejection = "no"; return w }(), want: "Failed"},
		{name: "a Pod that is being created is not created again", in: func() Input {
			w := newInput(two("Pending"))
			w.Creating = map[string]bool{"j-a-0": true}
			return w
		}(), want: "Pending", create: "a1"},
		{name: "an abort waits for Pods that are being created", in: func() Input {
			w := newInput(two("Aborting"))
			w.Creating = map[string]bool{"j-a-0": true}
			return w
		}(), want: "Aborting"},
		{name: "a Job that is being deleted is left alone", in: newInput(all(two("Running"), func(j *batchv1.Job) { at := j.CreationTimestamp; j.DeletionTimestamp = &at }), "a0 Running"), want: "Running"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Plan(t0.Add(c.now), 0, c.in)
			is := c.in.Job.Status
			if s.Status != nil {
				is = *s.Status
			}
			if string(is.State.Phase) != c.want || is.RetryCount != c.retry || is.Version != c.version {
				t.Errorf("phase %s (%s), retry %d, version %d", is.State.Phase, is.State.Message, is.RetryCount, is.Version)
			}
			if names(s.CreatePods) != c.create || names(s.MarkPods) != c.mark || names(s.StopPods) != c.stop {
				t.Errorf("creates %q, marks %q, stops %q", names(s.CreatePods), names(s.MarkPods), names(s.StopPods))
			}
			if ch := s.Change; ch != nil && (ch.Reason == "" || ch.Message == "" || strings.Contains(ch.Reason, " ")) {
				t.Errorf("event %q: %q", ch.Reason, ch.Message)
			}
		})
	}
}

func crashed(j *batchv1.Job, times int32) Input {
	w := newInput(j, "a0 Running", "a1 Running")
	w.Pods[0].Status.ContainerStatuses[0].RestartCount = times
	return w
}

func order(w Input, action batchv1.Action) Input {
	w.Command = &PendingCommand{Name: "cmd", Action: action}
	return w
}

func TestPlan_RejectsImpossibleCommands(t *testing.T) {
	for _, c := range []struct {
		phase  batchv1.JobPhase
		action batchv1.Action
		want   string
	}{
		{"Completed", "AbortJob", "Command cmd: AbortJob has no effect on a Job that is Completed"},
		{"Running", "RestartTask", "Command cmd: RestartTask is only possible in policies, because a Command does not select Pods; use RestartJob, or delete the Pods"},
		{"Running", "Frobnicate", `Command cmd: unknown action "Frobnicate"; use AbortJob, ResumeJob, RestartJob, CompleteJob, TerminateJob or SyncJob`},
		{"Running", "SyncJob", ""},
		{"Running", "AbortJob", ""},
	} {
		if got := Plan(t0, 0, order(newInput(job(c.phase, 1), "a0 Running"), c.action)).CommandRejection; got != c.want {
			t.Errorf("%s of a Job that is %s: %q", c.action, c.phase, got)
		}
	}
}

// TestPlan_CountsEndedPods covers Volcano's defect #4616: ended Pods must be counted while
// the others are stopped, and after they are deleted.
func TestPlan_CountsEndedPods(t *testing.T) {
	j := job("Running", 3)
	one := int32(1)
	j.Spec.MinSuccess = &one
	w := newInput(j, "a0 Succeeded", "a1 Failed", "a2 Running")
	s := Plan(t0.Add(90*time.Second), 0, w)
	is := *s.Status
	if is.Succeeded != 1 || is.Failed != 1 || is.Running != 0 || is.Terminating != 1 || fmt.Sprint(is.TaskStatusCount) != "map[a:{map[Failed:1 Succeeded:1]}]" {
		t.Errorf("#4616: %+v", is)
	}
	if is.RunningDuration.Duration != 90*time.Second || is.State.LastTransitionTime.Time != t0.Add(90*time.Second) {
		t.Errorf("ran for %v", is.RunningDuration)
	}
	j.Status = is
	after := Plan(t0.Add(time.Hour), 0, Input{Job: j}).Status
	if after.Succeeded != 1 || after.Failed != 1 || after.Terminating != 0 || fmt.Sprint(after.TaskStatusCount) != "map[a:{map[Failed:1 Succeeded:1]}]" {
		t.Errorf("#4616 after its Pods were deleted: %+v", after)
	}
	j.Status = *after
	if again := Plan(t0.Add(2*time.Hour), 0, Input{Job: j}); again.Status != nil {
		t.Errorf("an unchanged status is written: %+v", again.Status)
	}
}

func TestPlan_WritesCountsOncePerTick(t *testing.T) {
	w := newInput(job("Pending", 3), "a0 Running")
	w.LastStatusWrite = t0
	s := Plan(t0.Add(time.Second), 2*time.Second, w)
	if s.Status != nil || !s.RequeueAt.Equal(t0.Add(2*time.Second)) {
		t.Errorf("writes %v, requeue at %v", s.Status, s.RequeueAt)
	}
	if s := Plan(t0.Add(2*time.Second), 2*time.Second, w); s.Status == nil || s.Status.Running != 1 {
		t.Errorf("writes %v", s.Status)
	}
}

func TestPlan_DeletesExpiredJob(t *testing.T) {
	for _, c := range []struct {
		phase     batchv1.JobPhase
		ttl       int32
		flowWaits bool
		now       time.Duration
		want      bool
	}{
		{"Completed", 0, false, 0, true},
		{"Completed", 10, false, 9 * time.Second, false},
		{"Completed", 10, false, 10 * time.Second, true},
		{"Failed", 10, false, 10 * time.Second, true},
		{"Terminated", 10, false, 10 * time.Second, true},
		{"Aborted", 10, false, time.Hour, false},
		{"Running", 0, false, time.Hour, false},
		{"Completed", 0, true, time.Hour, false},
	} {
		if c.want {
			stays := job(c.phase, 0)
			stays.Status.State.LastTransitionTime.Time = t0
			stays.Spec.TTLSecondsAfterFinished = &c.ttl
			w := newInput(stays)
			w.Archives = true
			if Plan(t0.Add(c.now), 0, w).DeleteJob {
				t.Errorf("%s: it is deleted before it is archived", c.phase)
			}
			w.Job.Annotations = map[string]string{batchv1.AnnotationArchived: stays.ArchiveMarker()}
			if !Plan(t0.Add(c.now), 0, w).DeleteJob {
				t.Errorf("%s: it is not deleted although it is archived", c.phase)
			}
		}
		j := job(c.phase, 0)
		j.Status.State.LastTransitionTime.Time = t0
		j.Spec.TTLSecondsAfterFinished = &c.ttl
		w := newInput(j)
		w.FlowPending = c.flowWaits
		s := Plan(t0.Add(c.now), 0, w)
		if s.DeleteJob != c.want || !s.DeleteJob && c.phase == "Completed" && !c.flowWaits && s.RequeueAt.IsZero() {
			t.Errorf("%s after %s with ttl %d: deletes %v, requeue at %v", c.phase, c.now, c.ttl, s.DeleteJob, s.RequeueAt)
		}
	}
}

// TestPlan_ActsOnEvictionAfterTimeout follows an eviction through the Pod that replaces
// the evicted one.
func TestPlan_ActsOnEvictionAfterTimeout(t *testing.T) {
	j := job("Running", 1)
	j.Spec.Policies = []batchv1.LifecyclePolicy{after(time.Minute, policy(batchv1.PodEvictedEvent, batchv1.AbortJobAction))}
	s := Plan(t0.Add(time.Second), 0, newInput(j, "a0 Running -deleted"))
	if at := s.EvictedAt["j-a-0"]; !at.Equal(t0) || s.Change != nil || !s.RequeueAt.Equal(t0.Add(time.Minute)) {
		t.Fatalf("%+v", s)
	}
	s = Plan(t0.Add(2*time.Second), 0, Input{Job: j, EvictedAt: s.EvictedAt})
	if len(s.CreatePods) != 1 || !evictedAt(s.CreatePods[0]).Equal(t0) {
		t.Fatalf("creates %v", s.CreatePods)
	}
	made := s.CreatePods[0]
	set(made, "Pending", 0)
	for _, c := range []struct {
		phase corev1.PodPhase
		want  bool
	}{{"Pending", true}, {"Running", false}} {
		set(made, c.phase, 0)
		s := Plan(t0.Add(time.Minute), 0, Input{Job: j, Pods: []*corev1.Pod{made}})
		if got := s.Change != nil && s.Change.To == "Aborting"; got != c.want {
			t.Errorf("the new Pod is %s: %+v", c.phase, s.Change)
		}
	}
}
