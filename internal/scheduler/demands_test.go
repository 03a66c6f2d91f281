package task

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
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/placement"
)

// field is a scheduler with online robots of one place each.
func field(robots ...string) *Scheduler {
	s := NewScheduler(func() time.Time { return noon }, logr.Discard())
	for _, name := range robots {
		s.ledger.seeRobot(named(robotIn(lifecycle.RobotOnline), name, 1))
	}
	return s
}

// groupOf is a TaskGroup of job j.
func groupOf(name string, count int32, changes ...func(*v1alpha1.TaskGroup)) *v1alpha1.TaskGroup {
	g := &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j-" + name, UID: types.UID(name)}}
	g.Spec.JobName, g.Spec.GroupName, g.Spec.Count = "j", name, &count
	for _, f := range changes {
		f(g)
	}
	return g
}

func gang(g *v1alpha1.TaskGroup) { g.Spec.Gang = true }

func running(change func(*v1alpha1.JobSpec)) *v1alpha1.Job {
	j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j"}, Status: v1alpha1.JobStatus{State: "running"}}
	if change != nil {
		change(&j.Spec)
	}
	return j
}

// replicaTask is replica number index of a group, in a state and on a robot.
func replicaTask(g *v1alpha1.TaskGroup, index int, state lifecycle.TaskState, robot string) *v1alpha1.Task {
	t := ofGroup(world(state).Task, g.Name, fmt.Sprintf("%s-%d-t", g.Name, index), robot)
	t.Spec.JobName, t.OwnerReferences[0].UID = "j", g.UID
	t.Labels[v1alpha1.LabelTaskIndex] = fmt.Sprint(index)
	if state != lifecycle.TaskPending {
		t.Status.Attempt = 1
	}
	return t
}

func wanted(g *v1alpha1.TaskGroup, from, to int) []placement.Demand {
	var out []placement.Demand
	for i := from; i < to; i++ {
		out = append(out, placement.Demand{Group: g.Name, Index: i, Tasks: []placement.Task{{Name: fmt.Sprintf("%s-%d-t", g.Name, i), Driver: "exec"}}})
	}
	return out
}

func keyOf(g *v1alpha1.TaskGroup) key { return key{Namespace: g.Namespace, Name: g.Name} }

func TestAGangIsWholeWhetherItsTasksExistOrNot(t *testing.T) {
	s := field("r1", "r2")
	g := groupOf("g", 3, gang)
	s.ledger.seeJob(running(nil))
	s.ledger.seeGroup(g)
	s.ledger.want(g, running(nil), wanted(g, 0, 3))
	s.cycle(noon)
	if got := seated(s.ledger); len(got) != 0 {
		t.Fatalf("a gang of three starts on two robots: %v", got)
	}
	s.ledger.seeTask(replicaTask(g, 0, lifecycle.TaskPending, "")) // created to show what waits
	s.cycle(noon)
	if _, why := s.seat(key{Namespace: "ns", Name: "j-g-0-t"}); !strings.HasPrefix(why, "gang: all 3 replicas or none, and only 2 found a robot") {
		t.Errorf("says %q", why)
	}
	s.ledger.seeRobot(named(robotIn(lifecycle.RobotOnline), "r3", 1))
	s.cycle(noon)
	if got := seated(s.ledger); len(got) != 3 {
		t.Errorf("seats %v", got)
	}
}

func TestHalfAGangWaitsForTheRestToBeAskedFor(t *testing.T) {
	s := field("r1", "r2", "r3")
	g := groupOf("g", 3, gang)
	s.ledger.seeJob(running(nil))
	s.ledger.seeGroup(g)
	for i := range 2 {
		s.ledger.seeTask(replicaTask(g, i, lifecycle.TaskPending, ""))
	}
	s.cycle(noon)
	if got := seated(s.ledger); len(got) != 0 {
		t.Fatalf("seats %v", got)
	}
	s.ledger.want(g, running(nil), wanted(g, 2, 3))
	s.cycle(noon)
	if got := seated(s.ledger); len(got) != 3 {
		t.Errorf("seats %v", got)
	}
}

