package taskgroup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// inWaves is a group that a Rollout changes, which has admitted all units.
func inWaves(changes ...func(*v1alpha1.Rollout)) func(*Input) {
	return func(w *Input) {
		r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: w.Group.Namespace}}
		r.Spec.Waves = []v1alpha1.RolloutWave{{Name: "w"}}
		r.Status.Phase = v1alpha1.RolloutProgressing
		r.Status.Waves = []v1alpha1.RolloutWaveStatus{{Name: "w", Bound: rollout.EndPosition, AdmittedBound: rollout.EndPosition}}
		for _, f := range changes {
			f(r)
		}
		target := w.Group.Spec.DeepCopy()
		command(0, "v2")(target)
		w.Job.Spec.Type, w.Revisions = v1alpha1.JobTypeService, revision.TaskRevisions(&w.Group.Spec.TaskGroupTemplate)
		w.Job.Spec.Update = &v1alpha1.JobUpdate{Strategy: v1alpha1.UpdateRollout}
		w.Waves = &Waves{
			Rollout: r, Target: &target.TaskGroupTemplate, BaseRevisions: w.Revisions,
			TargetRevisions: revision.TaskRevisions(&target.TaskGroupTemplate), Group: "g",
		}
		w.Group.Status.RolloutRevisions = w.Waves.TargetRevisions
	}
}

func revisedAgo(d time.Duration) func(*Member) {
	return func(m *Member) { m.ChangedAt, m.IsRevised, m.side = noon.Add(-d), true, targetSide }
}
func createdAgo(d time.Duration) func(*Member) {
	return func(m *Member) { m.ChangedAt, m.side = noon.Add(-d), targetSide }
}
func replaced(m *Member) { m.Outdated, m.isReplaced, m.State = true, true, lifecycle.TaskFailed }
func held(m *Member)     { m.isHeld, m.Evict = true, m.Attempt }
func removed(m *Member)  { m.Outdated, m.undefined = true, true }

