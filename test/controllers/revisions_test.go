package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

// jobsOnly runs the job controller alone, so that a test writes the status of Rollouts.
var jobsOnly = manager.Config{Controllers: []string{"job"}}

func TestJob_Revisions(t *testing.T) {
	t.Parallel()
	s := startApart(t, apartServer, jobsOnly, caseNamespaces("revisions", 6)...)
	runCasesInTurn(t, "revisions", s.namespace, []testCase[*space]{
		{"with Rollout an edit makes a revision and changes no TaskGroup", makesARevision},
		{"with Immediate the TaskGroups follow", followsAtOnce},
		{"older revisions are deleted beyond the limit", limitsTheHistory},
		{"a complete Rollout makes its revision the current one", followsARollout},
		{"a batch job has none, and cannot use Rollout", hasNoRevisions},
		{"only the manager writes the revisions of a Job", protectsRevisions},
	})
}

// usesStrategy sets update.strategy.
func usesStrategy(strategy string) func(*v1alpha1.JobSpec) {
	return func(j *v1alpha1.JobSpec) { j.Update = &v1alpha1.JobUpdate{Strategy: strategy} }
}

// awaitRevisions waits until a Job with one group has these revisions in its status, and stores these ones,
// each as NUMBER=WORD.
func (s *space) awaitRevisions(job string, current, update int64, stored ...string) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("revisions %d and %d of job %s", current, update, job), func() error {
		var j v1alpha1.Job
		if err := s.Get(s.Context(), s.key(job), &j); err != nil {
			return err
		}
		var is []string
		for _, r := range s.revisionsOf(job) {
			c, err := jobrevision.Decode(&r)
			if err != nil {
				return err
			}
			is = append(is, fmt.Sprintf("%d=%s", r.Revision, c.TaskGroups[0].Tasks[0].Env["WORD"]))
		}
		slices.Sort(is)
		if st := j.Status; st.CurrentRevision != current || st.UpdateRevision != update || st.ObservedGeneration != j.Generation || !slices.Equal(is, stored) {
			return fmt.Errorf("status %d and %d of generation %d of %d, revisions %v", st.CurrentRevision, st.UpdateRevision, st.ObservedGeneration, j.Generation, is)
		}
		return nil
	})
}

func (s *space) revisionsOf(job string) []appsv1.ControllerRevision {
	s.Helper()
	var list appsv1.ControllerRevisionList
	s.must(s.List(s.Context(), &list, client.InNamespace(s.name), client.MatchingLabels{v1alpha1.LabelPrefixedJob: job}))
	return list.Items
}

// requireGroup fails the test unless a TaskGroup has this word, and was changed so often.
func (s *space) requireGroup(name, word string, generation int64) {
	s.Helper()
	g := s.group(name)
	if got := g.Spec.Tasks[0].Env["WORD"]; got != word || g.Generation != generation {
		s.Errorf("TaskGroup %s has %q in generation %d, want %q in %d", name, got, g.Generation, word, generation)
	}
}

func makesARevision(s *space) {
	s.jobOf(v1alpha1.JobTypeService, "j", usesStrategy(v1alpha1.UpdateRollout), group("g", 1, "t"))
	s.awaitRevisions("j", 1, 1, "1=")
	s.must(s.updateJobSpec("j", withWord(0, "new")))
	s.awaitRevisions("j", 1, 2, "1=", "2=new")
	s.requireGroup("j-g", "", 1)
	s.must(s.updateJobSpec("j", replicas(3)))
	testkit.Eventually(s, waitTimeout, "the count follows", func() bool { return *s.group("j-g").Spec.Count == 3 })
	s.requireGroup("j-g", "", 2)
	s.must(s.updateJobSpec("j", func(j *v1alpha1.JobSpec) { j.TaskGroups[0].Tasks[0].Env = nil }))
	s.awaitRevisions("j", 3, 3, "2=new", "3=")
	s.must(s.updateJobSpec("j", withWord(0, "new")))
	s.awaitRevisions("j", 3, 4, "3=", "4=new")
	s.must(s.updateJobSpec("j", usesStrategy(v1alpha1.UpdateImmediate)))
	s.awaitRevisions("j", 4, 4, "3=", "4=new")
	s.requireGroup("j-g", "new", 3)
	err := s.updateJobSpec("j", func(j *v1alpha1.JobSpec) {
		usesStrategy(v1alpha1.UpdateRollout)(j)
		j.TaskGroups = append(j.TaskGroups, group("more", 1, "t"))
	})
	if err == nil || !strings.Contains(err.Error(), "spec.taskGroups: more cannot be added to an existing Job; create another Job for it") {
		s.Errorf("another set of groups: %v", err)
	}
}

func followsAtOnce(s *space) {
	s.jobOf(v1alpha1.JobTypeSystem, "j", nil, group("g", 1, "t"))
	s.awaitRevisions("j", 1, 1, "1=")
	s.must(s.updateJobSpec("j", withWord(0, "new")))
	s.awaitRevisions("j", 2, 2, "1=", "2=new")
	s.requireGroup("j-g", "new", 2)
	s.must(s.updateJobSpec("j", usesStrategy(v1alpha1.UpdateRollout)))
	s.awaitRevisions("j", 2, 2, "1=", "2=new")
	s.requireGroup("j-g", "new", 2)
}

