package actions

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// inState returns a job in the state, with changes applied.
func inState(s lifecycle.JobState, changes ...func(*robotv1.Job)) *robotv1.Job {
	j := &robotv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}
	j.Status.State = string(s)
	for _, change := range changes {
		change(j)
	}
	return j
}

func desires(state string) func(*robotv1.Job) {
	return func(j *robotv1.Job) { j.Spec.DesiredState = state }
}

func requeues(generation int64, scope string, tasks ...string) func(*robotv1.Job) {
	return func(j *robotv1.Job) {
		j.Spec.Requeue = &robotv1.Requeue{Generation: generation, Scope: scope, Tasks: tasks}
	}
}

func observed(generation int64) func(*robotv1.Job) {
	return func(j *robotv1.Job) {
		j.Status.Requeue = &robotv1.RequeueStatus{Requeue: robotv1.Requeue{Generation: generation}}
	}
}

var nameOf = map[lifecycle.JobSignal]string{lifecycle.JobPause: "paused", lifecycle.JobCancel: "canceled", lifecycle.JobResume: "running"}

// settled returns a job in the state, with the desired state that led to it.
func settled(s lifecycle.JobState) *robotv1.Job {
	desired := ""
	if s.PausesTasks() {
		desired = robotv1.DesiredPaused
	}
	if s == lifecycle.JobCancelRequested || s == lifecycle.JobCanceled {
		desired = robotv1.DesiredCanceled
	}
	return inState(s, desires(desired))
}

// Each action is applied in each state. It is written if the table allows it. Otherwise it is
// rejected with the state and the allowed actions, or reported as already done.
func TestJobAction_FollowsTheStateTable(t *testing.T) {
	for _, s := range append(slices.Clone(lifecycle.JobStates), "") {
		for _, a := range []JobAction{Pause, Resume, Cancel} {
			j := settled(s)
			before := j.Spec.DesiredState
			message, err := a.Apply(j)
			_, legal := lifecycle.StepJob(s, a.signal)
			switch wrote := j.Spec.DesiredState != before; {
			case legal && (err != nil || j.Spec.DesiredState != nameOf[a.signal] || message != a.Verb+" requested"):
				t.Errorf("%s of a job %q: message %q, error %v, desired %q", a.Verb, s, message, err, j.Spec.DesiredState)
			case !legal && wrote:
				t.Errorf("%s of a job %q wrote %q", a.Verb, s, j.Spec.DesiredState)
			case !legal && err == nil && !a.isDone(NextJobState(j), j):
				t.Errorf("%s of a job %q was not refused: %q", a.Verb, s, message)
			case err != nil && !strings.Contains(err.Error(), "job demo is "+string(NextJobState(j))+"; allowed actions: "):
				t.Errorf("%s of a job %q: %v", a.Verb, s, err)
			}
		}
	}
}

func TestRequeue_FollowsTheStateTable(t *testing.T) {
	for _, s := range append(slices.Clone(lifecycle.JobStates), "") {
		for _, want := range []robotv1.Requeue{{Scope: "all"}, {Scope: "failed"}, {Tasks: []string{"a"}}} {
			j := settled(s)
			_, err := NewRequeue(want)(j)
			if _, legal := lifecycle.StepJob(s, requeueSignal(&want)); legal != (err == nil) || legal != (j.Spec.Requeue != nil) {
				t.Errorf("requeue %+v of a job %q: error %v, wrote %v", want, s, err, j.Spec.Requeue)
			}
		}
	}
}

func TestVerbsFrom_ListsPossibleActions(t *testing.T) {
	for s, want := range map[lifecycle.JobState]string{
		lifecycle.JobPending:         "cancel, pause",
		lifecycle.JobRunning:         "cancel, pause, requeue --failed, requeue --task",
		lifecycle.JobPaused:          "cancel, requeue, resume",
		lifecycle.JobCompleted:       "requeue",
		lifecycle.JobFailed:          "cancel, requeue",
		lifecycle.JobCancelRequested: "none until its next state",
	} {
		if got := verbsFrom(s); got != want {
			t.Errorf("%s: %q, want %q", s, got, want)
		}
	}
}

