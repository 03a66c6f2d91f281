package jobflow

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

const (
	// largeFlow is how many steps a flow may have whose status is written with each
	// step. The status of a larger one is large (contract §5).
	largeFlow = 200
	// statusTick is the least time between two writes that can wait.
	statusTick = time.Second
	// maxHistory bounds the history of one Job, so that one that flaps does not grow
	// its flow for ever. The oldest go first.
	maxHistory = 64
)

// account decides what the status says, and whether it is worth a write now.
func (p *plan) account() {
	was := &p.Flow.Status
	p.next = flowv1.JobFlowStatus{
		State:              flowv1.State{Phase: flowv1.Phase(p.phase)},
		ObservedGeneration: p.Flow.Generation,
		StartTime:          was.StartTime,
		CompletionTime:     was.CompletionTime,
		FlowConditions:     slices.Clone(was.FlowConditions),
		Retry:              was.Retry,
	}
	if p.renewed {
		p.next.Retry = p.Flow.Spec.Retry.Generation
	}
	p.list()
	p.shorten()
	p.times()
	p.mark()
	if !p.changed() {
		return
	}
	if ready := p.LastStatus.Add(statusTick); p.now.Before(ready) && !p.urgent() {
		p.wake(ready)
		return
	}
	p.out.Status = &p.next
	if p.next.State.Phase != was.State.Phase {
		p.ends()
	}
}

// ends notes an end that is to be counted. A failed flow that was canceled since has
// been counted before.
func (p *plan) ends() {
	before := func(kind string) bool { return isTrue(p.Flow.Status.FlowConditions, kind) }
	switch {
	case p.phase == lifecycle.FlowSucceed:
		p.out.Ended = flowv1.Succeed
	case p.phase == lifecycle.FlowFailed && !before(flowv1.ConditionFailed):
		p.out.Ended = flowv1.Failed
		p.say(true, "Failed", p.failure())
	}
	p.why("the flow is " + string(p.phase))
}

// urgent tells whether a write cannot wait. What can are mere counts, Jobs that nobody
// has looked at yet, and in a large flow the phases of Jobs.
func (p *plan) urgent() bool {
	was, next := &p.Flow.Status, &p.next
	return was.State != next.State || was.Retry != next.Retry || was.ObservedGeneration != next.ObservedGeneration ||
		!equality.Semantic.DeepEqual(was.FlowConditions, next.FlowConditions) ||
		!maps.Equal(calm(was.Steps), calm(next.Steps)) ||
		len(p.steps) <= largeFlow && !maps.Equal(phases(was.JobStatusList), phases(next.JobStatusList))
}

// word is what is urgent in the status of a step.
type word struct {
	reason, message, retired string
	retries                  int32
	skipped, waits           bool
}

func calm(steps []flowv1.StepStatus) map[string]word {
	out := map[string]word{}
	for i := range steps {
		s := &steps[i]
		if w := (word{s.Reason, s.Message, s.RetiredUID, s.Retries, s.Skipped, s.NextRetryTime != nil}); w != (word{}) {
			out[s.Name] = w
		}
	}
	return out
}

func phases(list []flowv1.JobStatus) map[string]batchv1.JobPhase {
	out := make(map[string]batchv1.JobPhase, len(list))
	for i := range list {
		if list[i].State != "" {
			out[list[i].Name] = list[i].State
		}
	}
	return out
}

// list writes all that the status has of the Jobs: those of the steps in their order,
// then those of steps that are gone.
func (p *plan) list() {
	p.next.JobStatusList = make([]flowv1.JobStatus, 0, len(p.steps))
	p.next.Conditions = make(map[string]flowv1.Condition, len(p.steps))
	listed := make(map[string]bool, len(p.steps))
	for _, s := range p.steps {
		listed[s.job] = true
		p.outputs(s)
		p.keep(s)
		if s.view != nil || p.recorded[s.job] != nil {
			p.enter(s.job, s.view, s.phase)
		}
	}
	for _, j := range p.sortedJobs() {
		if !listed[j.Name] {
			listed[j.Name] = true
			p.enter(j.Name, j, j.Phase)
		}
	}
	for i := range p.Flow.Status.JobStatusList {
		if r := &p.Flow.Status.JobStatusList[i]; !listed[r.Name] && flowv1.Ended(r.State) {
			p.enter(r.Name, nil, r.State)
		}
	}
}

