package taskgroup

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// lists are the names of Tasks by what happens to them. Restarts are in the order in which they begin.
type lists struct {
	created, changed, stopped []string
	restarts                  []string
}

func (l lists) String() string {
	slices.Sort(l.created)
	slices.Sort(l.changed)
	slices.Sort(l.stopped)
	return fmt.Sprintf("created %v\nchanged in place %v\nrestarted %v\nstopped %v", l.created, l.changed, l.restarts, l.stopped)
}

func (p Preview) listNames() (l lists) {
	for _, t := range p.Create {
		l.created = append(l.created, t.Name)
	}
	for _, m := range p.ChangeInPlace {
		l.changed = append(l.changed, m.Name)
	}
	for _, step := range p.Restarts {
		for _, m := range step {
			l.restarts = append(l.restarts, m.Name)
		}
	}
	for _, m := range p.Stop {
		l.stopped = append(l.stopped, m.Name)
	}
	return l
}

// previewOf returns what PreviewGroup predicts for a change of a story's group.
func (s *story) previewOf(change func(*v1alpha1.TaskGroupSpec)) Preview {
	s.t.Helper()
	g := s.w.Group.DeepCopy()
	change(&g.Spec)
	g.Generation++
	in := PreviewInput{Group: g, Job: s.w.Job, Tasks: slices.Collect(maps.Values(s.tasks)), Robots: s.robotObjects()}
	p, err := PreviewGroup(s.now, Config{}, in)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// robotObjects returns Robots that match as the fleet of the story does.
func (s *story) robotObjects() (all []v1alpha1.Robot) {
	for name, fit := range s.fleet {
		r := v1alpha1.Robot{}
		r.Name, r.Namespace, r.Spec.Unschedulable = name, s.w.Group.Namespace, !fit.Schedulable
		r.Status.Phase = string(lifecycle.RobotOnline)
		if !fit.Online {
			r.Status.Phase = string(lifecycle.RobotOffline)
		}
		r.Status.DeviceInfo = &v1alpha1.DeviceInfo{Drivers: []string{"exec"}}
		all = append(all, r)
	}
	return all
}

// happened returns what the output of a story after a position shows.
func (s *story) happened(from int, existing map[string]bool) (l lists) {
	evicted := map[string]bool{}
	for line := range strings.Lines(s.output.String()[from:]) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "created "); ok {
			l.created = append(l.created, strings.Fields(name)[0])
		}
		if name, ok := cutAround(line, "plan: evict ", ": it has an old definition"); ok {
			l.restarts, evicted[name] = append(l.restarts, name), true
		}
		if name, ok := cutAround(line, "plan: update ", " to the current definition"); ok && !evicted[name] {
			l.changed = append(l.changed, name)
		}
		if name, ok := cutAround(line, "plan: delete ", ": its replica is no longer wanted"); ok && existing[name] {
			l.stopped = append(l.stopped, name)
		}
	}
	return l
}

func cutAround(s, prefix, suffix string) (string, bool) {
	s, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(s, suffix)
}

// TestPreview_IsWhatThenHappens compares previews of random changes with what the stories' world then does. Its
// robots and its API server share no code with those of the preview.
func TestPreview_IsWhatThenHappens(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { t.Parallel(); comparePreview(t, rand.New(rand.NewPCG(seed, 23))) })
	}
}

func comparePreview(t *testing.T, random *rand.Rand) {
	s := randomStory(t, random)
	change := randomChange(random, s.w.Group)
	want := s.previewOf(change).listNames().String()
	existing := map[string]bool{}
	for name := range s.tasks {
		existing[name] = true
	}
	from := s.output.Len()
	s.changeSpec("at random", change)
	for range 40 {
		s.passTime(time.Minute)
	}
	if got := s.happened(from, existing).String(); got != want {
		t.Errorf("predicted:\n%s\nbut then:\n%s\n%s", want, got, s.output.String())
	}
}

// randomStory is a group of any type that runs, some of whose Tasks wait or are on lost robots.
func randomStory(t *testing.T, random *rand.Rand) *story {
	kind := []string{"batch", "service", "system", "sysbatch"}[random.IntN(4)]
	s := newStory(t, kind, int32(random.IntN(8)+1), []string{"a", "b"}[:random.IntN(2)+1]...)
	s.waiting = map[string]bool{}
	if random.IntN(2) == 0 {
		s.w.Group.Spec.Update = &v1alpha1.Update{MaxParallel: int32(random.IntN(4)), MinHealthyTime: v1alpha1.NewDuration(time.Duration(random.IntN(50)) * time.Second)}
	}
	for i := range 8 {
		if s.fleet != nil && random.IntN(3) > 0 {
			s.fleet[fmt.Sprintf("r%d", i)] = RobotMatch{Schedulable: random.IntN(5) > 0, Online: random.IntN(5) > 0}
		}
		for _, task := range []string{"a", "b"} {
			s.waiting[fmt.Sprintf("j-g-%d-%s", i, task)] = random.IntN(5) == 0
		}
	}
	s.startGroup()
	s.passTime(time.Hour)
	for _, name := range slices.Sorted(maps.Keys(s.tasks)) {
		if random.IntN(8) == 0 && isOnRobot(lifecycle.TaskState(s.tasks[name].Status.State)) {
			s.loseRobot(name)
		}
	}
	for i := range 8 { // robots that join later, and those that leave
		name := fmt.Sprintf("r%d", i)
		if s.fleet != nil && random.IntN(6) == 0 {
			delete(s.fleet, name)
		}
	}
	return s
}

// randomChange changes the count, the commands and the limits of a group.
func randomChange(random *rand.Rand, g *v1alpha1.TaskGroup) func(*v1alpha1.TaskGroupSpec) {
	count, tasks, limit := int32(random.IntN(10)), len(g.Spec.Tasks), random.IntN(3)
	changes := []bool{random.IntN(2) == 0, random.IntN(2) == 0}
	return func(s *v1alpha1.TaskGroupSpec) {
		s.Count = &count
		for i := range tasks {
			if changes[i] {
				command(i, "v2")(s)
			}
		}
		if limit > 0 {
			s.Update = &v1alpha1.Update{MaxParallel: int32(limit)}
		}
	}
}