func TestPlan_Waves(t *testing.T) {
	const pending, running, soft = lifecycle.TaskPending, lifecycle.TaskRunning, lifecycle.TaskSoftFailed
	members := func(all ...Member) func(*Input) { return func(w *Input) { w.Members = all } }
	isSystem := func(w *Input) {
		w.Job.Spec.Type, w.Fleet = v1alpha1.JobTypeSystem, map[string]RobotMatch{}
		for i := range w.Members {
			w.Members[i].Robot = "r" + w.Members[i].Name
			w.Fleet[w.Members[i].Robot] = RobotMatch{Schedulable: true, Online: true}
		}
		w.Waves.Fleet = w.Fleet
	}
	runsOnce := func(w *Input) {
		isSystem(w)
		w.Job.Spec.Type = v1alpha1.TaskTypeSysbatch
	}
	unobserved := func(w *Input) { w.Group.Status.RolloutRevisions = nil }
	two := func(r *v1alpha1.Rollout) { r.Spec.MaxUnavailable = new(intstr.FromInt32(2)) }
	for _, c := range []struct {
		name       string
		in         []func(*Input)
		wantRevise string
		wantKeep   string // released, without a new definition
		wantEvict  string
		wantDelete string
		wantWake   time.Duration
	}{
		{name: "one unit at a time", in: []func(*Input){inWaves(), members(member(0, running, outdated), member(1, running, outdated))}, wantEvict: "a"},
		{name: "as many as maxUnavailable", in: []func(*Input){inWaves(two), members(member(0, running, outdated), member(1, running, outdated), member(2, running, outdated))}, wantEvict: "ab"},
		{name: "but no more than maxParallel", in: []func(*Input){inWaves(two), func(w *Input) { w.Group.Spec.Update = &v1alpha1.Update{MaxParallel: 1} }, members(member(0, running, outdated), member(1, running, outdated))}, wantEvict: "a"},
		{name: "nothing before the status shows both definitions", in: []func(*Input){inWaves(), unobserved, members(member(0, running, outdated), member(1, pending, outdated, evictedNow))}},
		{name: "an evicted unit is updated, and the others stay", in: []func(*Input){inWaves(), members(member(0, pending, outdated, evictedNow), member(1, running, outdated))}, wantRevise: "a"},
		{name: "the others wait until it is healthy", in: []func(*Input){inWaves(), members(member(0, running, evictedEarlier, revisedAgo(time.Minute), justStarted), member(1, running, outdated))}, wantWake: minHealthyTime},
		{name: "for as long as its wave asks", in: []func(*Input){inWaves(healthyFor(time.Minute)), members(member(0, running, evictedEarlier, revisedAgo(time.Minute), justStarted), member(1, running, outdated))}, wantWake: time.Minute},
		{name: "or until its deadline", in: []func(*Input){inWaves(), members(member(0, soft, evictedEarlier, revisedAgo(time.Minute)), member(1, running, outdated))}, wantWake: 9 * time.Minute},
		{name: "after which it has failed", in: []func(*Input){inWaves(), members(member(0, soft, evictedEarlier, revisedAgo(10*time.Minute)), member(1, running, outdated))}, wantEvict: "b"},
		{name: "a unit that failed for good does not count", in: []func(*Input){inWaves(), members(member(0, lifecycle.TaskFailed, evictedEarlier, revisedAgo(time.Minute)), member(1, running, outdated))}, wantEvict: "b"},
		{name: "nor does one on a lost robot", in: []func(*Input){inWaves(), members(member(0, lifecycle.TaskUnknown, evictedEarlier, revisedAgo(time.Minute)), member(1, running, outdated))}, wantEvict: "b"},
		{name: "nor a new replica that waits for a robot", in: []func(*Input){inWaves(), members(member(0, pending, createdAgo(time.Minute)), member(1, running, outdated))}, wantEvict: "b"},
		{name: "a new replica on a robot counts", in: []func(*Input){inWaves(), members(member(0, running, createdAgo(time.Minute), justStarted), member(1, running, outdated))}, wantWake: minHealthyTime},
		{name: "and so does one that starts on its robot", in: []func(*Input){inWaves(), members(member(0, pending, createdAgo(time.Minute)), member(1, running, outdated)), isSystem}, wantWake: 9 * time.Minute},
		{name: "a failed task of another definition is replaced", in: []func(*Input){inWaves(), members(member(0, running, replaced))}, wantDelete: "a"},
		{name: "not while the job pauses", in: []func(*Input){inWaves(), inJob(lifecycle.JobPauseRequested), members(member(0, running, replaced))}},
		{name: "a held task is released", in: []func(*Input){inWaves(inPhase(v1alpha1.RolloutPaused)), members(member(0, pending, held), member(1, running))}, wantKeep: "a"},
		{name: "a task that the definition lacks is evicted with its unit", in: []func(*Input){inWaves(), members(member(0, running, outdated), member(0, running, otherTask, removed), member(1, running, outdated))}, wantEvict: "aother a"},
		{name: "and deleted", in: []func(*Input){inWaves(), members(member(0, pending, removed, evictedNow))}, wantDelete: "a"},
		{name: "a task that has completed stays", in: []func(*Input){inWaves(), members(member(0, lifecycle.TaskCompleted, outdated))}},
		{name: "unless it runs once: then it runs once more, one after the other", in: []func(*Input){inWaves(), members(member(0, lifecycle.TaskCompleted, outdated), member(1, lifecycle.TaskCompleted, outdated)), runsOnce}, wantDelete: "a"},
		{name: "and the next one when the first has completed", in: []func(*Input){inWaves(), members(member(0, lifecycle.TaskCompleted, createdAgo(time.Minute)), member(1, lifecycle.TaskCompleted, outdated)), runsOnce}, wantDelete: "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, Config{}.WithDefaults(), newInput(10, append(c.in, inState("running"))...))
			var revised, kept, evicted string
			for _, r := range got.Revise {
				if r.Keep {
					kept += r.Name
				} else {
					revised += r.Name
				}
			}
			for _, m := range got.Evict {
				evicted += m.Name
			}
			if deleted := strings.Join(got.Delete, ""); revised != c.wantRevise || kept != c.wantKeep || evicted != c.wantEvict || deleted != c.wantDelete {
				t.Errorf("revises %q, releases %q, evicts %q, deletes %q; want %q, %q, %q, %q", revised, kept, evicted, deleted, c.wantRevise, c.wantKeep, c.wantEvict, c.wantDelete)
			}
			if c.wantWake != 0 && !got.RequeueAt.Equal(noon.Add(c.wantWake)) {
				t.Errorf("requeue at %s, want after %s", got.RequeueAt, c.wantWake)
			}
		})
	}
}

