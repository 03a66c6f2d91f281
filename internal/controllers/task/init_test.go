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
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/controllers/revision"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// inStages is a group with these init tasks and tasks; a name with a + is a daemon's.
func inStages(init, tasks string) *v1alpha1.TaskGroup {
	g := groupOf("g", 1)
	g.Name = "g"
	g.Spec.InitTasks, g.Spec.Tasks = definitions(init), definitions(tasks)
	g.Status.Revisions = revision.Wanted(&g.Spec.TaskGroupTemplate)
	return g
}

func definitions(names string) (all []v1alpha1.TaskDefinition) {
	for name := range strings.FieldsSeq(names) {
		plain := strings.TrimSuffix(name, "+")
		all = append(all, v1alpha1.TaskDefinition{Name: plain, Driver: "exec", Daemon: plain != name})
	}
	return all
}

// needs gives a task of a group so much memory.
func needs(g *v1alpha1.TaskGroup, task, memory string) {
	q := resource.MustParse(memory)
	for _, def := range g.Spec.Definitions() {
		if def.Name == task {
			def.Resources = &v1alpha1.Resources{Memory: &q}
		}
	}
	g.Status.Revisions = revision.Wanted(&g.Spec.TaskGroupTemplate)
}

// stand puts into a World what concerns tasks that wait for each other.
func (g *stage) stand(w *World) {
	state := lifecycle.TaskState(w.Task.Status.State).Normal()
	if g.group == nil {
		return
	}
	w.Group = g.group
	for _, name := range slices.Sorted(maps.Keys(g.tasks)) {
		if name != w.Task.Name {
			w.Siblings = append(w.Siblings, *g.tasks[name])
		}
	}
	if state.Terminal() && w.Task.Spec.Holds != nil {
		w.Awaited = g.s.awaited(w.Task)
	}
	w.Capable, _ = g.s.capable(w.Task, w.failing())
	if state.Active() {
		w.Robot = g.robots[w.robotName()]
		w.Evict = w.evict(g.s.unwanted(keyOfTask(w.Task)))
	}
}

// replica creates the tasks of a group.
func (g *stage) replica(group *v1alpha1.TaskGroup, robot string) {
	g.group = group
	g.s.ledger.seeGroup(group)
	holds := demand.Holds(&group.Spec.TaskGroupTemplate)
	for _, def := range group.Spec.Definitions() {
		t := world(lifecycle.TaskPending).Task
		t.Name, t.Spec.TaskDefinition, t.Spec.Holds, t.Spec.TargetRobot = def.Name, *def, holds[def.Name], robot
		t.Labels = map[string]string{v1alpha1.LabelTaskIndex: "0", v1alpha1.LabelRevision: group.Status.Revisions[def.Name]}
		if def.Daemon {
			t.Spec.Type = v1alpha1.JobTypeService
		}
		g.tasks[def.Name] = t
		g.s.ledger.seeTask(t)
	}
	g.say("> the replica is created %s", orNothing("on ", robot, "without a robot"))
	g.play()
}

// ends is the end of the present attempt of a task.
func (g *stage) ends(name string, signal lifecycle.TaskSignal, why string) {
	t := g.tasks[name]
	if a := t.Status.Entry(t.Status.Attempt); a != nil {
		a.FinishedAt, a.Reason = &metav1.MicroTime{Time: g.now}, why
	}
	g.report(name, signal, why)
}

// runs is a task that runs to its end.
func (g *stage) runs(names ...string) {
	for _, name := range names {
		g.report(name, lifecycle.TaskStarted, "")
		g.ends(name, lifecycle.TaskSucceeded, "")
	}
}

func (g *stage) restarts() {
	g.say("> the manager starts anew")
	now := g.s.Now
	g.s = informed(now)
	g.s.ledger.seeGroup(g.group)
	for _, name := range slices.Sorted(maps.Keys(g.robots)) {
		g.s.ledger.seeRobot(g.robots[name])
	}
	for _, name := range slices.Sorted(maps.Keys(g.tasks)) {
		g.s.ledger.seeTask(g.tasks[name])
	}
	g.play()
}

