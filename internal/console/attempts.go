package console

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
)

// attempt is one attempt of a task.
type attempt struct {
	Task      string            `json:"task"`
	Namespace string            `json:"namespace"`
	Job       string            `json:"job,omitempty"`
	Step      string            `json:"step,omitempty"`
	Number    int64             `json:"number"`
	Robot     string            `json:"robot,omitempty"`
	State     string            `json:"state"`
	Severity  row.Severity      `json:"severity"`
	Reason    string            `json:"reason,omitempty"`
	ExitCode  *int64            `json:"exitCode,omitempty"`
	Signal    int64             `json:"signal,omitempty"`
	Started   *metav1.MicroTime `json:"started,omitempty"`
	Finished  *metav1.MicroTime `json:"finished,omitempty"`
	// RunCount is how often the robot has started the process. If 0, the manager restarts the task.
	RunCount int64 `json:"runCount,omitempty"`
	// Runs are the last 10 runs of an attempt with more than one, oldest first.
	Runs []run `json:"runs,omitempty"`
	// Log is the path of the attempt's log in the log API.
	Log string `json:"log,omitempty"`
}

// run is one process of an attempt.
type run struct {
	Number   int64             `json:"number"`
	Reason   string            `json:"reason,omitempty"`
	ExitCode *int64            `json:"exitCode,omitempty"`
	Signal   int64             `json:"signal,omitempty"`
	Started  *metav1.MicroTime `json:"started,omitempty"`
	Finished *metav1.MicroTime `json:"finished,omitempty"`
	// WithoutContact is set if the robot had no contact with the server when the run ended, as far as it is
	// known: only the runs of a task have it, not those of an attempt.
	WithoutContact bool `json:"withoutContact,omitempty"`
}

// listAttempts returns the attempts of a task, from oldest to newest.
func (s *Server) listAttempts(t *v1alpha1.Task) []attempt {
	out := []attempt{}
	for i := range t.Status.Attempts {
		a := &t.Status.Attempts[i]
		out = append(out, attempt{
			Task: t.Name, Namespace: t.Namespace, Job: t.Spec.JobName, Number: int64(a.Attempt), Robot: a.Robot, State: a.State, Severity: row.TaskSeverity(a.State), Reason: a.Reason,
			ExitCode: toInt64(a.ExitCode), Signal: int64(a.Signal), Started: a.StartedAt, Finished: a.FinishedAt, Log: query.Path(t.Namespace, t.Name),
			RunCount: a.RunCount, Runs: listRuns(a),
		})
	}
	return out
}

// listRuns returns the runs that the status has of an attempt, oldest first.
func listRuns(a *v1alpha1.TaskAttempt) (out []run) {
	for i := range a.Runs {
		r := &a.Runs[i]
		out = append(out, run{Number: r.Run, Reason: r.Reason, ExitCode: toInt64(r.ExitCode), Signal: int64(r.Signal), Started: r.StartedAt, Finished: r.FinishedAt})
	}
	return out
}

// listArchivedAttempts returns all attempts of an archived task, oldest first, with the runs that its
// manifest has. t is nil if the manifest cannot be decoded.
func listArchivedAttempts(o *archive.Object, t *v1alpha1.Task) (out []attempt) {
	for i := range o.Attempts {
		one := newArchivedAttempt(&o.Attempts[i])
		if t != nil {
			if a := t.Status.FindAttempt(int32(one.Number)); a != nil {
				one.Runs = listRuns(a)
			}
		}
		out = append(out, one)
	}
	return out
}

func newArchivedAttempt(a *archive.Attempt) attempt {
	return attempt{
		Task: a.Task, Namespace: a.Namespace, Job: a.Job, Step: a.Step, Number: a.Number, Robot: a.Robot, State: a.State, Severity: row.TaskSeverity(a.State), Reason: a.Reason,
		ExitCode: a.ExitCode, Signal: a.Signal, Started: toMicroTime(a.Started), Finished: toMicroTime(a.Finished), Log: a.Log, RunCount: a.RunCount,
	}
}

func toInt64(n *int32) *int64 {
	if n == nil {
		return nil
	}
	return new(int64(*n))
}
