package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"pgregory.net/rapid"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
)

// Whatever the informers show, in whatever order: what is reserved on robots is the sum of
// their tasks, and a cycle never reserves more than there is.
func TestClusterState_ReservedRoomMatchesTasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newTestScheduler(func() time.Time { return noon })
		c := s.state
		name := rapid.SampledFrom([]string{"t0", "t1", "t2", "t3", "t4", "t5"})
		robot := rapid.SampledFrom([]string{"r0", "r1"})
		namespace := rapid.SampledFrom([]string{"ns", "b"})
		t.Repeat(map[string]func(*rapid.T){
			"task": func(t *rapid.T) {
				task := newTask(rapid.SampledFrom(lifecycle.TaskStates).Draw(t, "state"))
				task.Name, task.Spec.JobName = name.Draw(t, "name"), ""
				task.UID = rapid.SampledFrom([]types.UID{"1", "2"}).Draw(t, "uid")
				task.Labels = map[string]string{v1alpha1.LabelTaskIndex: task.Name[1:]}
				task.Spec.TargetRobot = rapid.SampledFrom([]string{"", "r0", "r1", "gone"}).Draw(t, "target")
				if task.Namespace = namespace.Draw(t, "of"); task.Namespace == "b" {
					task.OwnerReferences = nil // its group is not known there
				}
				if rapid.Bool().Draw(t, "has run") {
					task.Status.Attempt, task.Status.Attempts = 1, drawAttempts(t)
					task.Status.LostAttempt = rapid.Int32Range(0, 3).Draw(t, "lost attempt")
				}
				if lifecycle.TaskState(task.Status.State).HoldsResources() && task.Spec.TargetRobot == "" {
					t.Skip("nothing runs nowhere")
				}
				c.updateTask(task)
			},
			"task gone": func(t *rapid.T) {
				c.removeTask(key{Namespace: namespace.Draw(t, "of"), Name: name.Draw(t, "name")})
			},
			"robot": func(t *rapid.T) {
				r := robotIn(rapid.SampledFrom(lifecycle.RobotPhases).Draw(t, "phase"))
				r.Name, r.Namespace = robot.Draw(t, "robot"), namespace.Draw(t, "in")
				if rapid.Bool().Draw(t, "shared") {
					r.Labels = map[string]string{v1alpha1.ShareLabelPrefix + "b": "true", v1alpha1.ShareLabelPrefix + "ns": "true"}
				}
				r.Spec.Capacity = map[string]resource.Quantity{"tasks": resource.MustParse("2")}
				c.updateRobot(r)
			},
			"robot gone": func(t *rapid.T) {
				c.removeRobot(key{Namespace: namespace.Draw(t, "in"), Name: robot.Draw(t, "robot")})
			},
			"want": func(t *rapid.T) {
				n := name.Draw(t, "name")
				c.replaceClaim(groupG, runningJob(nil), []placement.Demand{{Group: "g", Index: int(n[1] - '0'), Tasks: []placement.Task{{Name: n, Driver: "exec"}}}})
			},
			"release": func(t *rapid.T) { c.releaseTask(key{Namespace: "ns", Name: name.Draw(t, "name")}) },
			"forget":  func(t *rapid.T) { c.forgetGroup(key{Namespace: "ns", Name: "g"}) },
			"expire":  func(t *rapid.T) { c.expireReservations(noon.Add(time.Hour)) },
			"time":    func(t *rapid.T) { c.advanceTime(noon.Add(time.Minute)) },
			"cycle": func(t *rapid.T) {
				before := countHeld(c)
				s.decide(noon)
				for r, n := range countHeld(c) {
					if n > before[r] && n > 2 {
						t.Fatalf("a cycle overbooked %s: %d tasks", r, n)
					}
				}
			},
			"": func(t *rapid.T) { requireBalance(t, c) },
		})
	})
}

// drawAttempts returns attempts, of which the first is the current one.
func drawAttempts(t *rapid.T) []v1alpha1.TaskAttempt {
	var out []v1alpha1.TaskAttempt
	for n := range int32(rapid.IntRange(1, 3).Draw(t, "attempts")) {
		a := v1alpha1.TaskAttempt{Attempt: n + 1, Robot: rapid.SampledFrom([]string{"r0", "r1", "gone"}).Draw(t, "ran on")}
		if rapid.Bool().Draw(t, "ended") {
			a.FinishedAt = &metav1.MicroTime{Time: noon}
		}
		out = append(out, a)
	}
	return out
}

