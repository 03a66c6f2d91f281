package task

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// inStages returns a group with these init tasks and tasks. A name with a + is a daemon.
func inStages(init, tasks string) *v1alpha1.TaskGroup {
	g := groupG.DeepCopy()
	g.UID, g.Spec.GroupName, g.Spec.Count = "g", "g", new(int32(1))
	g.Spec.InitTasks, g.Spec.Tasks = definitions(init), definitions(tasks)
	g.Status.Revisions = revision.TaskRevisions(&g.Spec.TaskGroupTemplate)
	return g
}

func definitions(names string) (all []v1alpha1.TaskDefinition) {
	for name := range strings.FieldsSeq(names) {
		plain := strings.TrimSuffix(name, "+")
		all = append(all, v1alpha1.TaskDefinition{Name: plain, Driver: "exec", Daemon: plain != name})
	}
	return all
}

// needs sets the memory of a task of a group.
func needs(g *v1alpha1.TaskGroup, task, memory string) {
	q := resource.MustParse(memory)
	for _, def := range g.Spec.TaskDefinitions() {
		if def.Name == task {
			def.Resources = &v1alpha1.Resources{Memory: &q}
		}
	}
	g.Status.Revisions = revision.TaskRevisions(&g.Spec.TaskGroupTemplate)
}

// fillReplica sets the fields of an Input for tasks that wait for each other.
func (g *story) fillReplica(w *Input) {
	state := lifecycle.TaskState(w.Task.Status.State).OrPending()
	if g.group == nil {
		return
	}
	w.Group = g.group
	for _, name := range slices.Sorted(maps.Keys(g.tasks)) {
		if name != w.Task.Name {
			w.Siblings = append(w.Siblings, *g.tasks[name])
		}
	}
	if state.IsTerminal() && w.Task.Spec.ExtraResources != nil {
		w.PendingReplicaRobot = g.s.PendingReplicaRobot(w.Task)
	}
	if state.IsActive() {
		w.Robot = g.robots[w.robotName()]
	}
}

// createReplica creates the tasks of a group.
func (g *story) createReplica(group *v1alpha1.TaskGroup, robot string) {
	g.group = group
	g.showObject(group)
	holds := apiconv.ExtraResources(&group.Spec.TaskGroupTemplate)
	for _, def := range group.Spec.TaskDefinitions() {
		t := newInput(lifecycle.TaskPending).Task
		t.Name, t.Spec.TaskDefinition, t.Spec.ExtraResources, t.Spec.TargetRobot = def.Name, *def, holds[def.Name], robot
		t.Labels = map[string]string{v1alpha1.LabelTaskIndex: "0", v1alpha1.LabelRevision: group.Status.Revisions[def.Name]}
		if def.Daemon {
			t.Spec.Type = v1alpha1.JobTypeService
		}
		g.tasks[def.Name] = t
		g.showObject(t)
	}
	g.logLine("> the replica is created %s", orNothing("on ", robot, "without a robot"))
	g.runUntilStable()
}

// endAttempt ends the current attempt of a task.
func (g *story) endAttempt(name string, signal lifecycle.TaskSignal, why string) {
	t := g.tasks[name]
	if a := t.Status.FindAttempt(t.Status.Attempt); a != nil {
		a.FinishedAt, a.Reason = &metav1.MicroTime{Time: g.now}, why
	}
	g.reportSignal(name, signal, why)
}

// runTasks starts tasks and completes them, one by one.
func (g *story) runTasks(names ...string) {
	for _, name := range names {
		g.reportSignal(name, lifecycle.TaskStarted, "")
		g.endAttempt(name, lifecycle.TaskSucceeded, "")
	}
}

func (g *story) restartManager() {
	g.logLine("> the manager restarts")
	g.s = newScheduler(g.s.Now)
	g.showObject(g.group)
	for _, name := range slices.Sorted(maps.Keys(g.robots)) {
		g.showObject(g.robots[name])
	}
	for _, name := range slices.Sorted(maps.Keys(g.tasks)) {
		g.showObject(g.tasks[name])
	}
	g.runUntilStable()
}