func TestAReplicaOfAGangThatHasStartedComesBackAlone(t *testing.T) {
	for name, others := range map[string]lifecycle.TaskState{"while the others run": lifecycle.TaskRunning, "when the others have ended": lifecycle.TaskCompleted} {
		t.Run(name, func(t *testing.T) {
			s := field("r1", "r2", "r3", "r4")
			g := groupOf("g", 3, gang)
			s.ledger.seeJob(running(nil))
			for i := range 2 {
				s.ledger.seeTask(replicaTask(g, i, others, fmt.Sprint("r", i+1)))
			}
			s.ledger.seeGroup(g) // the watches of two kinds are in no order
			s.ledger.seeTask(replicaTask(g, 2, lifecycle.TaskPending, ""))
			s.cycle(noon)
			if robot, why := s.seat(key{Namespace: "ns", Name: "j-g-2-t"}); robot == "" {
				t.Errorf("waits: %s", why)
			}
		})
	}
}

func TestAGangThatTheWatchHasNotShownGoesTogetherAllTheSame(t *testing.T) {
	s := field("r1", "r2")
	g := groupOf("g", 3, gang)
	s.ledger.want(g, running(nil), wanted(g, 0, 3))
	s.cycle(noon)
	if got := seated(s.ledger); len(got) != 0 {
		t.Errorf("seats %v", got)
	}
}

func TestTheTermsOfJobAndGroupCount(t *testing.T) {
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
		{name: "the blocklist of the group", group: func(g *v1alpha1.TaskGroup) { g.Status.BlockedRobots = []string{"r1"} }, want: "blocklisted"},
		{name: "the failure list of the task", task: func(t *v1alpha1.Task) { t.Status.FailedRobots = []string{"r1"} }, want: "failed here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := field("r1")
			g := groupOf("g", 1)
			if c.group != nil {
				c.group(g)
			}
			task := replicaTask(g, 0, lifecycle.TaskPending, "")
			if c.task != nil {
				c.task(task)
			}
			s.ledger.seeJob(running(c.job))
			s.ledger.seeGroup(g)
			s.ledger.seeTask(task)
			s.cycle(noon)
			if robot, why := s.seat(key{Namespace: "ns", Name: task.Name}); robot != "" || why != "0 of 1 robots: 1: "+c.want {
				t.Errorf("on %q: %q", robot, why)
			}
			if able(s, task) {
				t.Error("a robot is thought to be capable")
			}
		})
	}
}

func able(s *Scheduler, t *v1alpha1.Task) bool {
	is, _ := s.capable(t, t.Status.FailedRobots)
	return is
}

func TestNobodyIsCapableBeforeAllRobotsAreKnown(t *testing.T) {
	s := field("r1")
	task := replicaTask(groupOf("g", 1), 0, lifecycle.TaskExited, "gone")
	synced := false
	s.synced = []cache.InformerSynced{func() bool { return synced }}
	if _, known := s.capable(task, nil); known {
		t.Error("it is known before the watch has told all")
	}
	synced = true
	if is, known := s.capable(task, nil); !is || !known {
		t.Errorf("capable %v, known %v", is, known)
	}
}

func TestARobotThatIsOfflineCountsAsCapable(t *testing.T) {
	s := field()
	g := groupOf("g", 1)
	task := replicaTask(g, 0, lifecycle.TaskExited, "gone")
	s.ledger.seeJob(running(nil))
	s.ledger.seeGroup(g)
	if able(s, task) {
		t.Error("no robot is there")
	}
	s.ledger.seeRobot(named(robotIn(lifecycle.RobotOffline), "r1", 1))
	if !able(s, task) {
		t.Error("r1 may come back")
	}
	byHand := world(lifecycle.TaskExited).Task
	byHand.Spec.TargetRobot, byHand.OwnerReferences = "r2", nil
	if able(s, byHand) {
		t.Error("a person chose r2")
	}
}

