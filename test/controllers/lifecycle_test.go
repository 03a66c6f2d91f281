package controllers

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

func TestJob_Lifecycle(t *testing.T) {
	t.Parallel()
	s := share(t, fleetServer, fleetConfig)
	runCases(t, "life", s.namespace, []testCase[*space]{
		{"a paused job lets its tasks end, and continues when it is resumed", pausesAndResumes},
		{"a job that is created paused starts nothing", startsPaused},
		{"a canceled job waits for its running tasks", cancels},
		{"a cancel during dispatch works, forty times", cancelsInTheMiddle},
		{"a canceled job that is requeued completes", requeues},
		{"requeue of one task of a completed job runs only that task", requeuesOne},
		{"requeue of one task of a canceled job creates no other task", requeuesOneOfACanceled},
		{"a failed job whose failed tasks are requeued completes", requeuesFailed},
		{"a task that fails is tried on three robots", triesElsewhere},
		{"a task that no other robot can run fails", hasNoCapableRobot},
		{"with one robot a failure fails the task, and the job only beyond its limit", failsOneOfMany},
		{"the events of a failing task name its robots", recordsFailuresPerRobot},
		{"a robot on which three tasks fail is blocked for the group, and the tasks are retried", blocksARobot},
		{"a failed task restarts on its robot up to its restartPolicy", restartsInPlace},
		{"a job that exceeds its activeDeadline fails", meetsItsDeadline},
		{"a job is deleted after its time to live", expires},
		{"a drained robot stops its tasks, which run elsewhere", drainsARobot},
		{"an evicted task waits for a robot again, once", leavesItsRobot},
		{"a job with preemption evicts tasks of lower priority", preempts},
		{"only allowed actions are accepted", rejectsIllegalActions},
		{"a manifest without the last requeue is accepted and requeues nothing", acceptsOldManifests},
		{"a changed priority of an active job takes effect at once", changesPriority},
	})
}

// updateJobSpec changes the spec of a Job, as a user would.
func (s *space) updateJobSpec(name string, f func(*v1alpha1.JobSpec)) error {
	s.Helper()
	var refused error
	testkit.EventuallyNoError(s, waitTimeout, "action on job "+name, func() error {
		var j v1alpha1.Job
		if err := s.Get(s.Context(), s.key(name), &j); err != nil {
			return err
		}
		f(&j.Spec)
		err := s.Update(s.Context(), &j)
		if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			refused, err = err, nil
		}
		return err
	})
	return refused
}

func desire(state string) func(*v1alpha1.JobSpec) {
	return func(j *v1alpha1.JobSpec) { j.DesiredState = state }
}

// requeue requeues the named tasks, or all.
func requeue(tasks ...string) func(*v1alpha1.JobSpec) {
	return func(j *v1alpha1.JobSpec) {
		generation := int64(1)
		if j.Requeue != nil {
			generation = j.Requeue.Generation + 1
		}
		j.Requeue = &v1alpha1.Requeue{Generation: generation, Tasks: tasks}
		j.DesiredState = v1alpha1.DesiredRunning
	}
}

func (s *space) counts(job string, want v1alpha1.TaskCounts) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "counts of job "+job, func() error {
		var j v1alpha1.Job
		if err := s.Get(s.Context(), s.key(job), &j); err != nil {
			return err
		}
		if j.Status.TaskCounts != want {
			return fmt.Errorf("%s: %+v", j.Status.State, j.Status.TaskCounts)
		}
		return nil
	})
}

func pausesAndResumes(s *space) {
	s.limited("1", "pause-a")
	s.job("j", group("g", 3, "t"))
	s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	s.report("j-g-0-t", lifecycle.TaskStarted)
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredPaused)))
	s.awaitJob("j", lifecycle.JobPauseRequested)
	s.awaitTask("j-g-1-t", lifecycle.TaskPaused)
	s.report("j-g-0-t", lifecycle.TaskSucceeded)
	j := s.awaitJob("j", lifecycle.JobPaused)
	if !meta.IsStatusConditionTrue(j.Status.Conditions, v1alpha1.ConditionSuspended) {
		s.Errorf("conditions %+v", j.Status.Conditions)
	}
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 3, SucceededTasks: 1, PausedTasks: 2})
	s.server(succeed)
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredRunning)))
	s.awaitJob("j", lifecycle.JobCompleted)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 3, SucceededTasks: 3})
}

