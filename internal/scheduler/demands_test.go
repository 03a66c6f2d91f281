package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
)

// withRobots returns a scheduler with online robots for one task each.
func withRobots(robots ...string) *Scheduler {
	s := New(func() time.Time { return noon }, logr.Discard())
	for _, name := range robots {
		s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), name, 1))
	}
	return s
}

// newGroup returns a TaskGroup of job j.
func newGroup(name string, count int32, changes ...func(*v1alpha1.TaskGroup)) *v1alpha1.TaskGroup {
	g := &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j-" + name, UID: types.UID(name)}}
	g.Spec.JobName, g.Spec.GroupName, g.Spec.Count = "j", name, &count
	for _, f := range changes {
		f(g)
	}
	return g
}

func gang(g *v1alpha1.TaskGroup) { g.Spec.Gang = true }

func runningJob(change func(*v1alpha1.JobSpec)) *v1alpha1.Job {
	j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j"}, Status: v1alpha1.JobStatus{State: "running"}}
	if change != nil {
		change(&j.Spec)
	}
	return j
}

// replicaTask returns the task of a replica of a group.
func replicaTask(g *v1alpha1.TaskGroup, index int, state lifecycle.TaskState, robot string) *v1alpha1.Task {
	t := ofGroup(newTask(state), g.Name, fmt.Sprintf("%s-%d-t", g.Name, index), robot)
	t.Spec.JobName, t.OwnerReferences[0].UID = "j", g.UID
	t.Labels[v1alpha1.LabelTaskIndex] = fmt.Sprint(index)
	if state != lifecycle.TaskPending {
		t.Status.Attempt = 1
	}
	return t
}

func demandsOf(g *v1alpha1.TaskGroup, from, to int) []placement.Demand {
	var out []placement.Demand
	for i := from; i < to; i++ {
		out = append(out, placement.Demand{Group: g.Name, Index: i, Tasks: []placement.Task{{Name: fmt.Sprintf("%s-%d-t", g.Name, i), Driver: "exec"}}})
	}
	return out
}

func TestScheduler_PlacesGangOnlyAsAWhole(t *testing.T) {
	s := withRobots("r1", "r2")
	g := newGroup("g", 3, gang)
	s.state.updateJob(runningJob(nil))
	s.state.updateGroup(g)
	s.state.replaceClaim(g, runningJob(nil), demandsOf(g, 0, 3))
	s.decide(noon)
	if got := countReserved(s.state); len(got) != 0 {
		t.Fatalf("a gang of three was placed on two robots: %v", got)
	}
	s.state.updateTask(replicaTask(g, 0, lifecycle.TaskPending, "")) // created to show what waits
	s.decide(noon)
	if _, why := s.Assignment(key{Namespace: "ns", Name: "j-g-0-t"}); !strings.HasPrefix(why.String(), "gang needs robots for all 3 replicas and found 2") {
		t.Errorf("rejection %q", why)
	}
	s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "r3", 1))
	s.decide(noon)
	if got := countReserved(s.state); len(got) != 3 {
		t.Errorf("reservations %v", got)
	}
}

func TestScheduler_WaitsForClaimOfRestOfGang(t *testing.T) {
	s := withRobots("r1", "r2", "r3")
	g := newGroup("g", 3, gang)
	s.state.updateJob(runningJob(nil))
	s.state.updateGroup(g)
	for i := range 2 {
		s.state.updateTask(replicaTask(g, i, lifecycle.TaskPending, ""))
	}
	s.decide(noon)
	if got := countReserved(s.state); len(got) != 0 {
		t.Fatalf("reservations %v", got)
	}
	s.state.replaceClaim(g, runningJob(nil), demandsOf(g, 2, 3))
	s.decide(noon)
	if got := countReserved(s.state); len(got) != 3 {
		t.Errorf("reservations %v", got)
	}
}

