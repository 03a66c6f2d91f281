package actions

import (
	"fmt"
	"slices"
	"strings"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// NextJobState returns the state of the job once the manager has acted on its current spec. With
// the current state alone, a pause right after a cancel would be accepted and revert the cancel,
// and a resume right after a pause would be rejected.
func NextJobState(j *robotv1.Job) lifecycle.JobState {
	if r := pendingRequeue(j); r != nil {
		to, _ := lifecycle.StepJob(jobState(j), requeueSignal(r))
		return to
	}
	to, _ := lifecycle.StepJob(jobState(j), desiredSignal(j.Spec.DesiredState))
	return to
}

// desiredSignal returns how the manager reads spec.desiredState.
func desiredSignal(desired string) lifecycle.JobSignal {
	switch desired {
	case robotv1.DesiredPaused:
		return lifecycle.JobPause
	case robotv1.DesiredCanceled:
		return lifecycle.JobCancel
	}
	return lifecycle.JobResume
}

// requeueSignal returns how the manager reads spec.requeue.
func requeueSignal(r *robotv1.Requeue) lifecycle.JobSignal {
	if len(r.Tasks) > 0 || r.Scope == robotv1.RequeueFailed {
		return lifecycle.JobRequeueSome
	}
	return lifecycle.JobRequeue
}

// pendingRequeue returns the requeue on which the manager is about to act. Nil: there is none, or
// the manager will reject it.
func pendingRequeue(j *robotv1.Job) *robotv1.Requeue {
	r := j.Spec.Requeue
	if requestedGeneration(j) <= observedGeneration(j) {
		return nil
	}
	if _, ok := lifecycle.StepJob(jobState(j), requeueSignal(r)); !ok {
		return nil
	}
	return r
}

// requestedGeneration returns the generation of the requeue in the spec.
func requestedGeneration(j *robotv1.Job) int64 {
	if j.Spec.Requeue == nil {
		return 0
	}
	return j.Spec.Requeue.Generation
}

// observedGeneration returns the generation of the last requeue that the manager has observed.
func observedGeneration(j *robotv1.Job) int64 {
	if j.Status.Requeue == nil {
		return 0
	}
	return j.Status.Requeue.Generation
}

// rejectForState returns the error for an action that the job's state does not allow.
func rejectForState(j *robotv1.Job) error {
	s := NextJobState(j)
	return fmt.Errorf("job %s is %s; allowed actions: %s", j.Name, s, verbsFrom(s))
}

// verbsFrom lists the actions that state s allows, as users type them.
func verbsFrom(s lifecycle.JobState) string {
	allowed := lifecycle.JobActions(s)
	var verbs []string
	for _, a := range allowed {
		switch {
		case a != lifecycle.JobRequeueSome:
			verbs = append(verbs, string(a))
		case !slices.Contains(allowed, lifecycle.JobRequeue):
			verbs = append(verbs, "requeue --failed", "requeue --task")
		}
	}
	if len(verbs) == 0 {
		return "none until its next state"
	}
	return strings.Join(verbs, ", ")
}

// JobAction changes the desired state of a job.
type JobAction struct {
	// Verb is the name of the action, such as pause.
	Verb string
	// State is the state that the job finally reaches. If empty, it depends on the job.
	State   lifecycle.JobState
	desired string // the new value of spec.desiredState
	signal  lifecycle.JobSignal
	// isDone reports whether a job with this next state needs no change.
	isDone func(next lifecycle.JobState, j *robotv1.Job) bool
}

// The actions on jobs.
var (
	// Pause starts no more tasks. Running tasks continue.
	Pause = JobAction{Verb: "pause", desired: robotv1.DesiredPaused, signal: lifecycle.JobPause, State: lifecycle.JobPaused,
		isDone: func(s lifecycle.JobState, _ *robotv1.Job) bool { return s.PausesTasks() }}
	// Resume reverts a pause.
	Resume = JobAction{Verb: "resume", desired: robotv1.DesiredRunning, signal: lifecycle.JobResume,
		isDone: func(s lifecycle.JobState, j *robotv1.Job) bool {
			return s.StartsTasks() && j.Spec.DesiredState != robotv1.DesiredPaused
		}}
	// Cancel stops running tasks and starts no more.
	Cancel = JobAction{Verb: "cancel", desired: robotv1.DesiredCanceled, signal: lifecycle.JobCancel, State: lifecycle.JobCanceled,
		isDone: func(s lifecycle.JobState, _ *robotv1.Job) bool {
			return s == lifecycle.JobCancelRequested || s == lifecycle.JobCanceled
		}}
)

// Apply edits the job's spec and returns a message.
func (a JobAction) Apply(j *robotv1.Job) (string, error) {
	s := NextJobState(j)
	if a.isDone(s, j) {
		return fmt.Sprintf("already %s", s), nil
	}
	if _, ok := lifecycle.StepJob(s, a.signal); !ok {
		return "", rejectForState(j)
	}
	j.Spec.DesiredState = a.desired
	return a.Verb + " requested", nil
}

// IsReached reports whether the job has reached the action's state. It returns true with an error
// if the job can no longer reach it: waiting would never end.
func (a JobAction) IsReached(j *robotv1.Job) (done bool, err error) {
	s := jobState(j)
	_, possible := lifecycle.StepJob(s, a.signal)
	switch {
	case s == a.State:
		return true, nil
	case j.Spec.DesiredState != a.desired:
		return true, fmt.Errorf("job %s will not become %s: another action was requested in the meantime, and the job is now %s", j.Name, a.State, NextJobState(j))
	case s.IsTerminal() && !possible:
		return true, fmt.Errorf("job %s cannot become %s: it is already %s", j.Name, a.State, s)
	}
	return false, nil
}

// MaxRequeueTasks bounds the number of tasks that one requeue names. The CRD has the same limit.
const MaxRequeueTasks = 1000

// NewRequeue returns an action that requests a requeue of tasks.
func NewRequeue(want robotv1.Requeue) func(*robotv1.Job) (string, error) {
	return func(j *robotv1.Job) (string, error) {
		next, err := nextRequeue(j, want)
		switch {
		case err != nil:
			return "", err
		case next == nil:
			return "requeue" + scopePhrase(want) + " already requested", nil
		case len(next.Tasks) > MaxRequeueTasks:
			return "", fmt.Errorf("a requeue can name at most %d tasks, and this one would name %d: wait until job %s is no longer requeueing, or name fewer tasks",
				MaxRequeueTasks, len(next.Tasks), j.Name)
		}
		next.Generation = max(requestedGeneration(j), observedGeneration(j)) + 1
		j.Spec.Requeue = next
		// The desired state stays in force until it is changed: otherwise the manager would
		// cancel the requeued tasks again.
		if j.Spec.DesiredState == robotv1.DesiredCanceled {
			j.Spec.DesiredState = robotv1.DesiredRunning
		}
		return "requeue" + scopePhrase(want) + " requested" + pausedNote(j), nil
	}
}

// nextRequeue returns the new spec.requeue without its generation, or nil if it is already
// requested. The spec holds one request, which must not be overwritten before the manager has
// observed it: names are added to it, every other request is rejected.
func nextRequeue(j *robotv1.Job, want robotv1.Requeue) (*robotv1.Requeue, error) {
	pending := pendingRequeue(j)
	switch {
	case pending == nil:
		if _, ok := lifecycle.StepJob(NextJobState(j), requeueSignal(&want)); !ok {
			return nil, rejectForState(j)
		}
		return want.DeepCopy(), nil
	case includesRequeue(pending, &want):
		return nil, nil
	case len(pending.Tasks) == 0 || len(want.Tasks) == 0:
		return nil, rejectForState(j)
	}
	names := slices.Concat(pending.Tasks, want.Tasks)
	slices.Sort(names)
	return &robotv1.Requeue{Tasks: slices.Compact(names)}, nil
}

// includesRequeue reports whether have requeues all tasks of want.
func includesRequeue(have, want *robotv1.Requeue) bool {
	if len(have.Tasks) == 0 || len(want.Tasks) == 0 {
		return len(have.Tasks) == len(want.Tasks) && requeueSignal(have) == requeueSignal(want)
	}
	return !slices.ContainsFunc(want.Tasks, func(name string) bool { return !slices.Contains(have.Tasks, name) })
}

// scopePhrase returns the end of a message about a requeue. It is empty for tasks by name,
// because the caller prints one line for each of them.
func scopePhrase(r robotv1.Requeue) string {
	switch {
	case len(r.Tasks) > 0:
		return ""
	case r.Scope == robotv1.RequeueFailed:
		return " of the failed tasks"
	}
	return " of all tasks"
}

// pausedNote returns a note if the job is paused, so that a requeue alone starts nothing.
func pausedNote(j *robotv1.Job) string {
	if j.Spec.DesiredState != robotv1.DesiredPaused {
		return ""
	}
	return "; the job stays paused until it is resumed"
}

// CanRequeueTask reports whether a requeue would change the task. It returns an error if the
// task's state does not allow a requeue.
func CanRequeueTask(t *robotv1.Task) (bool, error) {
	state := lifecycle.TaskState(t.Status.State)
	if t.Spec.JobName == "" {
		return false, fmt.Errorf("task %s belongs to no job and cannot be requeued: delete it and create it again", t.Name)
	}
	if state.OrPending() == lifecycle.TaskPending {
		return false, nil
	}
	if _, ok := lifecycle.StepTask(state, lifecycle.TaskRequeue); !ok {
		return false, fmt.Errorf("task %s is %s%s: it can be requeued when it has ended", t.Name, state, robotPhrase(t))
	}
	return true, nil
}

func robotPhrase(t *robotv1.Task) string {
	if t.Spec.TargetRobot == "" {
		return ""
	}
	return " on " + t.Spec.TargetRobot
}

func jobState(job *robotv1.Job) lifecycle.JobState { return lifecycle.JobState(job.Status.State) }

// SetPriority returns the action that changes a job's priority.
func SetPriority(n int32) func(*robotv1.Job) (string, error) {
	return func(j *robotv1.Job) (string, error) {
		before := j.Spec.Priority
		if before != nil && *before == n {
			return fmt.Sprintf("priority is already %d", n), nil
		}
		j.Spec.Priority = &n
		if before == nil {
			return fmt.Sprintf("priority set to %d", n), nil
		}
		return fmt.Sprintf("priority changed from %d to %d", *before, n), nil
	}
}
