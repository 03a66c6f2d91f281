package controllers

import (
	"fmt"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestManager_RepairsInterruptedChanges interrupts the manager and rejects its writes. Requested
// changes are completed afterwards.
func TestManager_RepairsInterruptedChanges(t *testing.T) {
	in := func(t *testing.T, name string) *space {
		return startApart(t, apartServer, fleetConfig, name).namespace(t, name)
	}
	runCasesInTurn(t, "repair", in, []testCase[*space]{
		{"a cancel that a restart of the manager interrupts is completed", finishesACancel},
		{"a cancel that was requested while no manager ran is executed", startsACancel},
		{"a pause that a restart of the manager interrupts is completed", finishesAPause},
		{"a requeue that a restart of the manager interrupts is completed", finishesARequeue},
		{"a manager that restarts at any point completes each action", restartsAllTheTime},
		{"a failed job write after a good task write is reported and repaired", repairsTheJob},
		{"a mass change continues after a task that cannot be written, and retries it", continuesAfterATask},
	})
}

// restart stops the manager and starts another.
func (s *space) restart() {
	s.Helper()
	s.stop()
	s.again()
}

func (s *space) again() {
	s.Helper()
	s.manage(fleetConfig)
}

// oneRuns creates a job of three tasks. The first is running, the others are pending.
func (s *space) oneRuns(robot string) {
	s.Helper()
	s.limited("1", robot)
	s.job("j", group("g", 3, "t"))
	s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	s.report("j-g-0-t", lifecycle.TaskStarted)
	s.awaitTask("j-g-2-t", lifecycle.TaskPending)
}

func (s *space) awaitReason(task, reason string) {
	s.Helper()
	testkit.Eventually(s, waitTimeout, task+" is "+reason, func() bool { return s.task(task).Status.Reason == reason })
}

func finishesACancel(s *space) {
	s.oneRuns("cut-a")
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredCanceled)))
	s.awaitReason("j-g-0-t", v1alpha1.ReasonStopping)
	s.stop()
	s.report("j-g-0-t", lifecycle.TaskStopped)
	s.again()
	s.awaitJob("j", lifecycle.JobCanceled)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 3, CanceledTasks: 3})
}

func startsACancel(s *space) {
	s.oneRuns("asked-a")
	s.stop()
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredCanceled)))
	s.again()
	s.awaitReason("j-g-0-t", v1alpha1.ReasonStopping)
	s.report("j-g-0-t", lifecycle.TaskStopped)
	s.awaitJob("j", lifecycle.JobCanceled)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 3, CanceledTasks: 3})
}

func finishesAPause(s *space) {
	s.oneRuns("hold-a")
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredPaused)))
	s.awaitJob("j", lifecycle.JobPauseRequested)
	s.stop()
	s.report("j-g-0-t", lifecycle.TaskSucceeded)
	s.again()
	s.awaitJob("j", lifecycle.JobPaused)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 3, SucceededTasks: 1, PausedTasks: 2})
}

func finishesARequeue(s *space) {
	s.robots("back-x")
	s.server(succeed)
	s.job("j", group("g", 3, "t"))
	s.awaitJob("j", lifecycle.JobCompleted)
	allow := s.refuse(s.task("j-g-1-t"), "tasks/status")
	s.must(s.updateJobSpec("j", requeue()))
	s.awaitTask("j-g-0-t", lifecycle.TaskPending)
	s.awaitJob("j", lifecycle.JobRequeueing)
	s.stop()
	allow()
	s.again()
	s.awaitTask("j-g-1-t", lifecycle.TaskCompleted)
	s.awaitJob("j", lifecycle.JobCompleted)
	for _, t := range s.tasks() {
		if t.Status.Attempt != 2 {
			s.Errorf("%s took %d attempts", t.Name, t.Status.Attempt)
		}
	}
}

func restartsAllTheTime(s *space) {
	s.limited("4", "any-a", "any-b")
	s.stopsWhenAsked()
	s.job("j", group("g", 20, "t"))
	for range 4 {
		s.restart()
		s.awaitJob("j", lifecycle.JobRunning)
		s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredPaused)))
		s.restart()
		s.awaitJob("j", lifecycle.JobPauseRequested)
		s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredCanceled)))
		s.restart()
		s.awaitJob("j", lifecycle.JobCanceled)
		s.counts("j", v1alpha1.TaskCounts{TotalTasks: 20, CanceledTasks: 20})
		s.must(s.updateJobSpec("j", requeue()))
	}
}

func repairsTheJob(s *space) {
	s.robots("deny-a")
	s.job("j", group("g", 1, "t"))
	s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	j := s.awaitJob("j", lifecycle.JobRunning)
	allow := s.refuse(j, "jobs/status")
	before := failures("job")
	s.report("j-g-0-t", lifecycle.TaskStarted, lifecycle.TaskSucceeded)
	testkit.Eventually(s, waitTimeout, "the failed write is reported", func() bool { return failures("job") > before })
	s.awaitJob("j", lifecycle.JobRunning)
	allow()
	s.awaitJob("j", lifecycle.JobCompleted)
}

func continuesAfterATask(s *space) {
	s.oneRuns("past-a")
	allow := s.refuse(s.task("j-g-1-t"), "tasks/status")
	before := failures("task")
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredCanceled)))
	s.awaitTask("j-g-2-t", lifecycle.TaskCanceled)
	s.awaitReason("j-g-0-t", v1alpha1.ReasonStopping)
	s.report("j-g-0-t", lifecycle.TaskStopped)
	testkit.Eventually(s, waitTimeout, "the failed write is reported", func() bool { return failures("task") > before })
	s.awaitTask("j-g-1-t", lifecycle.TaskPending)
	allow()
	s.awaitTask("j-g-1-t", lifecycle.TaskCanceled)
	s.awaitJob("j", lifecycle.JobCanceled)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 3, CanceledTasks: 3})
}

// refuse makes the API server reject writes to a part of one object until allow is called.
func (s *space) refuse(o client.Object, part string) (allow func()) {
	s.Helper()
	fail, equal := admission.Fail, admission.Equivalent
	policy := &admission.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	policy.Spec = admission.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admission.MatchResources{
			MatchPolicy:       &equal,
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.name}},
			ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: admission.RuleWithOperations{
				Operations: []admission.OperationType{admission.Update},
				Rule:       admission.Rule{APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{part}},
			}}},
		},
		Validations: []admission.Validation{{Expression: fmt.Sprintf("object.metadata.name != %q", o.GetName()), Message: "not now"}},
	}
	binding := &admission.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	binding.Spec = admission.ValidatingAdmissionPolicyBindingSpec{PolicyName: s.name, ValidationActions: []admission.ValidationAction{admission.Deny}}
	s.must(s.Create(s.Context(), policy))
	s.must(s.Create(s.Context(), binding))
	denied := func() bool {
		s.must(s.Get(s.Context(), client.ObjectKeyFromObject(o), o))
		err := s.Status().Update(s.Context(), o, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "not now")
	}
	testkit.Eventually(s, waitTimeout, o.GetName()+" cannot be written", denied)
	return func() {
		s.Helper()
		s.must(s.Delete(s.Context(), binding))
		s.must(s.Delete(s.Context(), policy))
		testkit.Eventually(s, waitTimeout, o.GetName()+" can be written", func() bool { return !denied() })
	}
}

// failures returns the number of errors of a controller.
func failures(controller string) (n float64) {
	families, _ := metrics.Registry.Gather()
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_errors_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == controller {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