func TestScheduler_PlacesReplicaOfStartedGangAlone(t *testing.T) {
	for name, others := range map[string]lifecycle.TaskState{"while the others run": lifecycle.TaskRunning, "when the others have ended": lifecycle.TaskCompleted} {
		t.Run(name, func(t *testing.T) {
			s := withRobots("r1", "r2", "r3", "r4")
			g := newGroup("g", 3, gang)
			s.state.updateJob(runningJob(nil))
			for i := range 2 {
				s.state.updateTask(replicaTask(g, i, others, fmt.Sprint("r", i+1)))
			}
			s.state.updateGroup(g) // the watches of two kinds are in no order
			s.state.updateTask(replicaTask(g, 2, lifecycle.TaskPending, ""))
			s.decide(noon)
			if robot, why := s.Assignment(key{Namespace: "ns", Name: "j-g-2-t"}); robot == "" {
				t.Errorf("rejected: %s", why)
			}
		})
	}
}

func TestScheduler_PlacesUnobservedGangAsAWhole(t *testing.T) {
	s := withRobots("r1", "r2")
	g := newGroup("g", 3, gang)
	s.state.replaceClaim(g, runningJob(nil), demandsOf(g, 0, 3))
	s.decide(noon)
	if got := countReserved(s.state); len(got) != 0 {
		t.Errorf("reservations %v", got)
	}
}

func TestScheduler_AppliesTermsOfJobAndGroup(t *testing.T) {
	os := "${robot.attr.os}"
	linux := "linux"
	onLinux := []v1alpha1.Constraint{{LTarget: &os, Operand: "=", RTarget: &linux}}
	for _, c := range []struct {
		name  string
		job   func(*v1alpha1.JobSpec)
		group func(*v1alpha1.TaskGroup)
		task  func(*v1alpha1.Task)
		want  string
	}{
		{name: "datacenters of the job", job: func(j *v1alpha1.JobSpec) { j.Datacenters = []string{"hall-1"} }, want: "not in datacenter hall-1"},
		{name: "constraints of the group", group: func(g *v1alpha1.TaskGroup) { g.Spec.Constraints = onLinux },
			task: func(t *v1alpha1.Task) { t.Spec.Constraints = onLinux }, want: "constraint ${robot.attr.os} = linux is not met: attribute os missing"},
		{name: "constraints that the task alone has", task: func(t *v1alpha1.Task) { t.Spec.Constraints = onLinux },
			want: "constraint ${robot.attr.os} = linux is not met: attribute os missing"},
		{name: "devices of the task", task: func(t *v1alpha1.Task) {
			t.Spec.Resources = &v1alpha1.Resources{Devices: map[string]resource.Quantity{"arm": resource.MustParse("1")}}
		}, want: "arm missing"},
		{name: "the blocklist of the group", group: func(g *v1alpha1.TaskGroup) { g.Status.BlockedRobots = []string{"r1"} }, want: "blocked for the task group"},
		{name: "the failure list of the task", task: func(t *v1alpha1.Task) { t.Status.FailedRobots = []string{"r1"} }, want: "the task failed on it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := withRobots("r1")
			g := newGroup("g", 1)
			if c.group != nil {
				c.group(g)
			}
			task := replicaTask(g, 0, lifecycle.TaskPending, "")
			if c.task != nil {
				c.task(task)
			}
			s.state.updateJob(runningJob(c.job))
			s.state.updateGroup(g)
			s.state.updateTask(task)
			s.decide(noon)
			if robot, why := s.Assignment(key{Namespace: "ns", Name: task.Name}); robot != "" || why.String() != "0 of 1 robots: 1: "+c.want {
				t.Errorf("on %q: %q", robot, why)
			}
			if hasCapableRobot(s, task) {
				t.Error("a robot is reported as capable")
			}
		})
	}
}

func hasCapableRobot(s *Scheduler, t *v1alpha1.Task) bool {
	is, _ := s.HasCapableRobot(t, t.Status.FailedRobots)
	return is
}

func TestHasCapableRobot_IsUnknownBeforeSync(t *testing.T) {
	s := withRobots("r1")
	task := replicaTask(newGroup("g", 1), 0, lifecycle.TaskExited, "gone")
	synced := false
	s.synced = []cache.InformerSynced{func() bool { return synced }}
	if _, known := s.HasCapableRobot(task, nil); known {
		t.Error("known is true before the informers have synced")
	}
	synced = true
	if is, known := s.HasCapableRobot(task, nil); !is || !known {
		t.Errorf("capable %v, known %v", is, known)
	}
}

