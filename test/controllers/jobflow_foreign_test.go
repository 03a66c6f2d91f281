package controllers

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// statusOfVolcano are the fields that status of a JobFlow has in Volcano's definition.
var statusOfVolcano = []string{
	"pendingJobs", "runningJobs", "failedJobs", "completedJobs", "terminatedJobs", "unKnowJobs", "jobStatusList", "conditions", "state",
}

// TestJobFlow_BesideVolcanosDefinition runs flows where the API server drops the fields that
// Volcano's definition does not have. Volcano's controller of Jobs, which the test plays,
// deletes a finished Job without waiting for the flow.
func TestJobFlow_BesideVolcanosDefinition(t *testing.T) {
	t.Parallel()
	system := startApart(t, changedServer, flowsOnly, "pruned")
	system.useVolcanosDefinition()
	s := system.flows(t, "pruned")
	ran := s.runs(nil)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go s.deleteFinishedJobs(ctx)
	s.flow("f", steps(after("a"), after("b", "a"), after("c", "b"), after("d", "a", "c")))
	s.awaitFlow("f", flowv1.Succeed)
	s.await("f", "all Jobs are recorded", func(f *flowv1.JobFlow) error {
		if f.Status.Steps != nil || f.Status.FlowConditions != nil || f.Status.JobStatusList[0].UID != "" {
			t.Fatalf("the definition has fields that Volcano's does not have: %+v", f.Status)
		}
		if len(f.Status.CompletedJobs) != 4 || len(s.vcjobs()) != 0 {
			return fmt.Errorf("jobs %v", s.vcjobs())
		}
		return nil
	})
	s.stop()
	s.manage(flowsOnly)
	s.flow("later", steps(after("a"))) // the restarted manager has seen the first flow once this one ends
	s.awaitFlow("later", flowv1.Succeed)
	jobs := ran.list()
	slices.Sort(jobs)
	testkit.RecordFigures(t, "finished-steps", map[string]int{"run_again": len(jobs) - len(slices.Compact(slices.Clone(jobs)))})
	if want := []string{"f-a", "f-b", "f-c", "f-d", "later-a"}; !slices.Equal(jobs, want) {
		t.Errorf("Jobs that ran: %v, want %v", jobs, want)
	}
}

// useVolcanosDefinition removes the fields of the status that Volcano's definition of JobFlows
// does not have.
func (s *system) useVolcanosDefinition() {
	s.t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	testkit.EventuallyNoError(s.t, waitTimeout, "the definition is replaced", func() error {
		if err := s.Get(s.t.Context(), client.ObjectKey{Name: "jobflows.flow.volcano.sh"}, crd); err != nil {
			return err
		}
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if err != nil {
			return err
		}
		fields, _, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "properties")
		if err != nil {
			return err
		}
		for name := range fields {
			if !slices.Contains(statusOfVolcano, name) {
				delete(fields, name)
			}
		}
		unstructured.RemoveNestedField(fields["jobStatusList"].(map[string]any), "items", "properties", "uid")
		if err := unstructured.SetNestedMap(versions[0].(map[string]any), fields, "schema", "openAPIV3Schema", "properties", "status", "properties"); err != nil {
			return err
		}
		if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
			return err
		}
		return s.Update(s.t.Context(), crd)
	})
	s.awaitPrunedStatus()
}

// awaitPrunedStatus waits until the API server drops a field of the status.
func (s *system) awaitPrunedStatus() {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, waitTimeout, "the API server uses the definition", func() error {
		f := &flowv1.JobFlow{}
		f.Namespace, f.GenerateName = "default", "pruned-"
		f.Spec.Suspend = true
		if err := s.Create(s.t.Context(), f); err != nil {
			return err
		}
		f.Status.Steps = []flowv1.StepStatus{{Name: "a", Reason: "Test"}}
		if err := s.Status().Update(s.t.Context(), f); err != nil {
			return err
		}
		if f.Status.Steps != nil {
			return fmt.Errorf("status.steps is kept: %+v", f.Status.Steps)
		}
		return s.Delete(s.t.Context(), f)
	})
}

// deleteFinishedJobs deletes each Job as soon as it has ended.
func (s *flows) deleteFinishedJobs(ctx context.Context) {
	for ctx.Err() == nil {
		var list batchv1.JobList
		w, err := s.Watch(ctx, &list, client.InNamespace(s.name))
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			if j, ok := e.Object.(*batchv1.Job); ok && flowv1.HasEnded(j.Status.State.Phase) && j.DeletionTimestamp == nil {
				_ = s.Delete(ctx, j) // another event follows if it failed
			}
		}
	}
}