func TestAGroupIsDrawnToAnotherOfItsJob(t *testing.T) {
	s := field()
	for _, name := range []string{"r1", "r2", "r3"} {
		s.ledger.seeRobot(named(robotIn(lifecycle.RobotOnline), name, 4))
	}
	cache, web := groupOf("cache", 1), groupOf("web", 1)
	to := "cache"
	web.Spec.Placement = &v1alpha1.Placement{Affinity: []v1alpha1.AffinityTerm{{TaskGroup: &to, Weight: 50}}}
	s.ledger.seeJob(running(nil))
	s.ledger.seeGroup(cache)
	s.ledger.seeGroup(web)
	s.ledger.seeTask(replicaTask(cache, 0, lifecycle.TaskRunning, "r3"))
	s.ledger.want(web, running(nil), wanted(web, 0, 1))
	s.cycle(noon)
	if got := seated(s.ledger); got["r3"] != 2 {
		t.Errorf("seats %v", got)
	}
}

func TestPreemptionWaitsForSomebodyWhoActs(t *testing.T) {
	for victimOf, s := range map[string]*Scheduler{"": field("r1"), "j-high-0-t": field("r1")} {
		if victimOf != "" {
			s.Preempt()
		}
		low := replicaTask(groupOf("low", 1), 0, lifecycle.TaskRunning, "r1")
		low.Spec.JobName = "low"
		high := groupOf("high", 1)
		s.ledger.seeTask(low)
		s.ledger.seeJob(running(func(j *v1alpha1.JobSpec) { p := int32(90); j.Priority, j.Preemption = &p, true }))
		s.ledger.seeGroup(high)
		s.ledger.seeTask(replicaTask(high, 0, lifecycle.TaskPending, ""))
		n := s.cycle(noon)
		k := key{Namespace: "ns", Name: low.Name}
		if got := s.ledger.entries[k].victimOf; got != victimOf || slices.Contains(n.tasks, k) != (got != "") {
			t.Errorf("must leave for %q, want %q; told %v", got, victimOf, n.tasks)
		}
	}
}

// pushing is a scheduler in which a task of low priority is to leave r1 for one
// of high priority.
func pushing(t *testing.T) (s *Scheduler, low, high *v1alpha1.Task) {
	s = field("r1")
	s.Preempt()
	low = replicaTask(groupOf("low", 1), 0, lifecycle.TaskRunning, "r1")
	low.Spec.JobName = "low"
	high = replicaTask(groupOf("high", 1), 0, lifecycle.TaskPending, "")
	s.ledger.seeTask(low)
	s.ledger.seeJob(running(func(j *v1alpha1.JobSpec) { p := int32(90); j.Priority, j.Preemption = &p, true }))
	s.ledger.seeGroup(groupOf("high", 1))
	s.ledger.seeTask(high)
	s.cycle(noon)
	if why := s.unwanted(keyOfTask(low)); !strings.Contains(why, high.Name) {
		t.Fatalf("it may stay: %q", why)
	}
	return s, low, high
}

// A task that waits for its turn has only a seat, which it cannot leave by itself.
func TestASeatThatIsNotUsedIsGivenToWhoPreempts(t *testing.T) {
	s := field("r1")
	s.Preempt()
	low, high := groupOf("low", 1), groupOf("high", 1)
	waits := replicaTask(low, 0, lifecycle.TaskPending, "r1")
	waits.Spec.JobName, low.Spec.JobName = "low", "low"
	other := running(nil)
	other.Name = "low"
	s.ledger.seeJob(other)
	s.ledger.seeGroup(low)
	s.ledger.seeTask(waits)
	s.cycle(noon)
	s.ledger.seeJob(running(func(j *v1alpha1.JobSpec) { p := int32(90); j.Priority, j.Preemption = &p, true }))
	s.ledger.seeGroup(high)
	pushes := replicaTask(high, 0, lifecycle.TaskPending, "")
	s.ledger.seeTask(pushes)
	s.cycle(noon)
	s.cycle(noon)
	if robot, why := s.seat(keyOfTask(pushes)); robot != "r1" {
		t.Errorf("it is on %q: %s", robot, why)
	}
}

func keyOfTask(t *v1alpha1.Task) key { return key{Namespace: t.Namespace, Name: t.Name} }

