package job

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

// requestedChange returns the change that the user requested, or an empty one.
//
// spec.desiredState holds until it is changed. A requeue is applied or rejected once:
// if it were kept until the job allows it, tasks would be requeued unexpectedly late. Only
// while tasks are still being stopped, which is bounded, it waits for them.
func (p *plan) requestedChange(s *v1alpha1.JobStatus, counts lifecycle.Counts) taskcounts.Change {
	state := lifecycle.JobState(s.State)
	if signal, pending := p.pendingRequeue(s); pending {
		from := s.State
		isStopping := counts.ActiveCount() > 0 || state == lifecycle.JobFailed && p.isUnsettled(s)
		if state == lifecycle.JobRequeueing || state.CancelsTasks() && isStopping {
			// Tasks that are still being stopped would end as canceled after the
			// requeue, and would not be requeued.
			return taskcounts.Change{}
		}
		s.Requeue = &v1alpha1.RequeueStatus{Requeue: *p.Job.Spec.Requeue.DeepCopy(), FromState: from}
		if to, ok := lifecycle.StepJob(state, signal); ok {
			return taskcounts.Change{To: to, Why: "requeue " + describeScope(&s.Requeue.Requeue) + " was requested"}
		}
		p.out.Rejected = fmt.Sprintf("spec.requeue: a job in state %s cannot be requeued; possible now: %s", state, describeAllowed(state))
	}
	signal, why := lifecycle.JobResume, "the job was resumed"
	switch p.Job.Spec.DesiredState {
	case v1alpha1.DesiredCanceled:
		signal, why = lifecycle.JobCancel, "spec.desiredState is canceled"
	case v1alpha1.DesiredPaused:
		signal, why = lifecycle.JobPause, "spec.desiredState is paused"
	}
	if to, ok := lifecycle.StepJob(state, signal); ok {
		return taskcounts.Change{To: to, Why: why}
	}
	return taskcounts.Change{}
}

// pendingRequeue returns the signal of spec.requeue if it was not applied or rejected yet.
func (p *plan) pendingRequeue(s *v1alpha1.JobStatus) (signal lifecycle.JobSignal, pending bool) {
	r := p.Job.Spec.Requeue
	switch {
	case !taskcounts.IsRequeueRequested(r, s.Requeue):
		return "", false
	case len(r.Tasks) > 0 || r.Scope == v1alpha1.RequeueFailed:
		return lifecycle.JobRequeueSome, true
	}
	return lifecycle.JobRequeue, true
}

func describeScope(r *v1alpha1.Requeue) string {
	switch {
	case len(r.Tasks) == 1:
		return "of task " + r.Tasks[0]
	case len(r.Tasks) > 1:
		return fmt.Sprintf("of %d tasks", len(r.Tasks))
	case r.Scope == v1alpha1.RequeueFailed:
		return "of the failed tasks"
	}
	return "of all tasks"
}

func describeAllowed(s lifecycle.JobState) string {
	actions := lifecycle.JobActions(s)
	if len(actions) == 0 {
		return "nothing, wait for the next state"
	}
	words := make([]string, len(actions))
	for i, a := range actions {
		words[i] = string(a)
	}
	return strings.Join(words, ", ")
}

// hasRequeuedTasks reports whether every group has requeued its tasks.
func (p *plan) hasRequeuedTasks(s *v1alpha1.JobStatus) bool {
	for _, g := range p.Groups {
		if s.Requeue != nil && g.Status.ObservedRequeue < s.Requeue.Generation {
			return false
		}
	}
	return true
}

// clearTimes clears the start and the end of a job that runs again.
func clearTimes(s *v1alpha1.JobStatus) { s.StartedAt, s.CompletedAt = nil, nil }

// isOverdue reports whether the job has exceeded spec.activeDeadline. If it has not, it
// requeues the job for then.
func (p *plan) isOverdue(s *v1alpha1.JobStatus) bool {
	d := p.Job.Spec.ActiveDeadline
	if d == nil || s.StartedAt == nil || lifecycle.JobState(s.State).IsTerminal() {
		return false
	}
	end := s.StartedAt.Add(d.Value())
	if p.now.Before(end) {
		p.requeueAt(end)
		return false
	}
	return true
}

// flowPollInterval is when to check again whether a flow has recorded the end of its step,
// which usually takes moments. If the job were deleted earlier, the flow would miss its end.
const flowPollInterval = 2 * time.Second

// planExpiry deletes a job whose ttlSecondsAfterFinished is over.
func (p *plan) planExpiry() {
	ttl, at := p.Job.Spec.TTLSecondsAfterFinished, p.Job.Status.CompletedAt
	if ttl == nil || at == nil {
		return
	}
	end := at.Add(time.Duration(*ttl) * time.Second)
	if p.now.Before(end) {
		p.requeueAt(end)
		return
	}
	if p.AwaitedByFlow {
		p.requeueAt(p.now.Add(flowPollInterval))
		return
	}
	if p.Archives && !p.Job.Status.IsArchived() {
		return // the update of the condition triggers the next plan
	}
	p.out.Delete = true
	p.out.Reasons = append(p.out.Reasons, "delete the job: ttlSecondsAfterFinished has passed")
}

// collectBlocklist returns the blocked robots of all groups, sorted.
func (p *plan) collectBlocklist() []v1alpha1.BlockedRobot {
	var all []v1alpha1.BlockedRobot
	for name, g := range p.Groups {
		for _, robot := range g.Status.BlockedRobots {
			all = append(all, v1alpha1.BlockedRobot{TaskGroup: name, Robot: robot})
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.BlockedRobot) int {
		return strings.Compare(a.TaskGroup+"\x00"+a.Robot, b.TaskGroup+"\x00"+b.Robot)
	})
	return all[:min(len(all), maxBlocklist)]
}

// maxBlocklist bounds the list as the API type does.
const maxBlocklist = 1024