func startsPaused(s *space) {
	s.robots("born-a")
	s.server(succeed)
	j := &v1alpha1.Job{}
	j.Name, j.Namespace = "j", s.name
	j.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{group("g", 2, "t")}
	j.Spec.DesiredState = v1alpha1.DesiredPaused
	s.must(s.Create(s.Context(), j))
	s.awaitJob("j", lifecycle.JobPaused)
	if n := len(s.tasks()); n != 0 {
		s.Errorf("%d tasks were created", n)
	}
	s.must(s.updateJobSpec("j", desire("")))
	s.awaitJob("j", lifecycle.JobCompleted)
}

func cancels(s *space) {
	s.limited("1", "cancel-a")
	s.job("j", group("g", 3, "t"))
	s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	s.report("j-g-0-t", lifecycle.TaskStarted)
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredCanceled)))
	s.awaitJob("j", lifecycle.JobCancelRequested)
	testkit.Eventually(s, waitTimeout, "the running task is asked to stop", func() bool {
		return s.task("j-g-0-t").Status.Reason == v1alpha1.ReasonStopping
	})
	s.report("j-g-0-t", lifecycle.TaskStopped)
	s.awaitJob("j", lifecycle.JobCanceled)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 3, CanceledTasks: 3})
}

// The predecessor of this manager left 32 of 40 such jobs running without a runnable task.
func cancelsInTheMiddle(s *space) {
	var robots []string
	for i := range 16 {
		robots = append(robots, fmt.Sprintf("mid-%d", i))
	}
	s.limited("1", robots...)
	s.stopsWhenAsked()
	var all sync.WaitGroup
	for i := range 40 {
		name := fmt.Sprintf("j%d", i)
		s.job(name, group("g", 8, "t"))
		all.Go(func() {
			testkit.Eventually(s, waitTimeout, name+" has a task", func() bool {
				var tasks v1alpha1.TaskList
				s.must(s.List(s.Context(), &tasks, client.InNamespace(s.name), client.MatchingLabels{v1alpha1.LabelJob: name}))
				return len(tasks.Items) > 0
			})
			s.must(s.updateJobSpec(name, desire(v1alpha1.DesiredCanceled)))
		})
	}
	all.Wait()
	for i := range 40 {
		s.awaitJob(fmt.Sprintf("j%d", i), lifecycle.JobCanceled)
	}
}

func requeues(s *space) {
	s.robots("req-a")
	s.job("j", group("g", 3, "t"))
	for _, name := range []string{"j-g-0-t", "j-g-1-t", "j-g-2-t"} {
		s.awaitTask(name, lifecycle.TaskDispatching)
	}
	s.report("j-g-0-t", lifecycle.TaskStarted, lifecycle.TaskSucceeded)
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredCanceled)))
	for _, name := range []string{"j-g-1-t", "j-g-2-t"} {
		testkit.Eventually(s, waitTimeout, name+" is asked to stop", func() bool { return s.task(name).Status.Reason == v1alpha1.ReasonStopping })
		s.report(name, lifecycle.TaskStopped)
	}
	s.awaitJob("j", lifecycle.JobCanceled)
	s.server(succeed)
	s.must(s.updateJobSpec("j", requeue()))
	j := s.awaitJob("j", lifecycle.JobCompleted)
	if !meta.IsStatusConditionTrue(j.Status.Conditions, v1alpha1.ConditionComplete) || meta.IsStatusConditionTrue(j.Status.Conditions, v1alpha1.ConditionFailed) {
		s.Errorf("conditions %+v", j.Status.Conditions)
	}
	for name, attempts := range map[string]int32{"j-g-0-t": 1, "j-g-1-t": 2, "j-g-2-t": 2} {
		if got := s.task(name).Status.Attempt; got != attempts {
			s.Errorf("%s took %d attempts, want %d", name, got, attempts)
		}
	}
}

