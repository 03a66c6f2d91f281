package jobflow

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

const (
	// minStatusInterval is the least time between two writes that are not urgent.
	minStatusInterval = time.Second
	// smallFlow is the number of steps up to which the status is written at each change of a phase.
	smallFlow = 20
	// phaseIntervalPerStep is, for each step of a larger flow, the least time between two writes of
	// phases, up to minStatusInterval. A write takes time in proportion to the steps, and the next
	// pass waits for it.
	phaseIntervalPerStep = 5 * time.Millisecond
	// maxHistory bounds the history of one Job, which would otherwise grow forever if its
	// phase flaps. The oldest entries are dropped.
	maxHistory = 64
)

// planStatus builds the new status and decides whether it is written now.
func (p *plan) planStatus() {
	was := &p.Flow.Status
	p.nextStatus = flowv1.JobFlowStatus{
		State:              flowv1.State{Phase: flowv1.Phase(p.phase)},
		ObservedGeneration: p.Flow.Generation,
		StartTime:          was.StartTime,
		CompletionTime:     was.CompletionTime,
		FlowConditions:     slices.Clone(was.FlowConditions),
		Retry:              was.Retry,
	}
	if p.stepsReset {
		p.nextStatus.Retry = p.Flow.Spec.Retry.Generation
	}
	p.listJobs()
	p.trimHistories()
	p.setTimes()
	p.setConditions()
	if !p.hasStatusChanged() {
		return
	}
	if ready := p.LastStatusWrite.Add(p.statusInterval()); p.now.Before(ready) && !p.isStatusUrgent() {
		p.requeueAt(ready)
		return
	}
	p.out.Status = &p.nextStatus
	if p.nextStatus.State.Phase != was.State.Phase {
		p.recordEnd()
	}
}

// recordEnd sets EndedPhase for the metrics. A failed flow that is canceled later was
// counted before.
func (p *plan) recordEnd() {
	before := func(kind string) bool { return isConditionTrue(p.Flow.Status.FlowConditions, kind) }
	switch {
	case p.phase == lifecycle.FlowSucceed:
		p.out.EndedPhase = flowv1.Succeed
	case p.phase == lifecycle.FlowFailed && !before(flowv1.ConditionFailed):
		p.out.EndedPhase = flowv1.Failed
		p.addEndEvent()
	case p.canceled:
		p.addEndEvent()
	}
	p.addReason("the flow is " + string(p.phase))
}

// addEndEvent adds the event of a flow that has failed or was canceled. The stopped Jobs of a
// canceled flow are no failure.
func (p *plan) addEndEvent() {
	if p.canceled {
		p.addEvent(false, reasonCanceled, canceledMessage)
		return
	}
	p.addEvent(true, "Failed", p.describeFailure())
}

// statusInterval returns the least time since the last write, unless the write is urgent. Counts and
// Jobs without a phase wait longest.
func (p *plan) statusInterval() time.Duration {
	switch {
	case maps.Equal(jobPhases(p.Flow.Status.JobStatusList), jobPhases(p.nextStatus.JobStatusList)):
		return minStatusInterval
	case len(p.steps) <= smallFlow:
		return 0
	}
	return min(time.Duration(len(p.steps))*phaseIntervalPerStep, minStatusInterval)
}

// isStatusUrgent reports whether the write cannot wait.
func (p *plan) isStatusUrgent() bool {
	was, next := &p.Flow.Status, &p.nextStatus
	return p.hasUnrecordedDeletion() ||
		was.State != next.State || was.Retry != next.Retry || was.ObservedGeneration != next.ObservedGeneration ||
		!equality.Semantic.DeepEqual(was.FlowConditions, next.FlowConditions) ||
		!maps.Equal(urgentStepFields(was.Steps), urgentStepFields(next.Steps))
}

// hasUnrecordedDeletion reports whether a Job was deleted whose end the status does not have. The
// status is all that is left of it.
func (p *plan) hasUnrecordedDeletion() bool {
	for id, j := range p.DeletedJobs {
		if r := p.recorded[j.Name]; r == nil || !r.MatchesUID(string(id)) || !flowv1.HasEnded(r.State) {
			return true
		}
	}
	return false
}

// urgentFields are the fields of a step's status whose change is urgent.
type urgentFields struct {
	reason, message, retired string
	retries                  int32
	skipped, waits           bool
}

func urgentStepFields(steps []flowv1.StepStatus) map[string]urgentFields {
	out := map[string]urgentFields{}
	for i := range steps {
		s := &steps[i]
		if w := (urgentFields{s.Reason, s.Message, s.RetiredUID, s.Retries, s.Skipped, s.NextRetryTime != nil}); w != (urgentFields{}) {
			out[s.Name] = w
		}
	}
	return out
}

func jobPhases(list []flowv1.JobStatus) map[string]batchv1.JobPhase {
	out := make(map[string]batchv1.JobPhase, len(list))
	for i := range list {
		if list[i].State != "" {
			out[list[i].Name] = list[i].State
		}
	}
	return out
}