func TestHasCapableRobot_CountsOfflineRobots(t *testing.T) {
	s := withRobots()
	g := newGroup("g", 1)
	task := replicaTask(g, 0, lifecycle.TaskExited, "gone")
	s.state.updateJob(runningJob(nil))
	s.state.updateGroup(g)
	if hasCapableRobot(s, task) {
		t.Error("there is no robot, want false")
	}
	s.state.updateRobot(named(robotIn(lifecycle.RobotOffline), "r1", 1))
	if !hasCapableRobot(s, task) {
		t.Error("r1 is offline, want true")
	}
	byHand := newTask(lifecycle.TaskExited)
	byHand.Spec.TargetRobot, byHand.OwnerReferences = "r2", nil
	if hasCapableRobot(s, byHand) {
		t.Error("a user chose r2, want false")
	}
}

func TestScheduler_FollowsAffinityToGroup(t *testing.T) {
	s := withRobots()
	for _, name := range []string{"r1", "r2", "r3"} {
		s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), name, 4))
	}
	cache, web := newGroup("cache", 1), newGroup("web", 1)
	to := "cache"
	web.Spec.Placement = &v1alpha1.Placement{Affinity: []v1alpha1.AffinityTerm{{TaskGroup: &to, Weight: 50}}}
	s.state.updateJob(runningJob(nil))
	s.state.updateGroup(cache)
	s.state.updateGroup(web)
	s.state.updateTask(replicaTask(cache, 0, lifecycle.TaskRunning, "r3"))
	s.state.replaceClaim(web, runningJob(nil), demandsOf(web, 0, 1))
	s.decide(noon)
	if got := countReserved(s.state); got["r3"] != 2 {
		t.Errorf("reservations %v", got)
	}
}

func TestScheduler_PreemptsOnlyIfEnabled(t *testing.T) {
	for victimOf, s := range map[string]*Scheduler{"": withRobots("r1"), "j-high-0-t": withRobots("r1")} {
		if victimOf != "" {
			s.EnablePreemption()
		}
		low := replicaTask(newGroup("low", 1), 0, lifecycle.TaskRunning, "r1")
		low.Spec.JobName = "low"
		high := newGroup("high", 1)
		s.state.updateTask(low)
		s.state.updateJob(runningJob(func(j *v1alpha1.JobSpec) { p := int32(90); j.Priority, j.Preemption = &p, true }))
		s.state.updateGroup(high)
		s.state.updateTask(replicaTask(high, 0, lifecycle.TaskPending, ""))
		n := s.decide(noon)
		k := key{Namespace: "ns", Name: low.Name}
		if got := s.state.tasks.byKey[k].victimOf; got != victimOf || slices.Contains(n.tasks, k) != (got != "") {
			t.Errorf("victim of %q, want %q; notified %v", got, victimOf, n.tasks)
		}
	}
}

// newPreemption returns a scheduler in which a task of low priority must leave r1 for one of high
// priority.
func newPreemption(t *testing.T) (s *Scheduler, low, high *v1alpha1.Task) {
	s = withRobots("r1")
	s.EnablePreemption()
	low = replicaTask(newGroup("low", 1), 0, lifecycle.TaskRunning, "r1")
	low.Spec.JobName = "low"
	high = replicaTask(newGroup("high", 1), 0, lifecycle.TaskPending, "")
	s.state.updateTask(low)
	s.state.updateJob(runningJob(func(j *v1alpha1.JobSpec) { p := int32(90); j.Priority, j.Preemption = &p, true }))
	s.state.updateGroup(newGroup("high", 1))
	s.state.updateTask(high)
	s.decide(noon)
	if why := s.EvictionReason(keyOf(low)); !strings.Contains(why, high.Name) {
		t.Fatalf("no eviction reason: %q", why)
	}
	return s, low, high
}

// A task that was not dispatched yet has only a reservation, which needs no eviction.
func TestScheduler_PreemptsUnusedReservation(t *testing.T) {
	s := withRobots("r1")
	s.EnablePreemption()
	low, high := newGroup("low", 1), newGroup("high", 1)
	waits := replicaTask(low, 0, lifecycle.TaskPending, "r1")
	waits.Spec.JobName, low.Spec.JobName = "low", "low"
	other := runningJob(nil)
	other.Name = "low"
	s.state.updateJob(other)
	s.state.updateGroup(low)
	s.state.updateTask(waits)
	s.decide(noon)
	s.state.updateJob(runningJob(func(j *v1alpha1.JobSpec) { p := int32(90); j.Priority, j.Preemption = &p, true }))
	s.state.updateGroup(high)
	pushes := replicaTask(high, 0, lifecycle.TaskPending, "")
	s.state.updateTask(pushes)
	s.decide(noon)
	s.decide(noon)
	if robot, why := s.Assignment(keyOf(pushes)); robot != "r1" {
		t.Errorf("robot %q: %s", robot, why)
	}
}

