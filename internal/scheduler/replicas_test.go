package scheduler

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// newDiskTask returns a task of the only replica of group g, which shares a disk.
func newDiskTask(name, robot string, state lifecycle.TaskState, d v1alpha1.EphemeralDisk) *v1alpha1.Task {
	t := ofGroup(newTask(state, attempted(1, robot)), "g", name, robot)
	t.Spec.EphemeralDisk = &d
	return t
}

func withDisk(name, disk string) *v1alpha1.Robot {
	r := named(robotIn(lifecycle.RobotOnline), name, 8)
	r.Spec.Capacity[v1alpha1.CapacityDisk] = resource.MustParse(disk)
	return r
}

// A disk that counted once per task would leave most of the robot empty. If the first task to end
// released it, it would be reserved twice.
func TestClusterState_CountsSharedDiskOnce(t *testing.T) {
	c := newTestScheduler(func() time.Time { return noon }).state
	c.updateRobot(withDisk("r1", "10G"))
	disk := v1alpha1.EphemeralDisk{SizeMB: 6000}
	held := func() int64 { return c.robots.getOrCreate("r1").reserved.Disk }
	is := func(when string, want int64) {
		t.Helper()
		if got := held(); got != want*1e9 {
			t.Errorf("%s: %d GB reserved, want %d", when, got, want)
		}
	}
	for _, name := range []string{"a", "b"} {
		c.updateTask(newDiskTask(name, "r1", lifecycle.TaskRunning, disk))
		is("with "+name, 6)
	}
	c.updateTask(newDiskTask("b", "r1", lifecycle.TaskRunning, v1alpha1.EphemeralDisk{SizeMB: 8000}))
	is("with one that has another definition", 8)
	c.updateTask(newDiskTask("a", "r1", lifecycle.TaskCompleted, disk))
	is("without the first", 8)
	c.updateTask(newDiskTask("b", "r1", lifecycle.TaskCompleted, disk))
	is("without both", 0)
}

func TestScheduler_NeedsSharedDiskOnce(t *testing.T) {
	for _, c := range []struct {
		name, disk, want string
	}{
		{"there is room for one, which both share", "7G", "r1"},
		{"there is none", "5G", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTestScheduler(func() time.Time { return noon })
			s.state.updateRobot(withDisk("r1", c.disk))
			for _, name := range []string{"a", "b"} {
				waits := newDiskTask(name, "", lifecycle.TaskPending, v1alpha1.EphemeralDisk{SizeMB: 6000})
				waits.Status = v1alpha1.TaskStatus{}
				s.state.updateTask(waits)
			}
			s.decide(noon)
			for _, name := range []string{"a", "b"} {
				if robot, _ := s.Assignment(key{Namespace: "ns", Name: name}); robot != c.want {
					t.Errorf("%s: robot %q, want %q", name, robot, c.want)
				}
			}
		})
	}
}

// A task that comes back to the others of its replica uses the disk that they hold.
func TestScheduler_ReusesSharedDiskOfReplica(t *testing.T) {
	s := newTestScheduler(func() time.Time { return noon })
	s.state.updateRobot(withDisk("r1", "7G"))
	disk := v1alpha1.EphemeralDisk{SizeMB: 6000}
	s.state.updateTask(newDiskTask("a", "r1", lifecycle.TaskRunning, disk))
	back := newDiskTask("b", "", lifecycle.TaskPending, disk)
	back.Status = v1alpha1.TaskStatus{}
	s.state.updateTask(back)
	s.decide(noon)
	if robot, why := s.Assignment(key{Namespace: "ns", Name: "b"}); robot != "r1" {
		t.Errorf("b: robot %q: %s", robot, why)
	}
}

func TestScheduler_ReturnsStickyReplicaToItsData(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.Task, *clusterState)
		want   string
	}{
		{"as soon as it waits again", func(*v1alpha1.Task, *clusterState) {}, "r2"},
		{"not when its disk is not sticky", func(t *v1alpha1.Task, _ *clusterState) { t.Spec.EphemeralDisk.Sticky = false }, "r1"},
		{"not when it has failed there", func(t *v1alpha1.Task, _ *clusterState) { t.Status.FailedRobots = []string{"r2"} }, "r1"},
		{"not when the robot is away", func(_ *v1alpha1.Task, c *clusterState) {
			c.updateRobot(named(robotIn(lifecycle.RobotOffline), "r2", 8))
		}, "r1"},
		{"not when the robot is full", func(_ *v1alpha1.Task, c *clusterState) { c.updateRobot(named(robotIn(lifecycle.RobotOnline), "r2", 0)) }, "r1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTestScheduler(func() time.Time { return noon })
			for _, robot := range []string{"r1", "r2"} {
				s.state.updateRobot(withDisk(robot, "10G"))
			}
			back := newDiskTask("a", "r2", lifecycle.TaskPending, v1alpha1.EphemeralDisk{Sticky: true})
			back.Spec.TargetRobot = ""
			back.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPlaced, LastTransitionTime: metav1.NewTime(noon)}}
			c.change(back, s.state)
			s.state.updateTask(back)
			s.decide(noon)
			if robot, why := s.Assignment(key{Namespace: "ns", Name: "a"}); robot != c.want {
				t.Errorf("robot %q, want %q: %s", robot, c.want, why)
			}
		})
	}
}

// The tasks of a replica share a robot, so it must offer the isolation that any of them requires.
func TestScheduler_RequiresIsolationOfAllTasks(t *testing.T) {
	s := newTestScheduler(func() time.Time { return noon })
	for name, kinds := range map[string][]string{"r1": nil, "r2": {"cgroup"}, "r3": {"cgroup", "seccomp"}} {
		r := named(robotIn(lifecycle.RobotOnline), name, 8)
		r.Status.DeviceInfo = &v1alpha1.DeviceInfo{Isolation: &v1alpha1.Isolations{Available: kinds}}
		s.state.updateRobot(r)
	}
	for name, kind := range map[string]string{"a": "seccomp", "b": "cgroup"} {
		waits := newDiskTask(name, "", lifecycle.TaskPending, v1alpha1.EphemeralDisk{})
		waits.Status, waits.Spec.Isolation = v1alpha1.TaskStatus{}, &v1alpha1.Isolation{Required: []string{kind}}
		s.state.updateTask(waits)
	}
	s.decide(noon)
	for _, name := range []string{"a", "b"} {
		if robot, why := s.Assignment(key{Namespace: "ns", Name: name}); robot != "r3" {
			t.Errorf("%s: robot %q: %s", name, robot, why)
		}
	}
	s.state.removeRobot(key{Namespace: "ns", Name: "r3"})
	s.decide(noon)
	want := "0 of 2 robots: 1: isolation cgroup missing; 1: isolation seccomp missing"
	if _, why := s.Assignment(key{Namespace: "ns", Name: "a"}); why.String() != want {
		t.Errorf("eviction reason %q, want %q", why, want)
	}
}
