package actions

import (
	"fmt"
	"slices"
	"strings"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// NextJobState returns the state of the job once the manager has acted on its present spec. By
// the present state alone, a pause right after a cancel would be accepted and take the cancel
// back, and a resume right after a pause would be rejected.
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
	return fmt.Errorf("job %s is %s; possible: %s", j.Name, s, verbsFrom(s))
}

// verbsFrom lists the actions that state s allows, as users type them.
func verbsFrom(s lifecycle.JobState) string {
	wishes := lifecycle.JobActions(s)
	var verbs []string
	for _, w := range wishes {
		switch {
		case w != lifecycle.JobRequeueSome:
			verbs = append(verbs, string(w))
		case !slices.Contains(wishes, lifecycle.JobRequeue):
			verbs = append(verbs, "requeue --failed", "requeue --task")
		}
	}
	if len(verbs) == 0 {
		return "nothing until its next state"
	}
	return strings.Join(verbs, ", ")
}

// JobAction changes the desired state of a job.
type JobAction struct {
	// Verb such as pause.
	Verb string
	// State that the job reaches in the end. Empty: none in particular.
	State   lifecycle.JobState
	desired string // what spec.desiredState becomes
	signal  lifecycle.JobSignal
	already func(heading lifecycle.JobState, j *robotv1.Job) bool // nothing to be done
}

// The actions on jobs.
var (
	// Pause starts no more tasks; what runs goes on.
	Pause = JobAction{Verb: "pause", desired: robotv1.DesiredPaused, signal: lifecycle.JobPause, State: lifecycle.JobPaused,
		already: func(s lifecycle.JobState, _ *robotv1.Job) bool { return s.PausesTasks() }}
	// Resume takes a pause back.
	Resume = JobAction{Verb: "resume", desired: robotv1.DesiredRunning, signal: lifecycle.JobResume,
		already: func(s lifecycle.JobState, j *robotv1.Job) bool {
			return s.StartsTasks() && j.Spec.DesiredState != robotv1.DesiredPaused
		}}
	// Cancel stops what runs, and starts nothing more.
	Cancel = JobAction{Verb: "cancel", desired: robotv1.DesiredCanceled, signal: lifecycle.JobCancel, State: lifecycle.JobCanceled,
		already: func(s lifecycle.JobState, _ *robotv1.Job) bool {
			return s == lifecycle.JobCancelRequested || s == lifecycle.JobCanceled
		}}
)

// Apply edits the job's spec and returns a message.
func (w JobAction) Apply(j *robotv1.Job) (string, error) {
	s := NextJobState(j)
	if w.already(s, j) {
		return fmt.Sprintf("is %s already", s), nil
	}
	if _, ok := lifecycle.StepJob(s, w.signal); !ok {
		return "", rejectForState(j)
	}
	j.Spec.DesiredState = w.desired
	return w.Verb + " requested", nil
}

// IsReached reports whether the job has reached the action's state. It returns true with an error
// if the job can no longer reach it: waiting would never end.
func (w JobAction) IsReached(j *robotv1.Job) (over bool, err error) {
	s := jobState(j)
	_, possible := lifecycle.StepJob(s, w.signal)
	switch {
	case s == w.State:
		return true, nil
	case j.Spec.DesiredState != w.desired:
		return true, fmt.Errorf("job %s will not be %s: another action was requested meanwhile, it is %s", j.Name, w.State, NextJobState(j))
	case s.IsTerminal() && !possible:
		return true, fmt.Errorf("job %s will not be %s: it is %s", j.Name, w.State, s)
	}
	return false, nil
}

// MaxRequeueTasks bounds the names of one requeue, as the kind does.
const MaxRequeueTasks = 1000