func TestStoriesOfReplicasWithInitTasks(t *testing.T) {
	for name, tell := range map[string]func(*stage){
		"init-one-after-another": func(g *stage) {
			g.robot("r1", lifecycle.RobotOnline)
			g.replica(inStages("fetch side+ build", "run log+"), "r1")
			g.runs("fetch")
			g.report("side", lifecycle.TaskStarted, "")
			g.restarts()
			g.runs("build")
			g.report("log", lifecycle.TaskStarted, "")
			g.ends("log", lifecycle.TaskErred, "Exited") // with exit code 0 or any other
			g.runs("run")
			g.ends("side", lifecycle.TaskErred, "Stopped")
		},
		"init-fails-and-the-replica-moves": func(g *stage) {
			g.robot("r1", lifecycle.RobotOnline)
			g.robot("r2", lifecycle.RobotOnline)
			g.replica(inStages("fetch build", "run"), "r1")
			g.runs("fetch")
			g.report("build", lifecycle.TaskStarted, "")
			g.ends("build", lifecycle.TaskErred, "Exited")
			g.runs("fetch", "build", "run")
		},
		"init-not-again-on-the-same-robot": func(g *stage) {
			g.robot("r0", lifecycle.RobotOnline)
			g.robot("r1", lifecycle.RobotOnline)
			g.replica(inStages("fetch", "run"), "r1")
			g.runs("fetch")
			g.report("run", lifecycle.TaskStarted, "")
			g.ends("run", lifecycle.TaskErred, "AgentStopped")
			g.report("run", lifecycle.TaskStarted, "")
			g.ends("run", lifecycle.TaskErred, "Exited")
			g.runs("fetch", "run")
		},
		"init-fails-for-good": func(g *stage) {
			g.robot("r1", lifecycle.RobotOnline)
			g.replica(inStages("side+ fetch", "run"), "r1")
			g.report("side", lifecycle.TaskStarted, "")
			g.report("fetch", lifecycle.TaskStarted, "")
			g.ends("fetch", lifecycle.TaskErred, "Exited")
			g.ends("side", lifecycle.TaskErred, "Stopped")
			g.say("> the robot is blocked, and another one comes")
			g.group.Status.BlockedRobots = []string{"r1"}
			g.s.ledger.seeGroup(g.group)
			g.robot("r2", lifecycle.RobotOnline)
			g.report("side", lifecycle.TaskStarted, "")
			g.runs("fetch", "run")
			g.ends("side", lifecycle.TaskErred, "Stopped")
		},
		"init-robot-lost": func(g *stage) {
			g.robot("r1", lifecycle.RobotOnline)
			g.robot("r2", lifecycle.RobotOnline)
			g.replica(inStages("fetch build", "run"), "r1")
			g.runs("fetch")
			g.report("build", lifecycle.TaskStarted, "")
			g.robot("r1", lifecycle.RobotOffline)
			g.pass(6 * time.Minute)
			g.runs("fetch", "build", "run")
		},
		"init-drained": func(g *stage) {
			g.robot("r1", lifecycle.RobotOnline)
			g.robot("r2", lifecycle.RobotOnline)
			g.replica(inStages("fetch build", "run"), "r1")
			g.runs("fetch")
			g.report("build", lifecycle.TaskStarted, "")
			g.say("> r1 is drained")
			r := g.robots["r1"].DeepCopy()
			r.Spec.Drain = true
			g.robots["r1"] = r
			g.s.ledger.seeRobot(r)
			g.play()
			g.ends("build", lifecycle.TaskErred, "Stopped")
			g.runs("fetch", "build", "run")
		},
		"init-changes": func(g *stage) {
			g.robot("r1", lifecycle.RobotOnline)
			g.replica(inStages("fetch", "run"), "r1")
			g.runs("fetch")
			g.report("run", lifecycle.TaskStarted, "")
			g.say("> the init task changes, and the group takes the replica from its robot")
			g.group.Spec.InitTasks[0].Env = map[string]string{"A": "1"}
			g.group.Status.Revisions = revision.Wanted(&g.group.Spec.TaskGroupTemplate)
			g.tasks["run"].Spec.Evict = 1
			g.play()
			g.ends("run", lifecycle.TaskErred, "Stopped")
			g.redefine("run")
			g.redefine("fetch")
			g.runs("fetch", "run")
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newStage(t)
			tell(g)
			for name, task := range g.tasks {
				if task.Status.State != string(lifecycle.TaskCompleted) {
					t.Errorf("%s is %s", name, task.Status.State)
				}
			}
			golden.Equal(t, name, g.said.String())
		})
	}
}

// redefine gives a task its new definition, as its group does while it waits.
func (g *stage) redefine(name string) {
	g.say("> %s gets its new definition", name)
	t := g.tasks[name]
	t.Labels[v1alpha1.LabelRevision] = g.group.Status.Revisions[name]
	g.s.ledger.seeTask(t)
	g.play()
}

// A replica asks for the larger of what its init tasks need, one by one, and of what
// the rest needs: one task more on the robot would be one too many.
func TestTheRoomOfAReplicaWithInitTasks(t *testing.T) {
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
			g := newStage(t)
			group := inStages("fetch build", "run")
			needs(group, "build", c.init)
			needs(group, "run", c.task)
			r := robotIn(lifecycle.RobotOnline)
			r.Namespace, r.Spec.Capacity = "ns", map[string]resource.Quantity{"memory": resource.MustParse(c.memory), "tasks": resource.MustParse("1")}
			g.robots["r1"] = r
			g.s.ledger.seeRobot(r)
			g.replica(group, "")
			if got := g.tasks["fetch"].Status.State == string(lifecycle.TaskDispatching); got != c.fits {
				t.Fatalf("it starts: %v\n%s", got, g.said.String())
			}
			if c.fits {
				g.runs("fetch", "build", "run")
				if held := g.s.ledger.robot("r1").held; held.Memory != 0 || held.Tasks != 0 {
					t.Errorf("holds %+v when all is over", held)
				}
			}
		})
	}
}

