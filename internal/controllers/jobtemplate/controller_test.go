package jobtemplate

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

func TestTemplateOf(t *testing.T) {
	long := strings.Repeat("x", 80)
	for _, c := range []struct {
		name              string
		label, annotation string
		want              string
	}{
		{"a Job that no flow has made", "", "", ""},
		{"the annotation says it", "ns.a", "ns.a", "a"},
		{"a name may have dots", "ns.a.b.c", "ns.a.b.c", "a.b.c"},
		{"a label is shortened, the annotation is not", "ns.xxx-hash", "ns." + long, long},
		{"a Job that has the label alone", "ns.a", "", "a"},
		{"another namespace's is none of ours", "other.a", "other.a", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{}, Annotations: map[string]string{}}}
			if c.label != "" {
				j.Labels[flowv1.KeyCreatedByJobTemplate] = c.label
			}
			if c.annotation != "" {
				j.Annotations[flowv1.KeyCreatedByJobTemplate] = c.annotation
			}
			if got := TemplateOf(j); got != c.want {
				t.Errorf("it was made from %q, want %q", got, c.want)
			}
		})
	}
}

func TestJobNames_AreSorted(t *testing.T) {
	jobs := &batchv1.JobList{Items: make([]batchv1.Job, 3)}
	for i, name := range []string{"c", "a", "b"} {
		jobs.Items[i].Name = name
	}
	if got := JobNames(jobs); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("%v", got)
	}
}
