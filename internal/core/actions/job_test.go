package actions

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// inState is a job in the state with the wishes.
func inState(s lifecycle.JobState, wishes ...func(*robotv1.Job)) *robotv1.Job {
	j := &robotv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}
	j.Status.State = string(s)
	for _, w := range wishes {
		w(j)
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

func tookUp(generation int64) func(*robotv1.Job) {
	return func(j *robotv1.Job) {
		j.Status.Requeue = &robotv1.RequeueStatus{Requeue: robotv1.Requeue{Generation: generation}}
	}
}

var nameOf = map[lifecycle.JobSignal]string{lifecycle.JobPause: "paused", lifecycle.JobCancel: "canceled", lifecycle.JobResume: "running"}

// settled is a job in the state with the wish that has led there.
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

// Every state meets every wish: it is written just when the table allows it, and
// else refused with the state and the way out, or already so.
func TestJobAction_FollowsTheStateTable(t *testing.T) {
	for _, s := range append(slices.Clone(lifecycle.JobStates), "") {
		for _, w := range []JobAction{Pause, Resume, Cancel} {
			j := settled(s)
			before := j.Spec.DesiredState
			said, err := w.Apply(j)
			_, legal := lifecycle.StepJob(s, w.signal)
			switch wrote := j.Spec.DesiredState != before; {
			case legal && (err != nil || j.Spec.DesiredState != nameOf[w.signal] || said != w.Verb+" requested"):
				t.Errorf("%s of a job %q: said %q, error %v, desired %q", w.Verb, s, said, err, j.Spec.DesiredState)
			case !legal && wrote:
				t.Errorf("%s of a job %q wrote %q", w.Verb, s, j.Spec.DesiredState)
			case !legal && err == nil && !w.already(NextJobState(j), j):
				t.Errorf("%s of a job %q was not refused: %q", w.Verb, s, said)
			case err != nil && !strings.Contains(err.Error(), "job demo is "+string(NextJobState(j))+"; possible: "):
				t.Errorf("%s of a job %q: %v", w.Verb, s, err)
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
		lifecycle.JobCancelRequested: "nothing until its next state",
	} {
		if got := verbsFrom(s); got != want {
			t.Errorf("%s: %q, want %q", s, got, want)
		}
	}
}

// A wish is judged by what the manager will make of the wishes before it.
func TestJobAction_AfterAnActionThatIsNotObserved(t *testing.T) {
	for _, row := range []struct {
		name        string
		in          *robotv1.Job
		wish        func(*robotv1.Job) (string, error)
		want        string // what is said, or the error
		wantDesired string
	}{
		{"a pause does not take a cancel back", inState("running", desires("canceled")), Pause.Apply,
			"job demo is cancel-requested; possible: nothing until its next state", "canceled"},
		{"a resume takes a pause back", inState("running", desires("paused")), Resume.Apply, "resume requested", "running"},
		{"a pause takes a resume back", inState("paused", desires("running")), Pause.Apply, "pause requested", "paused"},
		{"a second pause is no error", inState("running", desires("paused")), Pause.Apply, "is pause-requested already", "paused"},
		{"a second cancel is no error", inState("failed", desires("canceled")), Cancel.Apply, "is cancel-requested already", "canceled"},
		{"a second resume is no error", inState("paused", desires("running")), Resume.Apply, "is pending already", "running"},
		{"a cancel waits for a requeue", inState("completed", requeues(1, "all")), Cancel.Apply,
			"job demo is requeueing; possible: nothing until its next state", ""},
		{"a requeue that the manager will reject does not block others", inState("running", requeues(1, "all")), Pause.Apply, "pause requested", "paused"},
		{"a requeue does not take a cancel back", inState("running", desires("canceled")), NewRequeue(robotv1.Requeue{Scope: "failed"}),
			"job demo is cancel-requested; possible: nothing until its next state", "canceled"},
		{"a job that is being built and is to be paused cannot be resumed yet", inState("under-construction", desires("paused")), Resume.Apply,
			"job demo is under-construction; possible: cancel", "paused"},
	} {
		t.Run(row.name, func(t *testing.T) {
			said, err := row.wish(row.in)
			if err != nil {
				said = err.Error()
			}
			if said != row.want || row.in.Spec.DesiredState != row.wantDesired {
				t.Errorf("said %q, desired %q", said, row.in.Spec.DesiredState)
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
		said        string
		wrote       robotv1.Requeue
		wantDesired string
	}{
		{name: "the first one", in: inState("completed"), want: all, said: "requeue of all tasks requested", wrote: robotv1.Requeue{Generation: 1, Scope: "all"}},
		{name: "the generation goes on from the spec", in: inState("running", requeues(7, "all"), tookUp(7)), want: failed,
			said: "requeue of the failed tasks requested", wrote: robotv1.Requeue{Generation: 8, Scope: "failed"}},
		{name: "the generation goes on from the status: the spec may have been applied anew", in: inState("failed", requeues(2, "all"), tookUp(9)), want: all,
			said: "requeue of all tasks requested", wrote: robotv1.Requeue{Generation: 10, Scope: "all"}},
		{name: "names leave the scope out", in: inState("failed", requeues(1, "failed"), tookUp(1)), want: names,
			said: "requeue requested", wrote: robotv1.Requeue{Generation: 2, Tasks: []string{"b", "a"}}},
		{name: "a canceled job goes on, in the same write", in: inState("canceled", desires("canceled")), want: all,
			said: "requeue of all tasks requested", wrote: robotv1.Requeue{Generation: 1, Scope: "all"}, wantDesired: "running"},
		{name: "a completed job that was to be canceled is not called off again", in: inState("completed", desires("canceled")), want: all,
			said: "requeue of all tasks requested", wrote: robotv1.Requeue{Generation: 1, Scope: "all"}, wantDesired: "running"},
		{name: "a paused job stays paused", in: inState("paused", desires("paused")), want: all, wantDesired: "paused",
			said: "requeue of all tasks requested; the job stays paused until it is resumed", wrote: robotv1.Requeue{Generation: 1, Scope: "all"}},
		{name: "names are added to names that wait", in: inState("completed", requeues(3, "", "a", "c"), tookUp(2)), want: names,
			said: "requeue requested", wrote: robotv1.Requeue{Generation: 4, Tasks: []string{"a", "b", "c"}}},
		{name: "the same names twice", in: inState("completed", requeues(3, "", "a", "b", "c"), tookUp(2)), want: names,
			said: "requeue is requested already", wrote: robotv1.Requeue{Generation: 3, Tasks: []string{"a", "b", "c"}}},
		{name: "the same scope twice", in: inState("completed", requeues(1, "failed")), want: failed,
			said: "requeue of the failed tasks is requested already", wrote: robotv1.Requeue{Generation: 1, Scope: "failed"}},
		{name: "another scope waits", in: inState("completed", requeues(1, "failed")), want: all,
			said: "job demo is requeueing; possible: nothing until its next state", wrote: robotv1.Requeue{Generation: 1, Scope: "failed"}},
		{name: "names wait for the failed", in: inState("completed", requeues(1, "failed")), want: names,
			said: "job demo is requeueing; possible: nothing until its next state", wrote: robotv1.Requeue{Generation: 1, Scope: "failed"}},
		{name: "one that the manager will refuse is overwritten", in: inState("running", requeues(1, "all")), want: failed,
			said: "requeue of the failed tasks requested", wrote: robotv1.Requeue{Generation: 2, Scope: "failed"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			said, err := NewRequeue(row.want)(row.in)
			if err != nil {
				said = err.Error()
			}
			got := *row.in.Spec.Requeue
			if said != row.said || got.Generation != row.wrote.Generation || got.Scope != row.wrote.Scope || !slices.Equal(got.Tasks, row.wrote.Tasks) {
				t.Errorf("said %q, wrote %+v", said, got)
			}
			if row.in.Spec.DesiredState != row.wantDesired {
				t.Errorf("desired %q, want %q", row.in.Spec.DesiredState, row.wantDesired)
			}
		})
	}
}