// listJobs adds all Jobs to the status: those of the steps in their order, then those of
// steps that were removed.
func (p *plan) listJobs() {
	p.nextStatus.JobStatusList = make([]flowv1.JobStatus, 0, len(p.steps))
	p.nextStatus.Conditions = make(map[string]flowv1.Condition, len(p.steps))
	listed := make(map[string]bool, len(p.steps))
	for _, s := range p.steps {
		listed[s.jobName] = true
		p.recordOutputs(s)
		p.addStepStatus(s)
		if s.lastKnownJob != nil || p.recorded[s.jobName] != nil {
			p.addJobStatus(s.jobName, s.lastKnownJob, s.phase)
		}
	}
	for _, j := range p.sortedJobs() {
		if !listed[j.Name] {
			listed[j.Name] = true
			p.addJobStatus(j.Name, j, j.Phase)
		}
	}
	for i := range p.Flow.Status.JobStatusList {
		if r := &p.Flow.Status.JobStatusList[i]; !listed[r.Name] && flowv1.HasEnded(r.State) {
			p.addJobStatus(r.Name, nil, r.State)
		}
	}
}

// addStepStatus adds the status of a step unless it is empty.
func (p *plan) addStepStatus(s *step) {
	if s.creating || !equality.Semantic.DeepEqual(s.status, flowv1.StepStatus{Name: s.Name}) {
		p.nextStatus.Steps = append(p.nextStatus.Steps, s.status)
	}
}

// addJobStatus adds what is known of one Job; j is nil if it was deleted.
func (p *plan) addJobStatus(name string, j *Job, phase batchv1.JobPhase) {
	was := p.recorded[name]
	p.nextStatus.JobStatusList = append(p.nextStatus.JobStatusList, p.newJobStatus(name, was, j, phase))
	switch c, had := p.Flow.Status.Conditions[name]; {
	case j != nil:
		p.nextStatus.Conditions[name] = flowv1.Condition{Phase: phase, CreateTimestamp: j.Created, RunningDuration: j.Duration, TaskStatusCount: p.limitCounts(j.Counts)}
	case had:
		c.Phase, c.TaskStatusCount = phase, p.limitCounts(c.TaskStatusCount)
		p.nextStatus.Conditions[name] = c
	}
	if l := p.phaseList(phase); l != nil && (j != nil || phase != "") {
		*l = append(*l, name)
	}
}

// newJobStatus returns the entry of one Job. Fields that are unknown keep the values
// written before.
func (p *plan) newJobStatus(name string, was *flowv1.JobStatus, j *Job, phase batchv1.JobPhase) flowv1.JobStatus {
	e := flowv1.JobStatus{Name: name}
	if was != nil {
		e = *was
	}
	e.State = phase
	e.RunningHistories = appendHistory(e.RunningHistories, phase, metav1.NewTime(p.now))
	if j == nil {
		return e
	}
	e.UID, e.StartTimestamp, e.EndTimestamp, e.RestartCount = string(j.UID), j.Created, metav1.Time{}, j.Restarts
	if j.Duration != nil {
		e.EndTimestamp = metav1.NewTime(j.Created.Add(j.Duration.Duration)).Rfc3339Copy()
	}
	return e
}

// appendHistory closes the last entry and appends another if the phase has changed. An
// empty phase only closes.
func appendHistory(was []flowv1.JobRunningHistory, phase batchv1.JobPhase, now metav1.Time) []flowv1.JobRunningHistory {
	n := len(was)
	switch {
	case n == 0 && phase == "", n > 0 && was[n-1].State == phase, n > 0 && phase == "" && !was[n-1].EndTimestamp.IsZero():
		return was
	}
	out := slices.Clone(was)
	if n > 0 && out[n-1].EndTimestamp.IsZero() {
		out[n-1].EndTimestamp = now
	}
	if phase != "" {
		out = append(out, flowv1.JobRunningHistory{StartTimestamp: now, State: phase})
	}
	return out[max(0, len(out)-maxHistory):]
}

// phaseList returns the list of the status for Jobs in a phase. Nil if there is none.
func (p *plan) phaseList(phase batchv1.JobPhase) *[]string {
	switch phase {
	case batchv1.JobPending:
		return &p.nextStatus.PendingJobs
	case batchv1.JobRunning:
		return &p.nextStatus.RunningJobs
	case batchv1.JobFailed:
		return &p.nextStatus.FailedJobs
	case batchv1.JobCompleted:
		return &p.nextStatus.CompletedJobs
	case batchv1.JobTerminated:
		return &p.nextStatus.TerminatedJobs
	case batchv1.JobCompleting, batchv1.JobTerminating:
		return nil
	default:
		return &p.nextStatus.UnKnowJobs
	}
}

// setTimes sets the first start and the end of the flow.
func (p *plan) setTimes() {
	if p.nextStatus.StartTime == nil {
		for i := range p.nextStatus.JobStatusList {
			at := p.nextStatus.JobStatusList[i].StartTimestamp
			if !at.IsZero() && (p.nextStatus.StartTime == nil || at.Before(p.nextStatus.StartTime)) {
				p.nextStatus.StartTime = &at
			}
		}
	}
	switch {
	case !p.phase.IsTerminal():
		p.nextStatus.CompletionTime = nil
	case p.nextStatus.CompletionTime == nil:
		at := metav1.NewTime(p.now)
		p.nextStatus.CompletionTime = &at
	}
}