func TestStories_InitTasks(t *testing.T) {
	for name, tell := range map[string]func(*story){
		"init-one-after-another": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createReplica(inStages("fetch side+ build", "run log+"), "r1")
			g.runTasks("fetch")
			g.reportSignal("side", lifecycle.TaskStarted, "")
			g.restartManager()
			g.runTasks("build")
			g.reportSignal("log", lifecycle.TaskStarted, "")
			g.endAttempt("log", lifecycle.TaskAttemptFailed, "Exited") // with exit code 0 or any other
			g.runTasks("run")
			g.endAttempt("side", lifecycle.TaskAttemptFailed, "Stopped")
		},
		"init-fails-and-the-replica-moves": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.setRobot("r2", lifecycle.RobotOnline)
			g.createReplica(inStages("fetch build", "run"), "r1")
			g.runTasks("fetch")
			g.reportSignal("build", lifecycle.TaskStarted, "")
			g.endAttempt("build", lifecycle.TaskAttemptFailed, "Exited")
			g.runTasks("fetch", "build", "run")
		},
		"init-not-again-on-the-same-robot": func(g *story) {
			g.setRobot("r0", lifecycle.RobotOnline)
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createReplica(inStages("fetch", "run"), "r1")
			g.runTasks("fetch")
			g.reportSignal("run", lifecycle.TaskStarted, "")
			g.endAttempt("run", lifecycle.TaskAttemptFailed, "AgentStopped")
			g.reportSignal("run", lifecycle.TaskStarted, "")
			g.endAttempt("run", lifecycle.TaskAttemptFailed, "Exited")
			g.runTasks("fetch", "run")
		},
		"init-fails-for-good": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createReplica(inStages("side+ fetch", "run"), "r1")
			g.reportSignal("side", lifecycle.TaskStarted, "")
			g.reportSignal("fetch", lifecycle.TaskStarted, "")
			g.endAttempt("fetch", lifecycle.TaskAttemptFailed, "Exited")
			g.endAttempt("side", lifecycle.TaskAttemptFailed, "Stopped")
			g.logLine("> the robot is blocked, and another one comes")
			g.group.Status.BlockedRobots = []string{"r1"}
			g.showObject(g.group)
			g.setRobot("r2", lifecycle.RobotOnline)
			g.reportSignal("side", lifecycle.TaskStarted, "")
			g.runTasks("fetch", "run")
			g.endAttempt("side", lifecycle.TaskAttemptFailed, "Stopped")
		},
		"init-robot-lost": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.setRobot("r2", lifecycle.RobotOnline)
			g.createReplica(inStages("fetch build", "run"), "r1")
			g.runTasks("fetch")
			g.reportSignal("build", lifecycle.TaskStarted, "")
			g.setRobot("r1", lifecycle.RobotOffline)
			g.passTime(6 * time.Minute)
			g.runTasks("fetch", "build", "run")
		},
		"init-drained": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.setRobot("r2", lifecycle.RobotOnline)
			g.createReplica(inStages("fetch build", "run"), "r1")
			g.runTasks("fetch")
			g.reportSignal("build", lifecycle.TaskStarted, "")
			g.logLine("> r1 is drained")
			r := g.robots["r1"].DeepCopy()
			r.Spec.Drain = true
			g.robots["r1"] = r
			g.showObject(r)
			g.runUntilStable()
			g.endAttempt("build", lifecycle.TaskAttemptFailed, "Stopped")
			g.runTasks("fetch", "build", "run")
		},
		"init-changes": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createReplica(inStages("fetch", "run"), "r1")
			g.runTasks("fetch")
			g.reportSignal("run", lifecycle.TaskStarted, "")
			g.logLine("> the init task changes, and the group takes the replica from its robot")
			g.group.Spec.InitTasks[0].Env = map[string]string{"A": "1"}
			g.group.Status.Revisions = revision.TaskRevisions(&g.group.Spec.TaskGroupTemplate)
			g.tasks["run"].Spec.EvictAttempt = 1
			g.runUntilStable()
			g.endAttempt("run", lifecycle.TaskAttemptFailed, "Stopped")
			g.redefineTask("run")
			g.redefineTask("fetch")
			g.runTasks("fetch", "run")
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newStory(t)
			tell(g)
			for name, task := range g.tasks {
				if task.Status.State != string(lifecycle.TaskCompleted) {
					t.Errorf("%s is %s", name, task.Status.State)
				}
			}
			golden.Equal(t, name, g.output.String())
		})
	}
}