func limitsTheHistory(s *space) {
	limit := int32(2)
	s.jobOf(v1alpha1.JobTypeService, "j", func(j *v1alpha1.JobSpec) { j.RevisionHistoryLimit = &limit }, group("g", 1, "t"))
	s.awaitRevisions("j", 1, 1, "1=")
	for i, want := range [][]string{{"1=", "2=w2"}, {"1=", "2=w2", "3=w3"}, {"2=w2", "3=w3", "4=w4"}, {"3=w3", "4=w4", "5=w5"}} {
		number := int64(i) + 2
		s.must(s.updateJobSpec("j", withWord(0, fmt.Sprintf("w%d", number))))
		s.awaitRevisions("j", number, number, want...)
	}
}

func followsARollout(s *space) {
	s.jobOf(v1alpha1.JobTypeService, "j", usesStrategy(v1alpha1.UpdateRollout), group("g", 1, "t"))
	s.awaitRevisions("j", 1, 1, "1=")
	s.must(s.updateJobSpec("j", withWord(0, "new")))
	s.awaitRevisions("j", 1, 2, "1=", "2=new")
	all := int32(100)
	r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "r"}, Spec: v1alpha1.RolloutSpec{
		Target: v1alpha1.RolloutTarget{Kind: "Job", Name: "j"}, Waves: []v1alpha1.RolloutWave{{Name: "all", Percent: &all}},
	}}
	s.must(s.Create(s.Context(), r))
	r.Status = v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutProgressing, Revision: 2, FromRevision: 1, TargetUID: s.jobNow("j").UID}
	s.must(s.Status().Update(s.Context(), r))
	s.requireGroup("j-g", "", 1)
	r.Status.Phase = v1alpha1.RolloutComplete
	s.must(s.Status().Update(s.Context(), r))
	s.awaitRevisions("j", 2, 2, "1=", "2=new")
	s.requireGroup("j-g", "new", 2)
}

func hasNoRevisions(s *space) {
	s.jobOf(v1alpha1.JobTypeBatch, "j", nil, group("g", 1, "t"))
	s.awaitRevisions("j", 0, 0)
	s.must(s.updateJobSpec("j", withWord(0, "new")))
	s.awaitRevisions("j", 0, 0)
	s.requireGroup("j-g", "new", 2)
	for kind, o := range map[string]client.Object{
		"Job":         &v1alpha1.Job{Spec: v1alpha1.JobSpec{Update: &v1alpha1.JobUpdate{Strategy: v1alpha1.UpdateRollout}, TaskGroups: []v1alpha1.TaskGroupDefinition{group("g", 1, "t")}}},
		"JobTemplate": &v1alpha1.JobTemplate{Spec: v1alpha1.JobSpec{Update: &v1alpha1.JobUpdate{Strategy: v1alpha1.UpdateRollout}, TaskGroups: []v1alpha1.TaskGroupDefinition{group("g", 1, "t")}}},
	} {
		o.SetNamespace(s.name)
		o.SetName("rolls")
		err := s.Create(s.Context(), o)
		if err == nil || !strings.Contains(err.Error(), "spec.update.strategy: a job of type batch has no revisions, so no Rollout can change it; omit update, or use type: service") {
			s.Errorf("a %s of type batch with Rollout: %v", kind, err)
		}
	}
}

func protectsRevisions(s *space) {
	s.jobOf(v1alpha1.JobTypeService, "j", usesStrategy(v1alpha1.UpdateRollout), group("g", 1, "t"))
	s.awaitRevisions("j", 1, 1, "1=")
	s.must(s.Create(s.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "revisions"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{appsv1.GroupName}, Resources: []string{"controllerrevisions"}, Verbs: []string{"create", "update"}},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"jobs/finalizers"}, Verbs: []string{"update"}},
	}}))
	s.must(s.Create(s.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "revisions"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "revisions"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}},
	}))
	tenant, stored := s.as("tenant"), s.revisionsOf("j")[0]
	own := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "own"}, Revision: 1, Data: runtime.RawExtension{Raw: []byte(`{}`)}}
	testkit.EventuallyNoError(s, waitTimeout, "the right is in force", func() error { return tenant.Create(s.Context(), own.DeepCopy()) })
	s.must(s.Get(s.Context(), s.key("own"), own))
	injected := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "injected", OwnerReferences: stored.OwnerReferences}, Revision: 9, Data: stored.Data}
	owned := own.DeepCopy()
	owned.OwnerReferences = stored.OwnerReferences
	renumbered := stored.DeepCopy()
	renumbered.Revision = 9
	awaitPolicies(s.T, s)
	for name, err := range map[string]error{
		"creating a revision of a Job":  tenant.Create(s.Context(), injected),
		"giving another one to the Job": tenant.Update(s.Context(), owned),
		"another number":                tenant.Update(s.Context(), renumbered),
	} {
		if err == nil || !strings.Contains(err.Error(), "the revisions of a Job determine what runs on robots, and only the manager writes them") {
			s.Errorf("%s: %v", name, err)
		}
	}
	orphaned := stored.DeepCopy()
	orphaned.OwnerReferences = nil
	if err := tenant.Update(s.Context(), orphaned, client.DryRunAll); err != nil {
		s.Errorf("the garbage collector could not orphan it: %v", err)
	}
}