func TestPreemptions_CancelVictimThatIsNotNeeded(t *testing.T) {
	for name, then := range map[string]func(s *Scheduler, high *v1alpha1.Task){
		"its preemptor is gone": func(s *Scheduler, high *v1alpha1.Task) { s.state.removeTask(keyOf(high)) },
		"its preemptor has another robot": func(s *Scheduler, _ *v1alpha1.Task) {
			s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "r2", 1))
			s.decide(noon)
			s.state.dirty.set()
		},
	} {
		s, low, high := newPreemption(t)
		then(s, high)
		s.decide(noon)
		if why := s.EvictionReason(keyOf(low)); why != "" {
			t.Errorf("%s, but it is still a victim: %s", name, why)
		}
	}
	s, low, high := newPreemption(t)
	low.Status.Reason = v1alpha1.ReasonEvicting
	s.state.updateTask(low)
	s.state.removeTask(keyOf(high))
	s.decide(noon)
	if s.EvictionReason(keyOf(low)) == "" {
		t.Error("the eviction was withdrawn after the stop was requested")
	}
}

// The controller may observe that a task waits, or that it has other constraints, before the
// scheduler does.
func TestIsBehind_ReportsReservationForOlderVersion(t *testing.T) {
	s := withRobots("r1")
	task := replicaTask(newGroup("g", 1), 0, lifecycle.TaskExited, "r1")
	task.UID, task.ResourceVersion = "u", "9"
	s.state.updateTask(task)
	later := task.DeepCopy()
	later.ResourceVersion = "10"
	if !s.IsBehind(later) || s.IsBehind(task) {
		t.Errorf("IsBehind of the later version %v, of the same %v", s.IsBehind(later), s.IsBehind(task))
	}
	if s.state.releaseReservation(s.state.tasks.byKey[keyOf(task)]); s.IsBehind(later) {
		t.Error("IsBehind without a reservation")
	}
}

// The tasks of a replica share a robot, so one that may not return there takes the others
// along.
func TestScheduler_EvictsSiblingsOfFailedTask(t *testing.T) {
	s := withRobots()
	for _, name := range []string{"r1", "r2"} {
		s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), name, 2))
	}
	g := newGroup("g", 1)
	s.state.updateJob(runningJob(nil))
	s.state.updateGroup(g)
	a, b := replicaTask(g, 0, lifecycle.TaskRunning, "r1"), replicaTask(g, 0, lifecycle.TaskSoftFailed, "")
	b.Name, b.Status.FailedRobots = "g-0-b", []string{"r1"}
	s.state.updateTask(a)
	s.state.updateTask(b)
	n := s.decide(noon)
	if why := s.EvictionReason(keyOf(a)); !strings.Contains(why, b.Name) || !slices.Contains(n.tasks, keyOf(a)) {
		t.Errorf("no eviction from the robot on which its sibling failed: %q", why)
	}
	a.Status.State, a.Status.Attempts = string(lifecycle.TaskPending), nil
	a.Spec.TargetRobot = ""
	s.state.updateTask(a)
	s.decide(noon)
	for _, task := range []*v1alpha1.Task{a, b} {
		if robot, why := s.Assignment(keyOf(task)); robot != "r2" {
			t.Errorf("%s: reserved %q, %s", task.Name, robot, why)
		}
	}
}

