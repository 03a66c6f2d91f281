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
		{name: "a new Job is Pending, and its Pods are created at once", in: world(two("")), want: "Pending", create: "a0 a1"},
		{name: "minAvailable not reached: stays Pending", in: world(two("Pending"), "a0 Running", "a1 Pending"), want: "Pending"},
		{name: "minAvailable runs: Running", in: world(two("Pending"), "a0 Running", "a1 Running"), want: "Running"},
		{name: "minAvailable runs or has ended: Running", in: world(two("Pending"), "a0 Succeeded", "a1 Failed"), want: "Running"},
		{name: "a smaller minAvailable: Running", in: world(all(two("Pending"), minAvailable(1)), "a0 Running", "a1 Pending"), want: "Running"},
		{name: "too many are pending again: Pending", in: world(two("Running"), "a0 Running", "a1 Pending"), want: "Pending"},
		{name: "a Job without replicas stays Running", in: world(job("Running", 0)), want: "Running"},
		{name: "6.44 all succeeded: Completed", in: world(two("Running"), "a0 Succeeded", "a1 Succeeded"), want: "Completed"},
		{name: "6.44 one failed of a task that needs both: Failed", in: world(two("Running"), "a0 Succeeded", "a1 Failed"), want: "Failed"},
		{name: "6.44 one failed and minAvailable is met: Completed", in: world(all(two("Running"), minAvailable(1)), "a0 Succeeded", "a1 Failed"), want: "Completed"},
		{name: "6.44 too few succeeded for minAvailable: Failed", in: world(all(two("Running"), minAvailable(1)), "a0 Failed", "a1 Failed"), want: "Failed"},
		{name: "6.44 minSuccess is met: Completed at once, the rest is stopped", in: world(all(two("Running"), minSuccess(1)), "a0 Succeeded", "a1 Running"), want: "Completed", stop: "a1"},
		{name: "6.44 minSuccess is not met: Failed", in: world(all(two("Running"), minAvailable(1), minSuccess(2)), "a0 Succeeded", "a1 Failed"), want: "Failed"},
		{name: "6.45 PodFailed, RestartJob: all Pods are stopped", in: world(all(two("Running"), policies(policy(podFailed, restartJob))), "a0 Running", "a1 Failed"), want: "Restarting", stop: "a0 a1", retry: 1, version: 1},
		{name: "6.45 the last restart that is allowed keeps what failed", in: world(all(two("Running"), policies(policy(podFailed, restartJob)), retried(2)), "a0 Running", "a1 Failed"), want: "Restarting", stop: "a0", retry: 3, version: 3},
		{name: "6.45 restarted too often: Failed", in: world(all(two("Restarting"), retried(3)), "a1 Failed -old"), want: "Failed", retry: 3, version: 3},
		{name: "Restarting waits for the Pods that are stopped", in: world(all(two("Restarting"), retried(1)), "a0 Running -old", "a1 Running -old -deleted"), want: "Restarting", stop: "a0", retry: 1, version: 1},
		{name: "Restarting, enough may start: Pending, and what has a free name is created", in: world(all(two("Restarting"), retried(1), minAvailable(1)), "a0 Running -old -deleted"), want: "Pending", create: "a1", retry: 1, version: 1},
		{name: "RestartTask stops its Pods and no others", in: world(all(job("Running", 2, 1), policies(policy(podFailed, restartTask))), "a0 Running", "a1 Failed", "b0 Running"), want: "Restarting", mark: "a0 a1", stop: "a0 a1", retry: 1},
		{name: "RestartPod stops the one", in: world(all(two("Running"), policies(policy(podFailed, restartPod))), "a0 Running", "a1 Failed"), want: "Restarting", mark: "a1", stop: "a1", retry: 1},
		{name: "RestartPod of two at once is one restart", in: world(all(two("Running"), policies(policy(podFailed, restartPod))), "a0 Failed", "a1 Failed"), want: "Restarting", mark: "a0 a1", stop: "a0 a1", retry: 1},
		{name: "RestartPod, the last: what failed is kept", in: world(all(two("Running"), policies(policy(podFailed, restartPod)), retried(2)), "a0 Running", "a1 Failed"), want: "Restarting", retry: 3, version: 2},
		{name: "RestartPartition stops the partition", in: world(all(job("Running", 4), partitions, policies(policy(podFailed, batchv1.RestartPartitionAction))), "a0 Running", "a1 Running", "a2 Failed", "a3 Running"), want: "Restarting", mark: "a2 a3", stop: "a2 a3", retry: 1},
		{name: "a Pod that was stopped already is no reason again", in: world(all(two("Pending"), policies(policy(podFailed, restartPod)), func(j *batchv1.Job) { j.Status.RetryCount = 1 }), "a0 Running", "a1 Failed -marked -deleted"), want: "Pending", retry: 1},
		{name: "a Pod whose restart is counted is no reason again", in: world(all(two("Pending"), policies(policy(podFailed, restartTask)), func(j *batchv1.Job) { j.Status.RetryCount = 1 }), "a0 Running", "a1 Failed -counted"), want: "Pending", stop: "a1", retry: 1},
		{name: "a restart whose marks were all that was made is still to come", in: world(all(two("Running"), policies(policy(podFailed, restartTask))), "a0 Running -intended", "a1 Failed -intended"), want: "Restarting", mark: "a0 a1", stop: "a0 a1", retry: 1},
		{name: "a restart of which one mark was made is still to come", in: world(all(two("Running"), policies(policy(podFailed, restartTask))), "a0 Running", "a1 Failed -intended"), want: "Restarting", mark: "a0 a1", stop: "a0 a1", retry: 1},
		{name: "a restart that was begun goes on when its reason is gone", in: world(all(two("Running"), policies(policy(podFailed, restartTask))), "a0 Running -intended", "a1 Running"), want: "Restarting", stop: "a0", retry: 1},
		{name: "6.46 AbortJob", in: world(all(two("Running"), policies(policy(podFailed, batchv1.AbortJobAction))), "a0 Running", "a1 Failed"), want: "Aborting", stop: "a0", version: 1},
		{name: "6.46 Aborting, a Pod still ends: stays", in: world(all(two("Aborting"), version(1)), "a0 Running -old -deleted", "a1 Failed -old"), want: "Aborting", version: 1},
		{name: "6.46 Aborting, none is left: Aborted", in: world(all(two("Aborting"), version(1)), "a1 Failed -old"), want: "Aborted", version: 1},
		{name: "6.46 TerminateJob", in: world(all(two("Running"), policies(policy(podFailed, batchv1.TerminateJobAction))), "a0 Running", "a1 Failed"), want: "Terminating", stop: "a0", version: 1},
		{name: "6.46 Terminating, none is left: Terminated", in: world(all(two("Terminating"), version(1)), "a1 Failed -old"), want: "Terminated", version: 1},
		{name: "6.46 CompleteJob", in: world(all(job("Running", 1, 1), policies(policy(batchv1.TaskCompletedEvent, batchv1.CompleteJobAction))), "a0 Succeeded", "b0 Running"), want: "Completing", stop: "b0", version: 1},
		{name: "6.46 Completing, none is left: Completed", in: world(all(job("Completing", 1, 1), version(1)), "a0 Succeeded -old"), want: "Completed", version: 1},
		{name: "6.47 the task's policy counts more than the Job's", in: world(all(two("Running"), policies(policy(podFailed, restartJob)), taskPolicy(policy(podFailed, batchv1.AbortJobAction))), "a0 Running", "a1 Failed"), want: "Aborting", stop: "a0", version: 1},
		{name: "6.47 an exit code", in: world(all(two("Running"), policies(exit(3, batchv1.TerminateJobAction), policy(podFailed, restartJob))), "a0 Running", "a1 Failed 3"), want: "Terminating", stop: "a0", version: 1},
		{name: "6.47 another exit code", in: world(all(two("Running"), policies(exit(3, batchv1.TerminateJobAction), policy(podFailed, restartJob))), "a0 Running", "a1 Failed 4"), want: "Restarting", stop: "a0 a1", retry: 1, version: 1},
		{name: "6.47 any event", in: world(all(two("Running"), policies(policy("*", batchv1.AbortJobAction))), "a0 Running", "a1 Failed"), want: "Aborting", stop: "a0", version: 1},
		{name: "6.47 any event is not that a Pod is pending", in: world(all(two("Pending"), policies(policy("*", batchv1.AbortJobAction))), "a0 Running", "a1 Pending"), want: "Pending"},
		{name: "6.47 a stale version is no reason", in: world(all(two("Pending"), policies(policy("*", batchv1.AbortJobAction)), retried(1)), "a0 Running", "a1 Failed -old"), want: "Pending", stop: "a1", retry: 1, version: 1},
		{name: "a deleted Pod counts as evicted", in: world(all(two("Running"), policies(policy(podEvicted, restartJob))), "a0 Running", "a1 Running -deleted"), want: "Restarting", stop: "a0", retry: 1, version: 1},
		{name: "a Pod that is gone was evicted", in: world(all(two("Running"), policies(policy(podEvicted, restartTask)), counted(2)), "a1 Running"), want: "Restarting", mark: "a1", stop: "a1", retry: 1},
		{name: "a missing Pod is created again", in: world(all(two("Running"), counted(2)), "a1 Running"), want: "Running", create: "a0"},
		{name: "a Pod that was never there was not evicted", in: world(all(two("Running"), policies(policy(podEvicted, restartJob)), counted(1)), "a1 Running"), want: "Running", create: "a0"},
		{name: "TaskFailed: its containers were restarted too often", in: crashed(all(two("Running"), policies(policy(batchv1.TaskFailedEvent, batchv1.AbortJobAction))), 3), want: "Aborting", stop: "a0 a1", version: 1},
		{name: "not so often yet", in: crashed(all(two("Running"), policies(policy(batchv1.TaskFailedEvent, batchv1.AbortJobAction))), 2), want: "Running"},
		{name: "a timeout delays", in: world(all(two("Pending"), policies(after(time.Minute, policy(batchv1.PodPendingEvent, batchv1.AbortJobAction)))), "a0 Running", "a1 Pending"), now: 59 * time.Second, want: "Pending"},
		{name: "a timeout is over", in: world(all(two("Pending"), policies(after(time.Minute, policy(batchv1.PodPendingEvent, batchv1.AbortJobAction)))), "a0 Running", "a1 Pending"), now: time.Minute, want: "Aborting", stop: "a0 a1", version: 1},
		{name: "a timeout is void, the Pod runs", in: world(all(two("Running"), policies(after(time.Minute, policy(batchv1.PodPendingEvent, batchv1.AbortJobAction)))), "a0 Running", "a1 Running"), now: time.Hour, want: "Running"},
		{name: "a failed Pod whose restart is due later does not fail the Job", in: world(all(job("Running", 1), policies(after(time.Minute, policy(podFailed, restartPod)))), "a0 Failed"), want: "Running"},
		{name: "6.48 a Command aborts", in: order(world(two("Running"), "a0 Running", "a1 Running"), "AbortJob"), want: "Aborting", stop: "a0 a1", version: 1},
		{name: "6.48 a Command resumes, and what has ended is stopped as well", in: order(world(all(two("Aborted"), version(1)), "a0 Failed -old"), "ResumeJob"), want: "Restarting", stop: "a0", retry: 1, version: 2},
		{name: "a Command counts more than what the Pods say", in: order(world(all(two("Running"), policies(policy(podFailed, restartJob))), "a0 Running", "a1 Failed"), "TerminateJob"), want: "Terminating", stop: "a0", version: 1},
		{name: "6.50 a task waits for the one that it depends on", in: world(all(job("Pending", 1, 1), dependsOn("", "a"))), want: "Pending", create: "a0"},
		{name: "6.50 it is created once that runs and is ready", in: world(all(job("Pending", 1, 1), dependsOn("", "a")), "a0 Running"), want: "Pending", create: "b0"},
		{name: "6.50 all is each of them", in: world(all(job("Pending", 1, 1, 1), dependsOn("all", "a", "b")), "a0 Running", "b0 Pending"), want: "Pending"},
		{name: "6.50 any is one of them", in: world(all(job("Pending", 1, 1, 1), dependsOn("any", "a", "b")), "a0 Running", "b0 Pending"), want: "Pending", create: "c0"},
		{name: "what waits for a task that has failed never comes: Failed", in: world(all(job("Pending", 1, 1), dependsOn("", "a")), "a0 Failed"), want: "Failed"},
		{name: "tasks that wait for each other: Failed", in: world(all(job("Pending", 1, 1), func(j *batchv1.Job) { j.Spec.Tasks[0].DependsOn = &batchv1.DependsOn{Name: []string{"b"}} }, dependsOn("", "a"))), want: "Failed"},
		{name: "fewer replicas: those beyond are stopped, and not taken for evicted", in: world(all(job("Running", 1), counted(2), policies(policy(podEvicted, restartJob))), "a0 Running", "a1 Running"), want: "Running", stop: "a1"},
		{name: "more replicas are created", in: world(all(job("Running", 3), minAvailable(1)), "a0 Running", "a1 Running"), want: "Running", create: "a2"},
		{name: "a claim that does not exist holds the Pods back", in: func() Input { w := world(two("Pending")); w.MissingClaims = []string{"data"}; return w }(), want: "Pending"},
		{name: "a Pod that the API server never takes: Failed", in: func() Input { w := world(two("Pending")); w.Rejection = "no"; return w }(), want: "Failed"},
		{name: "what is being created is not created again", in: func() Input {
			w := world(two("Pending"))
			w.Creating = map[string]bool{"j-a-0": true}
			return w
		}(), want: "Pending", create: "a1"},
		{name: "nor is it forgotten by an abort", in: func() Input {
			w := world(two("Aborting"))
			w.Creating = map[string]bool{"j-a-0": true}
			return w
		}(), want: "Aborting"},
		{name: "a Job that is being deleted is left alone", in: world(all(two("Running"), func(j *batchv1.Job) { at := j.CreationTimestamp; j.DeletionTimestamp = &at }), "a0 Running"), want: "Running"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Plan(t0.Add(c.now), 0, c.in)
			is := c.in.Job.Status
			if s.Status != nil {
				is = *s.Status
			}
			if string(is.State.Phase) != c.want || is.RetryCount != c.retry || is.Version != c.version {
				t.Errorf("becomes %s (%s), retry %d, version %d", is.State.Phase, is.State.Message, is.RetryCount, is.Version)
			}
			if names(s.CreatePods) != c.create || names(s.MarkPods) != c.mark || names(s.StopPods) != c.stop {
				t.Errorf("creates %q, marks %q, stops %q", names(s.CreatePods), names(s.MarkPods), names(s.StopPods))
			}
			if ch := s.Change; ch != nil && (ch.Reason == "" || ch.Message == "" || strings.Contains(ch.Reason, " ")) {
				t.Errorf("says %q: %q", ch.Reason, ch.Message)
			}
		})
	}
}

