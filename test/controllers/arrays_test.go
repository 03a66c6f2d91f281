package controllers

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
)

func TestJob_Arrays(t *testing.T) {
	t.Parallel()
	s := share(t, fleetServer, fleetConfig)
	runCases(t, "arrays", s.namespace, []testCase[*space]{
		{"ranges run, and a failed index gets a Task that runs elsewhere", runsAnArray},
		{"a requeue of the failed runs indexes again in their ranges", requeuesFailedIndexes},
		{"a requeue of all runs all indexes again", requeuesAnArray},
		{"a requeue that names an index runs only that", requeuesAnIndex},
		{"a pause ends the attempts of ranges, and the rest runs later", pausesAnArray},
		{"a cancel ends ranges and keeps what has ended", cancelsAnArray},
		{"agents that do not run arrays get no range", placesArrays},
		{"invalid arrays, and changes of one, are rejected with a message", rejectsArrays},
		{"an array that no rule has checked fails its job", failsAnInvalidArray},
	})
}

// arrayGroup returns a group with an array of this size, in ranges of 4 indexes.
func arrayGroup(size int32) v1alpha1.TaskGroupDefinition {
	g := group("g", 1, "t")
	g.Array = &v1alpha1.Array{Size: size, RangeSize: 4}
	return g
}

// lenient is a job that a few failures do not end.
func lenient(j *v1alpha1.JobSpec) {
	j.FailurePolicy = &v1alpha1.FailurePolicy{MaxFailedPercent: new(int32(90))}
}

// arrayRobots registers robots that run arrays, one task at a time.
func (s *space) arrayRobots(names ...string) {
	s.Helper()
	s.limited("1", names...)
	for _, name := range names {
		s.updateRobotStatus(name, func(st *v1alpha1.RobotStatus) { st.Agent.RunsArrays = true })
	}
}

// makeRoom gives a robot room for two ranges. When both become pending again, either may be placed first.
func (s *space) makeRoom(robot string) {
	s.Helper()
	s.updateRobotSpec(robot, func(r *v1alpha1.RobotSpec) { r.Capacity = capacity("tasks", "2") })
}

// endIndexes reports ends of indexes of the current attempt of a range, as the server writes them.
func (s *space) endIndexes(name, succeeded, failed string) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "report ends of "+name, func() error {
		t := s.task(name)
		if !lifecycle.TaskState(t.Status.State).HoldsResources() {
			return fmt.Errorf("state %q", t.Status.State)
		}
		t.Status.Array = mergedEnds(t, succeeded, failed)
		return s.Status().Update(s.Context(), t)
	})
}

// mergedEnds returns the status of a range with more ends.
func mergedEnds(t *v1alpha1.Task, succeeded, failed string) *v1alpha1.TaskArrayStatus {
	out := &v1alpha1.TaskArrayStatus{}
	if t.Status.Array != nil {
		out = t.Status.Array.DeepCopy()
	}
	hadSucceeded, hadFailed := array.Ended(t)
	nowSucceeded, _ := indexset.Parse(succeeded)
	nowFailed, _ := indexset.Parse(failed)
	left := array.Left(t)
	for i := range nowFailed.Intersect(left).All() {
		out.Failures = append(out.Failures, v1alpha1.IndexFailure{Index: i, Robot: t.CurrentRobot(), ExitCode: new(int32(3)), Reason: wire.ReasonExited})
	}
	array.SetEnds(out, hadSucceeded.Union(nowSucceeded.Intersect(left)), hadFailed.Union(nowFailed.Intersect(left)))
	return out
}

// runRange runs what is left of a range on its robot, of which these indexes fail.
func (s *space) runRange(name, failed string) {
	s.Helper()
	s.awaitTask(name, lifecycle.TaskDispatching)
	s.report(name, lifecycle.TaskStarted)
	bad, _ := indexset.Parse(failed)
	s.endIndexes(name, array.Left(s.task(name)).Minus(bad).String(), failed)
	s.report(name, lifecycle.TaskSucceeded)
}