func TestAVictimStaysWhenNobodyWaitsForItsPlaceAnyMore(t *testing.T) {
	for name, then := range map[string]func(s *Scheduler, high *v1alpha1.Task){
		"who wanted it is gone": func(s *Scheduler, high *v1alpha1.Task) { s.ledger.leave(keyOfTask(high)) },
		"who wanted it has another": func(s *Scheduler, _ *v1alpha1.Task) {
			s.ledger.seeRobot(named(robotIn(lifecycle.RobotOnline), "r2", 1))
			s.cycle(noon)
			s.ledger.changed = true
		},
	} {
		s, low, high := pushing(t)
		then(s, high)
		s.cycle(noon)
		if why := s.unwanted(keyOfTask(low)); why != "" {
			t.Errorf("%s, and it must still leave: %s", name, why)
		}
	}
	s, low, high := pushing(t)
	low.Status.Reason = v1alpha1.ReasonEvicting
	s.ledger.seeTask(low)
	s.ledger.leave(keyOfTask(high))
	s.cycle(noon)
	if s.unwanted(keyOfTask(low)) == "" {
		t.Error("its robot was asked to stop it, and may have done so")
	}
}

// The controller may see that a task waits, or that it has other constraints,
// before the ledger does.
func TestASeatOfAnOlderVersionOfATaskIsNotTaken(t *testing.T) {
	s := field("r1")
	task := replicaTask(groupOf("g", 1), 0, lifecycle.TaskExited, "r1")
	task.UID, task.ResourceVersion = "u", "9"
	s.ledger.seeTask(task)
	later := task.DeepCopy()
	later.ResourceVersion = "10"
	if !s.behind(later) || s.behind(task) {
		t.Errorf("behind of the later %v, of the same %v", s.behind(later), s.behind(task))
	}
	if s.ledger.stand(s.ledger.entries[keyOfTask(task)]); s.behind(later) {
		t.Error("without a seat there is nothing that could be wrong")
	}
}

// The tasks of a replica share a robot, so one that may not go back there takes
// the others along.
func TestATaskThatFailedLetsItsReplicaMove(t *testing.T) {
	s := field()
	for _, name := range []string{"r1", "r2"} {
		s.ledger.seeRobot(named(robotIn(lifecycle.RobotOnline), name, 2))
	}
	g := groupOf("g", 1)
	s.ledger.seeJob(running(nil))
	s.ledger.seeGroup(g)
	a, b := replicaTask(g, 0, lifecycle.TaskRunning, "r1"), replicaTask(g, 0, lifecycle.TaskSoftFailed, "")
	b.Name, b.Status.FailedRobots = "g-0-b", []string{"r1"}
	s.ledger.seeTask(a)
	s.ledger.seeTask(b)
	n := s.cycle(noon)
	if why := s.unwanted(keyOfTask(a)); !strings.Contains(why, b.Name) || !slices.Contains(n.tasks, keyOfTask(a)) {
		t.Errorf("it stays where its sibling may not go: %q", why)
	}
	a.Status.State, a.Status.Attempts = string(lifecycle.TaskPending), nil
	a.Spec.TargetRobot = ""
	s.ledger.seeTask(a)
	s.cycle(noon)
	for _, task := range []*v1alpha1.Task{a, b} {
		if robot, why := s.seat(keyOfTask(task)); robot != "r2" {
			t.Errorf("%s: seat %q, %s", task.Name, robot, why)
		}
	}
}

// split is a replica of which a runs on r1, bound so long before or after b came
// back from the robot last. r1 has that much room, r2 has failed b, r3 has one place.
func split(bound time.Duration, last string, places int64) (s *Scheduler, a, b *v1alpha1.Task) {
	s = field("r2", "r3")
	s.ledger.seeRobot(named(robotIn(lifecycle.RobotOnline), "r1", places))
	s.ledger.seeJob(running(nil))
	g := groupOf("g", 1)
	s.ledger.seeGroup(g)
	a, b = replicaTask(g, 0, lifecycle.TaskRunning, "r1"), replicaTask(g, 0, lifecycle.TaskSoftFailed, "")
	b.Name, b.Status.FailedRobots = "g-0-b", []string{"r2"}
	b.Status.Attempt = 1
	b.Status.Attempts = []v1alpha1.TaskAttempt{{Attempt: 1, Robot: last, FinishedAt: &metav1.MicroTime{Time: noon}}}
	placed(a, metav1.ConditionTrue, noon.Add(bound))
	placed(b, metav1.ConditionFalse, noon)
	s.ledger.seeTask(a)
	s.ledger.seeTask(b)
	return s, a, b
}

