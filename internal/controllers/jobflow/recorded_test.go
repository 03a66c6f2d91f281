package jobflow

import (
	"testing"
	"time"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// startPrunedFlow starts a flow whose status loses the fields that Volcano's definition does
// not have, and counts the Jobs that are created for each step.
func startPrunedFlow(spec flowv1.JobFlowSpec) (*sim, map[string]int) {
	s, runs := newSim(spec), map[string]int{}
	s.prunes = true
	s.made = func(step string, _ *Job) { runs[step]++ }
	s.settle()
	return s, runs
}

func TestPlan_FinishedStepRunsOnceBesideVolcanosDefinition(t *testing.T) {
	for _, restart := range []bool{false, true} {
		s, runs := startPrunedFlow(steps(after("a"), after("b", "a"), after("c", "b")))
		for _, step := range []string{"a", "b", "c"} {
			s.set(step, batchv1.JobRunning)
			s.set(step, batchv1.JobCompleted)
			s.remove(s.job(step).UID) // its ttlSecondsAfterFinished has passed
			s.settle()
			if restart {
				s.restart()
				s.settle()
			}
		}
		s.checkJobs(t, flowv1.Succeed)
		for step, n := range runs {
			if n != 1 {
				t.Errorf("restart %v: step %s ran %d times", restart, step, n)
			}
		}
	}
}

func TestPlan_FailedStepRunsOnceBesideVolcanosDefinition(t *testing.T) {
	for _, end := range []batchv1.JobPhase{batchv1.JobFailed, batchv1.JobTerminated} {
		s, runs := startPrunedFlow(steps(after("a"), after("b")))
		s.set("a", end)
		s.remove(s.job("a").UID)
		s.set("b", batchv1.JobCompleted)
		s.checkJobs(t, flowv1.Failed, "b")
		if runs["a"] != 1 {
			t.Errorf("%s: step a ran %d times", end, runs["a"])
		}
	}
}

func TestPlan_RunningStepThatIsDeletedUnseenFailsBesideVolcanosDefinition(t *testing.T) {
	s, runs := startPrunedFlow(steps(after("a"), after("b")))
	s.set("a", batchv1.JobRunning)
	s.remove(s.job("a").UID)
	s.restart() // the delete event was not received
	s.settle()
	s.now = s.now.Add(missingGrace)
	s.settle()
	s.checkJobs(t, flowv1.Failed, "b")
	if runs["a"] != 1 {
		t.Errorf("step a ran %d times", runs["a"])
	}
}

// A flow that Volcano's controller has begun has entries without a UID, also under our
// definition.
func TestPlan_RetriesStepThatWasRecordedWithoutUID(t *testing.T) {
	s, runs := startPrunedFlow(steps(after("a")))
	s.set("a", batchv1.JobFailed)
	s.remove(s.job("a").UID)
	s.settle()
	s.prunes = false
	s.edit(func(f *flowv1.JobFlowSpec) { f.Retry = &flowv1.RetryRequest{Generation: 1} })
	s.now = s.now.Add(time.Second)
	s.settle()
	s.set("a", batchv1.JobCompleted)
	s.checkJobs(t, flowv1.Succeed, "a")
	if runs["a"] != 2 {
		t.Errorf("step a ran %d times, want 2", runs["a"])
	}
}
