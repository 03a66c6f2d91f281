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
	"k8s4r.io/k8s4r/internal/controllers/demand"
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
		out = append(out, placement.Demand{Group: g.Name, Index: i, Gang: demand.Gang(g), Tasks: []placement.Task{{Name: fmt.Sprintf("%s-%d-t", g.Name, i), Driver: "exec"}}})
	}
	return out
}

func keyOf(g *v1alpha1.TaskGroup) key { return key{Namespace: g.Namespace, Name: g.Name} }

func TestAGangIsWholeWhetherItsTasksExistOrNot(t *testing.T) {
	s := field("r1", "r2")
	g := groupOf("g", 3, gang)
	s.ledger.seeJob(running(nil))
	s.ledger.seeGroup(g)
	s.ledger.want(keyOf(g), wanted(g, 0, 3))
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
	s.ledger.want(keyOf(g), wanted(g, 2, 3))
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
	s.ledger.want(keyOf(g), wanted(g, 0, 3))
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
	s.ledger.want(keyOf(web), wanted(web, 0, 1))
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
