package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
)

// revisionStory applies plans to their own input, as the API server and the cache would.
type revisionStory struct {
	t  *testing.T
	in Input
}

// newRevisionStory starts with a job that was just created.
func newRevisionStory(t *testing.T, strategy string) *revisionStory {
	s := &revisionStory{t: t, in: newInput("", ofType(v1alpha1.JobTypeService))}
	s.in.Job.Spec.Update = &v1alpha1.JobUpdate{Strategy: strategy}
	s.edit("v1")
	return s
}

// edit changes what the tasks of both groups run.
func (s *revisionStory) edit(version string) {
	s.in.Job.Generation++
	for i := range s.in.Job.Spec.TaskGroups {
		s.in.Job.Spec.TaskGroups[i].Tasks = []v1alpha1.TaskDefinition{{Name: "t", Driver: "exec", Env: map[string]string{"V": version}}}
	}
}

// setRollout adds a Rollout, or replaces it.
func (s *revisionStory) setRollout(name, phase string, from, to int64) {
	r := v1alpha1.Rollout{}
	r.Name, r.Spec.Target.Name, r.CreationTimestamp.Time = name, "j", noon
	r.UID = types.UID(name) // of Rollouts that were created in the same second, the greater UID is the newer one
	r.Status = v1alpha1.RolloutStatus{Phase: phase, Revision: to, FromRevision: from, TargetUID: s.in.Job.UID}
	s.in.Rollouts = slices.DeleteFunc(s.in.Rollouts, func(o v1alpha1.Rollout) bool { return o.Name == name })
	s.in.Rollouts = append(s.in.Rollouts, r)
}

// settle plans until nothing changes, and returns the state.
func (s *revisionStory) settle() string {
	s.t.Helper()
	for range 10 {
		if !s.apply(Plan(noon, 0, s.in)) {
			return s.String()
		}
	}
	s.t.Errorf("it does not settle: %s", s)
	return ""
}

// apply carries out a plan, and reports whether it had writes.
func (s *revisionStory) apply(a Actions) bool {
	writes := len(a.Create)+len(a.Update)+len(a.Revisions.Delete) > 0 || a.Status != nil || a.Revisions.Update != nil || a.Revisions.Create != nil
	if r := a.Revisions.Create; r != nil {
		s.in.Revisions = append(s.in.Revisions, r)
	}
	for _, gone := range append(slices.Clone(a.Revisions.Delete), a.Revisions.Update) {
		s.in.Revisions = slices.DeleteFunc(s.in.Revisions, func(r *appsv1.ControllerRevision) bool { return gone != nil && r.Name == gone.Name })
	}
	if r := a.Revisions.Update; r != nil {
		s.in.Revisions = append(s.in.Revisions, r)
	}
	for _, g := range append(slices.Clone(a.Create), a.Update...) {
		s.in.Groups[strings.TrimPrefix(g.Name, "j-")] = g
	}
	if a.Status != nil {
		s.in.Job.Status = *a.Status
	}
	return writes
}

func (s *revisionStory) String() string {
	var stored, groups []string
	for _, r := range slices.SortedFunc(slices.Values(s.in.Revisions), func(a, b *appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) }) {
		c, err := jobrevision.Decode(r)
		if err != nil {
			s.t.Fatal(err)
		}
		stored = append(stored, fmt.Sprintf("%d=%s", r.Revision, c.TaskGroups[0].Tasks[0].Env["V"]))
	}
	for _, name := range slices.Sorted(maps.Keys(s.in.Groups)) {
		groups = append(groups, s.in.Groups[name].Spec.Tasks[0].Env["V"])
	}
	j := s.in.Job.Status
	return fmt.Sprintf("current %d, update %d; revisions %s; groups %s", j.CurrentRevision, j.UpdateRevision, strings.Join(stored, " "), strings.Join(groups, " "))
}

// storyStep is a change, and the state that follows.
type storyStep struct {
	name   string
	change func(*revisionStory)
	want   string
}

func edits(version string) func(*revisionStory) {
	return func(s *revisionStory) { s.edit(version) }
}

func setsStrategy(strategy string) func(*revisionStory) {
	return func(s *revisionStory) { s.in.Job.Spec.Update = &v1alpha1.JobUpdate{Strategy: strategy} }
}

func setsRollout(name, phase string, from, to int64) func(*revisionStory) {
	return func(s *revisionStory) { s.setRollout(name, phase, from, to) }
}