func requeuesOne(s *space) {
	s.robots("one-a")
	s.server(succeed)
	s.job("j", group("g", 3, "t"))
	s.awaitJob("j", lifecycle.JobCompleted)
	s.must(s.updateJobSpec("j", requeue("j-g-1-t")))
	testkit.Eventually(s, waitTimeout, "the one ran again", func() bool { return s.task("j-g-1-t").Status.Attempt == 2 })
	s.awaitJob("j", lifecycle.JobCompleted)
	for _, name := range []string{"j-g-0-t", "j-g-2-t"} {
		if got := s.task(name).Status.Attempt; got != 1 {
			s.Errorf("%s took %d attempts", name, got)
		}
	}
}

func requeuesOneOfACanceled(s *space) {
	s.limited("1", "onec-a")
	s.stopsWhenAsked()
	s.job("j", group("g", 30, "t"))
	s.awaitTask("j-g-0-t", lifecycle.TaskRunning)
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredCanceled)))
	s.awaitJob("j", lifecycle.JobCanceled)
	created := len(s.tasks())
	if created == 30 {
		s.Fatal("all tasks were created")
	}
	s.must(s.updateJobSpec("j", requeue("j-g-0-t")))
	testkit.Eventually(s, waitTimeout, "the one runs again", func() bool {
		t := s.task("j-g-0-t")
		return t.Status.Attempt == 2 && t.Status.State == string(lifecycle.TaskRunning)
	})
	s.report("j-g-0-t", lifecycle.TaskSucceeded)
	s.awaitJob("j", lifecycle.JobCompleted)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 30, SucceededTasks: 1, CanceledTasks: 29})
	if n := len(s.tasks()); n != created {
		s.Errorf("%d tasks, %d before", n, created)
	}
}

func requeuesFailed(s *space) {
	s.robots("mend-a")
	var broken sync.Map
	broken.Store("now", true)
	s.server(func(t *v1alpha1.Task) lifecycle.TaskSignal {
		if _, yes := broken.Load("now"); yes && t.Name == "j-g-0-t" {
			return lifecycle.TaskAttemptFailed
		}
		return lifecycle.TaskSucceeded
	})
	s.job("j", group("g", 2, "t"))
	s.awaitJob("j", lifecycle.JobFailed)
	s.awaitTask("j-g-0-t", lifecycle.TaskFailed)
	broken.Delete("now")
	s.must(s.updateJobSpec("j", func(j *v1alpha1.JobSpec) {
		requeue()(j)
		j.Requeue.Scope = v1alpha1.RequeueFailed
	}))
	s.awaitJob("j", lifecycle.JobCompleted)
	if t := s.task("j-g-0-t"); len(t.Status.FailedRobots) != 0 || t.Status.Attempt != 2 {
		s.Errorf("status %+v", t.Status)
	}
}

func triesElsewhere(s *space) {
	s.robots("else-a", "else-b", "else-c", "else-d")
	s.server(func(*v1alpha1.Task) lifecycle.TaskSignal { return lifecycle.TaskAttemptFailed })
	s.job("j", group("g", 1, "t"))
	s.awaitJob("j", lifecycle.JobFailed)
	t := s.awaitTask("j-g-0-t", lifecycle.TaskFailed)
	robots := slices.Clone(t.Status.FailedRobots)
	slices.Sort(robots)
	if len(slices.Compact(robots)) != 3 || t.Status.Attempt != 3 || t.Status.Reason != "Exited" {
		s.Errorf("failed on %v, attempt %d, reason %s", t.Status.FailedRobots, t.Status.Attempt, t.Status.Reason)
	}
}

func hasNoCapableRobot(s *space) {
	s.robots("able-a", "able-b")
	s.updateRobotSpec("able-a", func(r *v1alpha1.RobotSpec) { r.Labels = map[string]string{"arm": "left"} })
	s.server(func(*v1alpha1.Task) lifecycle.TaskSignal { return lifecycle.TaskAttemptFailed })
	j := &v1alpha1.Job{}
	j.Name, j.Namespace = "j", s.name
	j.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{group("g", 1, "t")}
	j.Spec.RobotSelector = map[string]string{"arm": "left"}
	s.must(s.Create(s.Context(), j))
	if t := s.awaitTask("j-g-0-t", lifecycle.TaskFailed); t.Status.Reason != "NoCapableRobot" || t.Status.Attempt != 1 {
		s.Errorf("reason %s, attempt %d", t.Status.Reason, t.Status.Attempt)
	}
	s.awaitJob("j", lifecycle.JobFailed)
}

