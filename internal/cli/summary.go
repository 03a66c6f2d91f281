package cli

import (
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/explain"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// maxFailures bounds how many failed tasks are shown.
const maxFailures = 5

// jobSummary returns the last line about a Job that has ended.
func jobSummary(job *robotv1.Job) string {
	s := job.Status
	text := fmt.Sprintf("job %s %s", jobTitle(job), s.State)
	if took := jobLifetime(job); took > 0 {
		text += " after " + formatDuration(took)
	}
	text += ": "
	if jobState(job) == lifecycle.JobCompleted && s.SucceededTasks == s.TotalTasks {
		return text + fmt.Sprintf("%s completed", formatTasks(s.TotalTasks))
	}
	text += countsText(s.TaskCounts)
	if jobState(job) != lifecycle.JobCompleted && s.StatusDescription != "" {
		text += "\n  " + stripControl(s.StatusDescription)
	}
	return text
}

// jobTitle returns the job's name, followed by its display name if that is different. Commands
// accept only the former.
func jobTitle(job *robotv1.Job) string {
	if called := displayName(job); called != "" {
		return fmt.Sprintf("%s (%s)", job.Name, called)
	}
	return job.Name
}

// displayName returns the job's display name. It is empty if it equals the object's name.
func displayName(job *robotv1.Job) string {
	if job.Spec.Name == job.Name {
		return ""
	}
	return stripControl(job.Spec.Name)
}

func formatTasks(n int32) string {
	if n == 1 {
		return "1 task"
	}
	return fmt.Sprintf("%d tasks", n)
}

// jobLifetime returns the time from the first start to the end. It is zero for a Job that never
// started.
func jobLifetime(job *robotv1.Job) time.Duration {
	if job.Status.StartedAt == nil || job.Status.CompletedAt == nil {
		return 0
	}
	return max(0, job.Status.CompletedAt.Sub(job.Status.StartedAt.Time))
}

// formatDuration formats durations below a minute with tenths of a second, longer ones as kubectl
// does.
func formatDuration(d time.Duration) string {
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return duration.HumanDuration(d)
}

// countsText returns the number of tasks by state. Rare states appear only if they are not zero.
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
	if n := c.UnconfirmedStops; n > 0 {
		text += fmt.Sprintf(", %d may still be running", n)
	}
	return text
}

// writeFailures prints the first failed tasks and a command that shows the others.
func writeFailures(w io.Writer, failed []*robotv1.Task, seeAll string) {
	if len(failed) == 0 {
		return
	}
	t := table{header: []string{"FAILED TASK", "ROBOT", "EXIT", "REASON", "MESSAGE"}}
	for _, task := range failed[:min(len(failed), maxFailures)] {
		end := explain.LastAttempt(task)
		t.addRow(task.Name, orDash(end.Robot), exitText(end.ExitCode, end.Signal), orDash(end.Reason), task.Status.Message)
	}
	t.writeTo(w)
	if more := len(failed) - maxFailures; more > 0 {
		fmt.Fprintf(w, "and %d more; see all with %s\n", more, quoteArg(seeAll))
	}
}

// exitText returns the exit code, with the signal if one ended the process, or a dash if neither
// is known.
func exitText(code *int32, signal int32) string { return orDash(explain.ExitText(code, signal)) }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