func runsAnArray(s *space) {
	s.arrayRobots("array-a", "array-b")
	s.jobOf("", "j", lenient, arrayGroup(10))
	s.runRange("j-g-0-t", "2")
	s.runRange("j-g-1-t", "")
	s.runRange("j-g-2-t", "") // it may have the only other robot on which the index can run
	first := s.task("j-g-0-t").CurrentRobot()
	one := s.awaitTask("j-g-index-2-t", lifecycle.TaskDispatching)
	if one.Status.Attempt != 2 || one.CurrentRobot() == first || len(one.Status.FailedRobots) != 1 || one.Status.FailedRobots[0] != first {
		s.Errorf("after a failure on %s: attempt %d on %s, failed on %v", first, one.Status.Attempt, one.CurrentRobot(), one.Status.FailedRobots)
	}
	if a := one.Status.Attempts[0]; a.Robot != first || a.ExitCode == nil || *a.ExitCode != 3 || a.FinishedAt == nil {
		s.Errorf("its first attempt is %+v", a)
	}
	s.report("j-g-index-2-t", lifecycle.TaskStarted, lifecycle.TaskSucceeded)
	s.awaitJob("j", lifecycle.JobCompleted)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 10, SucceededTasks: 10})
	if n := len(s.tasks()); n != 4 {
		s.Errorf("%d tasks exist, want 3 ranges and an index", n)
	}
}

// requeueFailed requeues the failed tasks.
func requeueFailed(j *v1alpha1.JobSpec) {
	requeue()(j)
	j.Requeue.Scope = v1alpha1.RequeueFailed
}

// While the job is paused, failed indexes get no Tasks.
func requeuesFailedIndexes(s *space) {
	s.arrayRobots("array-again")
	s.jobOf("", "j", func(j *v1alpha1.JobSpec) { j.FailurePolicy = &v1alpha1.FailurePolicy{SoftFailLimit: new(int32(1))} }, arrayGroup(4))
	s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	s.report("j-g-0-t", lifecycle.TaskStarted)
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredPaused)))
	s.awaitJob("j", lifecycle.JobPauseRequested)
	s.endIndexes("j-g-0-t", "0", "1-3")
	s.report("j-g-0-t", lifecycle.TaskSucceeded)
	s.awaitJob("j", lifecycle.JobPaused)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 4, SucceededTasks: 1, SoftFailedTasks: 3})
	s.must(s.updateJobSpec("j", requeueFailed))
	if left := array.Left(s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)).String(); left != "1-3" {
		s.Errorf("the range runs %s again", left)
	}
	s.runRange("j-g-0-t", "")
	s.awaitJob("j", lifecycle.JobCompleted)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 4, SucceededTasks: 4})
}

func requeuesAnArray(s *space) {
	s.arrayRobots("array-all")
	s.jobOf("", "j", func(j *v1alpha1.JobSpec) {
		lenient(j)
		j.FailurePolicy.SoftFailLimit = new(int32(1))
	}, arrayGroup(8))
	s.runRange("j-g-0-t", "1")
	s.runRange("j-g-1-t", "")
	s.awaitJob("j", lifecycle.JobCompleted)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 8, SucceededTasks: 7, FailedTasks: 1})
	s.makeRoom("array-all")
	s.must(s.updateJobSpec("j", requeue()))
	t := s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	if t.Status.Array != nil || t.Status.Attempt != 2 {
		s.Errorf("attempt %d, ends %+v", t.Status.Attempt, t.Status.Array)
	}
	if n := len(s.tasks()); n != 2 {
		s.Errorf("%d tasks exist", n)
	}
	s.runRange("j-g-0-t", "")
	s.runRange("j-g-1-t", "")
	s.awaitJob("j", lifecycle.JobCompleted)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 8, SucceededTasks: 8})
}

func requeuesAnIndex(s *space) {
	s.arrayRobots("array-named")
	s.jobOf("", "j", nil, arrayGroup(4))
	s.runRange("j-g-0-t", "")
	s.awaitJob("j", lifecycle.JobCompleted)
	s.must(s.updateJobSpec("j", requeue("j-g-index-3-t")))
	one := s.awaitTask("j-g-index-3-t", lifecycle.TaskDispatching)
	if one.Status.Attempt != 1 || one.Spec.Array.Failure != nil || s.task("j-g-0-t").Status.Attempt != 1 {
		s.Errorf("attempt %d, %+v", one.Status.Attempt, one.Spec.Array)
	}
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 4, SucceededTasks: 3, DispatchingTasks: 1})
	s.report("j-g-index-3-t", lifecycle.TaskStarted, lifecycle.TaskSucceeded)
	s.awaitJob("j", lifecycle.JobCompleted)
}

