package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// surveyJob returns a Job of type system whose task runs the version of a program.
func surveyJob(name, version string, changes ...func(*robotv1.Job)) *robotv1.Job {
	j := job(name)
	j.Spec.Type = robotv1.JobTypeSystem
	j.Spec.Update = &robotv1.JobUpdate{Strategy: robotv1.UpdateRollout}
	g := &j.Spec.TaskGroups[0]
	g.Count = nil
	g.Tasks = []robotv1.TaskDefinition{{Name: "main", Driver: "exec",
		Config: robotv1.TaskConfig{ExecConfig: &robotv1.ExecConfig{Command: "/opt/survey", Args: []string{"--version", version}}}}}
	for _, change := range changes {
		change(j)
	}
	return j
}

// atRevisions sets the current revision and that of the spec.
func atRevisions(current, update int64) func(*robotv1.Job) {
	return func(j *robotv1.Job) { j.Status.CurrentRevision, j.Status.UpdateRevision = current, update }
}

// stored returns the revision that stores the definition of a Job.
func stored(t *testing.T, j *robotv1.Job, n int64, cause string) *appsv1.ControllerRevision {
	t.Helper()
	data, err := jobrevision.ContentOf(&j.Spec).Encode()
	if err != nil {
		t.Fatal(err)
	}
	r := &appsv1.ControllerRevision{ObjectMeta: metaOf(fmt.Sprintf("%s-%d", j.Name, n)), Revision: n, Data: runtime.RawExtension{Raw: data}}
	r.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour / time.Duration(n)))
	r.Labels = map[string]string{robotv1.LabelPrefixedJob: j.Name}
	r.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, robotv1.GroupVersion.WithKind("Job"))}
	if cause != "" {
		r.Annotations = map[string]string{annotationChangeCause: cause}
	}
	return r
}

// revised returns Jobs with revisions: demo, whose spec waits for a Rollout; quick, which follows at once;
// fresh, which has only one; lone, which has none yet; and plain, of type batch.
func revised(t *testing.T) []client.Object {
	demo := surveyJob("demo", "5", atRevisions(2, 5))
	foreign := stored(t, surveyJob("demo", "4"), 4, "of an earlier job of this name")
	foreign.OwnerReferences[0].UID = "another"
	immediate := func(j *robotv1.Job) { j.Spec.Update = nil }
	regrouped := surveyJob("regrouped", "2", atRevisions(2, 2), func(j *robotv1.Job) { j.Spec.TaskGroups[0].Name = "scan" })
	old := surveyJob("regrouped", "1")
	return []client.Object{
		demo, foreign, stored(t, surveyJob("demo", "1"), 1, ""), stored(t, surveyJob("demo", "2"), 2, "release 2"), stored(t, demo, 5, "release 5"),
		surveyJob("quick", "2", immediate, atRevisions(2, 2)), stored(t, surveyJob("quick", "1"), 1, ""), stored(t, surveyJob("quick", "2"), 2, ""),
		surveyJob("fresh", "1", atRevisions(1, 1)), stored(t, surveyJob("fresh", "1"), 1, ""),
		surveyJob("lone", "1"), job("plain"),
		regrouped, stored(t, old, 1, ""), stored(t, regrouped, 2, ""),
		surveyJob("ahead", "3", atRevisions(2, 2)), stored(t, surveyJob("ahead", "1"), 1, ""), stored(t, surveyJob("ahead", "2"), 2, ""),
	}
}