// redefineTask gives a task its new definition, as its group does while it waits.
func (g *story) redefineTask(name string) {
	g.logLine("> %s gets its new definition", name)
	t := g.tasks[name]
	t.Labels[v1alpha1.LabelRevision] = g.group.Status.Revisions[name]
	g.showObject(t)
	g.runUntilStable()
}

// A replica needs the maximum of what its init tasks need, one by one, and of what the other tasks
// need together.
func TestStory_ReplicaNeedsRoomOfItsLargestInitTask(t *testing.T) {
	for _, c := range []struct {
		init, task, memory string
		fits               bool
	}{
		{"1Gi", "3Gi", "3Gi", true},
		{"1Gi", "3Gi", "2Gi", false},
		{"3Gi", "1Gi", "3Gi", true},
		{"3Gi", "1Gi", "2Gi", false},
	} {
		t.Run(fmt.Sprintf("%s before %s on %s", c.init, c.task, c.memory), func(t *testing.T) {
			g := newStory(t)
			group := inStages("fetch build", "run")
			needs(group, "build", c.init)
			needs(group, "run", c.task)
			r := robotIn(lifecycle.RobotOnline)
			r.Namespace, r.Spec.Capacity = "ns", map[string]resource.Quantity{"memory": resource.MustParse(c.memory), "tasks": resource.MustParse("1")}
			g.robots["r1"] = r
			g.showObject(r)
			g.createReplica(group, "")
			if got := g.tasks["fetch"].Status.State == string(lifecycle.TaskDispatching); got != c.fits {
				t.Fatalf("it starts: %v\n%s", got, g.output.String())
			}
			if c.fits {
				g.runTasks("fetch", "build", "run")
				g.requireWholeRobot(c.memory)
			}
		})
	}
}

// Init tasks that have completed on another robot run again, so they need room there.
func TestStory_ReplicaMovesOnlyWhereItsInitTasksFit(t *testing.T) {
	g := newStory(t)
	group := inStages("fetch", "run")
	needs(group, "fetch", "3Gi")
	needs(group, "run", "1Gi")
	g.setRobot("r1", lifecycle.RobotOnline)
	g.createReplica(group, "r1")
	g.runTasks("fetch")
	small := robotIn(lifecycle.RobotOnline)
	small.Namespace, small.Name, small.Spec.Capacity = "ns", "r0", map[string]resource.Quantity{"memory": resource.MustParse("2Gi")}
	g.robots["r0"] = small
	g.showObject(small)
	g.setRobot("r2", lifecycle.RobotOnline)
	g.reportSignal("run", lifecycle.TaskStarted, "")
	g.endAttempt("run", lifecycle.TaskAttemptFailed, "Exited")
	if at := g.tasks["fetch"].CurrentRobot(); at != "r2" {
		t.Errorf("fetch is on %q\n%s", at, g.output.String())
	}
}

// endedReplicaDaemon returns a daemon whose replica has ended.
func endedReplicaDaemon(state lifecycle.TaskState, changes ...func(*Input)) Input {
	w := newInput(state, ofType("service"))
	w.Group = inStages("", "run log+")
	w.Task.Spec.TaskDefinition = w.Group.Spec.Tasks[1]
	run := newInput(lifecycle.TaskCompleted).Task
	run.Spec.TaskDefinition = w.Group.Spec.Tasks[0]
	w.Siblings = []v1alpha1.Task{*run}
	for _, f := range changes {
		f(&w)
	}
	return w
}

