package taskgroup

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// The bounds of a preview. What exceeds them is counted, not simulated.
const (
	// MaxPreviewTasks is how many new Tasks a preview creates.
	MaxPreviewTasks = 2000
	// MaxPreviewRestarts is how many Tasks a preview restarts.
	MaxPreviewRestarts = 500
	// maxIdleRounds is how often in a row time may pass without an action.
	maxIdleRounds = 20
)

// PreviewInput is a group with a new definition, and what exists of it. None of it is changed.
type PreviewInput struct {
	Group *v1alpha1.TaskGroup
	Job   *v1alpha1.Job
	// Tasks are the existing Tasks of the group, in any order.
	Tasks []*v1alpha1.Task
	// Robots are all robots. They matter only for jobs that run on every robot.
	Robots []v1alpha1.Robot
	// Rollout is the effective one, or nil. Target is its revision. They matter only with the strategy Rollout.
	Rollout *v1alpha1.Rollout
	Target  *appsv1.ControllerRevision
	// IsExpired is asked between two rounds; once it returns true, the preview ends early.
	IsExpired func() bool
}

// Preview is what follows from a group's definition, if each Task that starts is healthy.
type Preview struct {
	// Create are the Tasks to create, by replica, without most of their definition. Those of a job that runs on
	// every robot have their robot.
	Create []*v1alpha1.Task
	// Demands are the replicas of Create that need a robot.
	Demands []placement.Demand
	// CreateLater is how many more Tasks are created, once others have ended or beyond MaxPreviewTasks.
	CreateLater int
	// ChangeInPlace are the waiting Tasks that get the new definition.
	ChangeInPlace []Member
	// Restarts are the Tasks that are evicted for the new definition. The Tasks of one step are evicted
	// together, and the next step follows once all of them are healthy.
	Restarts [][]Member
	// RestartLater is how many more Tasks are restarted, beyond MaxPreviewRestarts.
	RestartLater int
	// Stop are the Tasks that are no longer wanted.
	Stop []Member
	// OutOfReach are Tasks that change or stop only when their robots are in contact again, or start again.
	OutOfReach []Member
	// MaxParallel is how many replicas may restart at the same time, and MinHealthyTime for how long each must run
	// before the next one.
	MaxParallel    int
	MinHealthyTime time.Duration
	// Defect is why Tasks of the definition cannot exist.
	Defect Defect
}

// PreviewGroup runs the group's planner until nothing is left to do, with robots that do what they are
// asked to. It creates replicas as if each found a robot: the caller places Demands.
func PreviewGroup(now time.Time, c Config, in PreviewInput) (Preview, error) {
	c.Tick = time.Nanosecond // no status is held back
	s := &previewRun{now: now, config: c.WithDefaults(), in: in, group: in.Group.DeepCopy(), tasks: map[string]*v1alpha1.Task{}}
	s.existing, s.stopping, s.evicted = map[string]bool{}, map[string]bool{}, map[string]bool{}
	if err := s.prepareWaves(); err != nil {
		return Preview{}, err
	}
	s.prepareFleet()
	s.counts = newGroupCounts()
	for _, t := range in.Tasks {
		s.tasks[t.Name], s.existing[t.Name] = copyForPreview(t), true
		s.recordTask(startTime(t, now), s.tasks[t.Name])
	}
	s.describeStart()
	s.runUntilStable()
	s.describeEnd()
	return s.out, nil
}

// startTime returns since when the current run of a Task lasts, by the robot's clock. It returns now if that is
// not known.
func startTime(t *v1alpha1.Task, now time.Time) time.Time {
	a := t.Status.FindAttempt(t.Status.Attempt)
	if !taskstate.IsRunning(t) || a == nil {
		return now
	}
	if at := taskstate.LastRunStart(a); at != nil && at.Time.Before(now) {
		return at.Time
	}
	return now
}

// copyForPreview copies what a preview changes. Copies of all definitions would take the memory of a large group
// many times.
func copyForPreview(t *v1alpha1.Task) *v1alpha1.Task {
	out := *t
	out.Labels, out.Annotations = maps.Clone(t.Labels), maps.Clone(t.Annotations)
	out.Spec.TaskDefinition = withoutDetails(&t.Spec.TaskDefinition)
	return &out
}

// withoutDetails returns a definition with what a planner reads. Its revision is known already.
func withoutDetails(def *v1alpha1.TaskDefinition) v1alpha1.TaskDefinition {
	return v1alpha1.TaskDefinition{Name: def.Name, Daemon: def.Daemon}
}

