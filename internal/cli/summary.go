package cli

import (
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/why"
)

// maxFailures bounds how many failed tasks are shown.
const maxFailures = 5

// summary is the last line about a Job that has ended.
func summary(job *robotv1.Job) string {
	s := job.Status
	text := fmt.Sprintf("job %s %s", title(job), s.State)
	if took := lifetime(job); took > 0 {
		text += " after " + exactly(took)
	}
	text += ": "
	if jobState(job) == lifecycle.JobCompleted && s.SucceededTasks == s.TotalTasks {
		return text + fmt.Sprintf("%s completed", tasks(s.TotalTasks))
	}
	text += countsText(s.TaskCounts)
	if jobState(job) != lifecycle.JobCompleted && s.StatusDescription != "" {
		text += "\n  " + printable(s.StatusDescription)
	}
	return text
}

// title is the job's name with the one that it has for people, where that is
// another. Commands take the first alone.
func title(job *robotv1.Job) string {
	if called := calledName(job); called != "" {
		return fmt.Sprintf("%s (%s)", job.Name, called)
	}
	return job.Name
}

// calledName is the job's name for people. Empty: it is the object's.
func calledName(job *robotv1.Job) string {
	if job.Spec.Name == job.Name {
		return ""
	}
	return printable(job.Spec.Name)
}

func tasks(n int32) string {
	if n == 1 {
		return "1 task"
	}
	return fmt.Sprintf("%d tasks", n)
}

// lifetime is from the first start to the end; a Job that never started has
// none.
func lifetime(job *robotv1.Job) time.Duration {
	if job.Status.StartedAt == nil || job.Status.CompletedAt == nil {
		return 0
	}
	return max(0, job.Status.CompletedAt.Sub(job.Status.StartedAt.Time))
}

// exactly writes a short time with tenths and a long one as kubectl does.
func exactly(d time.Duration) string {
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return duration.HumanDuration(d)
}

// countsText says where the tasks are. What is rare is said only when there
// is some.
func countsText(c robotv1.TaskCounts) string {
	text := fmt.Sprintf("%d/%d completed, %d running, %d failed", c.SucceededTasks, c.TotalTasks, c.RunningTasks, c.FailedTasks)
	rare := []struct {
		n    int32
		what lifecycle.TaskState
	}{
		{c.UnknownTasks, lifecycle.TaskUnknown}, {c.SoftFailedTasks, lifecycle.TaskSoftFailed},
		{c.PausedTasks, lifecycle.TaskPaused}, {c.CanceledTasks, lifecycle.TaskCanceled},
	}
	for _, r := range rare {
		if r.n > 0 {
			text += fmt.Sprintf(", %d %s", r.n, r.what)
		}
	}
	return text
}

// writeFailures shows the first failed tasks and where to see the others.
func writeFailures(w io.Writer, failed []*robotv1.Task, seeAll string) {
	if len(failed) == 0 {
		return
	}
	t := table{header: []string{"FAILED TASK", "ROBOT", "EXIT", "REASON", "MESSAGE"}}
	for _, task := range failed[:min(len(failed), maxFailures)] {
		end := why.End(task)
		t.add(task.Name, orDash(end.Robot), exitText(end.ExitCode, end.Signal), orDash(end.Reason), task.Status.Message)
	}
	t.write(w)
	if more := len(failed) - maxFailures; more > 0 {
		fmt.Fprintf(w, "and %d more; see all with %s\n", more, quote(seeAll))
	}
}

// exitText is the exit code, with the signal when one ended the process. A dash: neither is known.
func exitText(code *int32, signal int32) string { return orDash(why.Exit(code, signal)) }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