func TestPlan_EndsDaemonWithItsReplica(t *testing.T) {
	const completed, running = lifecycle.TaskCompleted, lifecycle.TaskRunning
	for _, c := range []struct {
		name       string
		in         Input
		want       lifecycle.TaskState // empty: nothing is written
		wantReason string
	}{
		{"one that waits has completed", endedReplicaDaemon(lifecycle.TaskPending, reserved), completed, ReasonNotNeeded},
		{"one that failed softly too", endedReplicaDaemon(lifecycle.TaskSoftFailed), completed, ReasonNotNeeded},
		{"and one that is paused", endedReplicaDaemon(lifecycle.TaskPaused, inJob(lifecycle.JobPaused)), completed, ReasonNotNeeded},
		{"one that has exited is not restarted", endedReplicaDaemon(lifecycle.TaskExited, reason("Exited"), capable), completed, ReasonNotNeeded},
		{"one that runs is stopped", endedReplicaDaemon(running), running, v1alpha1.ReasonEvicting},
		{"the robot has some time for that", endedReplicaDaemon(running, evicting(5*time.Second)), "", ""},
		{"the wait for a robot that does not confirm the stop ends", endedReplicaDaemon(running, evicting(time.Minute)), completed, ReasonNotNeeded},
		{"nor is one that is lost", endedReplicaDaemon(lifecycle.TaskUnknown, phase(lifecycle.RobotOffline)), completed, ReasonNotNeeded},
		{"a canceled job stops it as any other task", endedReplicaDaemon(running, inJob(lifecycle.JobCancelRequested)), running, v1alpha1.ReasonStopping},
		{"while tasks are requeued one by one, the replica has not ended", endedReplicaDaemon(running, requeueing(v1alpha1.RequeueStatus{FromState: "completed"})), "", ""},
		{"while a task runs it runs on", endedReplicaDaemon(running, beside(running)), "", ""},
		{"or while one is not created yet", endedReplicaDaemon(running, func(w *Input) { w.Siblings = nil }), "", ""},
		{"one that is not needed runs again when another task is retried", endedReplicaDaemon(completed, beside(lifecycle.TaskPending)), lifecycle.TaskPending, ReasonRerunRequired},
		{"not when its job has ended", endedReplicaDaemon(completed, beside(lifecycle.TaskPending), inJob(lifecycle.JobFailed)), "", ""},
		{"a replica of daemons only does not end", endedReplicaDaemon(running, func(w *Input) { w.Group.Spec.Tasks[0].Daemon = true }), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got v1alpha1.TaskStatus
			steps := Plan(noon, c.in)
			if steps.Status != nil {
				got = *steps.Status
			}
			if got.State != string(c.want) || got.Reason != c.wantReason || steps.RejectedSignal != "" {
				t.Errorf("%q, reason %q, illegal %q", got.State, got.Reason, steps.RejectedSignal)
			}
		})
	}
}

// beside sets the state of the other task.
func beside(state lifecycle.TaskState) func(*Input) {
	return func(w *Input) { w.Siblings[0].Status.State = string(state) }
}

// requireWholeRobot fails the test unless the whole robot can be reserved for one task.
func (g *story) requireWholeRobot(memory string) {
	q := resource.MustParse(memory)
	task := newInput(lifecycle.TaskPending, byHand).Task
	task.Name, task.Spec.Resources = "last", &v1alpha1.Resources{Memory: &q}
	g.showObject(task)
	g.s.RunCycle(g.now)
	if robot, why := g.s.Assignment(keyOfTask(task)); robot != "r1" {
		g.t.Errorf("robot r1 is not free: %s", why)
	}
}