func pausesAnArray(s *space) {
	s.arrayRobots("pause-array")
	s.jobOf("", "j", nil, arrayGroup(8))
	s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	s.report("j-g-0-t", lifecycle.TaskStarted)
	s.endIndexes("j-g-0-t", "0", "")
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredPaused)))
	testkit.Eventually(s, waitTimeout, "the attempt starts no more indexes", func() bool { return s.task("j-g-0-t").Spec.Array.PauseAttempt == 1 })
	s.endIndexes("j-g-0-t", "1", "")
	testkit.EventuallyNoError(s, waitTimeout, "the attempt ends", func() error {
		t := s.task("j-g-0-t")
		carry(t, lifecycle.TaskAttemptFailed, wire.ReasonPaused)
		t.Status.FindAttempt(1).Reason = wire.ReasonPaused
		return s.Status().Update(s.Context(), t)
	})
	s.awaitJob("j", lifecycle.JobPaused)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 8, SucceededTasks: 2, PausedTasks: 6})
	s.makeRoom("pause-array")
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredRunning)))
	t := s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	if left := array.Left(t).String(); left != "2-3" || t.Status.Attempt != 2 || len(t.Status.FailedRobots) != 0 {
		s.Errorf("attempt %d runs %s, failed on %v", t.Status.Attempt, left, t.Status.FailedRobots)
	}
	s.runRange("j-g-0-t", "")
	s.runRange("j-g-1-t", "")
	s.awaitJob("j", lifecycle.JobCompleted)
}

func cancelsAnArray(s *space) {
	s.arrayRobots("cancel-array")
	s.jobOf("", "j", nil, arrayGroup(8))
	s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	s.report("j-g-0-t", lifecycle.TaskStarted)
	s.endIndexes("j-g-0-t", "0-1", "")
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredCanceled)))
	testkit.Eventually(s, waitTimeout, "the range is asked to stop", func() bool { return s.task("j-g-0-t").Status.Reason == v1alpha1.ReasonStopping })
	s.report("j-g-0-t", lifecycle.TaskStopped)
	s.awaitJob("j", lifecycle.JobCanceled)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 8, SucceededTasks: 2, CanceledTasks: 6})
}

func placesArrays(s *space) {
	s.robots("array-older")
	s.jobOf("", "j", nil, arrayGroup(4))
	testkit.EventuallyNoError(s, waitTimeout, "the range shows why it waits", func() error {
		var t v1alpha1.Task
		if err := s.Get(s.Context(), s.key("j-g-0-t"), &t); err != nil {
			return err
		}
		p := t.Status.Placement
		if p == nil || len(p.Rejections) != 1 || p.Rejections[0].Check != "Arrays" {
			return fmt.Errorf("placement %+v", p)
		}
		return nil
	})
	s.updateRobotStatus("array-older", func(st *v1alpha1.RobotStatus) { st.Agent.RunsArrays = true })
	s.runRange("j-g-0-t", "")
	s.awaitJob("j", lifecycle.JobCompleted)
}