func TestPlan_WavesLimit(t *testing.T) {
	for _, c := range []struct {
		unavailable string // empty: unset
		update      *v1alpha1.Update
		want        int
	}{
		{"", nil, 1},
		{"", &v1alpha1.Update{MaxParallel: 4}, 4},
		{"3", nil, 3},
		{"3", &v1alpha1.Update{MaxParallel: 4}, 3},
		{"5", &v1alpha1.Update{MaxParallel: 4}, 4},
		{"5", &v1alpha1.Update{}, 5},
		{"25%", nil, 3},
		{"1%", nil, 1},
		{"100%", nil, 10},
		{"many", nil, 1}, // the API server rejects it
	} {
		w := newInput(10, inWaves(func(r *v1alpha1.Rollout) {
			if c.unavailable != "" {
				maxUnavailable(c.unavailable)(r)
			}
		}))
		w.Group.Spec.Update = c.update
		if got := (&plan{Input: w}).maxChanging(); got != c.want {
			t.Errorf("maxUnavailable %q, update %+v: %d, want %d", c.unavailable, c.update, got, c.want)
		}
	}
}

// A Rollout may be paused when a replica has changed in part. Its tasks would wait forever for init tasks of
// another definition.
func TestPlan_WavesAlignReplicaWithInitTasks(t *testing.T) {
	for _, c := range []struct {
		name  string
		sides [2]side
		phase string
		init  bool
		want  []Revision
	}{
		{"part of it has the Rollout's definition", [2]side{baseSide, targetSide}, v1alpha1.RolloutPaused, true, []Revision{{Name: "a", Forget: true, Target: true}}},
		{"part of it has the current one", [2]side{otherSide, baseSide}, v1alpha1.RolloutPaused, true, []Revision{{Name: "a", Forget: true}}},
		{"all of it has another", [2]side{otherSide, otherSide}, v1alpha1.RolloutPaused, true, nil},
		{"the tasks do not wait for each other", [2]side{baseSide, targetSide}, v1alpha1.RolloutPaused, false, nil},
	} {
		w := newInput(1, inWaves(inPhase(c.phase)), inState("running"))
		if c.init {
			w.Group.Spec.InitTasks = []v1alpha1.TaskDefinition{{Name: "init"}}
		}
		w.Members = []Member{member(0, lifecycle.TaskPending), member(0, lifecycle.TaskRunning, otherTask)}
		for i, s := range c.sides {
			w.Members[i].side = s
		}
		if got := Plan(noon, Config{}.WithDefaults(), w); !slices.Equal(got.Revise, c.want) || len(got.Evict)+len(got.Delete) > 0 {
			t.Errorf("%s: revises %+v, evicts %+v, deletes %v", c.name, got.Revise, got.Evict, got.Delete)
		}
	}
}