// placed says since when a task is on its robot, or is back from it.
func placed(t *v1alpha1.Task, is metav1.ConditionStatus, at time.Time) {
	t.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPlaced, Status: is, LastTransitionTime: metav1.NewTime(at)}}
}

// A task that was apart from the others would wait for room on their robot for
// ever; one that was not would leave its replica for good because it is full for
// a moment.
func TestWhereATaskOfAReplicaGoes(t *testing.T) {
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
		{name: "it was beside the others: it waits for room there", bound: -time.Hour, last: "r1", places: 1, want: "robot r1: no place left"},
		{name: "the others have gone where they are since: it waits for room there", bound: time.Minute, last: "r2", places: 1, want: "robot r1: no place left"},
		{name: "it was apart, and others have gone there since", bound: -time.Hour, last: "r2", places: 1, then: func(s *Scheduler, a *v1alpha1.Task) {
			later := a.DeepCopy()
			placed(later, metav1.ConditionTrue, noon.Add(time.Minute))
			more("r1", 5, 6)(s, later)
		}, want: "r3"},
		{name: "the others are apart: it goes where most of them are", bound: time.Minute, last: "r1", places: 2, then: more("r4", 2, 3), want: "r4"},
		{name: "the others are apart: or where any of them is", bound: time.Minute, last: "r1", places: 2, then: more("r4", 2, 2), want: "r1"},
		{name: "the others are apart: or to another", bound: time.Minute, last: "r1", places: 1, then: more("r4", 1, 1), want: "r3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, a, b := split(c.bound, c.last, c.places)
			if c.then != nil {
				c.then(s, a)
			}
			s.cycle(noon)
			if robot, why := s.seat(keyOfTask(b)); robot+why != c.want {
				t.Errorf("seat %q, %s; want %q", robot, why, c.want)
			}
		})
	}
}

// more are other tasks of a's replica, on a robot with so many places.
func more(robot string, tasks int, places int64) func(*Scheduler, *v1alpha1.Task) {
	return func(s *Scheduler, a *v1alpha1.Task) {
		s.ledger.seeRobot(named(robotIn(lifecycle.RobotOnline), robot, places))
		for i := range tasks {
			c := a.DeepCopy()
			c.Name, c.Spec.TargetRobot, c.Status.Attempts[0].Robot = fmt.Sprint("g-0-c", i), robot, robot
			s.ledger.seeTask(c)
		}
	}
}

// Two that come back from a lost robot, one after the other, were never apart.
func TestATaskFollowsTheSeatOfAnotherOfItsReplica(t *testing.T) {
	s, a, b := split(0, "r9", 1)
	s.ledger.leave(keyOfTask(b))
	b.Status.FailedRobots = nil
	a.Status.State, a.Spec.TargetRobot, a.Status.Attempts[0].Robot = string(lifecycle.TaskPending), "", "r9"
	placed(a, metav1.ConditionFalse, noon.Add(-time.Second))
	s.ledger.seeTask(a)
	s.cycle(noon)
	on, _ := s.seat(keyOfTask(a))
	s.ledger.seeTask(b)
	s.cycle(noon)
	if robot, why := s.seat(keyOfTask(b)); on == "" || robot != "" || why != "robot "+on+": no place left" {
		t.Errorf("seat %q, %s; the other is to go to %q", robot, why, on)
	}
}

// What was saved from a lost robot must not be stopped for a sibling that was
// apart from it anyway.
func TestATaskThatFailedDoesNotMoveAReplicaThatIsApart(t *testing.T) {
	s, a, b := split(-time.Hour, "r2", 1)
	b.Status.FailedRobots = []string{"r1", "r2"}
	s.ledger.seeTask(b)
	if why := s.unwanted(keyOfTask(a)); why != "" {
		t.Errorf("it must leave: %s", why)
	}
}

