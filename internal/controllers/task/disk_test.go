package task

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// sharing is a task of the only replica of group g, which shares a disk.
func sharing(name, robot string, state lifecycle.TaskState, d v1alpha1.EphemeralDisk) *v1alpha1.Task {
	t := ofGroup(world(state, attempted(1, robot)).Task, "g", name, robot)
	t.Spec.EphemeralDisk = &d
	return t
}

func withDisk(name, disk string) *v1alpha1.Robot {
	r := named(robotIn(lifecycle.RobotOnline), name, 8)
	r.Spec.Capacity[v1alpha1.CapacityDisk] = resource.MustParse(disk)
	return r
}

// A disk that counted once a task would leave most of the robot empty, and one that
// the first task to end gave back would be promised twice.
func TestTheTasksOfAReplicaHoldTheirDiskOnce(t *testing.T) {
	l := informed(func() time.Time { return noon }).ledger
	l.seeRobot(withDisk("r1", "10G"))
	disk := v1alpha1.EphemeralDisk{SizeMB: 6000}
	held := func() int64 { return l.robot("r1").held.Disk }
	is := func(when string, want int64) {
		t.Helper()
		if got := held(); got != want*1e9 {
			t.Errorf("%s it holds %d, want %d GB", when, got, want)
		}
	}
	for _, name := range []string{"a", "b"} {
		l.seeTask(sharing(name, "r1", lifecycle.TaskRunning, disk))
		is("with "+name, 6)
	}
	l.seeTask(sharing("b", "r1", lifecycle.TaskRunning, v1alpha1.EphemeralDisk{SizeMB: 8000}))
	is("with one that has another definition", 8)
	l.seeTask(sharing("a", "r1", lifecycle.TaskCompleted, disk))
	is("without the first", 8)
	l.seeTask(sharing("b", "r1", lifecycle.TaskCompleted, disk))
	is("without both", 0)
}

func TestADiskMustBeFreeOnce(t *testing.T) {
	for _, c := range []struct {
		name, disk, want string
	}{
		{"there is room for one, which both share", "7G", "r1"},
		{"there is none", "5G", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := informed(func() time.Time { return noon })
			s.ledger.seeRobot(withDisk("r1", c.disk))
			for _, name := range []string{"a", "b"} {
				waits := sharing(name, "", lifecycle.TaskPending, v1alpha1.EphemeralDisk{SizeMB: 6000})
				waits.Status = v1alpha1.TaskStatus{}
				s.ledger.seeTask(waits)
			}
			s.cycle(noon)
			for _, name := range []string{"a", "b"} {
				if seat, _ := s.seat(key{Namespace: "ns", Name: name}); seat != c.want {
					t.Errorf("%s is on %q, want %q", name, seat, c.want)
				}
			}
		})
	}
}

// One that comes back to the others of its replica uses the disk that they hold.
func TestADiskThatIsHeldThereIsNotNeededAgain(t *testing.T) {
	s := informed(func() time.Time { return noon })
	s.ledger.seeRobot(withDisk("r1", "7G"))
	disk := v1alpha1.EphemeralDisk{SizeMB: 6000}
	s.ledger.seeTask(sharing("a", "r1", lifecycle.TaskRunning, disk))
	back := sharing("b", "", lifecycle.TaskPending, disk)
	back.Status = v1alpha1.TaskStatus{}
	s.ledger.seeTask(back)
	s.cycle(noon)
	if seat, why := s.seat(key{Namespace: "ns", Name: "b"}); seat != "r1" {
		t.Errorf("b is on %q: %s", seat, why)
	}
}

func TestAStickyReplicaGoesBackToItsData(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.Task, *ledger)
		want   string
	}{
		{"as soon as it waits again", func(*v1alpha1.Task, *ledger) {}, "r2"},
		{"not when it does not say so", func(t *v1alpha1.Task, _ *ledger) { t.Spec.EphemeralDisk.Sticky = false }, "r1"},
		{"not when it has failed there", func(t *v1alpha1.Task, _ *ledger) { t.Status.FailedRobots = []string{"r2"} }, "r1"},
		{"not when the robot is away", func(_ *v1alpha1.Task, l *ledger) { l.seeRobot(named(robotIn(lifecycle.RobotOffline), "r2", 8)) }, "r1"},
		{"not when the robot is full", func(_ *v1alpha1.Task, l *ledger) { l.seeRobot(named(robotIn(lifecycle.RobotOnline), "r2", 0)) }, "r1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := informed(func() time.Time { return noon })
			for _, robot := range []string{"r1", "r2"} {
				s.ledger.seeRobot(withDisk(robot, "10G"))
			}
			back := sharing("a", "r2", lifecycle.TaskPending, v1alpha1.EphemeralDisk{Sticky: true})
			back.Spec.TargetRobot = ""
			back.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPlaced, LastTransitionTime: metav1.NewTime(noon)}}
			c.change(back, s.ledger)
			s.ledger.seeTask(back)
			s.cycle(noon)
			if seat, why := s.seat(key{Namespace: "ns", Name: "a"}); seat != c.want {
				t.Errorf("it is on %q, want %q: %s", seat, c.want, why)
			}
		})
	}
}

// A task of a replica that insists on isolation takes all of it where that is.
func TestAReplicaGoesWhereAllOfItsIsolationIs(t *testing.T) {
	s := informed(func() time.Time { return noon })
	for name, kinds := range map[string][]string{"r1": nil, "r2": {"cgroup"}, "r3": {"cgroup", "seccomp"}} {
		r := named(robotIn(lifecycle.RobotOnline), name, 8)
		r.Status.DeviceInfo = &v1alpha1.DeviceInfo{Isolation: &v1alpha1.Isolations{Available: kinds}}
		s.ledger.seeRobot(r)
	}
	for name, kind := range map[string]string{"a": "seccomp", "b": "cgroup"} {
		waits := sharing(name, "", lifecycle.TaskPending, v1alpha1.EphemeralDisk{})
		waits.Status, waits.Spec.Isolation = v1alpha1.TaskStatus{}, &v1alpha1.Isolation{Required: []string{kind}}
		s.ledger.seeTask(waits)
	}
	s.cycle(noon)
	for _, name := range []string{"a", "b"} {
		if seat, why := s.seat(key{Namespace: "ns", Name: name}); seat != "r3" {
			t.Errorf("%s is on %q: %s", name, seat, why)
		}
	}
	s.ledger.dropRobot(key{Namespace: "ns", Name: "r3"})
	s.cycle(noon)
	want := "0 of 2 robots: 1: isolation cgroup missing; 1: isolation seccomp missing"
	if _, why := s.seat(key{Namespace: "ns", Name: "a"}); why != want {
		t.Errorf("it says %q, want %q", why, want)
	}
}