func TestWaves_Judge(t *testing.T) {
	w := newInput(1, inWaves()).Waves
	base, target := w.BaseRevisions["t"], w.TargetRevisions["t"]
	retried := func(at time.Time) func(*v1alpha1.Rollout) {
		return func(r *v1alpha1.Rollout) { r.Status.Waves[0].RetriedAt = &metav1.MicroTime{Time: at} }
	}
	reverting, paused := inPhase(v1alpha1.RolloutReverting), inPhase(v1alpha1.RolloutPaused)
	record := func(revision string, state lifecycle.TaskState, changes ...func(*taskRecord)) taskRecord {
		c := taskRecord{slot: taskSlot{0, "t"}, revision: revision, state: state, createdAt: noon.Unix(), attempt: 2}
		for _, f := range changes {
			f(&c)
		}
		return c
	}
	evicted := func(c *taskRecord) { c.evict = c.attempt }
	revised := func(c *taskRecord) { c.revisedAt = noon.Unix() }
	const pending, running, failed = lifecycle.TaskPending, lifecycle.TaskRunning, lifecycle.TaskFailed
	for _, c := range []struct {
		name    string
		rollout func(*v1alpha1.Rollout)
		record  taskRecord
		want    definitionCheck
	}{
		{"the Rollout reaches it", nil, record(base, running), definitionCheck{side: baseSide, outdated: true}},
		{"it has the Rollout's revision", nil, record(target, running), definitionCheck{side: targetSide}},
		{"the Rollout is paused", paused, record(base, running), definitionCheck{side: baseSide}},
		{"another revision is kept", paused, record("x", running), definitionCheck{}},
		{"and reached", nil, record("x", running), definitionCheck{outdated: true}},
		{"the Rollout is reverted", reverting, record(target, running), definitionCheck{side: targetSide, outdated: true}},
		{"also another revision is", reverting, record("x", running), definitionCheck{outdated: true}},
		{"a failed task of the old revision", nil, record(base, failed), definitionCheck{side: baseSide, outdated: true, isReplaced: true}},
		{"a failed task of the new one", nil, record(target, failed), definitionCheck{side: targetSide}},
		{"which is tried again", retried(noon.Add(time.Second)), record(target, failed), definitionCheck{side: targetSide, isReplaced: true}},
		{"and was replaced meanwhile", retried(noon.Add(999 * time.Millisecond)), record(target, failed), definitionCheck{side: targetSide}},
		{"or revised", retried(noon.Add(time.Minute)), record(target, failed, func(c *taskRecord) { c.revisedAt = noon.Add(time.Hour).Unix() }), definitionCheck{side: targetSide}},
		{"a failed task that is kept", paused, record(base, failed), definitionCheck{side: baseSide}},
		{"a task that the definition lacks", nil, record("x", running, func(c *taskRecord) { c.slot.task = "gone" }), definitionCheck{outdated: true, undefined: true}},
		{"which has completed", nil, record("x", lifecycle.TaskCompleted, func(c *taskRecord) { c.slot.task = "gone" }), definitionCheck{outdated: true, undefined: true, isReplaced: true}},
		{"evicted, and to be kept", paused, record(base, pending, evicted), definitionCheck{side: baseSide, isHeld: true}},
		{"evicted, and to be updated", nil, record(base, pending, evicted), definitionCheck{side: baseSide, outdated: true}},
		{"evicted and updated", nil, record(target, pending, evicted, revised), definitionCheck{side: targetSide}},
		{"evicted, and still on its robot", paused, record(base, running, evicted), definitionCheck{side: baseSide}},
	} {
		w := newInput(1, inWaves()).Waves
		if c.rollout != nil {
			c.rollout(w.Rollout)
		}
		if got := w.checkDefinition(&c.record); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// An unknown revision, or one that does not differ, changes nothing, and new Tasks get the group's definition.
func TestWaves_DecideWithoutTarget(t *testing.T) {
	unit := rollout.Unit{Name: "g/0"}
	for _, c := range []struct {
		name   string
		change func(*Waves)
		want   rollout.Decision
	}{
		{"the revision is known", func(*Waves) {}, rollout.Target},
		{"it is not", func(w *Waves) { w.Target, w.TargetRevisions = nil, nil }, rollout.Keep},
		{"it is the current one", func(w *Waves) { w.TargetRevisions = w.BaseRevisions }, rollout.Base},
		{"there is no Rollout", func(w *Waves) { w.Rollout = nil }, rollout.Keep},
	} {
		w := newInput(1, inWaves()).Waves
		c.change(w)
		if got := w.decide(unit); got != c.want || w.choose(unit, otherSide) != (c.want == rollout.Target) {
			t.Errorf("%s: %v, chooses %v", c.name, got, w.choose(unit, otherSide))
		}
	}
}

// A missing Task of a unit that keeps what it has gets the definition of its replica.
func TestWaves_MissingTaskGetsDefinitionOfItsReplica(t *testing.T) {
	w := newInput(1, inWaves(inPhase(v1alpha1.RolloutPaused))).Waves
	for has, want := range map[side]bool{otherSide: false, baseSide: false, bothSides: false, targetSide: true} {
		if got := w.choose(rollout.Unit{Name: "g/0"}, has); got != want {
			t.Errorf("siblings %v: target is %v", has, got)
		}
	}
}

func TestWaves_MatchRobots(t *testing.T) {
	g := &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	g.Spec.Tasks = []v1alpha1.TaskDefinition{{Name: "t", Driver: "exec"}}
	target := g.Spec.TaskGroupTemplate.DeepCopy()
	target.Tasks[0].Driver = "docker"
	j := &v1alpha1.Job{Spec: v1alpha1.JobSpec{RobotSelector: map[string]string{"zone": "x"}}}
	drivers := func(name string, all ...string) v1alpha1.Robot {
		return robotWith(func(r *v1alpha1.Robot) { r.Name, r.Status.DeviceInfo.Drivers = name, all })
	}
	other := robotWith(func(r *v1alpha1.Robot) { r.Name, r.Spec.Labels = "elsewhere", nil })
	w := &Waves{Target: target}
	fits := w.matchRobots(g, j, convertRobots("ns", []v1alpha1.Robot{drivers("both", "exec", "docker"), drivers("base", "exec"), drivers("target", "docker"), drivers("none", "raw"), other}))
	var got []string
	for _, name := range []string{"both", "base", "target", "none", "elsewhere"} {
		if fit, ok := fits[name]; ok {
			got = append(got, fmt.Sprintf("%s %v %v %s", name, fit.suits(false), fit.suits(true), fit.Labels["zone"]))
		}
	}
	if want := []string{"both true true x", "base true false x", "target false true x", "none false false x"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A robot gets and keeps only what its definition suits.
func TestPlan_WavesRobotsOfDefinition(t *testing.T) {
	w := newInput(1, inWaves(func(r *v1alpha1.Rollout) { r.Spec.Waves[0].RobotSelector = map[string]string{"first": "yes"} }))
	w.Job.Spec.Type = v1alpha1.JobTypeSystem
	up := RobotMatch{Schedulable: true, Online: true}
	first, notTarget, notBase := up, up, up
	first.Labels, first.notBase = map[string]string{"first": "yes"}, true
	notTarget.Labels, notTarget.notTarget = first.Labels, true
	notBase.notBase = true
	w.Fleet = map[string]RobotMatch{"base": up, "first": first, "first-not-target": notTarget, "not-base": notBase}
	w.Waves.Fleet = w.Fleet
	got := Plan(noon, Config{}.WithDefaults(), w)
	var created []string
	for _, r := range got.Complete {
		created = append(created, fmt.Sprintf("%s %v %s", r.Robot, r.Target, w.newBuilderOf(r.Target).revisions["t"]))
	}
	if want := []string{"base false " + w.Revisions["t"], "first true " + w.Waves.TargetRevisions["t"]}; !slices.Equal(created, want) {
		t.Errorf("creates %q, want %q", created, want)
	}
}

func TestTaskBuilder_DefinitionOfRollout(t *testing.T) {
	w := newInput(1, inWaves())
	task := w.newBuilderOf(false).buildTask("x", 0, &w.Group.Spec.Tasks[0], robotNamed("r1"))
	w.Waves.Target.RestartPolicy = &v1alpha1.RestartPolicy{Attempts: 7}
	w.Waves.Target.InitTasks = []v1alpha1.TaskDefinition{{Name: "init"}}
	task.Spec.EvictAttempt = 3
	if !w.newBuilderOf(true).revise(noon, task, Revision{Target: true}) {
		t.Fatal("not revised")
	}
	s := task.Spec
	if s.Config.ExecConfig.Command != "v2" || s.RestartPolicy.Attempts != 7 || s.Stage != 2 || s.EvictAttempt != 3 ||
		task.Labels[v1alpha1.LabelRevision] != w.Waves.TargetRevisions["t"] || task.Annotations[v1alpha1.AnnotationRevisedAt] != "2026-05-01T12:00:00Z" {
		t.Errorf("labels %v, annotations %v, spec %+v", task.Labels, task.Annotations, s)
	}
	if w.markEvicted(task, 5); task.Spec.EvictAttempt != 5 || task.Annotations[v1alpha1.AnnotationRevisedAt] != "" {
		t.Errorf("an evicted task: attempt %d, annotations %v", task.Spec.EvictAttempt, task.Annotations)
	}
	if w.newBuilderOf(false).revise(noon, task, Revision{Keep: true, Forget: true}); task.Spec.EvictAttempt != 0 || task.Spec.Config.ExecConfig.Command != "v2" || len(task.Annotations) > 0 {
		t.Errorf("a released task: %+v, annotations %v", task.Spec, task.Annotations)
	}
	w.Waves = nil
	if w.newBuilderOf(false).revise(noon, task, Revision{}); len(task.Annotations) > 0 {
		t.Errorf("with the strategy Immediate: annotations %v", task.Annotations)
	}
}

func TestPlan_WavesStatus(t *testing.T) {
	w := newInput(1, inWaves(), withTasks(lifecycle.TaskRunning, 1), inState("running"), statusWritten(0))
	w.Group.Status.RolloutRevisions = nil
	rolloutUnfinished(&w) // so that nothing else of the status is urgent
	started(&w)
	got := Plan(noon, Config{}.WithDefaults(), w)
	if got.Status == nil || got.Status.RolloutRevisions["t"] != w.Waves.TargetRevisions["t"] {
		t.Fatalf("the revisions of the Rollout are not written at once: %+v", got.Status)
	}
	w.Group.Status = *got.Status
	w.Waves.Rollout = nil
	w.Waves.Target, w.Waves.TargetRevisions = nil, nil
	if got := Plan(noon, Config{}.WithDefaults(), w); got.Status == nil || got.Status.RolloutRevisions != nil || got.Rollout != ReasonRolledOut {
		t.Errorf("without a Rollout: event %q, %+v", got.Rollout, got.Status)
	}
}

// Whatever state a Rollout is in, only units that it reaches are touched, and no more than may be changing.
// A robot that refuses again and again does not keep a Rollout from the units of others.
func TestPlan_WavesPassAWithdrawnUnit(t *testing.T) {
	for name, c := range map[string]struct {
		first     func(*Member)
		wantEvict string
	}{"in its pause": {evictionRefused, "b"}, "after its pause": {evictionRefusedBefore, "b"}} {
		w := newInput(10, inWaves(), inState("running"))
		w.Members = []Member{member(0, lifecycle.TaskRunning, outdated, justStarted, c.first), member(1, lifecycle.TaskRunning, outdated)}
		got := Plan(noon, Config{}.WithDefaults(), w)
		if len(got.Evict) != 1 || got.Evict[0].Name != c.wantEvict {
			t.Errorf("%s: evicts %+v", name, got.Evict)
		}
	}
}

func TestPlan_WavesTouchOnlyDecidedUnits(t *testing.T) {
	phases := []string{
		"", v1alpha1.RolloutPending, v1alpha1.RolloutProgressing, v1alpha1.RolloutWaitingForApproval, v1alpha1.RolloutPausing, v1alpha1.RolloutPaused,
		v1alpha1.RolloutAborted, v1alpha1.RolloutReverting, v1alpha1.RolloutReverted, v1alpha1.RolloutComplete,
	}
	states := []lifecycle.TaskState{
		lifecycle.TaskPending, lifecycle.TaskDispatching, lifecycle.TaskRunning, lifecycle.TaskUnknown, lifecycle.TaskExited, lifecycle.TaskSoftFailed,
		lifecycle.TaskFailed, lifecycle.TaskCompleted, lifecycle.TaskPaused,
	}
	rapid.Check(t, func(t *rapid.T) {
		isSystem := rapid.Bool().Draw(t, "system")
		n := rapid.IntRange(1, 8).Draw(t, "units")
		limit := rapid.IntRange(1, 4).Draw(t, "limit")
		bound := rapid.Int64Range(0, rollout.EndPosition)
		w := newInput(int32(n), inState("running"), inWaves(func(r *v1alpha1.Rollout) {
			r.UID = types.UID(rapid.StringN(1, 4, -1).Draw(t, "uid"))
			r.Spec.MaxUnavailable = new(intstr.FromInt(limit))
			r.Spec.Follow = new(rapid.Bool().Draw(t, "follow"))
			r.Spec.Waves = append(r.Spec.Waves, v1alpha1.RolloutWave{Name: "last"})
			if isSystem && rapid.Bool().Draw(t, "selector") {
				r.Spec.Waves[0].RobotSelector = map[string]string{"first": "yes"}
			}
			r.Status.Phase = rapid.SampledFrom(phases).Draw(t, "phase")
			r.Status.Waves = nil
			for i := range rapid.IntRange(0, 2).Draw(t, "waves") {
				s := v1alpha1.RolloutWaveStatus{Name: r.Spec.Waves[i].Name, Bound: bound.Draw(t, "bound"), AdmittedBound: bound.Draw(t, "admitted")}
				if rapid.Bool().Draw(t, "finished") {
					s.FinishedAt = &metav1.MicroTime{Time: noon}
				}
				r.Status.Waves = append(r.Status.Waves, s)
			}
		}))
		if rapid.Bool().Draw(t, "no rollout") {
			w.Waves.Rollout = nil
		}
		if isSystem {
			w.Job.Spec.Type, w.Fleet = v1alpha1.JobTypeSystem, map[string]RobotMatch{}
		}
		counts := newGroupCounts()
		revisions := []string{w.Waves.BaseRevisions["t"], w.Waves.TargetRevisions["t"], "other"}
		var names []string
		for i := range n {
			robot := fmt.Sprint("r", i)
			task := w.newTaskBuilder().buildTask(fmt.Sprint("j-g-", i, "-t"), i, &w.Group.Spec.Tasks[0], robotNamed(robot))
			task.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
			task.Labels[v1alpha1.LabelRevision] = rapid.SampledFrom(revisions).Draw(t, "revision")
			task.Status.State, task.Status.Attempt = string(rapid.SampledFrom(states).Draw(t, "state")), 2
			task.Spec.EvictAttempt = rapid.Int32Range(0, 2).Draw(t, "evict")
			names = append(names, task.Name)
			if isSystem {
				fit := RobotMatch{Schedulable: true, Online: rapid.Bool().Draw(t, "online")}
				if rapid.Bool().Draw(t, "first") {
					fit.Labels = map[string]string{"first": "yes"}
				}
				w.Fleet[robot] = fit
			}
			counts.withGroup("g", func(m *groupTasks) { m.recordTask(noon, task) })
		}
		w.Group.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRolledOut, Status: metav1.ConditionFalse}}
		var before map[string]taskRecord
		counts.withGroup("g", func(m *groupTasks) { m.fillInput(&w, nil); before = m.records })
		got := Plan(noon, Config{}.WithDefaults(), w)
		touched := slices.Clone(got.Delete)
		for _, r := range got.Revise {
			if !r.Keep {
				touched = append(touched, r.Name)
			}
		}
		for _, m := range got.Evict {
			touched = append(touched, m.Name)
		}
		for i, name := range names {
			decision := w.Waves.decide(w.Waves.unitOf(i, before[name].robot))
			if slices.Contains(touched, name) && decision == rollout.Keep {
				t.Errorf("%s is touched, although its unit keeps what it has: %+v", name, got)
			}
		}
		fresh := 0
		for _, m := range got.Evict {
			if m.Evict == 0 {
				fresh++
			}
		}
		if fresh > limit {
			t.Errorf("evicts %d units, at most %d may be changing", fresh, limit)
		}
	})
}
