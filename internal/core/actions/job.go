package wish

import (
	"fmt"
	"slices"
	"strings"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// Heading is the state of the job once the manager has taken up what was
// wished before. Judged by its present state alone, a pause right after a
// cancel would be fine and take the cancel back, and a resume right after a
// pause would be refused.
func Heading(j *robotv1.Job) lifecycle.JobState {
	if r := untaken(j); r != nil {
		to, _ := lifecycle.StepJob(jobState(j), requeueSignal(r))
		return to
	}
	to, _ := lifecycle.StepJob(jobState(j), desiredSignal(j.Spec.DesiredState))
	return to
}

// desiredSignal is how the manager reads spec.desiredState.
func desiredSignal(desired string) lifecycle.JobSignal {
	switch desired {
	case robotv1.DesiredPaused:
		return lifecycle.JobPause
	case robotv1.DesiredCanceled:
		return lifecycle.JobCancel
	}
	return lifecycle.JobResume
}

// requeueSignal is how the manager reads spec.requeue.
func requeueSignal(r *robotv1.Requeue) lifecycle.JobSignal {
	if len(r.Tasks) > 0 || r.Scope == robotv1.RequeueFailed {
		return lifecycle.JobRequeueSome
	}
	return lifecycle.JobRequeue
}

// untaken is the requeue that the manager is about to take up. Nil: there is
// none, or it is one that the manager will refuse.
func untaken(j *robotv1.Job) *robotv1.Requeue {
	r := j.Spec.Requeue
	if wishedFor(j) <= takenUp(j) {
		return nil
	}
	if _, ok := lifecycle.StepJob(jobState(j), requeueSignal(r)); !ok {
		return nil
	}
	return r
}

// wishedFor is the generation of the last requeue in the spec, and takenUp that
// of the last one that the manager looked at.
func wishedFor(j *robotv1.Job) int64 {
	if j.Spec.Requeue == nil {
		return 0
	}
	return j.Spec.Requeue.Generation
}

func takenUp(j *robotv1.Job) int64 {
	if j.Status.Requeue == nil {
		return 0
	}
	return j.Status.Requeue.Generation
}

// impossible is the answer to a wish that the job's state does not allow.
func impossible(j *robotv1.Job) error {
	s := Heading(j)
	return fmt.Errorf("job %s is %s; possible: %s", j.Name, s, verbsFrom(s))
}

// verbsFrom lists what may be wished of a job in state s, as people type it.
func verbsFrom(s lifecycle.JobState) string {
	wishes := lifecycle.JobWishes(s)
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

// Job is a state that an operator may desire of a job.
type Job struct {
	// Verb in the words of people, such as pause.
	Verb string
	// State that it leads to in the end. Empty: it leads to none.
	State   lifecycle.JobState
	desired string // what spec.desiredState becomes
	signal  lifecycle.JobSignal
	already func(heading lifecycle.JobState, j *robotv1.Job) bool // nothing to be done
}

// The wishes for a state.

var (
	// Pause starts no more tasks; what runs goes on.
	Pause = Job{Verb: "pause", desired: robotv1.DesiredPaused, signal: lifecycle.JobPause, State: lifecycle.JobPaused,
		already: func(s lifecycle.JobState, _ *robotv1.Job) bool { return s.Holds() }}
	// Resume takes a pause back.
	Resume = Job{Verb: "resume", desired: robotv1.DesiredRunning, signal: lifecycle.JobResume,
		already: func(s lifecycle.JobState, j *robotv1.Job) bool {
			return s.Starts() && j.Spec.DesiredState != robotv1.DesiredPaused
		}}
	// Cancel stops what runs, and starts nothing more.
	Cancel = Job{Verb: "cancel", desired: robotv1.DesiredCanceled, signal: lifecycle.JobCancel, State: lifecycle.JobCanceled,
		already: func(s lifecycle.JobState, _ *robotv1.Job) bool {
			return s == lifecycle.JobCancelRequested || s == lifecycle.JobCanceled
		}}
)

// Judge writes the wish into the job's spec, and says what became of it.
func (w Job) Judge(j *robotv1.Job) (string, error) {
	s := Heading(j)
	if w.already(s, j) {
		return fmt.Sprintf("is %s already", s), nil
	}
	if _, ok := lifecycle.StepJob(s, w.signal); !ok {
		return "", impossible(j)
	}
	j.Spec.DesiredState = w.desired
	return w.Verb + " requested", nil
}

// Reached tells whether the wait is over. It is also over, with an error, when
// the job can no longer get there: it would last for ever.
func (w Job) Reached(j *robotv1.Job) (over bool, err error) {
	s := jobState(j)
	_, possible := lifecycle.StepJob(s, w.signal)
	switch {
	case s == w.State:
		return true, nil
	case j.Spec.DesiredState != w.desired:
		return true, fmt.Errorf("job %s will not be %s: somebody wished otherwise meanwhile, it is %s", j.Name, w.State, Heading(j))
	case s.Terminal() && !possible:
		return true, fmt.Errorf("job %s will not be %s: it is %s", j.Name, w.State, s)
	}
	return false, nil
}

// MaxNamed bounds the names of one requeue, as the kind does.
const MaxNamed = 1000

// Requeue is the judge of a wish to put tasks back.
func Requeue(want robotv1.Requeue) func(*robotv1.Job) (string, error) {
	return func(j *robotv1.Job) (string, error) {
		next, err := nextRequeue(j, want)
		switch {
		case err != nil:
			return "", err
		case next == nil:
			return "requeue" + ofScope(want) + " is requested already", nil
		case len(next.Tasks) > MaxNamed:
			return "", fmt.Errorf("a requeue names at most %d tasks, and this one would name %d: wait until job %s is no longer requeueing, or name fewer",
				MaxNamed, len(next.Tasks), j.Name)
		}
		next.Generation = max(wishedFor(j), takenUp(j)) + 1
		j.Spec.Requeue = next
		// The desired state holds until it is changed: left alone, the cancel
		// would call off again what is put back.
		if j.Spec.DesiredState == robotv1.DesiredCanceled {
			j.Spec.DesiredState = robotv1.DesiredRunning
		}
		return "requeue" + ofScope(want) + " requested" + stillPaused(j), nil
	}
}

// nextRequeue is what spec.requeue becomes, without its generation. Nil: it
// says so already.
//
// The spec has room for one wish. One that waits there for the manager must not
// be overwritten, or its tasks would stay where they are: names are added to
// names, and all else is refused until it was taken up.
func nextRequeue(j *robotv1.Job, want robotv1.Requeue) (*robotv1.Requeue, error) {
	waits := untaken(j)
	switch {
	case waits == nil:
		if _, ok := lifecycle.StepJob(Heading(j), requeueSignal(&want)); !ok {
			return nil, impossible(j)
		}
		return want.DeepCopy(), nil
	case covers(waits, &want):
		return nil, nil
	case len(waits.Tasks) == 0 || len(want.Tasks) == 0:
		return nil, impossible(j)
	}
	names := slices.Concat(waits.Tasks, want.Tasks)
	slices.Sort(names)
	return &robotv1.Requeue{Tasks: slices.Compact(names)}, nil
}

// covers tells whether have puts back all that want does.
func covers(have, want *robotv1.Requeue) bool {
	if len(have.Tasks) == 0 || len(want.Tasks) == 0 {
		return len(have.Tasks) == len(want.Tasks) && requeueSignal(have) == requeueSignal(want)
	}
	return !slices.ContainsFunc(want.Tasks, func(name string) bool { return !slices.Contains(have.Tasks, name) })
}

// ofScope is empty for tasks by name: there each of them has a line of its own.
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

// PutsBack tells whether a requeue does anything to the task. The error says
// why it cannot.
func PutsBack(t *robotv1.Task) (bool, error) {
	state := lifecycle.TaskState(t.Status.State)
	if t.Spec.JobName == "" {
		return false, fmt.Errorf("task %s was made by hand and has no job that could requeue it: delete it and create it again", t.Name)
	}
	if state.Normal() == lifecycle.TaskPending {
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

// Priority is the judge of a wish for another priority.
func Priority(n int32) func(*robotv1.Job) (string, error) {
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