// countReserved counts the entries with a reservation, by robot.
func countReserved(c *clusterState) map[string]int64 {
	out := map[string]int64{}
	for _, e := range c.tasks.byKey {
		if e.robot != "" {
			out[e.robot]++
		}
	}
	return out
}

// countHeld counts reservations and lost runs, by robot.
func countHeld(c *clusterState) map[string]int64 {
	out := countReserved(c)
	for r := range openLostRuns(c) {
		out[r.robot]++
	}
	return out
}

// openLostRuns returns the lost runs that hold room.
func openLostRuns(c *clusterState) map[*lostRun]bool {
	out := map[*lostRun]bool{}
	add := func(r *lostRun) {
		if !r.ended {
			out[r] = true
		}
	}
	for _, past := range c.lostRuns.byTask {
		for _, r := range past.byAttempt {
			add(r)
		}
	}
	for _, r := range c.lostRuns.stopping {
		add(r)
	}
	return out
}

// requireBalance fails the test unless the parts of the state agree.
func requireBalance(t *rapid.T, c *clusterState) {
	held := map[string]int64{}
	for k, r := range c.robots.byID {
		if r.reserved.Tasks != 0 {
			held[k] = r.reserved.Tasks
		}
		if !r.hasObject() && r.reserved.Tasks == 0 {
			t.Fatalf("robot %s has neither an object nor reservations", k)
		}
	}
	if !maps.Equal(held, countHeld(c)) {
		t.Fatalf("reserved on robots: %v, sum of tasks and lost runs: %v", held, countHeld(c))
	}
	for k, e := range c.tasks.byKey {
		_, waits := c.tasks.waiting[k]
		if waits == (e.robot != "") {
			t.Fatalf("%s waits: %v, reserved robot: %q", k, waits, e.robot)
		}
	}
	for _, e := range c.tasks.byKey {
		if r := c.robots.byID[e.robot]; e.robot != "" && !e.dispatched && !r.acceptsTasksOf(e.key.Namespace) {
			t.Fatalf("%s has a reservation on %s, which does not accept it", e.key, e.robot)
		}
	}
	entries := 0
	for _, r := range c.robots.byID {
		for _, e := range r.entries {
			if e.robot != r.id || c.tasks.byKey[e.key] != e {
				t.Fatalf("%s has the entry of %s, which is on %q", r.id, e.key, e.robot)
			}
		}
		entries += len(r.entries)
	}
	if n := len(c.tasks.byKey) - len(c.tasks.waiting); entries != n {
		t.Fatalf("robots have %d entries of %d", entries, n)
	}
	for _, namespace := range []string{"ns", "b"} {
		usable, inContact := []*robotState{}, 0
		for _, id := range slices.Sorted(maps.Keys(c.robots.byID)) {
			if r := c.robots.byID[id]; r.hasObject() && r.objects[0].ServesNamespace(namespace) {
				usable = append(usable, r)
				if r.isOnline() {
					inContact++
				}
			}
		}
		if !slices.Equal(usable, c.robots.byNamespace[namespace]) || inContact != c.robots.online[namespace].count {
			t.Fatalf("%s may use %v, of which %d are online; the state has %v and %d", namespace, usable, inContact, c.robots.byNamespace[namespace], c.robots.online[namespace].count)
		}
	}
	if n := len(c.tasks.byKey); len(c.tasks.waiting) > n || len(c.tasks.unconfirmed) > n {
		t.Fatalf("%d entries, %d waiting, %d unconfirmed", n, len(c.tasks.waiting), len(c.tasks.unconfirmed))
	}
}

// newTestScheduler returns a scheduler that has observed running job j and its group g.
func newTestScheduler(now func() time.Time) *Scheduler {
	s := New(now, logr.Discard())
	s.state.updateJob(runningJob(nil))
	s.state.updateGroup(groupG)
	return s
}

var groupG = &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g"}, Spec: v1alpha1.TaskGroupSpec{JobName: "j"}}

