package scheduler

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
)

// TestPreviewPlacement_IsWhatTheNextCycleDecides compares previews of random groups with the cycle that follows
// when the groups request their robots.
func TestPreviewPlacement_IsWhatTheNextCycleDecides(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 6))
			s := randomRobots(random)
			j := runningJob(func(spec *v1alpha1.JobSpec) { p := int32(random.IntN(100)); spec.Priority = &p })
			j.CreationTimestamp = metav1.NewTime(noon)
			groups := randomGroups(random)
			got := s.PreviewPlacement(t.Context(), noon, j, groups)
			for _, g := range groups {
				s.state.replaceClaim(g.Group, j, g.Demands)
			}
			s.RunCycle(noon)
			want := map[string]string{}
			for _, g := range groups {
				for name, robot := range s.state.reservedRobots(keyOf(g.Group), g.Demands) {
					want[name] = robot.Name
				}
			}
			if !maps.Equal(got.Robots, want) {
				t.Errorf("predicted %v, but the cycle reserved %v", got.Robots, want)
			}
			for _, g := range groups {
				for i := range g.Demands {
					if name := g.Demands[i].Name(); (got.Robots[name] == "") != (got.Rejected[name].String() != "") {
						t.Errorf("%s has robot %q and diagnosis %q", name, got.Robots[name], got.Rejected[name])
					}
				}
			}
		})
	}
}

// randomRobots returns a scheduler with a few robots, some of which hold tasks.
func randomRobots(random *rand.Rand) *Scheduler {
	s := withRobots()
	for i := range random.IntN(6) {
		r := named(robotIn(lifecycle.RobotOnline), fmt.Sprintf("r%d", i), int64(random.IntN(4)+1))
		if random.IntN(5) == 0 {
			r.Status.Phase = string(lifecycle.RobotOffline)
		}
		s.state.updateRobot(r)
		if random.IntN(3) == 0 {
			other := newTask(lifecycle.TaskRunning, byHand, attempted(1, r.Name), target(r.Name))
			other.Name = "other-" + r.Name
			s.state.updateTask(other)
		}
	}
	waiting := newTask(lifecycle.TaskPending, byHand)
	waiting.Name = "waiting"
	s.state.updateTask(waiting)
	return s
}

func randomGroups(random *rand.Rand) (groups []PreviewGroup) {
	for i := range random.IntN(3) + 1 {
		count := random.IntN(5) + 1
		g := newGroup(fmt.Sprintf("g%d", i), int32(count), func(g *v1alpha1.TaskGroup) { g.Spec.Gang = random.IntN(3) == 0 })
		p := PreviewGroup{Group: g}
		for n := range count {
			p.Demands = append(p.Demands, placement.Demand{Group: g.Name, Index: n, Tasks: []placement.Task{{Name: fmt.Sprintf("%s-%d-t", g.Name, n), Driver: "exec"}}})
		}
		groups = append(groups, p)
	}
	return groups
}

func TestPreviewPlacement_ChangesNothing(t *testing.T) {
	now := noon
	s := New(func() time.Time { return now }, withRobots().Log)
	s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 4))
	g := newGroup("g", 2)
	g.Spec.Tasks = make([]v1alpha1.TaskDefinition, 2)
	s.state.updateJob(runningJob(nil))
	s.state.updateGroup(g)
	first := replicaTask(g, 0, lifecycle.TaskPending, "")
	first.CreationTimestamp = metav1.NewTime(now)
	s.state.updateTask(first) // waits for the other task of its replica
	s.RunCycle(now)
	before := s.state.nextChange()
	if before.IsZero() {
		t.Fatal("the scheduler does not wait for the other task")
	}
	now = before
	demands := []placement.Demand{{Group: g.Name, Index: 1, Tasks: []placement.Task{{Name: "j-g-1-t", Driver: "exec"}}}}
	if p := s.PreviewPlacement(t.Context(), now, runningJob(nil), []PreviewGroup{{g, demands}}); p.Robots["j-g-1-t"] != "r1" {
		t.Errorf("%+v", p)
	}
	if at := s.state.nextChange(); !at.Equal(before) {
		t.Errorf("a preview moved the next change from %s to %s", before, at)
	}
	if s.state.dirty.isSet || len(s.state.claims) > 0 || len(s.state.tasks.unconfirmed) > 0 {
		t.Error("a preview left something behind")
	}
}

func TestPreviewPlacement_EndsWithItsContext(t *testing.T) {
	s := withRobots()
	s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 4))
	g := newGroup("g", 1)
	demands := []placement.Demand{{Group: g.Name, Tasks: []placement.Task{{Name: "j-g-0-t", Driver: "exec"}}}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, isPartial := range []bool{false, true} {
		if p := s.PreviewPlacement(ctx, noon, runningJob(nil), []PreviewGroup{{g, demands}}); p.IsPartial != isPartial || (len(p.Robots) == 0) != isPartial {
			t.Errorf("%+v, want partial %v", p, isPartial)
		}
		cancel()
	}
}

// TestPreviewPlacement_WindowsOfItsTime previews a preemption on a robot with a window from 14:00 to 15:00.
func TestPreviewPlacement_WindowsOfItsTime(t *testing.T) {
	at := noon.Add
	for name, c := range map[string]struct {
		cycle, preview time.Time // zero: no cycle
		want           bool      // that it preempts
	}{
		"before the first cycle, closed":      {time.Time{}, noon, false},
		"before the first cycle, open":        {time.Time{}, at(2 * time.Hour), true},
		"opened since the last cycle":         {noon, at(2 * time.Hour), true},
		"closed since the last cycle":         {at(2 * time.Hour), at(3 * time.Hour), false},
		"closed before and after that window": {noon, at(4 * time.Hour), false},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newUrgentTask()
			s.state.removeTask(key{Namespace: "ns", Name: "j-high-0-t"})
			s.state.updateWindow(windowAt("14"))
			if !c.cycle.IsZero() {
				s.decide(c.cycle)
			}
			s.state.windows.opensAt = at(5 * time.Hour)
			j := runningJob(func(spec *v1alpha1.JobSpec) { p := int32(90); spec.Priority, spec.Preemption = &p, true })
			demands := []placement.Demand{{Group: "new", Tasks: []placement.Task{{Name: "j-new-0-t", Driver: "exec"}}}}
			p := s.PreviewPlacement(t.Context(), c.preview, j, []PreviewGroup{{newGroup("new", 1), demands}})
			if got := len(p.Preempted["j-new-0-t"]) > 0; got != c.want {
				t.Errorf("preempts: %v, want %v; %+v", got, c.want, p)
			}
			if got := s.state.windows.opensAt; !got.Equal(at(5 * time.Hour)) {
				t.Errorf("the preview moved the wake-up of the cycle to %s", got)
			}
		})
	}
}