// newSplitReplica returns a replica whose task a runs on r1. It was bound that long before or
// after b came back from the robot last. r1 takes that many tasks, b has failed on r2, and r3
// takes one task.
func newSplitReplica(bound time.Duration, last string, places int64) (s *Scheduler, a, b *v1alpha1.Task) {
	s = withRobots("r2", "r3")
	s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", places))
	s.state.updateJob(runningJob(nil))
	g := newGroup("g", 1)
	s.state.updateGroup(g)
	a, b = replicaTask(g, 0, lifecycle.TaskRunning, "r1"), replicaTask(g, 0, lifecycle.TaskSoftFailed, "")
	b.Name, b.Status.FailedRobots = "g-0-b", []string{"r2"}
	b.Status.Attempt = 1
	b.Status.Attempts = []v1alpha1.TaskAttempt{{Attempt: 1, Robot: last, FinishedAt: &metav1.MicroTime{Time: noon}}}
	setPlaced(a, metav1.ConditionTrue, noon.Add(bound))
	setPlaced(b, metav1.ConditionFalse, noon)
	s.state.updateTask(a)
	s.state.updateTask(b)
	return s, a, b
}

// setPlaced sets since when a task is on its robot, or is back from it.
func setPlaced(t *v1alpha1.Task, is metav1.ConditionStatus, at time.Time) {
	t.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPlaced, Status: is, LastTransitionTime: metav1.NewTime(at)}}
}

// A task that was apart from the others must not wait forever for room on their robot. One
// that was beside them must not leave the replica because their robot is full for a moment.
func TestScheduler_PlacesTaskOfSplitReplica(t *testing.T) {
	for _, c := range []struct {
		name   string
		bound  time.Duration
		last   string
		places int64
		then   func(s *Scheduler, a *v1alpha1.Task)
		want   string // robot, or why it waits
	}{
		{name: "it was apart: it goes to the others where it can", bound: -time.Hour, last: "r2", places: 2, want: "r1"},
		{name: "it was apart: another will do where they are is no room", bound: -time.Hour, last: "r2", places: 1, want: "r3"},
		{name: "it was beside the others: it waits for room there", bound: -time.Hour, last: "r1", places: 1, want: "robot r1: task limit reached"},
		{name: "the others have gone where they are since: it waits for room there", bound: time.Minute, last: "r2", places: 1, want: "robot r1: task limit reached"},
		{name: "it was apart, and others have gone there since", bound: -time.Hour, last: "r2", places: 1, then: func(s *Scheduler, a *v1alpha1.Task) {
			later := a.DeepCopy()
			setPlaced(later, metav1.ConditionTrue, noon.Add(time.Minute))
			addHolder("r1", 5, 6)(s, later)
		}, want: "r3"},
		{name: "the others are apart: it goes where most of them are", bound: time.Minute, last: "r1", places: 2, then: addHolder("r4", 2, 3), want: "r4"},
		{name: "the others are apart: or where any of them is", bound: time.Minute, last: "r1", places: 2, then: addHolder("r4", 2, 2), want: "r1"},
		{name: "the others are apart: or to another", bound: time.Minute, last: "r1", places: 1, then: addHolder("r4", 1, 1), want: "r3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, a, b := newSplitReplica(c.bound, c.last, c.places)
			if c.then != nil {
				c.then(s, a)
			}
			s.decide(noon)
			if robot, why := s.Assignment(keyOf(b)); robot+why.String() != c.want {
				t.Errorf("reserved %q, %s; want %q", robot, why, c.want)
			}
		})
	}
}

// addHolder adds tasks of a's replica on a robot with a task limit.
func addHolder(robot string, tasks int, places int64) func(*Scheduler, *v1alpha1.Task) {
	return func(s *Scheduler, a *v1alpha1.Task) {
		s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), robot, places))
		for i := range tasks {
			c := a.DeepCopy()
			c.Name, c.Spec.TargetRobot, c.Status.Attempts[0].Robot = fmt.Sprint("g-0-c", i), robot, robot
			s.state.updateTask(c)
		}
	}
}

// Two tasks that come back from a lost robot, one after the other, were never apart.
func TestScheduler_WaitsForRobotOfSibling(t *testing.T) {
	s, a, b := newSplitReplica(0, "r9", 1)
	s.state.removeTask(keyOf(b))
	b.Status.FailedRobots = nil
	a.Status.State, a.Spec.TargetRobot, a.Status.Attempts[0].Robot = string(lifecycle.TaskPending), "", "r9"
	setPlaced(a, metav1.ConditionFalse, noon.Add(-time.Second))
	s.state.updateTask(a)
	s.decide(noon)
	on, _ := s.Assignment(keyOf(a))
	s.state.updateTask(b)
	s.decide(noon)
	if robot, why := s.Assignment(keyOf(b)); on == "" || robot != "" || why.String() != "robot "+on+": task limit reached" {
		t.Errorf("reserved %q, %s; want %q", robot, why, on)
	}
}

