package jobflow

import (
	"time"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// state is where a step stands.
type state string

const (
	// waiting has no Job yet.
	waiting state = ""
	// pending has a Job that does not run.
	pending state = "Pending"
	// running has a Job that runs, or is being stopped.
	running state = "Running"
	// completed has done its work.
	completed state = "Completed"
	// failed has failed for good.
	failed state = "Failed"
	// skipped is not wanted; what depends on it goes on.
	skipped state = "Skipped"
	// retrying has failed and is going to run again.
	retrying state = "Retrying"
	// omitted never runs, because another step has failed.
	omitted state = "Omitted"
)

// step is one step in a decision.
type step struct {
	*flowv1.Flow
	index int
	// job is the name of its Job.
	job string
	// status as it is going to be written.
	status flowv1.StepStatus
	// live is its Job. Nil: there is none.
	live *Job
	// old is the Job of an earlier run that has not gone yet.
	old *Job
	// view is live, or the last word of a Job that was deleted. Nil: there is no more
	// than the status has recorded.
	view *Job
	// phase of its Job, gone or not.
	phase batchv1.JobPhase
	state state
	// creating: its Job is to be made now.
	creating bool
}

// over tells whether the step will do nothing more.
func (s *step) over() bool {
	switch s.state {
	case completed, failed, skipped, omitted:
		return true
	default:
		return false
	}
}

// succeeded tells whether what depends on the step may go on.
func (s *step) succeeded() bool { return s.state == completed || s.state == skipped }

// The reasons in a step's status.
const (
	ReasonTemplateNotFound = "TemplateNotFound"
	ReasonTemplateUnfit    = "TemplateUnfit"
	ReasonNameTaken        = "NameTaken"
	ReasonJobRefused       = "JobRefused"
	ReasonJobDeleted       = "JobDeleted"
	ReasonProbing          = "Probing"
	ReasonProbeUnfit       = "ProbeUnfit"
	ReasonProbeFailed      = "ProbeFailed"
	ReasonWhenFailed       = "WhenFailed"
	ReasonWhenFalse        = "WhenFalse"
	ReasonNotMet           = "ConditionNotMet"
	ReasonRetrying         = "Retrying"
	ReasonOutputsLeftOut   = "OutputsLeftOut"
)

// missingGrace is how long a Job must be missing, with no last word of it, before it
// counts as deleted: the word of its end may be on its way.
const missingGrace = 2 * time.Second

// assess finds out where each step stands by its Job.
func (p *plan) assess() {
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
		s.job = JobName(p.Flow.Name, s.Name)
		s.status.Name = s.Name
		if k := known[s.Name]; k != nil {
			s.status = *k
		}
		p.steps[i] = s
		p.look(s, byName[s.job])
		p.fails(s)
	}
}

// look decides about one step; j is the flow's Job of that name, or nil.
func (p *plan) look(s *step, j *Job) {
	if j != nil && string(j.UID) == s.status.RetiredUID {
		s.old, j = j, nil
	}
	if made := p.unrecorded(s); j == nil && made != nil {
		begin(&s.status, string(made.UID))
	}
	switch {
	case j != nil:
		if s.status.JobUID != string(j.UID) {
			begin(&s.status, string(j.UID))
		}
		s.live, s.view, s.phase = j, j, j.Phase
		if j.Phase == batchv1.JobAborted || j.Phase == batchv1.JobAborting {
			p.aborted = max(p.aborted, j.Name) // one of a step that was taken out holds up nobody
		}
	case s.status.JobUID != "":
		p.recall(s)
	case p.Creating[s.job]:
		s.state = pending
		return
	default:
		s.state = unstarted(&s.status)
		return
	}
	p.weigh(s)
}

// unrecorded is a Job of the step that was made and deleted before either was written
// down. Without it the step would run twice.
func (p *plan) unrecorded(s *step) *Job {
	var newest *Job
	for _, j := range p.goneByName[s.job] {
		known := string(j.UID) == s.status.JobUID || string(j.UID) == s.status.RetiredUID
		if !known && (newest == nil || newest.Created.Before(&j.Created)) {
			newest = j
		}
	}
	return newest
}

// begin notes a new Job of a step.
func begin(s *flowv1.StepStatus, uid string) {
	if s.NextRetryTime != nil { // whoever made it could not write that down
		s.Retries++
	}
	s.JobUID, s.NextRetryTime, s.Skipped, s.Reason, s.Message, s.Outputs = uid, nil, false, "", "", nil
}

// unstarted is the state of a step that has no Job.
func unstarted(s *flowv1.StepStatus) state {
	switch {
	case s.Skipped:
		return skipped
	case s.Reason == ReasonProbeFailed || s.Reason == ReasonWhenFailed:
		return failed
	}
	return waiting
}

// recall finds out what became of a Job that does not exist any more. It is never made
// again unless the step is retried (contract §3.4).
func (p *plan) recall(s *step) {
	gone := p.Gone[uid(s.status.JobUID)]
	if r := p.recorded[s.job]; r != nil && r.Is(s.status.JobUID) {
		s.phase = r.State
	}
	since, missing := p.Missing[uid(s.status.JobUID)]
	switch {
	case gone != nil && gone.ended():
		s.view, s.phase = gone, gone.Phase
	case flowv1.Ended(s.phase):
	case gone != nil:
		lost := *gone
		lost.Phase = batchv1.JobFailed
		s.view, s.phase = &lost, batchv1.JobFailed
		p.note(s, ReasonJobDeleted, "its Job was deleted before it had ended")
	case missing && !p.now.Before(since.Add(missingGrace)):
		s.phase = batchv1.JobFailed
		p.note(s, ReasonJobDeleted, "its Job was deleted before its end was seen")
	case missing:
		p.wake(since.Add(missingGrace))
	}
}

// weigh is the state of a step by the phase of its Job (contract §1, Sync).
func (p *plan) weigh(s *step) {
	switch s.phase {
	case batchv1.JobCompleted:
		s.state = completed
		s.status.NextRetryTime = nil
		if s.status.Reason != ReasonOutputsLeftOut {
			s.status.Reason, s.status.Message = "", ""
		}
	case batchv1.JobFailed, batchv1.JobTerminated:
		s.state = failed
		if s.Retry != nil && s.status.Retries < s.Retry.Limit && p.phase.Starts() {
			s.state = retrying
		}
	case batchv1.JobRunning, batchv1.JobRestarting, batchv1.JobCompleting, batchv1.JobTerminating, batchv1.JobAborting:
		s.state = running
	default: // "", Pending and Aborted
		s.state = pending
	}
}

// fails notes that nothing but clean-up is to be started any more, if that follows
// from the step (contract §4 row 6).
func (p *plan) fails(s *step) {
	if s.state == failed && p.Flow.Spec.FailurePolicy != flowv1.Continue {
		p.failing = true
	}
}