// BenchmarkCycle is a whole cycle of the scheduler: ten thousand Tasks of a
// hundred groups wait for ten thousand full robots.
func BenchmarkCycle(b *testing.B) {
	s := field()
	for i := range 10000 {
		r := named(robotIn(lifecycle.RobotOnline), fmt.Sprintf("r%05d", i), 1)
		s.ledger.seeRobot(r)
		s.ledger.seeTask(replicaTask(groupOf("old", 1), i, lifecycle.TaskRunning, r.Name))
	}
	s.ledger.seeJob(running(nil))
	for i := range 100 {
		g := groupOf(fmt.Sprint("g", i), 100)
		s.ledger.seeGroup(g)
		for n := range 100 {
			s.ledger.seeTask(replicaTask(g, n, lifecycle.TaskPending, ""))
		}
	}
	for b.Loop() {
		s.ledger.changed = true
		s.cycle(noon)
	}
}

// The watches of the kinds are in no order, and each may be behind that of who asks.
func TestNobodyIsPlacedBeforeItsGroupAndItsJobAreKnown(t *testing.T) {
	g := groupOf("g", 1)
	g.Spec.Placement = &v1alpha1.Placement{Affinity: []v1alpha1.AffinityTerm{{RobotLabels: map[string]string{"who": "da"}}}}
	job := running(func(j *v1alpha1.JobSpec) { j.RobotSelector = map[string]string{"env": "prod"} })
	sees := map[string]func(*ledger){
		"group": func(l *ledger) { l.seeGroup(g) },
		"job":   func(l *ledger) { l.seeJob(job) },
	}
	for last, first := range map[string]string{"group": "job", "job": "group"} {
		t.Run("the "+last+" comes last", func(t *testing.T) {
			s := choosy()
			sees[first](s.ledger)
			s.ledger.seeTask(replicaTask(g, 0, lifecycle.TaskPending, ""))
			s.cycle(noon)
			if got := seated(s.ledger); len(got) != 0 {
				t.Errorf("it is placed without knowledge of its %s: %v", last, got)
			}
			sees[last](s.ledger)
			s.cycle(noon)
			if got := seated(s.ledger); got["c-both"] != 1 {
				t.Errorf("it is on %v", got)
			}
		})
	}
}

// choosy has three robots of one place: one that is liked, one that a selector lets
// in, and the one that is both.
func choosy() *Scheduler {
	s := field()
	for robot, labels := range map[string]map[string]string{"a-liked": {"who": "da"}, "b-prod": {"env": "prod"}, "c-both": {"env": "prod", "who": "da"}} {
		r := named(robotIn(lifecycle.RobotOnline), robot, 1)
		r.Spec.Labels = labels
		s.ledger.seeRobot(r)
	}
	return s
}

// What it is created with it has from the start, and not a write later.
func TestAReplicaIsPlacedByTheWordOfWhoAsksUntilTheWatchShowsIt(t *testing.T) {
	g := groupOf("g", 1)
	g.Spec.Placement = &v1alpha1.Placement{Affinity: []v1alpha1.AffinityTerm{{RobotLabels: map[string]string{"who": "da"}}}}
	job := running(func(j *v1alpha1.JobSpec) { j.RobotSelector = map[string]string{"env": "prod"} })
	job.CreationTimestamp = metav1.NewTime(noon)
	earlierGroup, earlierJob := groupOf("g", 1), running(nil)
	earlierGroup.UID = "earlier"
	for _, row := range []struct {
		name  string
		shown func(*ledger)
	}{
		{"nothing is shown", func(*ledger) {}},
		{"only the group is", func(l *ledger) { l.seeGroup(g) }},
		{"only the job is", func(l *ledger) { l.seeJob(job) }},
		{"the group, and an earlier job of the name", func(l *ledger) { l.seeGroup(g); l.seeJob(earlierJob) }},
		{"the job, and an earlier group of the name", func(l *ledger) { l.seeGroup(earlierGroup); l.seeJob(job) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := choosy()
			row.shown(s.ledger)
			s.ledger.want(g, job, wanted(g, 0, 1))
			s.cycle(noon)
			if got := seated(s.ledger); got["c-both"] != 1 {
				t.Errorf("it is on %v", got)
			}
		})
	}
}