// A task that was restored on its robot must not be stopped for a sibling that ran elsewhere
// anyway.
func TestScheduler_EvictsNoSiblingsOfSplitReplica(t *testing.T) {
	s, a, b := newSplitReplica(-time.Hour, "r2", 1)
	b.Status.FailedRobots = []string{"r1", "r2"}
	s.state.updateTask(b)
	if why := s.EvictionReason(keyOf(a)); why != "" {
		t.Errorf("eviction reason %q, want none", why)
	}
}

// BenchmarkCycle runs whole cycles: ten thousand Tasks of a hundred groups wait for ten thousand
// full robots.
func BenchmarkCycle(b *testing.B) {
	s := withRobots()
	for i := range 10000 {
		r := named(robotIn(lifecycle.RobotOnline), fmt.Sprintf("r%05d", i), 1)
		s.state.updateRobot(r)
		s.state.updateTask(replicaTask(newGroup("old", 1), i, lifecycle.TaskRunning, r.Name))
	}
	s.state.updateJob(runningJob(nil))
	for i := range 100 {
		g := newGroup(fmt.Sprint("g", i), 100)
		s.state.updateGroup(g)
		for n := range 100 {
			s.state.updateTask(replicaTask(g, n, lifecycle.TaskPending, ""))
		}
	}
	for b.Loop() {
		s.state.dirty.set()
		s.decide(noon)
	}
}

// The informers of the kinds are in no order, and each may be behind that of the caller.
func TestScheduler_WaitsForGroupAndJobOfTask(t *testing.T) {
	g := newGroup("g", 1)
	g.Spec.Placement = &v1alpha1.Placement{Affinity: []v1alpha1.AffinityTerm{{RobotLabels: map[string]string{"who": "da"}}}}
	job := runningJob(func(j *v1alpha1.JobSpec) { j.RobotSelector = map[string]string{"env": "prod"} })
	sees := map[string]func(*clusterState){
		"group": func(c *clusterState) { c.updateGroup(g) },
		"job":   func(c *clusterState) { c.updateJob(job) },
	}
	for last, first := range map[string]string{"group": "job", "job": "group"} {
		t.Run("the "+last+" comes last", func(t *testing.T) {
			s := withLabeledRobots()
			sees[first](s.state)
			s.state.updateTask(replicaTask(g, 0, lifecycle.TaskPending, ""))
			s.decide(noon)
			if got := countReserved(s.state); len(got) != 0 {
				t.Errorf("placed before its %s was observed: %v", last, got)
			}
			sees[last](s.state)
			s.decide(noon)
			if got := countReserved(s.state); got["c-both"] != 1 {
				t.Errorf("reservations %v", got)
			}
		})
	}
}

// withLabeledRobots returns a scheduler with three robots for one task each: one with affinity,
// one that a selector admits, and one with both.
func withLabeledRobots() *Scheduler {
	s := withRobots()
	for robot, labels := range map[string]map[string]string{"a-liked": {"who": "da"}, "b-prod": {"env": "prod"}, "c-both": {"env": "prod", "who": "da"}} {
		r := named(robotIn(lifecycle.RobotOnline), robot, 1)
		r.Spec.Labels = labels
		s.state.updateRobot(r)
	}
	return s
}

// A Task that is created with its robot saves one write.
func TestScheduler_PlacesClaimByTermsOfCaller(t *testing.T) {
	g := newGroup("g", 1)
	g.Spec.Placement = &v1alpha1.Placement{Affinity: []v1alpha1.AffinityTerm{{RobotLabels: map[string]string{"who": "da"}}}}
	job := runningJob(func(j *v1alpha1.JobSpec) { j.RobotSelector = map[string]string{"env": "prod"} })
	job.CreationTimestamp = metav1.NewTime(noon)
	earlierGroup, earlierJob := newGroup("g", 1), runningJob(nil)
	earlierGroup.UID = "earlier"
	for _, row := range []struct {
		name  string
		shown func(*clusterState)
	}{
		{"nothing is shown", func(*clusterState) {}},
		{"only the group is", func(c *clusterState) { c.updateGroup(g) }},
		{"only the job is", func(c *clusterState) { c.updateJob(job) }},
		{"the group, and an earlier job of the name", func(c *clusterState) { c.updateGroup(g); c.updateJob(earlierJob) }},
		{"the job, and an earlier group of the name", func(c *clusterState) { c.updateGroup(earlierGroup); c.updateJob(job) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := withLabeledRobots()
			row.shown(s.state)
			s.state.replaceClaim(g, job, demandsOf(g, 0, 1))
			s.decide(noon)
			if got := countReserved(s.state); got["c-both"] != 1 {
				t.Errorf("reservations %v", got)
			}
		})
	}
}

