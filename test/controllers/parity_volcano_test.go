package controllers

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/testkit"
)

// TestParity_VolcanoExamples applies the Jobs of Volcano's examples, and compares the stored Job, all
// Pods and the objects around them with those that Volcano makes.
func TestParity_VolcanoExamples(t *testing.T) {
	t.Parallel()
	s := paritySystem(t)
	testkit.Eventually(t, waitTimeout, "the policy with the defaults is in force", func() bool {
		j := undefaulted(metav1.NamespaceDefault, 1)
		if err := s.Create(t.Context(), j, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		return j.Spec.Tasks[0].Name != ""
	})
	if n := runSamples(t, s, "volcano"); n < 17 {
		t.Errorf("%d examples, want at least 17", n)
	}
}

// runDependencies lets Pods run, as the kubelet does, for which Pods of other tasks wait. The latter
// must not exist before.
func (p parity) runDependencies() {
	p.Helper()
	n := 0
	for i := range p.sample.Pods {
		e := &p.sample.Pods[i]
		if e.Waits {
			for _, pod := range p.await("pods of tasks before "+e.Values["task"], n, kindPod) {
				p.pod(pod.GetName(), corev1.PodRunning, 0)
			}
		}
		n += orDefault(e.Count, 1)
	}
}

// compareStored compares the subject of the sample with the object that the API server has stored. The
// templates of Pods are left out, because the Pods show them.
func (p parity) compareStored() []string {
	p.Helper()
	if p.sample.Stored == nil {
		return nil
	}
	want := copyFields(p.sample.subject())
	o := &unstructured.Unstructured{Object: fields{"apiVersion": want["apiVersion"], "kind": want["kind"]}}
	name, _, _ := unstructured.NestedString(want, "metadata", "name")
	p.must(p.Get(p.Context(), p.key(name), o))
	got := fields{"spec": o.Object["spec"]}
	want = fields{"spec": want["spec"]}
	mergeFields(want, p.sample.Stored)
	for _, object := range []fields{got, want} {
		tasks, _, err := unstructured.NestedFieldNoCopy(object, "spec", "tasks")
		p.must(err)
		for _, task := range tasks.([]any) {
			delete(task.(fields), "template")
		}
	}
	return diffFields(fmt.Sprintf("stored %s", name), p.normalized(want), p.normalized(got))
}

// normalized returns a copy in which all numbers have one type.
func (p parity) normalized(v fields) (same fields) {
	p.Helper()
	text, err := json.Marshal(v)
	p.must(err)
	p.must(json.Unmarshal(text, &same))
	return same
}
