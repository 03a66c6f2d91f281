package patch_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/platform/patch"
)

// writer fails with a conflict as often as conflicts says.
type writer struct {
	client.Writer
	conflicts, patches int
}

// Patch counts.
func (w *writer) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	w.patches++
	if w.patches <= w.conflicts {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("it has changed"))
	}
	return nil
}

func label(p *corev1.Pod) (string, error) {
	metav1.SetMetaDataLabel(&p.ObjectMeta, "a", "b")
	return "labeled", nil
}

func TestRetryOnConflict(t *testing.T) {
	now := metav1.Now()
	for _, c := range []struct {
		name        string
		conflicts   int
		change      func(*corev1.Pod) (string, error)
		deleted     *metav1.Time
		want        string // the message, or a part of the error
		wantPatches int
	}{
		{name: "one write", change: label, want: "labeled", wantPatches: 1},
		{name: "retries after conflicts", conflicts: 4, change: label, want: "labeled", wantPatches: 5},
		{name: "gives up after five conflicts", conflicts: 9, change: label, want: "change pod p: the object was changed during each attempt", wantPatches: 5},
		{name: "writes nothing if nothing changes", change: func(*corev1.Pod) (string, error) { return "done already", nil }, want: "done already"},
		{name: "writes nothing if the change is rejected", change: func(p *corev1.Pod) (string, error) { _, _ = label(p); return "", errors.New("not now") }, want: "not now"},
		{name: "an object that is being deleted", change: label, deleted: &now, want: "pod p is being deleted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &writer{conflicts: c.conflicts}
			read := func() (*corev1.Pod, error) {
				return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", DeletionTimestamp: c.deleted}}, nil
			}
			_, got, err := patch.RetryOnConflict(t.Context(), w, "pod p", read, c.change)
			if err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, c.want) || w.patches != c.wantPatches {
				t.Errorf("%q after %d writes", got, w.patches)
			}
		})
	}
}

func TestRetryOnConflict_FailsIfItCannotRead(t *testing.T) {
	w := &writer{}
	gone := errors.New("gone")
	_, _, err := patch.RetryOnConflict(t.Context(), w, "pod p", func() (*corev1.Pod, error) { return nil, gone }, label)
	if !errors.Is(err, gone) || w.patches != 0 {
		t.Errorf("%v after %d writes", err, w.patches)
	}
}