// keep writes what is known of a step, if there is anything.
func (p *plan) keep(s *step) {
	if s.creating || !equality.Semantic.DeepEqual(s.status, flowv1.StepStatus{Name: s.Name}) {
		p.next.Steps = append(p.next.Steps, s.status)
	}
}

// enter writes what is known of one Job; j is nil when it is gone.
func (p *plan) enter(name string, j *Job, phase batchv1.JobPhase) {
	was := p.recorded[name]
	p.next.JobStatusList = append(p.next.JobStatusList, p.jobStatus(name, was, j, phase))
	switch c, had := p.Flow.Status.Conditions[name]; {
	case j != nil:
		p.next.Conditions[name] = flowv1.Condition{Phase: phase, CreateTimestamp: j.Created, RunningDuration: j.Duration, TaskStatusCount: p.counts(j.Counts)}
	case had:
		c.Phase, c.TaskStatusCount = phase, p.counts(c.TaskStatusCount)
		p.next.Conditions[name] = c
	}
	if l := p.listOf(phase); l != nil && (j != nil || phase != "") {
		*l = append(*l, name)
	}
}

// jobStatus is the entry of one Job. It begins with what was written of it before
// (contract §6.21).
func (p *plan) jobStatus(name string, was *flowv1.JobStatus, j *Job, phase batchv1.JobPhase) flowv1.JobStatus {
	e := flowv1.JobStatus{Name: name}
	if was != nil {
		e = *was
	}
	e.State = phase
	e.RunningHistories = history(e.RunningHistories, phase, metav1.NewTime(p.now))
	if j == nil {
		return e
	}
	e.UID, e.StartTimestamp, e.EndTimestamp, e.RestartCount = string(j.UID), j.Created, metav1.Time{}, j.Restarts
	if j.Duration != nil {
		e.EndTimestamp = metav1.NewTime(j.Created.Add(j.Duration.Duration)).Rfc3339Copy()
	}
	return e
}

// history closes the last entry and begins another when the phase is another. An empty
// phase is none (contract §6.22).
func history(was []flowv1.JobRunningHistory, phase batchv1.JobPhase, now metav1.Time) []flowv1.JobRunningHistory {
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

// listOf is the list for Jobs in a phase. Nil: they are in none (contract §6.19).
func (p *plan) listOf(phase batchv1.JobPhase) *[]string {
	switch phase {
	case batchv1.JobPending:
		return &p.next.PendingJobs
	case batchv1.JobRunning:
		return &p.next.RunningJobs
	case batchv1.JobFailed:
		return &p.next.FailedJobs
	case batchv1.JobCompleted:
		return &p.next.CompletedJobs
	case batchv1.JobTerminated:
		return &p.next.TerminatedJobs
	case batchv1.JobCompleting, batchv1.JobTerminating:
		return nil
	default:
		return &p.next.UnKnowJobs
	}
}

// times are the first start and the end of the flow.
func (p *plan) times() {
	if p.next.StartTime == nil {
		for i := range p.next.JobStatusList {
			at := p.next.JobStatusList[i].StartTimestamp
			if !at.IsZero() && (p.next.StartTime == nil || at.Before(p.next.StartTime)) {
				p.next.StartTime = &at
			}
		}
	}
	switch {
	case !p.phase.Terminal():
		p.next.CompletionTime = nil
	case p.next.CompletionTime == nil:
		at := metav1.NewTime(p.now)
		p.next.CompletionTime = &at
	}
}
