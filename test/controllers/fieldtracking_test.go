package controllers

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/config"
	"k8s4r.io/k8s4r/internal/platform/crds"
	"k8s4r.io/k8s4r/internal/testkit"
)

// twinGroup is the API group of copies of Task and TaskGroup for which the API server of the tests has
// no plugin, so that the policy of other clusters has to act.
const twinGroup = "twin.k8s4r.io"

const (
	trackedTask  = `{apiVersion: GROUP/v1alpha1, kind: Task, metadata: {labels: {a: b}}, spec: {name: t, driver: exec, config: {execConfig: {command: x}}}}`
	trackedGroup = `{apiVersion: GROUP/v1alpha1, kind: TaskGroup, spec: {jobName: x, groupName: g, tasks: [{name: t, driver: exec, config: {execConfig: {command: x}}}]}}`
)

// TestFieldTracking has the API server of k8s4r up, and one that has only the policy.
func TestFieldTracking(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "tracking")
	s.installTwins()
	for _, group := range []string{"robot.k8s4r.io", twinGroup} {
		for _, manifest := range []string{trackedTask, trackedGroup} {
			o := s.object(strings.ReplaceAll(manifest, "GROUP", group))
			t.Run("never on "+group+" "+o.GetKind(), func(t *testing.T) { s.isNeverTracked(t, o) })
		}
		t.Run("server-side apply to an object of "+group, func(t *testing.T) { s.appliesToUntracked(t, group) })
		t.Run("server-side apply creates an object of "+group, func(t *testing.T) { s.appliesTwice(t, group) })
	}
	for _, group := range []string{"robot.k8s4r.io", twinGroup, "batch.volcano.sh"} {
		t.Run("only Jobs of users are tracked in "+group, func(t *testing.T) { s.isTrackedIfOfUser(t, group) })
	}
}

// isTrackedIfOfUser creates Jobs without and with a flow that controls them.
func (s *space) isTrackedIfOfUser(t *testing.T, group string) {
	j := s.object(strings.Replace(carriers["Job"](harmless), "robot.k8s4r.io", group, 1))
	if group == "batch.volcano.sh" {
		j = s.object(`{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {tasks: [{name: t, replicas: 1, template: {spec: {containers: [{name: c, image: i}]}}}]}}`)
	}
	isController := true
	flow := metav1.OwnerReference{APIVersion: "flow.volcano.sh/v1alpha1", Kind: "JobFlow", Name: "f", UID: "f"}
	for _, c := range []struct {
		name    string
		owners  []metav1.OwnerReference
		tracked bool
	}{
		{"a user's", nil, true},
		{"one with an owner that does not control it", []metav1.OwnerReference{flow}, true},
		{"a flow's", []metav1.OwnerReference{{APIVersion: flow.APIVersion, Kind: flow.Kind, Name: flow.Name, UID: flow.UID, Controller: &isController}}, false},
	} {
		one := j.DeepCopy()
		one.SetOwnerReferences(c.owners)
		s.must(s.Create(t.Context(), one, client.DryRunAll)) // the owner does not exist
		if fields := one.GetManagedFields(); len(fields) > 0 != c.tracked {
			t.Errorf("%s: %v", c.name, fields)
		}
	}
}

// installTwins installs the copies with the policy.
func (s *space) installTwins() {
	s.Helper()
	objects, err := crds.ReadManifests(config.FS, "crd/robot.k8s4r.io_tasks.yaml", "crd/robot.k8s4r.io_taskgroups.yaml", "crd/robot.k8s4r.io_jobs.yaml", "defaults/fieldtracking.yaml")
	s.must(err)
	for _, o := range objects {
		text, err := o.MarshalJSON()
		s.must(err)
		// The plural names of the CRDs stay, and their short names belong to Task and TaskGroup.
		twin := &unstructured.Unstructured{}
		s.must(twin.UnmarshalJSON([]byte(strings.ReplaceAll(string(text), "robot.k8s4r.io", twinGroup))))
		unstructured.RemoveNestedField(twin.Object, "spec", "names", "shortNames")
		unstructured.RemoveNestedField(twin.Object, "spec", "names", "categories")
		if o.GetKind() == "MutatingAdmissionPolicy" || o.GetKind() == "MutatingAdmissionPolicyBinding" {
			twin.SetName("twin-" + o.GetName())
			if o.GetKind() == "MutatingAdmissionPolicyBinding" {
				s.must(unstructured.SetNestedField(twin.Object, twin.GetName(), "spec", "policyName"))
			}
		}
		s.must(s.Create(s.Context(), twin))
	}
	testkit.EventuallyNoError(s, waitTimeout, "the twins are served without tracking", func() error {
		for _, manifest := range []string{trackedTask, trackedGroup} {
			o := s.object(strings.ReplaceAll(manifest, "GROUP", twinGroup))
			if err := s.Create(s.Context(), o, client.DryRunAll); err != nil {
				return err
			}
			if len(o.GetManagedFields()) > 0 {
				return fmt.Errorf("%s has managedFields", o.GetKind())
			}
		}
		return s.Create(s.Context(), s.object(strings.Replace(carriers["Job"](harmless), "robot.k8s4r.io", twinGroup, 1)), client.DryRunAll)
	})
}