func TestScheduler_PrefersObservedTermsToThoseOfClaim(t *testing.T) {
	g := newGroup("g", 1)
	s := withLabeledRobots()
	s.state.updateGroup(g)
	s.state.updateJob(runningJob(func(j *v1alpha1.JobSpec) { j.RobotSelector = map[string]string{"who": "da", "env": "prod"} }))
	s.state.replaceClaim(g, runningJob(nil), demandsOf(g, 0, 1))
	s.decide(noon)
	if got := countReserved(s.state); got["c-both"] != 1 {
		t.Errorf("reservations %v", got)
	}
}

// Two tasks of a replica, each of which has failed on one of two robots, have no robot in
// common.
func TestHasCapableRobot_ExcludesFailedRobotsOfSiblings(t *testing.T) {
	s := withRobots("r1", "r2")
	g := newGroup("g", 1)
	s.state.updateJob(runningJob(nil))
	s.state.updateGroup(g)
	a, b := replicaTask(g, 0, lifecycle.TaskSoftFailed, ""), replicaTask(g, 0, lifecycle.TaskSoftFailed, "")
	a.Status.FailedRobots, b.Status.FailedRobots = []string{"r1"}, []string{"r2"}
	b.Name = "b"
	s.state.updateTask(a)
	if !hasCapableRobot(s, a) {
		t.Error("r2 fits, want true")
	}
	s.state.updateTask(b)
	if hasCapableRobot(s, a) {
		t.Error("its sibling has failed on r2, want false")
	}
	b.Status.State = string(lifecycle.TaskFailed)
	s.state.updateTask(b)
	if !hasCapableRobot(s, a) {
		t.Error("its sibling has ended, want true")
	}
}

// The first observed task of a replica does not choose the robot for those that were not observed
// yet.
func TestScheduler_WaitsForAllTasksOfNewReplica(t *testing.T) {
	g := newGroup("g", 1, func(g *v1alpha1.TaskGroup) {
		g.Spec.Tasks = []v1alpha1.TaskDefinition{{Name: "any"}, {Name: "picky"}}
	})
	any, picky := replicaTask(g, 0, lifecycle.TaskPending, ""), replicaTask(g, 0, lifecycle.TaskPending, "")
	any.Name, picky.Name, picky.Spec.Driver = "any", "picky", "docker"
	any.CreationTimestamp, picky.CreationTimestamp = metav1.NewTime(noon), metav1.NewTime(noon)
	half := func() (*Scheduler, *time.Time) {
		now := noon
		s := newTestScheduler(func() time.Time { return now })
		s.state.updateGroup(g)
		capable := named(robotIn(lifecycle.RobotOnline), "b-both", 2)
		capable.Status.DeviceInfo = &v1alpha1.DeviceInfo{Drivers: []string{"exec", "docker"}}
		s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "a-plain", 2))
		s.state.updateRobot(capable)
		s.state.updateTask(any)
		s.decide(now)
		if got := countReserved(s.state); len(got) != 0 {
			t.Fatalf("a part of the replica is placed: %v", got)
		}
		return s, &now
	}
	t.Run("the other one comes", func(t *testing.T) {
		s, now := half()
		s.state.updateTask(picky)
		s.decide(*now)
		if got := countReserved(s.state); got["b-both"] != 2 {
			t.Errorf("the replica is on %v", got)
		}
	})
	t.Run("no other comes", func(t *testing.T) {
		s, now := half()
		at := s.state.nextChange()
		if at.IsZero() || at.After(noon.Add(incompleteTime)) {
			t.Fatalf("the next cycle is at %v", at)
		}
		*now = at
		s.decide(at)
		if got := countReserved(s.state); len(got) != 1 {
			t.Errorf("the existing task is placed: %v", got)
		}
	})
}