func blocksARobot(s *space) {
	s.limited("2", "block-bad", "block-good")
	s.server(func(t *v1alpha1.Task) lifecycle.TaskSignal {
		if t.Spec.TargetRobot == "block-bad" {
			return lifecycle.TaskAttemptFailed
		}
		return lifecycle.TaskSucceeded
	})
	s.job("j", group("g", 20, "t"))
	j := s.awaitJob("j", lifecycle.JobCompleted)
	if j.Status.SucceededTasks != 20 {
		s.Errorf("counts %+v", j.Status.TaskCounts)
	}
	testkit.EventuallyNoError(s, waitTimeout, "the blocklist", func() error {
		var j v1alpha1.Job
		if err := s.Get(s.Context(), s.key("j"), &j); err != nil {
			return err
		}
		if want := []v1alpha1.BlockedRobot{{TaskGroup: "g", Robot: "block-bad"}}; !slices.Equal(j.Status.Blocklist, want) {
			return fmt.Errorf("%v", j.Status.Blocklist)
		}
		return nil
	})
}

func restartsInPlace(s *space) {
	s.robots("place-a", "place-b")
	fails := func(t *v1alpha1.Task) lifecycle.TaskSignal {
		if t.Status.Attempt < 3 {
			return lifecycle.TaskAttemptFailed
		}
		return lifecycle.TaskSucceeded
	}
	s.server(fails)
	g := group("g", 1, "t")
	g.RestartPolicy = &v1alpha1.RestartPolicy{Attempts: 2, Delay: v1alpha1.NewDuration(100 * time.Millisecond)}
	s.job("j", g)
	s.awaitJob("j", lifecycle.JobCompleted)
	t := s.task("j-g-0-t")
	for _, a := range t.Status.Attempts {
		if a.Robot != t.Spec.TargetRobot {
			s.Errorf("attempt %d was on %s, the last on %s", a.Attempt, a.Robot, t.Spec.TargetRobot)
		}
	}
	if t.Status.RestartCount != 2 || len(t.Status.FailedRobots) != 0 {
		s.Errorf("status %+v", t.Status)
	}
}

func meetsItsDeadline(s *space) {
	s.robots("late-x")
	j := &v1alpha1.Job{}
	j.Name, j.Namespace = "j", s.name
	j.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{group("g", 1, "t")}
	j.Spec.ActiveDeadline = v1alpha1.NewDuration(time.Second)
	s.must(s.Create(s.Context(), j))
	s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	s.report("j-g-0-t", lifecycle.TaskStarted)
	now := s.awaitJob("j", lifecycle.JobFailed)
	if c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionFailed); c == nil || c.Reason != "DeadlineExceeded" {
		s.Errorf("condition %+v", c)
	}
	s.report("j-g-0-t", lifecycle.TaskStopped)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 1, CanceledTasks: 1})
}

func expires(s *space) {
	s.robots("ttl-a")
	s.server(succeed)
	soon := int32(1)
	j := &v1alpha1.Job{}
	j.Name, j.Namespace = "j", s.name
	j.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{group("g", 1, "t")}
	j.Spec.TTLSecondsAfterFinished = &soon
	s.must(s.Create(s.Context(), j))
	testkit.Eventually(s, waitTimeout, "the job is gone", func() bool {
		return client.IgnoreNotFound(s.Get(s.Context(), s.key("j"), j)) == nil && s.Get(s.Context(), s.key("j"), j) != nil
	})
}