// newPreviewBuilder returns newBuilderOf for definitions without details.
func (w *Input) newPreviewBuilder(target bool) taskBuilder {
	m := w.newBuilderOf(target)
	g, full := *m.group, &m.group.Spec.TaskGroupTemplate
	g.Spec.TaskGroupTemplate = v1alpha1.TaskGroupTemplate{Array: full.Array, Count: full.Count, Update: full.Update}
	for i := range full.InitTasks {
		g.Spec.InitTasks = append(g.Spec.InitTasks, withoutDetails(&full.InitTasks[i]))
	}
	for i := range full.Tasks {
		g.Spec.Tasks = append(g.Spec.Tasks, withoutDetails(&full.Tasks[i]))
	}
	m.group, m.meta = &g, nil
	return m
}

// previewRun is the state of one call of PreviewGroup.
type previewRun struct {
	now    time.Time
	config Config
	in     PreviewInput
	group  *v1alpha1.TaskGroup
	waves  *Waves
	fleet  map[string]RobotMatch
	counts *groupCounts
	tasks  map[string]*v1alpha1.Task
	// existing, stopping and evicted are names of Tasks: those of before, those that are no longer wanted, and
	// those that were evicted for their definition, which start again.
	existing, stopping, evicted map[string]bool
	out                         Preview
}

func (s *previewRun) prepareWaves() error {
	s.waves = newWaves(s.group, s.in.Job, s.in.Rollout)
	if s.waves == nil || s.waves.Rollout == nil || s.in.Target == nil {
		return nil
	}
	target, err := decodeTarget(s.group, s.in.Target)
	if err != nil {
		return err
	}
	s.waves.Target, s.waves.TargetRevisions, s.waves.targetUID = target.template, target.revisions, target.revision
	return nil
}

func (s *previewRun) prepareFleet() {
	switch {
	case !v1alpha1.RunsOnEveryRobot(s.in.Job.Spec.Type):
	case s.waves != nil:
		s.fleet = s.waves.matchRobots(s.group, s.in.Job, convertRobots(s.group.Namespace, s.in.Robots))
	default:
		s.fleet = matchRobots(s.group, s.in.Job, convertRobots(s.group.Namespace, s.in.Robots))
	}
}

func (s *previewRun) withTasks(f func(*groupTasks)) { s.counts.withGroup(s.group.UID, f) }

func (s *previewRun) recordTask(at time.Time, t *v1alpha1.Task) {
	s.withTasks(func(m *groupTasks) { m.recordTask(at, t) })
}

// observe returns the input of the next plan.
func (s *previewRun) observe() *Input {
	w := &Input{Group: s.group, Job: s.in.Job, Fleet: s.fleet}
	if s.waves != nil {
		waves := *s.waves
		w.Waves = &waves
	}
	s.withTasks(func(m *groupTasks) { m.fillInput(w, nil) })
	return w
}

// describeStart finds the Tasks that are not wanted any more.
func (s *previewRun) describeStart() {
	w := s.observe()
	p := &plan{now: s.now, Config: s.config, Input: *w}
	p.divideMembers()
	s.out.Stop = slices.Clone(p.leaving)
	for _, m := range p.leaving {
		s.stopping[m.Name] = true
	}
	s.out.Defect, s.out.MaxParallel, s.out.MinHealthyTime = w.Defect, p.maxParallel(), p.minHealthyTime()
}

// runUntilStable plans until the planner has nothing to do, or a bound is reached.
func (s *previewRun) runUntilStable() {
	for idle := 0; idle < maxIdleRounds && !s.in.isExpired(); {
		w := s.observe()
		actions := Plan(s.now, s.config, *w)
		acted := s.apply(w, actions)
		switch {
		case s.isFull():
			return
		case acted || s.settleTasks():
			idle = 0
		case actions.Status != nil:
			idle++
		case actions.RequeueAt.After(s.now) && isRollingOut(s.group):
			s.now = actions.RequeueAt
			idle++
		default:
			return
		}
	}
}

func (in *PreviewInput) isExpired() bool { return in.IsExpired != nil && in.IsExpired() }

// isFull reports whether a bound of the preview is reached.
func (s *previewRun) isFull() bool {
	return len(s.out.Create) >= MaxPreviewTasks || len(s.evicted) >= MaxPreviewRestarts
}

// apply does what the controller does with the actions, and reports whether there was anything but a status.
func (s *previewRun) apply(w *Input, a Actions) (acted bool) {
	s.createReplicas(w, a.Reserve, true)
	s.createReplicas(w, a.Complete, false)
	s.applyEvictions(w, a.Evict)
	for _, r := range a.Revise {
		s.reviseTask(w, r)
	}
	for _, name := range a.Delete {
		delete(s.tasks, name)
		s.withTasks(func(m *groupTasks) { m.removeRecord(name) })
	}
	if a.Status != nil {
		s.group.Status = *a.Status
		s.withTasks(func(m *groupTasks) { m.lastStatus = s.now })
	}
	return len(a.Reserve)+len(a.Complete)+len(a.Evict)+len(a.Revise)+len(a.Delete) > 0
}