func TestReserveRobots_NotifiesGroupOfFurtherRobots(t *testing.T) {
	s := newTestScheduler(time.Now)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Start(ctx) }()
	defer func() { cancel(); <-ended }()
	notified := make(chan string, 10)
	s.NotifyGroups(func(namespace, name string) { notified <- namespace + "/" + name })
	s.update(func(c *clusterState) { c.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 1)) })
	var demands []placement.Demand
	for i := range 2 {
		demands = append(demands, placement.Demand{Group: "g", Index: i, Tasks: []placement.Task{{Name: fmt.Sprint("t", i), Driver: "exec"}}})
	}
	robots, err := s.ReserveRobots(ctx, groupG, runningJob(nil), demands)
	if err != nil || len(robots) != 1 || robots["t0"].Name != "r1" {
		t.Fatalf("reservations %v, %v", robots, err)
	}
	s.update(func(c *clusterState) { c.updateRobot(named(robotIn(lifecycle.RobotOnline), "r2", 1)) })
	if got := <-notified; got != "ns/g" {
		t.Errorf("notified %s", got)
	}
	robots, err = s.ReserveRobots(ctx, groupG, runningJob(nil), demands)
	if err != nil || len(robots) != 2 || robots["t1"].Name != "r2" {
		t.Errorf("reservations %v, %v", robots, err)
	}
}

func named(r *v1alpha1.Robot, name string, tasks int64) *v1alpha1.Robot {
	r.Namespace, r.Name = "ns", name
	r.Spec.Capacity = map[string]resource.Quantity{"tasks": *resource.NewQuantity(tasks, resource.DecimalSI)}
	return r
}

func TestClusterState_ReleasesReservationOfInterruptedTask(t *testing.T) {
	c := newClusterState(func() time.Time { return noon })
	c.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 1))
	on, back := newTask(lifecycle.TaskRunning), newTask(lifecycle.TaskPending)
	c.updateTask(on)
	c.updateTask(back)
	k := key{Namespace: "ns", Name: "t"}
	if c.tasks.waiting[k] == nil || c.tasks.byKey[k].robot != "" || c.robots.getOrCreate("r1").reserved.Tasks != 0 {
		t.Errorf("entry %+v", c.tasks.byKey[k])
	}
}

func TestClusterState_DropsClaimOfExistingReplica(t *testing.T) {
	s := newTestScheduler(func() time.Time { return noon })
	c := s.state
	c.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 1))
	c.replaceClaim(groupG, runningJob(nil), []placement.Demand{{Group: "g", Tasks: []placement.Task{{Name: "t0", Driver: "exec"}}}})
	s.decide(noon)
	if countReserved(c)["r1"] != 1 {
		t.Fatalf("reservations %v", countReserved(c))
	}
	for _, state := range []lifecycle.TaskState{lifecycle.TaskPending, lifecycle.TaskRunning, lifecycle.TaskCompleted} {
		c.updateTask(ofGroup(newTask(state), "g", "t0", "r1"))
	}
	s.decide(noon)
	if len(countReserved(c)) != 0 {
		t.Errorf("reservations of a replica that is not created: %v", countReserved(c))
	}
}

func TestScheduler_KeepsReplicaOnItsRobotWhileCreated(t *testing.T) {
	s := newTestScheduler(func() time.Time { return noon })
	c := s.state
	c.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 4))
	demand := placement.Demand{Group: "g", Tasks: []placement.Task{{Name: "a", Driver: "exec"}, {Name: "b", Driver: "exec"}}}
	c.replaceClaim(groupG, runningJob(nil), []placement.Demand{demand})
	s.decide(noon)
	c.updateRobot(named(robotIn(lifecycle.RobotOnline), "r2", 4))
	c.releaseTask(key{Namespace: "ns", Name: "a"}) // its create failed
	s.decide(noon)
	if got := countReserved(c); got["r1"] != 1 || got["r2"] != 0 {
		t.Errorf("b lost its reservation while it was being created: %v", got)
	}
	c.updateTask(ofGroup(newTask(lifecycle.TaskRunning), "g", "b", "r1"))
	c.updateTask(ofGroup(newTask(lifecycle.TaskPending), "g", "a", ""))
	s.decide(noon)
	if got := countReserved(c); got["r1"] != 2 {
		t.Errorf("the tasks of one replica are on %v", got)
	}
}

func TestReservedRobots_IgnoresTaskOfAnotherGroup(t *testing.T) {
	s := newTestScheduler(func() time.Time { return noon })
	c := s.state
	c.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 4))
	c.updateTask(ofGroup(newTask(lifecycle.TaskRunning), "other", "t0", "r1"))
	g := key{Namespace: "ns", Name: "g"}
	demands := []placement.Demand{{Group: "g", Tasks: []placement.Task{{Name: "t0", Driver: "exec"}}}}
	c.replaceClaim(groupG, runningJob(nil), demands)
	s.decide(noon)
	if got := c.reservedRobots(g, demands); len(got) != 0 {
		t.Errorf("reservations %v", got)
	}
}