func TestJobRevisions_PrintResult(t *testing.T) {
	for _, row := range []struct {
		name, golden string
		args         []string
	}{
		{"history marks the current and the update revision", "job-history", []string{"job", "history", "demo"}},
		{"history as YAML", "job-history-yaml", []string{"job", "history", "fresh", "-o", "yaml"}},
		{"history of a job without revisions", "job-history-none", []string{"job", "history", "lone"}},
		{"history of a batch job is refused", "job-history-batch", []string{"job", "history", "plain"}},
		{"diff of the current with the update revision", "job-diff", []string{"job", "diff", "demo"}},
		{"diff of a revision with the spec", "job-diff-spec", []string{"job", "diff", "demo", "1"}},
		{"diff of two revisions", "job-diff-two", []string{"job", "diff", "demo", "5", "2"}},
		{"diff without a difference", "job-diff-same", []string{"job", "diff", "quick"}},
		{"diff of an unknown revision lists the existing ones and exits with 2", "job-diff-unknown", []string{"job", "diff", "demo", "4"}},
		{"diff of a job without revisions exits with 2", "job-diff-none", []string{"job", "diff", "lone"}},
		{"rollback to the one before", "job-rollback", []string{"job", "rollback", "demo"}},
		{"rollback to a revision", "job-rollback-to", []string{"job", "rollback", "demo", "--to-revision", "1"}},
		{"rollback of a job that changes at once", "job-rollback-immediate", []string{"job", "rollback", "quick"}},
		{"rollback of a spec that is not recorded yet goes to the newest revision", "job-rollback-ahead", []string{"job", "rollback", "ahead"}},
		{"rollback to what it has", "job-rollback-already", []string{"job", "rollback", "demo", "--to-revision", "5"}},
		{"rollback to an unknown revision lists the existing ones", "job-rollback-unknown", []string{"job", "rollback", "demo", "--to-revision", "3"}},
		{"rollback without an earlier revision", "job-rollback-only", []string{"job", "rollback", "fresh"}},
		{"rollback to a group that is gone", "job-rollback-group", []string{"job", "rollback", "regrouped"}},
		{"rollback that only prints", "job-rollback-dry-run", []string{"job", "rollback", "demo", "--dry-run"}},
		{"rollback of a prefix", "job-rollback-prefix", []string{"job", "rollback", "dem"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, revised(t)...)
			golden.Equal(t, row.golden, b.transcript(b.run(row.args...)))
		})
	}
}

func TestRollback_ChangesOnlyTheContent(t *testing.T) {
	b := newBench(t, revised(t)...)
	change(b, &robotv1.Job{}, "demo", func(j *robotv1.Job) {
		j.Spec.TaskGroups[0].Update = &robotv1.Update{MaxParallel: 7}
	})
	if status := b.run("job", "rollback", "demo", "--to-revision", "1"); status != 0 {
		t.Fatalf("exit %d: %s", status, b.err.String())
	}
	j := read(b, &robotv1.Job{}, "demo")
	g := j.Spec.TaskGroups[0]
	if g.Tasks[0].Config.ExecConfig.Args[1] != "1" || g.Update == nil || g.Update.MaxParallel != 7 {
		t.Errorf("the group is %+v", g)
	}
	if cause := j.Annotations[annotationChangeCause]; cause != "rollback to revision 1" {
		t.Errorf("the change cause is %q", cause)
	}
}

func TestRollback_DryRunWritesNothing(t *testing.T) {
	for mode, want := range map[string]bool{"client": false, "server": true} {
		b := newBench(t, revised(t)...)
		sent := false
		b.hooks.Patch = func(_ context.Context, _ client.WithWatch, _ client.Object, _ client.Patch, opts ...client.PatchOption) error {
			var o client.PatchOptions
			o.ApplyOptions(opts)
			if sent = true; len(o.DryRun) != 1 {
				t.Errorf("%s: the patch is no dry run", mode)
			}
			return nil
		}
		if status := b.run("job", "rollback", "demo", "--dry-run="+mode); status != 0 || sent != want {
			t.Errorf("%s: exit %d, patched %v", mode, status, sent)
		}
	}
}

func TestRollback_RetriesAfterAConflict(t *testing.T) {
	b := newBench(t, revised(t)...)
	conflicts := 2
	b.hooks.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		data, err := p.Data(o)
		if err != nil || !strings.Contains(string(data), `"resourceVersion"`) {
			t.Errorf("the patch has no resource version: %s", data)
		}
		if conflicts--; conflicts >= 0 {
			return apierrors.NewConflict(schema.GroupResource{Resource: "jobs"}, o.GetName(), errors.New("it has changed"))
		}
		return c.Patch(ctx, o, p, opts...)
	}
	if status := b.run("job", "rollback", "demo"); status != 0 || conflicts >= 0 {
		t.Fatalf("exit %d, %d conflicts left: %s", status, conflicts, b.err.String())
	}
	if j := read(b, &robotv1.Job{}, "demo"); j.Spec.TaskGroups[0].Tasks[0].Config.ExecConfig.Args[1] != "2" {
		t.Error("the job is not rolled back")
	}
}