// isNeverTracked creates an object and changes its status and its metadata.
func (s *space) isNeverTracked(t *testing.T, o *unstructured.Unstructured) {
	check := func(after string) {
		t.Helper()
		if fields := o.GetManagedFields(); len(fields) > 0 {
			t.Errorf("after %s: %v", after, fields)
		}
	}
	s.must(s.Create(t.Context(), o))
	check("create")
	status := map[string]any{"state": "running"}
	if o.GetKind() == "TaskGroup" {
		for _, count := range []string{"totalTasks", "pendingTasks", "runningTasks", "succeededTasks", "failedTasks"} {
			status[count] = int64(0)
		}
	}
	o.Object["status"] = status
	s.must(s.Status().Update(t.Context(), o))
	check("a write of the status")
	s.must(s.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"c":"d"}}}`))))
	check("a patch")
	if state, _, _ := unstructured.NestedString(o.Object, "status", "state"); state != "running" {
		t.Errorf("the state became %q", state)
	}
}

// applyLabels applies a Task with labels, as kubectl apply --server-side does.
func (s *space) applyLabels(t *testing.T, group, name, owner string, labels map[string]any) (*unstructured.Unstructured, error) {
	t.Helper()
	o := s.object(strings.ReplaceAll(trackedTask, "GROUP", group))
	o.SetGenerateName("")
	o.SetName(name)
	s.must(unstructured.SetNestedMap(o.Object, labels, "metadata", "labels"))
	err := s.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(owner))
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(o.GroupVersionKind())
	s.must(s.Get(t.Context(), s.key(name), is))
	return is, err
}

// appliesToUntracked applies to a Task that was created as controllers do.
func (s *space) appliesToUntracked(t *testing.T, group string) {
	o := s.object(strings.ReplaceAll(trackedTask, "GROUP", group))
	s.must(s.Create(t.Context(), o))
	is, err := s.applyLabels(t, group, o.GetName(), "me", map[string]any{"a": "b", "mine": "x"})
	if err != nil || is.GetLabels()["mine"] != "x" {
		t.Fatalf("labels %v, %v", is.GetLabels(), err)
	}
	if is, err = s.applyLabels(t, group, o.GetName(), "me", map[string]any{"a": "b"}); err != nil || is.GetLabels()["mine"] != "" || is.GetLabels()["a"] != "b" {
		t.Errorf("after the label was left out: labels %v, %v", is.GetLabels(), err)
	}
	if _, err := s.applyLabels(t, group, o.GetName(), "other", map[string]any{"a": "theirs"}); err == nil || !strings.Contains(err.Error(), "conflict") {
		t.Errorf("another manager sets the same label: %v", err)
	}
}

// appliesTwice creates a Task by an apply.
func (s *space) appliesTwice(t *testing.T, group string) {
	name := "applied-" + strings.ReplaceAll(group, ".", "-")
	if is, err := s.applyLabels(t, group, name, "me", map[string]any{"a": "b", "mine": "x"}); err != nil || len(is.GetManagedFields()) == 0 {
		t.Fatalf("managedFields %v, %v", is.GetManagedFields(), err)
	}
	if is, err := s.applyLabels(t, group, name, "me", map[string]any{"a": "b"}); err != nil || is.GetLabels()["mine"] != "" {
		t.Errorf("after the label was left out: labels %v, %v", is.GetLabels(), err)
	}
}