func TestClusterState_ReplacesJobOfSameName(t *testing.T) {
	c := newClusterState(func() time.Time { return noon })
	j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", CreationTimestamp: metav1.NewTime(noon)}}
	c.updateJob(j)
	later := j.DeepCopy()
	later.Spec.RobotSelector = map[string]string{"env": "prod"}
	c.updateJob(later) // an interrupted watch shows no deletion
	if got := c.owners.jobs[key{Namespace: "ns", Name: "j"}].rules.Selector["env"]; got != "prod" {
		t.Errorf("robotSelector is %q", got)
	}
}

func TestLostRuns_DeletedTaskKeepsRoomUntilItsRunHasEnded(t *testing.T) {
	now := noon
	s := newTestScheduler(func() time.Time { return now })
	c := s.state
	c.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 1))
	old := ofGroup(newTask(lifecycle.TaskRunning), "g", "t0", "r1")
	old.UID, old.Spec.KillTimeout = "old", v1alpha1.NewDuration(10*time.Second)
	c.updateTask(old)
	c.removeTask(key{Namespace: "ns", Name: "t0"})
	next := ofGroup(newTask(lifecycle.TaskPending), "g", "t0", "")
	next.UID = "next"
	c.updateTask(next)
	s.decide(now)
	if robot, _ := s.Assignment(key{Namespace: "ns", Name: "t0"}); robot != "" {
		t.Error("the next task has a reservation while the old process may still run")
	}
	if got, want := c.nextChange(), noon.Add(10*time.Second+stopGrace); !got.Equal(want) {
		t.Errorf("next change at %s, want %s", got, want)
	}
	now = c.nextChange()
	s.decide(now)
	if robot, _ := s.Assignment(key{Namespace: "ns", Name: "t0"}); robot != "r1" {
		t.Errorf("robot of the next task is %q", robot)
	}
	if !c.nextChange().IsZero() {
		t.Error("nextChange is still set")
	}
}

func TestLostRuns_UnobservedDeletionKeepsRoom(t *testing.T) {
	s := newTestScheduler(func() time.Time { return noon })
	s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 1))
	old := ofGroup(newTask(lifecycle.TaskRunning), "g", "t0", "r1")
	next := ofGroup(newTask(lifecycle.TaskPending), "g", "t0", "")
	old.UID, next.UID = "old", "next"
	s.state.updateTask(old)
	s.state.updateTask(next)
	s.decide(noon)
	if robot, _ := s.Assignment(key{Namespace: "ns", Name: "t0"}); robot != "" {
		t.Error("the next task has a reservation while the old process may still run")
	}
}

func TestScheduler_RunsCycleWhenRoomIsFreedByTime(t *testing.T) {
	s := newTestScheduler(time.Now)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Start(ctx) }()
	defer func() { cancel(); <-ended }()
	notified := make(chan string, 10)
	s.NotifyTasks(func(_, name string) {
		if robot, _ := s.Assignment(key{Namespace: "ns", Name: name}); robot != "" {
			notified <- robot
		}
	})
	s.update(func(c *clusterState) {
		c.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 1))
		old := ofGroup(newTask(lifecycle.TaskRunning), "g", "t0", "r1")
		c.updateTask(old)
		c.removeTask(key{Namespace: "ns", Name: "t0"})
		c.lostRuns.stopping[0].stopTime = 50 * time.Millisecond
		c.updateTask(ofGroup(newTask(lifecycle.TaskPending), "g", "t0", ""))
	})
	select {
	case robot := <-notified:
		if robot != "r1" {
			t.Errorf("notified of %s", robot)
		}
	case <-time.After(10 * time.Second):
		t.Error("no cycle ran")
	}
}

// What follows the failure of an index in its range is not decided yet.
func TestScheduler_ReservesNothingBeforeIndexFailureIsRecorded(t *testing.T) {
	s := newTestScheduler(func() time.Time { return noon })
	robot := named(robotIn(lifecycle.RobotOnline), "r1", 1)
	robot.Status.Agent = &v1alpha1.AgentInfo{RunsArrays: true}
	s.state.updateRobot(robot)
	task := newTask(lifecycle.TaskPending, func(t *v1alpha1.Task) {
		t.Spec.Array = &v1alpha1.TaskArray{Index: new(int32(5)), Failure: &v1alpha1.IndexFailure{Index: 5}}
	})
	s.state.updateTask(ofGroup(task, "g", "t0", ""))
	s.decide(noon)
	if got := countReserved(s.state); len(got) != 0 {
		t.Errorf("reservations %v", got)
	}
	attempted(1, "r0")(task)
	s.state.updateTask(ofGroup(task, "g", "t0", ""))
	s.decide(noon)
	if got := countReserved(s.state); got["r1"] != 1 {
		t.Errorf("reservations %v once it is recorded", got)
	}
}