func crashed(j *batchv1.Job, times int32) Input {
	w := world(j, "a0 Running", "a1 Running")
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
		if got := Plan(t0, 0, order(world(job(c.phase, 1), "a0 Running"), c.action)).CommandRejection; got != c.want {
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
	w := world(j, "a0 Succeeded", "a1 Failed", "a2 Running")
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
		t.Errorf("#4616 after its Pods went: %+v", after)
	}
	j.Status = *after
	if again := Plan(t0.Add(2*time.Hour), 0, Input{Job: j}); again.Status != nil {
		t.Errorf("written although it is the same: %+v", again.Status)
	}
}

func TestPlan_WritesCountsOncePerTick(t *testing.T) {
	w := world(job("Pending", 3), "a0 Running")
	w.LastStatusWrite = t0
	s := Plan(t0.Add(time.Second), 2*time.Second, w)
	if s.Status != nil || !s.RequeueAt.Equal(t0.Add(2*time.Second)) {
		t.Errorf("wrote %v, wakes at %v", s.Status, s.RequeueAt)
	}
	if s := Plan(t0.Add(2*time.Second), 2*time.Second, w); s.Status == nil || s.Status.Running != 1 {
		t.Errorf("wrote %v", s.Status)
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
			w := world(stays)
			w.Archives = true
			if Plan(t0.Add(c.now), 0, w).DeleteJob {
				t.Errorf("%s: it goes before the archive has it", c.phase)
			}
			w.Job.Annotations = map[string]string{batchv1.AnnotationArchived: stays.ArchiveMarker()}
			if !Plan(t0.Add(c.now), 0, w).DeleteJob {
				t.Errorf("%s: it stays although the archive has it", c.phase)
			}
		}
		j := job(c.phase, 0)
		j.Status.State.LastTransitionTime.Time = t0
		j.Spec.TTLSecondsAfterFinished = &c.ttl
		w := world(j)
		w.FlowPending = c.flowWaits
		s := Plan(t0.Add(c.now), 0, w)
		if s.DeleteJob != c.want || !s.DeleteJob && c.phase == "Completed" && !c.flowWaits && s.RequeueAt.IsZero() {
			t.Errorf("%s after %s with ttl %d: deletes %v, wakes at %v", c.phase, c.now, c.ttl, s.DeleteJob, s.RequeueAt)
		}
	}
}

// TestPlan_ActsOnEvictionAfterTimeout follows an eviction through the Pod that replaces
// the evicted one.
func TestPlan_ActsOnEvictionAfterTimeout(t *testing.T) {
	j := job("Running", 1)
	j.Spec.Policies = []batchv1.LifecyclePolicy{after(time.Minute, policy(batchv1.PodEvictedEvent, batchv1.AbortJobAction))}
	s := Plan(t0.Add(time.Second), 0, world(j, "a0 Running -deleted"))
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