func (s *previewRun) createReplicas(w *Input, replicas []Replica, needRobots bool) {
	builders := map[bool]taskBuilder{false: w.newPreviewBuilder(false), true: w.newPreviewBuilder(true)}
	if needRobots {
		s.out.Demands = append(s.out.Demands, buildDemands(s.group, replicas, nil)...)
	}
	for _, r := range replicas {
		for _, def := range r.Tasks {
			slim := withoutDetails(def)
			t := builders[r.Target].buildTask(taskName(s.group, r.Index, def.Name, nil), r.Index, &slim, placement.Robot{Name: r.Robot})
			t.CreationTimestamp = metav1.NewTime(s.now)
			if !s.existing[t.Name] {
				s.out.Create = append(s.out.Create, t)
			}
			s.tasks[t.Name] = t
			s.recordTask(s.now, t)
		}
	}
}

// applyEvictions evicts Tasks, and adds those that start again as a step.
func (s *previewRun) applyEvictions(w *Input, all []Member) {
	var step []Member
	for _, m := range all {
		t := s.tasks[m.Name]
		w.markEvicted(t, m.Attempt)
		s.recordTask(s.now, t)
		if !s.stopping[m.Name] && !s.evicted[m.Name] {
			s.evicted[m.Name] = true
			step = append(step, m)
		}
	}
	if len(step) > 0 {
		s.out.Restarts = append(s.out.Restarts, step)
	}
}

func (s *previewRun) reviseTask(w *Input, r Revision) {
	t := s.tasks[r.Name]
	var before Member
	s.withTasks(func(m *groupTasks) { c := m.records[r.Name]; before = c.newMember(r.Name) })
	if !w.newPreviewBuilder(r.Target).revise(s.now, t, r) {
		return
	}
	if !s.evicted[r.Name] && !r.Keep && s.existing[r.Name] {
		s.out.ChangeInPlace = append(s.out.ChangeInPlace, before)
	}
	s.recordTask(s.now, t)
}

// settleTasks lets evicted Tasks leave their robots, and start again with their new definition.
func (s *previewRun) settleTasks() (changed bool) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(s.evicted)), maps.Keys(s.stopping))
	slices.Sort(names)
	for _, name := range names {
		t := s.tasks[name]
		if t == nil {
			continue
		}
		state := lifecycle.TaskState(t.Status.State).OrPending()
		switch {
		case isOnRobot(state) && t.Spec.EvictAttempt > 0 && t.Spec.EvictAttempt == t.Status.Attempt:
			t.Status.State = string(lifecycle.TaskPending)
		case state.IsPlaceable() && s.evicted[name] && s.hasNewDefinition(t):
			t.Status.Attempt++
			t.Status.State = string(lifecycle.TaskRunning)
		default:
			continue
		}
		s.recordTask(s.now, t)
		changed = true
	}
	return changed
}

// hasNewDefinition reports whether a Task that was evicted may start again.
func (s *previewRun) hasNewDefinition(t *v1alpha1.Task) (has bool) {
	s.withTasks(func(m *groupTasks) { c := m.records[t.Name]; has = !c.outdated })
	return has
}

// describeEnd counts what is left to do.
func (s *previewRun) describeEnd() {
	w := s.observe()
	if missing := s.countMissing(w); missing > 0 && !w.Defect.isSet() {
		s.out.CreateLater = missing
	}
	isFull := s.isFull() || s.in.isExpired()
	if !isFull {
		s.out.Stop = slices.DeleteFunc(s.out.Stop, s.isLeft)
	}
	for _, name := range slices.Sorted(maps.Keys(s.tasks)) {
		var m Member
		s.withTasks(func(g *groupTasks) { c := g.records[name]; m = c.newMember(name) })
		switch {
		case s.stopping[name] && !isFull:
			s.out.OutOfReach = append(s.out.OutOfReach, m)
		case !m.Outdated || m.State.IsTerminal() || s.stopping[name] || w.Defect.isSet():
		case isFull && isOnRobot(m.State):
			s.out.RestartLater++
		default:
			s.out.OutOfReach = append(s.out.OutOfReach, m)
		}
	}
}

// isLeft reports whether a Task still exists.
func (s *previewRun) isLeft(m Member) bool { return s.tasks[m.Name] != nil }

// countMissing returns how many Tasks of the group do not exist yet.
func (s *previewRun) countMissing(w *Input) int {
	p := &plan{now: s.now, Config: s.config, Input: *w}
	p.divideMembers()
	switch {
	case !p.jobStartsTasks():
		return 0
	case p.isSystem():
		return max(p.coveredRobots()*p.Group.Spec.TasksPerReplica()-len(p.staying), 0)
	}
	return max(p.endIndex()-p.NextIndex, 0) * p.Group.Spec.TasksPerReplica()
}