// NewRequeue returns the action that puts tasks back.
func NewRequeue(want robotv1.Requeue) func(*robotv1.Job) (string, error) {
	return func(j *robotv1.Job) (string, error) {
		next, err := nextRequeue(j, want)
		switch {
		case err != nil:
			return "", err
		case next == nil:
			return "requeue" + ofScope(want) + " is requested already", nil
		case len(next.Tasks) > MaxRequeueTasks:
			return "", fmt.Errorf("a requeue names at most %d tasks, and this one would name %d: wait until job %s is no longer requeueing, or name fewer",
				MaxRequeueTasks, len(next.Tasks), j.Name)
		}
		next.Generation = max(requestedGeneration(j), observedGeneration(j)) + 1
		j.Spec.Requeue = next
		// The desired state holds until it is changed: left alone, the cancel
		// would call off again what is put back.
		if j.Spec.DesiredState == robotv1.DesiredCanceled {
			j.Spec.DesiredState = robotv1.DesiredRunning
		}
		return "requeue" + ofScope(want) + " requested" + stillPaused(j), nil
	}
}

// nextRequeue returns the new spec.requeue without its generation, or nil if it is requested
// already. The spec holds one request. One that the manager has not observed must not be
// overwritten: names are added to names, and everything else is rejected.
func nextRequeue(j *robotv1.Job, want robotv1.Requeue) (*robotv1.Requeue, error) {
	waits := pendingRequeue(j)
	switch {
	case waits == nil:
		if _, ok := lifecycle.StepJob(NextJobState(j), requeueSignal(&want)); !ok {
			return nil, rejectForState(j)
		}
		return want.DeepCopy(), nil
	case includesRequeue(waits, &want):
		return nil, nil
	case len(waits.Tasks) == 0 || len(want.Tasks) == 0:
		return nil, rejectForState(j)
	}
	names := slices.Concat(waits.Tasks, want.Tasks)
	slices.Sort(names)
	return &robotv1.Requeue{Tasks: slices.Compact(names)}, nil
}

// includesRequeue reports whether have puts back all tasks of want.
func includesRequeue(have, want *robotv1.Requeue) bool {
	if len(have.Tasks) == 0 || len(want.Tasks) == 0 {
		return len(have.Tasks) == len(want.Tasks) && requeueSignal(have) == requeueSignal(want)
	}
	return !slices.ContainsFunc(want.Tasks, func(name string) bool { return !slices.Contains(have.Tasks, name) })
}

// ofScope is empty for tasks by name: each of them has a line of its own.
func ofScope(r robotv1.Requeue) string {
	switch {
	case len(r.Tasks) > 0:
		return ""
	case r.Scope == robotv1.RequeueFailed:
		return " of the failed tasks"
	}
	return " of all tasks"
}

// stillPaused warns that a requeue alone starts nothing.
func stillPaused(j *robotv1.Job) string {
	if j.Spec.DesiredState != robotv1.DesiredPaused {
		return ""
	}
	return "; the job stays paused until it is resumed"
}

// CanRequeueTask reports whether a requeue changes the task. The error says why it cannot.
func CanRequeueTask(t *robotv1.Task) (bool, error) {
	state := lifecycle.TaskState(t.Status.State)
	if t.Spec.JobName == "" {
		return false, fmt.Errorf("task %s was made by hand and has no job that could requeue it: delete it and create it again", t.Name)
	}
	if state.OrPending() == lifecycle.TaskPending {
		return false, nil
	}
	if _, ok := lifecycle.StepTask(state, lifecycle.TaskRequeue); !ok {
		return false, fmt.Errorf("task %s is %s%s: it can be requeued when it has ended", t.Name, state, onRobot(t))
	}
	return true, nil
}

func onRobot(t *robotv1.Task) string {
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
			return fmt.Sprintf("priority is %d already", n), nil
		}
		j.Spec.Priority = &n
		if before == nil {
			return fmt.Sprintf("priority set to %d", n), nil
		}
		return fmt.Sprintf("priority changed from %d to %d", *before, n), nil
	}
}