func rejectsArrays(s *space) {
	create := func(change func(*v1alpha1.JobSpec)) error {
		j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "bad"}, Spec: v1alpha1.JobSpec{TaskGroups: []v1alpha1.TaskGroupDefinition{arrayGroup(4)}}}
		change(&j.Spec)
		return s.Create(s.Context(), j, client.DryRunAll)
	}
	inGroup := func(f func(*v1alpha1.TaskGroupDefinition)) func(*v1alpha1.JobSpec) {
		return func(j *v1alpha1.JobSpec) { f(&j.TaskGroups[0]) }
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.JobSpec)
		want   string
	}{
		"a service": {func(j *v1alpha1.JobSpec) { j.Type = v1alpha1.JobTypeService }, "spec.taskGroups[].array of g: each index must end"},
		"a count":   {inGroup(func(g *v1alpha1.TaskGroupDefinition) { g.Count = new(int32(2)) }), "count: the array defines the number of tasks; omit count"},
		"two tasks": {inGroup(func(g *v1alpha1.TaskGroupDefinition) { g.Tasks = group("g", 1, "t", "u").Tasks }), "array: an array runs one task"},
		"a gang":    {inGroup(func(g *v1alpha1.TaskGroupDefinition) { g.Gang = true }), "omit gang and ephemeralDisk"},
		"a restart after a reboot": {inGroup(func(g *v1alpha1.TaskGroupDefinition) {
			g.RestartPolicy = &v1alpha1.RestartPolicy{OnReboot: v1alpha1.OnRebootRestart}
		}), "omit restartPolicy.onReboot"},
		"a disk":      {inGroup(func(g *v1alpha1.TaskGroupDefinition) { g.EphemeralDisk = &v1alpha1.EphemeralDisk{SizeMB: 1} }), "omit gang and ephemeralDisk"},
		"a daemon":    {inGroup(func(g *v1alpha1.TaskGroupDefinition) { g.Tasks[0].Daemon = true }), "neither daemon nor secretEnv"},
		"too large":   {inGroup(func(g *v1alpha1.TaskGroupDefinition) { g.Array.Size = 100_001 }), "spec.taskGroups[0].array.size"},
		"both":        {inGroup(func(g *v1alpha1.TaskGroupDefinition) { g.Array.Indexes = "0-3" }), "set size or indexes, not both"},
		"wrong items": {inGroup(func(g *v1alpha1.TaskGroupDefinition) { g.Array.Items = []string{"a"} }), "size must be the number of items"},
	} {
		if err := create(c.change); err == nil || !strings.Contains(err.Error(), c.want) {
			s.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	s.must(create(func(*v1alpha1.JobSpec) {}))
	s.jobOf("", "j", nil, arrayGroup(4))
	s.awaitTask("j-g-0-t", lifecycle.TaskPending)
	for name, change := range map[string]func(*v1alpha1.TaskGroupDefinition){
		"more indexes": func(g *v1alpha1.TaskGroupDefinition) { g.Array.Size = 5 },
		"no array":     func(g *v1alpha1.TaskGroupDefinition) { g.Array = nil },
	} {
		if err := s.updateJobSpec("j", inGroup(change)); err == nil || !strings.Contains(err.Error(), "spec.taskGroups[].array of g: cannot be changed on an existing Job") {
			s.Errorf("%s: %v", name, err)
		}
	}
	s.forgesAnArray()
}

// forgesAnArray has a tenant write what only the manager and the server may.
func (s *space) forgesAnArray() {
	s.Helper()
	s.bind("edits", "tenant", "k8s4r-edit")
	tenant := s.as("tenant")
	testkit.EventuallyNoError(s, waitTimeout, "the tenant may evict", func() error {
		return tenant.Patch(s.Context(), s.task("j-g-0-t"), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"evictAttempt":9}}`)), client.DryRunAll)
	})
	for _, patch := range []string{`{"spec":{"array":{"indexes":"0-1"}}}`, `{"spec":{"array":{"pauseAttempt":1}}}`, `{"spec":{"array":null}}`} {
		if err := tenant.Patch(s.Context(), s.task("j-g-0-t"), client.RawPatch("application/merge-patch+json", []byte(patch))); err == nil {
			s.Errorf("a tenant can write %s", patch)
		}
	}
	ends := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"array":{"succeeded":"0-3"}}}`))
	if err := tenant.Status().Patch(s.Context(), s.task("j-g-0-t"), ends); err == nil {
		s.Error("a tenant can write the ends of indexes")
	}
}

// The fleet's API server calls no webhook.
func failsAnInvalidArray(s *space) {
	g := arrayGroup(0)
	g.Array = &v1alpha1.Array{Indexes: "5-3"}
	s.jobOf("", "j", nil, g)
	j := s.awaitJob("j", lifecycle.JobFailed)
	if !strings.Contains(j.Status.StatusDescription, `spec.taskGroups[g].array.indexes: "5-3": the range ends before it begins`) {
		s.Errorf("%s", j.Status.StatusDescription)
	}
	if len(s.tasks()) != 0 {
		s.Errorf("%d tasks exist", len(s.tasks()))
	}
}