func TestWhatTheWatchShowsOfAGroupCountsMoreThanWhatItAskedWith(t *testing.T) {
	g := groupOf("g", 1)
	s := choosy()
	s.ledger.seeGroup(g)
	s.ledger.seeJob(running(func(j *v1alpha1.JobSpec) { j.RobotSelector = map[string]string{"who": "da", "env": "prod"} }))
	s.ledger.want(g, running(nil), wanted(g, 0, 1))
	s.cycle(noon)
	if got := seated(s.ledger); got["c-both"] != 1 {
		t.Errorf("it is on %v", got)
	}
}

// Two tasks of a replica, each of which has failed on one of two robots, share none
// that would do.
func TestATaskIsNotWaitedForWhereItsSiblingHasFailed(t *testing.T) {
	s := field("r1", "r2")
	g := groupOf("g", 1)
	s.ledger.seeJob(running(nil))
	s.ledger.seeGroup(g)
	a, b := replicaTask(g, 0, lifecycle.TaskSoftFailed, ""), replicaTask(g, 0, lifecycle.TaskSoftFailed, "")
	a.Status.FailedRobots, b.Status.FailedRobots = []string{"r1"}, []string{"r2"}
	b.Name = "b"
	s.ledger.seeTask(a)
	if !able(s, a) {
		t.Error("r2 could take it")
	}
	s.ledger.seeTask(b)
	if able(s, a) {
		t.Error("its sibling has failed on r2")
	}
	b.Status.State = string(lifecycle.TaskFailed)
	s.ledger.seeTask(b)
	if !able(s, a) {
		t.Error("nobody has to be beside it any more")
	}
}

// The first of a replica's tasks that the watch shows does not choose the robot for
// those that it has not shown yet.
func TestANewReplicaIsPlacedWhenAllOfItIsSeen(t *testing.T) {
	g := groupOf("g", 1, func(g *v1alpha1.TaskGroup) {
		g.Spec.Tasks = []v1alpha1.TaskDefinition{{Name: "any"}, {Name: "picky"}}
	})
	any, picky := replicaTask(g, 0, lifecycle.TaskPending, ""), replicaTask(g, 0, lifecycle.TaskPending, "")
	any.Name, picky.Name, picky.Spec.Driver = "any", "picky", "docker"
	any.CreationTimestamp, picky.CreationTimestamp = metav1.NewTime(noon), metav1.NewTime(noon)
	half := func() (*Scheduler, *time.Time) {
		now := noon
		s := informed(func() time.Time { return now })
		s.ledger.seeGroup(g)
		capable := named(robotIn(lifecycle.RobotOnline), "b-both", 2)
		capable.Status.DeviceInfo = &v1alpha1.DeviceInfo{Drivers: []string{"exec", "docker"}}
		s.ledger.seeRobot(named(robotIn(lifecycle.RobotOnline), "a-plain", 2))
		s.ledger.seeRobot(capable)
		s.ledger.seeTask(any)
		s.cycle(now)
		if got := seated(s.ledger); len(got) != 0 {
			t.Fatalf("half a replica is on %v", got)
		}
		return s, &now
	}
	t.Run("the other one comes", func(t *testing.T) {
		s, now := half()
		s.ledger.seeTask(picky)
		s.cycle(*now)
		if got := seated(s.ledger); got["b-both"] != 2 {
			t.Errorf("the replica is on %v", got)
		}
	})
	t.Run("nobody comes", func(t *testing.T) {
		s, now := half()
		at := s.ledger.next()
		if at.IsZero() || at.After(noon.Add(gatherTime)) {
			t.Fatalf("the next cycle is at %v", at)
		}
		*now = at
		s.cycle(at)
		if got := seated(s.ledger); len(got) != 1 {
			t.Errorf("the task that is there is on %v", got)
		}
	})
}
