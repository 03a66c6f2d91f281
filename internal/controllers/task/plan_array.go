package task

import (
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// ReasonIndexesEnded is the reason of a range of an array of which no index is left to run.
const ReasonIndexesEnded = "IndexesEnded"

// recordIndexFailure records the end of an index in its range as the first attempt of the index's own
// Task. What follows is decided as after any other failure.
func (p *planner) recordIndexFailure() bool {
	if !taskstate.AwaitsIndexFailure(p.Task) || p.state != lifecycle.TaskPending {
		return false
	}
	f := p.Task.Spec.Array.Failure
	reason := firstNonEmpty(f.Reason, wire.ReasonExited)
	if !p.sendSignal(lifecycle.TaskIndexFailed, reason, "index %d %s", f.Index, describeIndexFailure(f)) {
		return true
	}
	end := f.FinishedAt
	if end == nil {
		end = &metav1.MicroTime{Time: p.now}
	}
	s := p.status
	s.Attempt, s.FinishedAt, s.ExitCode, s.Signal = 1, end, f.ExitCode, f.Signal
	s.Attempts = []v1alpha1.TaskAttempt{{
		Attempt: 1, Robot: f.Robot, RobotNamespace: f.RobotNamespace, State: string(lifecycle.TaskFailed),
		FinishedAt: end, ExitCode: f.ExitCode, Signal: f.Signal, Reason: reason,
	}}
	return true
}

// describeIndexFailure returns how an index failed, as the predicate of a sentence about it.
func describeIndexFailure(f *v1alpha1.IndexFailure) string {
	switch {
	case f.Signal != 0:
		return fmt.Sprintf("was ended by signal %d", f.Signal)
	case f.Reason != "" && f.Reason != wire.ReasonExited:
		return "failed in its range: " + f.Reason
	case f.ExitCode != nil:
		return fmt.Sprintf("exited with code %d", *f.ExitCode)
	}
	return "failed in its range"
}

// endRange completes a range of which no index is left to run. An attempt that a connected robot holds
// ends by itself.
func (p *planner) endRange() bool {
	if !p.Task.IsRange() || !array.Left(p.Task).IsEmpty() || p.state.HoldsResources() && !p.isLost() {
		return false
	}
	_, failed := array.Ended(p.Task)
	because := "all of its indexes have ended"
	if n := failed.Len(); n > 0 {
		because = fmt.Sprintf("%s, %d of them failed", because, n)
	}
	if p.status.LostAttempt != 0 {
		p.discardLostAttempt(p.status.FindAttempt(p.status.LostAttempt))
	}
	p.sendSignal(lifecycle.TaskNotNeeded, ReasonIndexesEnded, "%s", because)
	return true
}

// isLost reports whether the task is on a robot that is lost.
func (p *planner) isLost() bool { return p.state == lifecycle.TaskUnknown && p.isRobotLost() }

// pauseRange asks the robot of a range to start no more indexes, while the job is paused. Other running
// tasks end by themselves, but a range may have hours of indexes left.
func (p *planner) pauseRange() {
	if p.Task.IsRange() && p.jobState().PausesTasks() && p.Task.Spec.Array.PauseAttempt != p.Task.Status.Attempt {
		p.actions.PauseAttempt = p.Task.Status.Attempt
		p.addReason("start no more indexes: " + p.describePause())
	}
}

// requeueState returns the state by which a requeue decides about the task. A range that completed and
// has indexes to run again, because they failed, counts as failed.
func (p *planner) requeueState() lifecycle.TaskState {
	if p.state == lifecycle.TaskCompleted && !array.Left(p.Task).IsEmpty() {
		return lifecycle.TaskFailed
	}
	return p.state
}

// forgetEnds lets all indexes of a range run again, if the requeue includes those that succeeded.
func (p *planner) forgetEnds(r *v1alpha1.RequeueStatus) {
	if p.Task.IsRange() && taskcounts.ClearsEnds(r) {
		p.status.Array, p.status.Outputs = nil, nil
	}
}

// clearOutputs drops the outputs of the earlier attempt. Those of a range stay, because the indexes that
// wrote them do not run again.
func (p *planner) clearOutputs() {
	if !p.Task.IsRange() {
		p.status.Outputs = nil
	}
}

// isReplacedByRange reports whether the task runs an index that its range is to run again. The
// controller of its group is about to delete it.
func (p *planner) isReplacedByRange(r *v1alpha1.RequeueStatus) bool {
	_, runsIndex := p.Task.ArrayIndex()
	return runsIndex && len(r.Tasks) == 0 && taskcounts.ClearsEnds(r)
}

// attemptTimeout returns how long an attempt may take: the timeout of the task, which for a range is
// that of each index. Zero: no limit.
func (w *Input) attemptTimeout() time.Duration {
	timeout, n := w.Task.Spec.Timeout.Value(), 1
	if w.Task.IsRange() {
		n = max(array.Size(w.Task), 1)
	}
	if timeout > math.MaxInt64/4/time.Duration(n) { // leaves room for sums with other durations
		return math.MaxInt64 / 4
	}
	return timeout * time.Duration(n)
}