func deletesRevision(number int64) func(*revisionStory) {
	return func(s *revisionStory) {
		s.in.Revisions = slices.DeleteFunc(s.in.Revisions, func(r *appsv1.ControllerRevision) bool { return r.Revision == number })
	}
}

// inTurn makes several changes at once.
func inTurn(changes ...func(*revisionStory)) func(*revisionStory) {
	return func(s *revisionStory) {
		for _, f := range changes {
			f(s)
		}
	}
}

func keepsHistory(limit int32) func(*revisionStory) {
	return func(s *revisionStory) { s.in.Job.Spec.RevisionHistoryLimit = &limit }
}

func nothing(*revisionStory) {}

func TestPlan_RevisionStories(t *testing.T) {
	const immediate, rollout = v1alpha1.UpdateImmediate, v1alpha1.UpdateRollout
	for _, c := range []struct {
		name, strategy string
		steps          []storyStep
	}{
		{"with Immediate the groups follow the spec", immediate, []storyStep{
			{"a new job", nothing, "current 1, update 1; revisions 1=v1; groups v1 v1"},
			{"an edit", edits("v2"), "current 2, update 2; revisions 1=v1 2=v2; groups v2 v2"},
			{"equal older content gets the next number", edits("v1"), "current 3, update 3; revisions 2=v2 3=v1; groups v1 v1"},
		}},
		{"with Rollout an edit makes a revision and changes no group", rollout, []storyStep{
			{"a new job", nothing, "current 1, update 1; revisions 1=v1; groups v1 v1"},
			{"an edit", edits("v2"), "current 1, update 2; revisions 1=v1 2=v2; groups v1 v1"},
			{"the edit is taken back", edits("v1"), "current 3, update 3; revisions 2=v2 3=v1; groups v1 v1"},
			{"once more", edits("v2"), "current 3, update 4; revisions 3=v1 4=v2; groups v1 v1"},
		}},
		{"a complete Rollout makes its revision the current one", rollout, []storyStep{
			{"an edit", inTurn(func(s *revisionStory) { s.settle() }, edits("v2")), "current 1, update 2; revisions 1=v1 2=v2; groups v1 v1"},
			{"it progresses", setsRollout("r1", v1alpha1.RolloutProgressing, 1, 2), "current 1, update 2; revisions 1=v1 2=v2; groups v1 v1"},
			{"revisions of a live Rollout keep their numbers", edits("v1"), "current 1, update 1; revisions 1=v1 2=v2; groups v1 v1"},
			{"also afterwards", setsRollout("r1", v1alpha1.RolloutSuperseded, 1, 2), "current 1, update 1; revisions 1=v1 2=v2; groups v1 v1"},
			{"it progresses again", setsRollout("r1", v1alpha1.RolloutProgressing, 1, 2), "current 1, update 1; revisions 1=v1 2=v2; groups v1 v1"},
			{"also its target", inTurn(edits("v3"), func(s *revisionStory) { s.settle() }, edits("v2")), "current 1, update 2; revisions 1=v1 2=v2 3=v3; groups v1 v1"},
			{"it is complete", setsRollout("r1", v1alpha1.RolloutComplete, 1, 2), "current 2, update 2; revisions 1=v1 2=v2 3=v3; groups v2 v2"},
			{"the way back is a new revision", edits("v1"), "current 2, update 4; revisions 2=v2 3=v3 4=v1; groups v2 v2"},
			{"a newer Rollout decides", setsRollout("r2", v1alpha1.RolloutAborted, 2, 4), "current 2, update 4; revisions 2=v2 3=v3 4=v1; groups v2 v2"},
			{"also one to an older revision", setsRollout("r3", v1alpha1.RolloutComplete, 2, 3), "current 3, update 4; revisions 2=v2 3=v3 4=v1; groups v3 v3"},
			{"one that starts before the status names the last one", setsRollout("r4", v1alpha1.RolloutComplete, 2, 4), "current 4, update 4; revisions 2=v2 3=v3 4=v1; groups v1 v1"},
			{"one back to an older revision", setsRollout("r5", v1alpha1.RolloutComplete, 4, 2), "current 2, update 4; revisions 2=v2 3=v3 4=v1; groups v2 v2"},
		}},
		{"a change of the strategy", immediate, []storyStep{
			{"to Rollout changes nothing", inTurn(func(s *revisionStory) { s.settle() }, setsStrategy(rollout)), "current 1, update 1; revisions 1=v1; groups v1 v1"},
			{"with an edit changes nothing", inTurn(setsStrategy(immediate), func(s *revisionStory) { s.settle() }, setsStrategy(rollout), edits("v2")), "current 1, update 2; revisions 1=v1 2=v2; groups v1 v1"},
			{"a Rollout completes", setsRollout("r1", v1alpha1.RolloutComplete, 1, 2), "current 2, update 2; revisions 1=v1 2=v2; groups v2 v2"},
			{"another edit", edits("v3"), "current 2, update 3; revisions 1=v1 2=v2 3=v3; groups v2 v2"},
			{"to Immediate applies the spec", setsStrategy(immediate), "current 3, update 3; revisions 1=v1 2=v2 3=v3; groups v3 v3"},
			{"back to Rollout does not repeat the complete one", setsStrategy(rollout), "current 3, update 3; revisions 1=v1 2=v2 3=v3; groups v3 v3"},
		}},
		{"garbage is collected", rollout, []storyStep{
			{"at the limit", inTurn(keepsHistory(1), func(s *revisionStory) { s.settle() }, edits("v2")), "current 1, update 2; revisions 1=v1 2=v2; groups v1 v1"},
			{"the current revision is kept", inTurn(edits("v3"), func(s *revisionStory) { s.settle() }, edits("v4")), "current 1, update 4; revisions 1=v1 3=v3 4=v4; groups v1 v1"},
			{"that of a Rollout too", inTurn(setsRollout("r1", v1alpha1.RolloutPaused, 1, 3), edits("v5"), func(s *revisionStory) { s.settle() }, edits("v6")), "current 1, update 6; revisions 1=v1 3=v3 5=v5 6=v6; groups v1 v1"},
			{"until it is superseded", setsRollout("r1", v1alpha1.RolloutSuperseded, 1, 3), "current 1, update 6; revisions 1=v1 5=v5 6=v6; groups v1 v1"},
			{"with Immediate the current one is that of the spec", setsStrategy(immediate), "current 6, update 6; revisions 5=v5 6=v6; groups v6 v6"},
		}},
		{"a user deletes revisions", rollout, []storyStep{
			{"the current one of an unchanged job is stored again", inTurn(func(s *revisionStory) { s.settle() }, deletesRevision(1)), "current 2, update 2; revisions 2=v1; groups v1 v1"},
			{"without it the groups keep what they have", inTurn(edits("v2"), func(s *revisionStory) { s.settle() }, deletesRevision(2)), "current 2, update 3; revisions 3=v2; groups v1 v1"},
			{"other fields of the groups still follow", func(s *revisionStory) { grown(&s.in) }, "current 2, update 3; revisions 3=v2; groups v1 v1"},
			{"the next edit counts on", edits("v3"), "current 2, update 4; revisions 3=v2 4=v3; groups v1 v1"},
			{"a complete Rollout to a deleted one changes nothing", setsRollout("r0", v1alpha1.RolloutComplete, 2, 9), "current 2, update 4; revisions 3=v2 4=v3; groups v1 v1"},
			{"a Rollout goes on from there", setsRollout("r1", v1alpha1.RolloutComplete, 2, 3), "current 3, update 4; revisions 3=v2 4=v3; groups v2 v2"},
		}},
		{"a job of a manager without revisions", immediate, []storyStep{
			{"gets its first", inTurn(func(s *revisionStory) { s.settle() }, deletesRevision(1), func(s *revisionStory) { s.in.Job.Status.CurrentRevision, s.in.Job.Status.UpdateRevision = 0, 0 }), "current 1, update 1; revisions 1=v1; groups v1 v1"},
			{"also if it is edited meanwhile", inTurn(setsStrategy(rollout), edits("v2"), deletesRevision(1), func(s *revisionStory) { s.in.Job.Status.CurrentRevision, s.in.Job.Status.UpdateRevision = 0, 0 }), "current 0, update 1; revisions 1=v2; groups v1 v1"},
			{"a Rollout completes", setsRollout("r1", v1alpha1.RolloutComplete, 0, 1), "current 1, update 1; revisions 1=v2; groups v2 v2"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newRevisionStory(t, c.strategy)
			for _, step := range c.steps {
				step.change(s)
				if got := s.settle(); got != step.want {
					t.Errorf("%s:\n got %s\nwant %s", step.name, got, step.want)
				}
			}
		})
	}
}

func TestPlan_RolloutChangesLiveFieldsOnly(t *testing.T) {
	s := newRevisionStory(t, v1alpha1.UpdateRollout)
	s.settle()
	s.edit("v2")
	g := &s.in.Job.Spec.TaskGroups[0]
	seven := int32(7)
	g.Count, g.Meta, g.Update = &seven, map[string]string{"k": "v"}, &v1alpha1.Update{MaxParallel: seven}
	g.Constraints, g.RestartPolicy, g.EphemeralDisk = []v1alpha1.Constraint{{Operand: "="}}, &v1alpha1.RestartPolicy{Attempts: 9}, &v1alpha1.EphemeralDisk{SizeMB: 9}
	s.settle()
	is := s.in.Groups["a"].Spec
	if *is.Count != 7 || is.Update == nil {
		t.Errorf("fields that are not part of a revision do not follow: %+v", is)
	}
	if is.Tasks[0].Env["V"] != "v1" || is.Meta != nil || is.Constraints != nil || is.RestartPolicy != nil || is.EphemeralDisk != nil {
		t.Errorf("fields of the revision follow: %+v", is)
	}
}

// A policy keeps the names of the groups. Without it a new group has what the spec says.
func TestPlan_GroupThatCurrentRevisionLacks(t *testing.T) {
	s := newRevisionStory(t, v1alpha1.UpdateRollout)
	s.settle()
	s.edit("v2")
	s.in.Job.Spec.TaskGroups[1].Name = "c"
	s.settle()
	if a, c := s.in.Groups["a"].Spec.Tasks[0].Env["V"], s.in.Groups["c"].Spec.Tasks[0].Env["V"]; a != "v1" || c != "v2" {
		t.Errorf("a has %s, c has %s", a, c)
	}
	deletesRevision(1)(s)
	if got := s.settle(); got != "current 1, update 2; revisions 2=v2; groups v1 v1 v2" {
		t.Errorf("without the current revision: %s", got)
	}
}

func TestPlan_BatchJobHasNoRevisions(t *testing.T) {
	for _, kind := range []string{"", v1alpha1.JobTypeBatch} {
		s := newRevisionStory(t, v1alpha1.UpdateRollout)
		s.in.Job.Spec.Type = kind
		if got := s.settle(); got != "current 0, update 0; revisions ; groups v1 v1" {
			t.Errorf("type %q: %s", kind, got)
		}
		s.edit("v2")
		if got := s.settle(); got != "current 0, update 0; revisions ; groups v2 v2" {
			t.Errorf("type %q: %s", kind, got)
		}
	}
}

// A stale cache would lead to a second revision with the same number.
func TestPlan_WaitsForStoredRevision(t *testing.T) {
	s := newRevisionStory(t, v1alpha1.UpdateRollout)
	s.settle()
	s.edit("v2")
	s.in.AwaitsRevisions = true
	grown(&s.in)
	got := Plan(noon, 0, s.in)
	if r := got.Revisions; r.Create != nil || r.Update != nil || r.Delete != nil {
		t.Errorf("revisions %+v", r)
	}
	if len(got.Update) != 1 || got.Update[0].Spec.Tasks[0].Env["V"] != "v1" {
		t.Errorf("updates %+v", got.Update)
	}
	if got.Status != nil && (got.Status.ObservedGeneration != 1 || got.Status.UpdateRevision != 1) {
		t.Errorf("status %+v", got.Status)
	}
	delete(s.in.Groups, "a")
	s.in.Revisions = nil
	if got := Plan(noon, 0, s.in); len(got.Create) != 0 || got.RequeueAt.IsZero() {
		t.Errorf("creates %+v before the current revision is known, again at %s", got.Create, got.RequeueAt)
	}
	clear(s.in.Groups)
	s.in.Revisions = []*appsv1.ControllerRevision{newRevision(s.in.Job, encodeSpec(t, &s.in.Job.Spec), 2, nil)}
	if got := Plan(noon, 0, s.in); len(got.Create) != 0 {
		t.Errorf("creates %+v with another revision", got.Create)
	}
}

func encodeSpec(t *testing.T, spec *v1alpha1.JobSpec) []byte {
	t.Helper()
	data, err := jobrevision.ContentOf(spec).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Groups that the cache does not show may have another content than the one that was found.
func TestPlan_CurrentRevisionIsNotGuessedWhileGroupsAreCreated(t *testing.T) {
	s := newRevisionStory(t, v1alpha1.UpdateRollout)
	s.in.Revisions = []*appsv1.ControllerRevision{Plan(noon, 0, s.in).Revisions.Create}
	s.in.Creating = map[string]bool{"j-a": true, "j-b": true}
	s.edit("v2")
	if got := Plan(noon, 0, s.in); got.Revisions.Create == nil || got.Status.CurrentRevision != 0 || got.Status.UpdateRevision != 2 {
		t.Errorf("status %+v, revisions %+v", got.Status, got.Revisions)
	}
}

func TestPlan_GroupOutsideOfARevisionDoesNotHaveIt(t *testing.T) {
	p := &plan{Input: newInput("running", groups(v1alpha1.TaskCounts{}))}
	c := jobrevision.ContentOf(&p.Job.Spec)
	if !p.groupsHave(&c) {
		t.Error("groups do not have the revision that they were made of")
	}
	c.TaskGroups = c.TaskGroups[:1]
	if p.groupsHave(&c) {
		t.Error("group b is not in the revision")
	}
}

func TestPlan_CurrentRevisionFollowsItsNumber(t *testing.T) {
	s := newRevisionStory(t, v1alpha1.UpdateRollout)
	s.settle()
	s.edit("v2")
	s.settle()
	s.in.Groups["a"].Spec.Tasks[0].Env["V"] = "changed by hand" // so it is not found by what groups have
	s.edit("v1")
	if got := s.settle(); got != "current 3, update 3; revisions 2=v2 3=v1; groups v1 v1" {
		t.Error(got)
	}
}

func TestPlan_RevisionHasOwnerLabelAndCause(t *testing.T) {
	s := newRevisionStory(t, v1alpha1.UpdateImmediate)
	s.in.Job.Annotations = map[string]string{annotationChangeCause: "first"}
	r := Plan(noon, 0, s.in).Revisions.Create
	if !metav1.IsControlledBy(r, s.in.Job) || r.Labels[v1alpha1.LabelPrefixedJob] != "j" || r.Annotations[annotationChangeCause] != "first" || r.Name != "j-"+jobrevision.HashData(r.Data.Raw) {
		t.Errorf("revision %+v", r.ObjectMeta)
	}
	s.in.TakenRevisionNames = map[string]bool{r.Name: true}
	if name := Plan(noon, 0, s.in).Revisions.Create.Name; name == r.Name || !strings.HasPrefix(name, "j-") {
		t.Errorf("name %s is taken, and used instead: %s", r.Name, name)
	}
	s.settle()
	s.in.Job.Annotations[annotationChangeCause] = "better"
	if got := Plan(noon, 0, s.in).Revisions.Update; got == nil || got.Revision != 1 || got.Annotations[annotationChangeCause] != "better" {
		t.Errorf("update %+v", got)
	}
	delete(s.in.Job.Annotations, annotationChangeCause)
	if got := Plan(noon, 0, s.in).Revisions.Update; got != nil {
		t.Errorf("the cause is removed: %+v", got)
	}
}

// An earlier version of the manager may have written the same content with other text.
func TestPlan_FindsContentWithOtherText(t *testing.T) {
	s := newRevisionStory(t, v1alpha1.UpdateImmediate)
	s.settle()
	raw := s.in.Revisions[0].Data.Raw
	s.in.Revisions[0].Data.Raw = append([]byte(`{"of":"another version",`), raw[1:]...)
	if got := Plan(noon, 0, s.in); got.Revisions.Create != nil || got.Revisions.Update != nil {
		t.Errorf("revisions %+v", got.Revisions)
	}
}

func TestPlan_EndedJobStoresNoRevision(t *testing.T) {
	s := newRevisionStory(t, v1alpha1.UpdateImmediate)
	s.in.Job.Status = v1alpha1.JobStatus{State: "canceled", Status: "canceled"}
	if got := s.settle(); got != "current 0, update 0; revisions ; groups " {
		t.Error(got)
	}
	groups(v1alpha1.TaskCounts{CanceledTasks: 5})(&s.in)
	s.in.Job.Status.TaskCounts = v1alpha1.TaskCounts{TotalTasks: 10, CanceledTasks: 10, UnconfirmedStops: 2}
	if got := Plan(noon, 0, s.in); got.Status == nil || got.Status.UpdateRevision != 0 || got.Revisions.Create != nil {
		t.Errorf("with new counts: status %+v, revisions %+v", got.Status, got.Revisions)
	}
}