func rejectsIllegalActions(s *space) {
	s.robots("law-a")
	s.server(succeed)
	s.job("done", group("g", 1, "t"))
	s.awaitJob("done", lifecycle.JobCompleted)
	off := &v1alpha1.Job{}
	off.Name, off.Namespace = "off", s.name
	off.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{group("g", 1, "t")}
	off.Spec.DesiredState = v1alpha1.DesiredCanceled
	s.must(s.Create(s.Context(), off))
	s.awaitJob("off", lifecycle.JobCanceled)
	for _, c := range []struct {
		name, job string
		wish      func(*v1alpha1.JobSpec)
		want      string
	}{
		{"pause of a completed job", "done", desire(v1alpha1.DesiredPaused), "spec.desiredState: a job in state completed cannot be paused; possible now: requeue"},
		{"cancel of a completed job", "done", desire(v1alpha1.DesiredCanceled), "spec.desiredState: a job in state completed cannot be canceled; possible now: requeue"},
		{"requeue of a job that stays canceled", "off", func(j *v1alpha1.JobSpec) {
			requeue()(j)
			j.DesiredState = v1alpha1.DesiredCanceled
		}, "set it to running as well"},
		{"a canceled job that is to run again without a requeue", "off", desire(""), "spec.desiredState: a job in state canceled cannot run without a requeue; possible now: requeue"},
	} {
		err := s.updateJobSpec(c.job, c.wish)
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			s.Errorf("%s: %v", c.name, err)
		}
	}
}

func acceptsOldManifests(s *space) {
	s.robots("git-a")
	s.server(succeed)
	s.job("j", group("g", 1, "t"))
	s.awaitJob("j", lifecycle.JobCompleted)
	var warnings warningRecorder
	operator := &space{T: s.T, system: s.withWarnings(&warnings), name: s.name}
	runs := func(attempt int32) {
		s.Helper()
		testkit.Eventually(s, waitTimeout, fmt.Sprintf("attempt %d", attempt), func() bool { return s.task("j-g-0-t").Status.Attempt >= attempt })
		s.awaitJob("j", lifecycle.JobCompleted)
		if got := s.task("j-g-0-t").Status.Attempt; got != attempt {
			s.Errorf("attempt %d, want %d", got, attempt)
		}
	}
	requeue := func(generation int64) {
		s.Helper()
		s.must(operator.updateJobSpec("j", func(j *v1alpha1.JobSpec) { j.Requeue = &v1alpha1.Requeue{Generation: generation} }))
	}
	requeue(3)
	runs(2)
	requeue(1)
	s.must(operator.updateJobSpec("j", func(j *v1alpha1.JobSpec) { j.Requeue = nil }))
	if got := warnings.list(); len(got) != 0 {
		s.Errorf("warned: %q", got)
	}
	requeue(2)
	const want = "spec.requeue.generation: 2 has no effect, because generation 3 was already requeued; use 4 for another requeue"
	if got := warnings.list(); len(got) != 1 || !strings.Contains(got[0], want) {
		s.Errorf("warned: %q", got)
	}
	requeue(4)
	runs(3)
	s.must(operator.updateJobSpec("j", func(j *v1alpha1.JobSpec) {
		j.Requeue = &v1alpha1.Requeue{Generation: 5, Tasks: []string{"j-g-0-t", "j-h-0-t", "other-g-0-t", "j-g-bcdfghjklm-0-t"}}
	}))
	runs(4)
	const unknownTasks = "spec.requeue.tasks: j-h-0-t, other-g-0-t is not a Task of this Job and requeues nothing; its Tasks are named j-GROUP-INDEX-TASK"
	if got := warnings.list(); len(got) != 2 || !strings.Contains(got[1], unknownTasks) {
		s.Errorf("warned: %q", got)
	}
}

func changesPriority(s *space) {
	s.limited("1", "prio-a")
	s.job("first", group("g", 1, "t"))
	s.awaitTask("first-g-0-t", lifecycle.TaskDispatching)
	s.job("second", group("g", 1, "t"))
	s.awaitTask("second-g-0-t", lifecycle.TaskPending)
	s.job("third", group("g", 1, "t"))
	s.awaitTask("third-g-0-t", lifecycle.TaskPending)
	high := int32(90)
	s.must(s.updateJobSpec("third", func(j *v1alpha1.JobSpec) { j.Priority = &high }))
	testkit.Eventually(s, waitTimeout, "the manager has seen it", func() bool {
		var j v1alpha1.Job
		return s.Get(s.Context(), s.key("third"), &j) == nil && j.Status.ObservedGeneration == j.Generation
	})
	s.report("first-g-0-t", lifecycle.TaskStarted, lifecycle.TaskSucceeded)
	s.awaitTask("third-g-0-t", lifecycle.TaskDispatching)
	s.awaitTask("second-g-0-t", lifecycle.TaskPending)
}

