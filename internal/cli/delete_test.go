package cli

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

func TestDelete_PrintsResult(t *testing.T) {
	for _, row := range []struct {
		name, golden string
		args         []string
	}{
		{"two jobs by name", "delete-two", []string{"delete", "job", "demo", "other"}},
		{"by reference", "delete-ref", []string{"delete", "job/demo"}},
		{"all", "delete-all", []string{"delete", "jobs", "--all"}},
		{"all of none", "delete-none", []string{"delete", "job", "--all", "-n", "empty"}},
		{"a missing one does not keep the others", "delete-missing", []string{"delete", "job", "nope", "demo"}},
		{"the beginning of a name is not enough", "delete-prefix", []string{"delete", "job", "dem"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, job("demo"), job("other"))
			golden.Equal(t, row.golden, b.transcript(b.run(row.args...)))
		})
	}
}

// held returns a Job that stays until its finalizer is removed.
func held() *robotv1.Job {
	j := job("demo")
	j.Finalizers = []string{metav1.FinalizerDeleteDependents}
	return j
}

func TestDelete_WaitsUntilJobIsGone(t *testing.T) {
	b := newBench(t, held())
	done := b.start("delete", "job", "demo")
	b.awaitWatches(1)
	if status := len(done); status != 0 {
		t.Fatal("did not wait")
	}
	change(b, &robotv1.Job{}, "demo", func(j *robotv1.Job) { j.Finalizers = nil })
	golden.Equal(t, "delete-waited", b.transcript(b.awaitExit(done)))
}

func TestDelete_ReturnsWithoutWait(t *testing.T) {
	b := newBench(t, held())
	golden.Equal(t, "delete-no-wait", b.transcript(b.run("delete", "job", "demo", "--wait=false")))
	var j robotv1.Job
	if err := b.client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "demo"}, &j); err != nil || j.DeletionTimestamp == nil {
		t.Errorf("error %v, deletion timestamp %v", err, j.DeletionTimestamp)
	}
}

func TestDelete_StopsOnInterrupt(t *testing.T) {
	b := newBench(t, held())
	done := b.start("delete", "job", "demo")
	b.awaitWatches(1)
	close(b.interrupt)
	golden.Equal(t, "delete-interrupted", b.transcript(b.awaitExit(done)))
}

func TestDelete_UsesForegroundAndUIDPrecondition(t *testing.T) {
	b := newBench(t, job("demo"))
	var seen client.DeleteOptions
	b.hooks.Delete = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		seen.ApplyOptions(opts)
		return c.Delete(ctx, o)
	}
	b.run("delete", "job", "demo")
	if seen.PropagationPolicy == nil || *seen.PropagationPolicy != metav1.DeletePropagationForeground {
		t.Errorf("propagation %v", seen.PropagationPolicy)
	}
	if seen.Preconditions == nil || seen.Preconditions.UID == nil || *seen.Preconditions.UID != "uid-demo" {
		t.Errorf("preconditions %v", seen.Preconditions)
	}
}
