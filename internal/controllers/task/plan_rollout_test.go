package task

import (
	"strings"
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// ofRollouts is a job whose tasks change by Rollouts.
func ofRollouts(w *Input) {
	w.Job = &v1alpha1.Job{Status: v1alpha1.JobStatus{State: "running"}}
	w.Job.Spec.Type, w.Job.Spec.Update = v1alpha1.JobTypeService, &v1alpha1.JobUpdate{Strategy: v1alpha1.UpdateRollout}
}

func evictedAttempt(w *Input) { w.Task.Spec.EvictAttempt, w.Task.Status.Attempt = 1, 1 }
func revisedByRollout(w *Input) {
	w.Task.Annotations = map[string]string{v1alpha1.AnnotationRevisedAt: "2026-05-01T12:00:00Z"}
}

// Only the group knows which revision a task should have: another one than that of the group does not keep it
// from starting.
func TestInput_OutdatedReasonWithRollouts(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes []func(*Input)
		want    string // part of the reason; empty: the task may start
	}{
		{"another revision", []func(*Input){inGroup(1, "new"), ofReplica("0", "old"), ofRollouts}, ""},
		{"a surplus replica", []func(*Input){inGroup(1, "new"), ofReplica("1", "new"), ofRollouts}, "only 1 replicas"},
		{"an evicted task", []func(*Input){inGroup(1, "new"), ofReplica("0", "new"), evictedAttempt, ofRollouts}, "about to update or release"},
		{"an evicted task that was updated", []func(*Input){inGroup(1, "new"), ofReplica("0", "new"), evictedAttempt, revisedByRollout, ofRollouts}, ""},
		{"an evicted task with the strategy Immediate", []func(*Input){inGroup(1, "new"), ofReplica("0", "new"), evictedAttempt}, ""},
	} {
		w := newInput(lifecycle.TaskPending, c.changes...)
		if got := w.outdatedReason(); got != "" && c.want == "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// The tasks of a replica are compared within the definition of the one that waits.
func TestInput_InitTaskOfSameRevision(t *testing.T) {
	withRevision := func(name, revision string) v1alpha1.Task {
		w := newInput(lifecycle.TaskCompleted, ofReplica("0", revision))
		w.Task.Spec.Name, w.Task.Status.State = name, string(lifecycle.TaskCompleted)
		return *w.Task
	}
	for _, c := range []struct {
		name, has, init string
		want            bool // the init task is outdated
	}{
		{"both have the group's definition", "base", "init-base", false},
		{"the init task has the Rollout's", "base", "init-target", true},
		{"both have the Rollout's", "target", "init-target", false},
		{"the init task has the group's", "target", "init-base", true},
		{"the task keeps another one", "other", "init-other", false},
	} {
		w := newInput(lifecycle.TaskPending, inGroup(1, "base"), ofReplica("0", c.has), ofRollouts)
		w.Task.Spec.Name = "t"
		w.Group.Status.Revisions["init"] = "init-base"
		w.Group.Status.RolloutRevisions = map[string]string{"t": "target", "init": "init-target"}
		init := withRevision("init", c.init)
		if got := w.isOutdated(&init); got != c.want {
			t.Errorf("%s: outdated is %v", c.name, got)
		}
	}
}

// A Rollout's definition may have other init tasks than the group.
func TestInput_InitTasksOfRollout(t *testing.T) {
	for _, c := range []struct {
		name     string
		siblings string // by their stages
		want     string // the init tasks before the task; + if it waits for more
	}{
		{"all of them exist", "new fetch", "new fetch"},
		{"one is not created yet", "- fetch", "fetch+"},
		{"one that it does not have is to be deleted", "new fetch old", "new fetch"},
	} {
		w := newInput(lifecycle.TaskPending, inGroup(1, "base"), ofReplica("0", "target"), ofRollouts)
		w.Task.Spec.Name, w.Task.Spec.Stage, w.ReservedRobot = "t", 3, "r1"
		w.Group.Spec.InitTasks = []v1alpha1.TaskDefinition{{Name: "old"}, {Name: "fetch"}}
		w.Group.Status.RolloutRevisions = map[string]string{"t": "target", "new": "n", "fetch": "f"}
		for i, name := range strings.Fields(c.siblings) {
			s := newInput(lifecycle.TaskPending, ofReplica("0", name)).Task
			s.Spec.Name, s.Spec.Stage = name, int32(i)+1
			if name != "-" {
				w.Siblings = append(w.Siblings, *s)
			}
		}
		if c.siblings == "new fetch old" {
			w.Siblings[2].Spec.Stage = 1
		}
		var got []string
		for _, def := range w.earlierInitTasks() {
			got = append(got, def.Name)
		}
		waits := ""
		if strings.Contains(w.initTaskObstacle(), "more of its init tasks") {
			waits = "+"
		}
		if text := strings.Join(got, " ") + waits; text != c.want {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
}

func TestPlan_InitTaskRunsAgainForRollout(t *testing.T) {
	g := newStory(t)
	g.job.Spec.Type, g.job.Spec.Update = v1alpha1.JobTypeService, &v1alpha1.JobUpdate{Strategy: v1alpha1.UpdateRollout}
	g.showObject(g.job)
	g.setRobot("r1", lifecycle.RobotOnline)
	g.createReplica(inStages("fetch", "run"), "r1")
	for name, task := range g.tasks {
		task.Spec.Stage = g.group.Spec.Stage(name)
	}
	g.runTasks("fetch")
	g.reportSignal("run", lifecycle.TaskStarted, "")
	g.logLine("> a Rollout changes the init task, and the group takes the replica from its robot")
	changed := g.group.Spec.TaskGroupTemplate.DeepCopy()
	changed.InitTasks[0].Env = map[string]string{"A": "1"}
	g.group.Status.RolloutRevisions = revision.TaskRevisions(changed)
	g.tasks["run"].Spec.EvictAttempt = 1
	g.runUntilStable()
	g.endAttempt("run", lifecycle.TaskAttemptFailed, "Stopped")
	for _, name := range []string{"run", "fetch"} {
		g.logLine("> %s gets its new definition", name)
		task := g.tasks[name]
		task.Labels[v1alpha1.LabelRevision] = g.group.Status.RolloutRevisions[name]
		task.Annotations = map[string]string{v1alpha1.AnnotationRevisedAt: "2026-05-01T12:00:00Z"}
		g.showObject(task)
		g.runUntilStable()
	}
	g.runTasks("fetch")
	g.reportSignal("run", lifecycle.TaskStarted, "")
	golden.Equal(t, "init-changes-by-rollout", g.output.String())
}