// stopsWhenAsked simulates robots that run their tasks until they are requested to stop.
func (s *space) stopsWhenAsked() {
	s.follow(func(t *v1alpha1.Task) {
		state := lifecycle.TaskState(t.Status.State)
		switch {
		case !state.HoldsResources():
		case t.Status.Reason == v1alpha1.ReasonEvicting:
			_ = carry(t, lifecycle.TaskAttemptFailed, "Stopped") && s.Status().Update(s.Context(), t) == nil
		case t.Status.Reason == v1alpha1.ReasonStopping:
			_ = carry(t, lifecycle.TaskStopped, v1alpha1.ReasonCanceled) && s.Status().Update(s.Context(), t) == nil
		case state == lifecycle.TaskDispatching:
			_ = carry(t, lifecycle.TaskStarted, "") && s.Status().Update(s.Context(), t) == nil
		}
	}, func() {})
}

func drainsARobot(s *space) {
	s.limited("4", "drain-a", "drain-b")
	s.stopsWhenAsked()
	s.job("j", group("g", 4, "t"))
	for i := range 4 {
		s.awaitTask(fmt.Sprintf("j-g-%d-t", i), lifecycle.TaskRunning)
	}
	s.updateRobotSpec("drain-a", func(r *v1alpha1.RobotSpec) { r.Drain = true })
	testkit.EventuallyNoError(s, waitTimeout, "all run on the other robot", func() error {
		for _, t := range s.tasks() {
			if t.Spec.TargetRobot != "drain-b" || t.Status.State != string(lifecycle.TaskRunning) || len(t.Status.FailedRobots) != 0 {
				return fmt.Errorf("%s is %s on %q, failed on %v", t.Name, t.Status.State, t.Spec.TargetRobot, t.Status.FailedRobots)
			}
		}
		return nil
	})
}

func leavesItsRobot(s *space) {
	s.limited("1", "leave-a")
	s.stopsWhenAsked()
	s.job("j", group("g", 1, "t"))
	s.awaitTask("j-g-0-t", lifecycle.TaskRunning)
	testkit.EventuallyNoError(s, waitTimeout, "cancel the job", func() error {
		t := s.task("j-g-0-t")
		t.Spec.EvictAttempt = t.Status.Attempt
		return s.Update(s.Context(), t)
	})
	testkit.Eventually(s, waitTimeout, "it runs again", func() bool {
		t := s.task("j-g-0-t")
		return t.Status.Attempt == 2 && t.Status.State == string(lifecycle.TaskRunning)
	})
	if t := s.task("j-g-0-t"); t.Spec.EvictAttempt != 1 || len(t.Status.FailedRobots) != 0 {
		s.Errorf("evict %d, failed on %v", t.Spec.EvictAttempt, t.Status.FailedRobots)
	}
}

func preempts(s *space) {
	s.limited("1", "pre-a")
	s.stopsWhenAsked()
	s.job("low", group("g", 1, "t"))
	s.awaitTask("low-g-0-t", lifecycle.TaskRunning)
	high := int32(90)
	j := &v1alpha1.Job{}
	j.Name, j.Namespace = "polite", s.name
	j.Spec.TaskGroups, j.Spec.Priority = []v1alpha1.TaskGroupDefinition{group("g", 1, "t")}, &high
	s.must(s.Create(s.Context(), j))
	s.awaitTask("polite-g-0-t", lifecycle.TaskPending)
	j = &v1alpha1.Job{}
	j.Name, j.Namespace = "pushes", s.name
	high = 95
	j.Spec.TaskGroups, j.Spec.Priority, j.Spec.Preemption = []v1alpha1.TaskGroupDefinition{group("g", 1, "t")}, &high, true
	s.must(s.Create(s.Context(), j))
	s.awaitTask("pushes-g-0-t", lifecycle.TaskRunning)
	s.awaitTask("low-g-0-t", lifecycle.TaskPending)
	if t := s.task("polite-g-0-t"); t.Status.Attempt != 0 {
		s.Errorf("a job that may not preempt did: %+v", t.Status)
	}
}
