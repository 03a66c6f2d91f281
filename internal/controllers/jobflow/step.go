package jobflow

import (
	"time"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// state is the state of a step.
type state string

const (
	// waiting: has no Job yet.
	waiting state = ""
	// pending: has a Job that is not running.
	pending state = "Pending"
	// running: has a Job that is running or being stopped.
	running   state = "Running"
	completed state = "Completed"
	// failed: has failed and is not retried.
	failed state = "Failed"
	// skipped: is not needed; its dependents continue.
	skipped state = "Skipped"
	// retrying: has failed and will run again.
	retrying state = "Retrying"
	// omitted: never runs because another step has failed.
	omitted state = "Omitted"
)

// step is the state of one step within a plan.
type step struct {
	*flowv1.Flow
	index   int
	jobName string
	// status is the status to write.
	status flowv1.StepStatus
	// liveJob is the existing Job of the current run; nil if there is none.
	liveJob *Job
	// retiredJob is the Job of an earlier run that still exists.
	retiredJob *Job
	// lastKnownJob is liveJob, or the last seen state of a deleted Job. Nil if only the
	// status is known.
	lastKnownJob *Job
	// phase of the Job, which may be deleted.
	phase batchv1.JobPhase
	state state
	// creating is set if the plan creates the Job.
	creating bool
}

// hasEnded reports whether the step will do nothing more.
func (s *step) hasEnded() bool {
	switch s.state {
	case completed, failed, skipped, omitted:
		return true
	default:
		return false
	}
}

// hasSucceeded reports whether the dependents of the step may continue.
func (s *step) hasSucceeded() bool { return s.state == completed || s.state == skipped }

// Reasons in a step's status.
const (
	ReasonTemplateNotFound = "TemplateNotFound"
	ReasonTemplateInvalid  = "TemplateInvalid"
	ReasonNameTaken        = "NameTaken"
	ReasonJobRejected      = "JobRejected"
	ReasonJobDeleted       = "JobDeleted"
	ReasonProbing          = "Probing"
	ReasonProbeInvalid     = "ProbeInvalid"
	ReasonProbeFailed      = "ProbeFailed"
	ReasonWhenFailed       = "WhenFailed"
	ReasonWhenFalse        = "WhenFalse"
	ReasonConditionNotMet  = "ConditionNotMet"
	ReasonRetrying         = "Retrying"
	ReasonOutputsOmitted   = "OutputsOmitted"
)

// missingGrace is how long a Job must be missing without a delete event before it counts
// as deleted: the event may be under way.
const missingGrace = 2 * time.Second

// assessSteps derives the state of each step from its Job.
func (p *plan) assessSteps() {
	byName := make(map[string]*Job, len(p.Jobs))
	for _, j := range p.Jobs {
		byName[j.Name] = j
	}
	known := make(map[string]*flowv1.StepStatus, len(p.Flow.Status.Steps))
	for i := range p.Flow.Status.Steps {
		known[p.Flow.Status.Steps[i].Name] = &p.Flow.Status.Steps[i]
	}
	p.steps = make([]*step, len(p.Graph.steps))
	for i := range p.Graph.steps {
		s := &step{Flow: &p.Graph.steps[i], index: i}
		s.jobName = JobName(p.Flow.Name, s.Name)
		s.status.Name = s.Name
		if k := known[s.Name]; k != nil {
			s.status = *k
		}
		p.steps[i] = s
		p.assessStep(s, byName[s.jobName])
		p.updateFailing(s)
	}
}

// assessStep derives the state of one step; j is the flow's Job of that name, or nil.
func (p *plan) assessStep(s *step, j *Job) {
	if j != nil && string(j.UID) == s.status.RetiredUID {
		s.retiredJob, j = j, nil
	}
	if made := p.findUnrecordedJob(s); j == nil && made != nil {
		recordNewJob(&s.status, string(made.UID))
	}
	switch {
	case j != nil:
		if s.status.JobUID != string(j.UID) {
			recordNewJob(&s.status, string(j.UID))
		}
		s.liveJob, s.lastKnownJob, s.phase = j, j, j.Phase
		if j.Phase == batchv1.JobAborted || j.Phase == batchv1.JobAborting {
			p.abortedJob = max(p.abortedJob, j.Name) // Jobs of steps that were removed from the spec do not suspend the flow
		}
	case s.status.JobUID != "":
		p.assessDeletedJob(s)
	case p.Creating[s.jobName]:
		s.state = pending
		return
	case p.isRecordedWithoutUID(s.jobName):
		p.assessDeletedJob(s)
	default:
		s.state = stateWithoutJob(&s.status)
		return
	}
	p.setStateFromPhase(s)
}

// findUnrecordedJob returns a Job of the step that was created and deleted before the
// status recorded it. Without it the step would run twice.
func (p *plan) findUnrecordedJob(s *step) *Job {
	var newest *Job
	for _, j := range p.deletedByName[s.jobName] {
		known := string(j.UID) == s.status.JobUID || string(j.UID) == s.status.RetiredUID
		if !known && (newest == nil || newest.Created.Before(&j.Created)) {
			newest = j
		}
	}
	return newest
}

// recordNewJob records a new Job of a step.
func recordNewJob(s *flowv1.StepStatus, uid string) {
	if s.NextRetryTime != nil { // the status was not written after the retry's Job was created
		s.Retries++
	}
	s.JobUID, s.NextRetryTime, s.Skipped, s.Reason, s.Message, s.Outputs = uid, nil, false, "", "", nil
}

// stateWithoutJob returns the state of a step that has no Job.
func stateWithoutJob(s *flowv1.StepStatus) state {
	switch {
	case s.Skipped:
		return skipped
	case s.Reason == ReasonProbeFailed || s.Reason == ReasonWhenFailed:
		return failed
	}
	return waiting
}

// isRecordedWithoutUID reports whether the status has a phase of a Job, but not its UID. That is
// so beside Volcano's definitions, which drop status.steps and the UIDs, and after a takeover.
func (p *plan) isRecordedWithoutUID(job string) bool {
	r := p.recorded[job]
	return r != nil && r.UID == "" && r.State != ""
}

// assessDeletedJob derives the state of a step whose Job does not exist any more. The Job
// is never created again unless the step is retried.
func (p *plan) assessDeletedJob(s *step) {
	gone := p.DeletedJobs[toUID(s.status.JobUID)]
	if r := p.recorded[s.jobName]; r != nil && r.MatchesUID(s.status.JobUID) {
		s.phase = r.State
	}
	since, missing := p.MissingSince[recordedJob{s.jobName, toUID(s.status.JobUID)}.key()]
	switch {
	case gone != nil && gone.hasEnded():
		s.lastKnownJob, s.phase = gone, gone.Phase
	case flowv1.HasEnded(s.phase):
	case gone != nil:
		lost := *gone
		lost.Phase = batchv1.JobFailed
		s.lastKnownJob, s.phase = &lost, batchv1.JobFailed
		p.setReason(s, ReasonJobDeleted, "its Job was deleted before it had ended")
	case missing && !p.now.Before(since.Add(missingGrace)):
		s.phase = batchv1.JobFailed
		p.setReason(s, ReasonJobDeleted, "its Job was deleted before its end was recorded")
	case missing:
		p.requeueAt(since.Add(missingGrace))
	}
}

// setStateFromPhase derives the state of a step from the phase of its Job.
func (p *plan) setStateFromPhase(s *step) {
	switch s.phase {
	case batchv1.JobCompleted:
		s.state = completed
		s.status.NextRetryTime = nil
		if s.status.Reason != ReasonOutputsOmitted {
			s.status.Reason, s.status.Message = "", ""
		}
	case batchv1.JobFailed, batchv1.JobTerminated:
		s.state = failed
		if s.Retry != nil && s.status.Retries < s.Retry.Limit && p.phase.StartsSteps() {
			s.state = retrying
		}
	case batchv1.JobRunning, batchv1.JobRestarting, batchv1.JobCompleting, batchv1.JobTerminating, batchv1.JobAborting:
		s.state = running
	default: // "", Pending and Aborted
		s.state = pending
	}
}

// updateFailing sets p.failing if the step has failed and the failure policy is not
// Continue: only clean-up steps start from now on.
func (p *plan) updateFailing(s *step) {
	if s.state == failed && p.Flow.Spec.FailurePolicy != flowv1.Continue {
		p.failing = true
	}
}