// An action is validated against the state that the manager will reach with the previous actions.
func TestJobAction_AfterAnActionThatIsNotObserved(t *testing.T) {
	for _, row := range []struct {
		name        string
		in          *robotv1.Job
		action      func(*robotv1.Job) (string, error)
		want        string // message or error
		wantDesired string
	}{
		{"a pause does not revert a cancel", inState("running", desires("canceled")), Pause.Apply,
			"job demo is cancel-requested; allowed actions: none until its next state", "canceled"},
		{"a resume reverts a pause", inState("running", desires("paused")), Resume.Apply, "resume requested", "running"},
		{"a pause reverts a resume", inState("paused", desires("running")), Pause.Apply, "pause requested", "paused"},
		{"a second pause is no error", inState("running", desires("paused")), Pause.Apply, "already pause-requested", "paused"},
		{"a second cancel is no error", inState("failed", desires("canceled")), Cancel.Apply, "already cancel-requested", "canceled"},
		{"a second resume is no error", inState("paused", desires("running")), Resume.Apply, "already pending", "running"},
		{"a cancel waits for a requeue", inState("completed", requeues(1, "all")), Cancel.Apply,
			"job demo is requeueing; allowed actions: none until its next state", ""},
		{"a requeue that the manager will reject does not block others", inState("running", requeues(1, "all")), Pause.Apply, "pause requested", "paused"},
		{"a requeue does not revert a cancel", inState("running", desires("canceled")), NewRequeue(robotv1.Requeue{Scope: "failed"}),
			"job demo is cancel-requested; allowed actions: none until its next state", "canceled"},
		{"a job under construction is paused", inState("under-construction"), Pause.Apply, "pause requested", "paused"},
		{"a job that was created paused can be resumed at once", inState("under-construction", desires("paused")), Resume.Apply, "resume requested", "running"},
	} {
		t.Run(row.name, func(t *testing.T) {
			message, err := row.action(row.in)
			if err != nil {
				message = err.Error()
			}
			if message != row.want || row.in.Spec.DesiredState != row.wantDesired {
				t.Errorf("message %q, desired %q", message, row.in.Spec.DesiredState)
			}
		})
	}
}

func TestRequeue_WritesTheNextRequest(t *testing.T) {
	all, failed, names := robotv1.Requeue{Scope: "all"}, robotv1.Requeue{Scope: "failed"}, robotv1.Requeue{Tasks: []string{"b", "a"}}
	for _, row := range []struct {
		name        string
		in          *robotv1.Job
		want        robotv1.Requeue
		message     string
		wrote       robotv1.Requeue
		wantDesired string
	}{
		{name: "the first one", in: inState("completed"), want: all, message: "requeue of all tasks requested", wrote: robotv1.Requeue{Generation: 1, Scope: "all"}},
		{name: "the generation continues from the spec", in: inState("running", requeues(7, "all"), observed(7)), want: failed,
			message: "requeue of the failed tasks requested", wrote: robotv1.Requeue{Generation: 8, Scope: "failed"}},
		{name: "the generation continues from the status: the spec may have been applied again", in: inState("failed", requeues(2, "all"), observed(9)), want: all,
			message: "requeue of all tasks requested", wrote: robotv1.Requeue{Generation: 10, Scope: "all"}},
		{name: "a requeue by name has no scope", in: inState("failed", requeues(1, "failed"), observed(1)), want: names,
			message: "requeue requested", wrote: robotv1.Requeue{Generation: 2, Tasks: []string{"b", "a"}}},
		{name: "a canceled job continues, in the same write", in: inState("canceled", desires("canceled")), want: all,
			message: "requeue of all tasks requested", wrote: robotv1.Requeue{Generation: 1, Scope: "all"}, wantDesired: "running"},
		{name: "a completed job that was to be canceled is not canceled again", in: inState("completed", desires("canceled")), want: all,
			message: "requeue of all tasks requested", wrote: robotv1.Requeue{Generation: 1, Scope: "all"}, wantDesired: "running"},
		{name: "a paused job stays paused", in: inState("paused", desires("paused")), want: all, wantDesired: "paused",
			message: "requeue of all tasks requested; the job stays paused until it is resumed", wrote: robotv1.Requeue{Generation: 1, Scope: "all"}},
		{name: "names are added to a pending request", in: inState("completed", requeues(3, "", "a", "c"), observed(2)), want: names,
			message: "requeue requested", wrote: robotv1.Requeue{Generation: 4, Tasks: []string{"a", "b", "c"}}},
		{name: "the same names twice", in: inState("completed", requeues(3, "", "a", "b", "c"), observed(2)), want: names,
			message: "requeue already requested", wrote: robotv1.Requeue{Generation: 3, Tasks: []string{"a", "b", "c"}}},
		{name: "the same scope twice", in: inState("completed", requeues(1, "failed")), want: failed,
			message: "requeue of the failed tasks already requested", wrote: robotv1.Requeue{Generation: 1, Scope: "failed"}},
		{name: "another scope is rejected while one is pending", in: inState("completed", requeues(1, "failed")), want: all,
			message: "job demo is requeueing; allowed actions: none until its next state", wrote: robotv1.Requeue{Generation: 1, Scope: "failed"}},
		{name: "names are rejected while a scope is pending", in: inState("completed", requeues(1, "failed")), want: names,
			message: "job demo is requeueing; allowed actions: none until its next state", wrote: robotv1.Requeue{Generation: 1, Scope: "failed"}},
		{name: "a request that the manager will reject is overwritten", in: inState("running", requeues(1, "all")), want: failed,
			message: "requeue of the failed tasks requested", wrote: robotv1.Requeue{Generation: 2, Scope: "failed"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			message, err := NewRequeue(row.want)(row.in)
			if err != nil {
				message = err.Error()
			}
			got := *row.in.Spec.Requeue
			if message != row.message || got.Generation != row.wrote.Generation || got.Scope != row.wrote.Scope || !slices.Equal(got.Tasks, row.wrote.Tasks) {
				t.Errorf("message %q, wrote %+v", message, got)
			}
			if row.in.Spec.DesiredState != row.wantDesired {
				t.Errorf("desired %q, want %q", row.in.Spec.DesiredState, row.wantDesired)
			}
		})
	}
}