// What has completed elsewhere must have room again where the replica goes.
func TestAReplicaMovesOnlyWhereItsInitTasksFitToo(t *testing.T) {
	g := newStage(t)
	group := inStages("fetch", "run")
	needs(group, "fetch", "3Gi")
	needs(group, "run", "1Gi")
	g.robot("r1", lifecycle.RobotOnline)
	g.replica(group, "r1")
	g.runs("fetch")
	small := robotIn(lifecycle.RobotOnline)
	small.Namespace, small.Name, small.Spec.Capacity = "ns", "r0", map[string]resource.Quantity{"memory": resource.MustParse("2Gi")}
	g.robots["r0"] = small
	g.s.ledger.seeRobot(small)
	g.robot("r2", lifecycle.RobotOnline)
	g.report("run", lifecycle.TaskStarted, "")
	g.ends("run", lifecycle.TaskErred, "Exited")
	if at := g.tasks["fetch"].RobotOfAttempt(); at != "r2" {
		t.Errorf("fetch is on %q\n%s", at, g.said.String())
	}
}

// outlived is a daemon whose replica has ended.
func outlived(state lifecycle.TaskState, changes ...func(*World)) World {
	w := world(state, ofType("service"))
	w.Group = inStages("", "run log+")
	w.Task.Spec.TaskDefinition = w.Group.Spec.Tasks[1]
	run := world(lifecycle.TaskCompleted).Task
	run.Spec.TaskDefinition = w.Group.Spec.Tasks[0]
	w.Siblings = []v1alpha1.Task{*run}
	for _, f := range changes {
		f(&w)
	}
	return w
}

func TestHowADaemonEndsWithItsReplica(t *testing.T) {
	const completed, running = lifecycle.TaskCompleted, lifecycle.TaskRunning
	for _, c := range []struct {
		name       string
		in         World
		want       lifecycle.TaskState // empty: nothing is written
		wantReason string
	}{
		{"one that waits has completed", outlived(lifecycle.TaskPending, seat), completed, ReasonDismissed},
		{"one that failed softly too", outlived(lifecycle.TaskSoftFailed), completed, ReasonDismissed},
		{"and one that is paused", outlived(lifecycle.TaskPaused, inJob(lifecycle.JobPaused)), completed, ReasonDismissed},
		{"one that has exited is not restarted", outlived(lifecycle.TaskExited, reason("Exited"), capable), completed, ReasonDismissed},
		{"one that runs is asked to stop", outlived(running), running, v1alpha1.ReasonEvicting},
		{"it has its time", outlived(running, evicting(5*time.Second)), "", ""},
		{"a robot that does not confirm it is not waited for for ever", outlived(running, evicting(time.Minute)), completed, ReasonDismissed},
		{"nor is one that is lost", outlived(lifecycle.TaskUnknown, phase(lifecycle.RobotOffline)), completed, ReasonDismissed},
		{"a canceled job stops it as any other task", outlived(running, inJob(lifecycle.JobCancelRequested)), running, v1alpha1.ReasonStopping},
		{"while tasks are put back, one after the other, nothing has ended", outlived(running, requeueing(v1alpha1.RequeueStatus{From: "completed"})), "", ""},
		{"while a task runs it runs on", outlived(running, beside(running)), "", ""},
		{"or while one is not created yet", outlived(running, func(w *World) { w.Siblings = nil }), "", ""},
		{"one that is dismissed comes back when a task is tried again", outlived(completed, beside(lifecycle.TaskPending)), lifecycle.TaskPending, ReasonNeededAgain},
		{"not when its job has ended", outlived(completed, beside(lifecycle.TaskPending), inJob(lifecycle.JobFailed)), "", ""},
		{"among daemons only nobody outlives the others", outlived(running, func(w *World) { w.Group.Spec.Tasks[0].Daemon = true }), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got v1alpha1.TaskStatus
			steps := Plan(noon, c.in)
			if steps.Status != nil {
				got = *steps.Status
			}
			if got.State != string(c.want) || got.Reason != c.wantReason || steps.Illegal != "" {
				t.Errorf("%q, reason %q, illegal %q", got.State, got.Reason, steps.Illegal)
			}
		})
	}
}

// beside says what has become of the other task.
func beside(state lifecycle.TaskState) func(*World) {
	return func(w *World) { w.Siblings[0].Status.State = string(state) }
}