func TestScheduler_ReservesNothingDuringBackoff(t *testing.T) {
	s := newTestScheduler(func() time.Time { return noon })
	s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 1))
	task := newTask(lifecycle.TaskPending, interrupted(4, time.Second))
	s.state.updateTask(ofGroup(task, "g", "t0", ""))
	s.decide(noon)
	if got := countReserved(s.state); len(got) != 0 {
		t.Errorf("reservations %v", got)
	}
	at := s.state.nextChange()
	if want := noon.Add(3 * time.Second); !at.Equal(want) {
		t.Fatalf("next change at %s, want %s", at, want)
	}
	s.decide(at)
	if got := countReserved(s.state); got["r1"] != 1 {
		t.Errorf("reservations %v", got)
	}
}

func TestClusterState_CancelsReservationsOfStoppedJob(t *testing.T) {
	for name, ends := range map[string]func(*clusterState, *v1alpha1.Job){
		"deleted in the background": func(c *clusterState, _ *v1alpha1.Job) { c.removeJob(key{Namespace: "ns", Name: "j"}) },
		"deleted in the foreground": func(c *clusterState, j *v1alpha1.Job) { j.DeletionTimestamp = &j.CreationTimestamp; c.updateJob(j) },
		"paused":                    func(c *clusterState, j *v1alpha1.Job) { j.Status.State = string(lifecycle.JobPaused); c.updateJob(j) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestScheduler(func() time.Time { return noon })
			c := s.state
			j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j"}}
			c.updateJob(j)
			c.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 2))
			runs, waits := newTask(lifecycle.TaskRunning), newTask(lifecycle.TaskPending)
			runs.Name, waits.Name = "runs", "waits"
			waits.Labels = map[string]string{v1alpha1.LabelTaskIndex: "1"}
			c.updateTask(runs)
			c.updateTask(waits)
			s.decide(noon)
			if got := countReserved(c); got["r1"] != 2 {
				t.Fatalf("reservations %v", got)
			}
			ends(c, j.DeepCopy())
			s.decide(noon)
			if robot, _ := s.Assignment(key{Namespace: "ns", Name: "waits"}); robot != "" || countReserved(c)["r1"] != 1 {
				t.Errorf("required robot %q, reservations %v", robot, countReserved(c))
			}
		})
	}
}

// ofGroup makes t a task of the only replica of a group, with a name of its own.
func ofGroup(t *v1alpha1.Task, group, name, robot string) *v1alpha1.Task {
	t.Name, t.Spec.TargetRobot, t.Spec.JobName = name, robot, ""
	for i := range t.Status.Attempts {
		t.Status.Attempts[i].Robot = robot
	}
	t.Labels = map[string]string{v1alpha1.LabelTaskIndex: "0"}
	controls := true
	t.OwnerReferences = []metav1.OwnerReference{{Kind: "TaskGroup", Name: group, Controller: &controls}}
	return t
}

// A reservation releases the room that it took, even if the task has other needs by now.
// Otherwise a robot would seem full, or be overbooked, forever.
func TestClusterState_ReleasesSameRoomAfterRedefinition(t *testing.T) {
	s := newTestScheduler(func() time.Time { return noon })
	r := robotIn(lifecycle.RobotOnline)
	r.Namespace, r.Spec.Capacity = "ns", map[string]resource.Quantity{"cpu": resource.MustParse("4")}
	s.state.updateRobot(r)
	task := newTask(lifecycle.TaskPending, byHand)
	needs := func(cpu string) {
		q := resource.MustParse(cpu)
		task.Spec.Resources = &v1alpha1.Resources{CPU: &q}
		s.state.updateTask(task)
		s.decide(noon)
	}
	for _, c := range []struct{ cpu, wantRobot string }{{"1", "r1"}, {"3", "r1"}, {"5", ""}} {
		needs(c.cpu)
		if robot, _ := s.Assignment(key{Namespace: "ns", Name: "t"}); robot != c.wantRobot {
			t.Errorf("%s cpus: reserved %q", c.cpu, robot)
		}
	}
	needs("2")
	s.state.removeTask(key{Namespace: "ns", Name: "t"})
	if held := s.state.robots.getOrCreate("r1").reserved; !held.Equal(placement.Room{}) {
		t.Errorf("%+v is still reserved", held)
	}
}
