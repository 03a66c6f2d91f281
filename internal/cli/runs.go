package cli

import (
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/explain"
)

// writeRuns prints the last runs of an attempt, if it has more than one.
func writeRuns(out io.Writer, a *robotv1.TaskAttempt) {
	if len(a.Runs) == 0 {
		return
	}
	t := &table{header: []string{"RUN", "STARTED", "ENDED", "EXIT", "REASON"}}
	for i := range a.Runs {
		r := &a.Runs[i]
		t.addRow(fmt.Sprint(r.Run), timeText(r.StartedAt), timeText(r.FinishedAt), exitText(r.ExitCode, r.Signal), orDash(r.Reason))
	}
	fmt.Fprintf(out, "\n%s\n", runsTitle(a))
	t.writeTo(out)
}

// runsTitle returns the line above the runs of an attempt.
func runsTitle(a *robotv1.TaskAttempt) string {
	if listed := len(a.Runs); int64(listed) < a.RunCount {
		return fmt.Sprintf("Runs of attempt %d, the last %d of %d:", a.Attempt, listed, a.RunCount)
	}
	return fmt.Sprintf("Runs of attempt %d:", a.Attempt)
}

// runCountText returns the number of runs, or a dash for an attempt that its robot does not restart.
func runCountText(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// lastRunText returns how the last run of a task ended. It is empty if that is not known.
func lastRunText(t *robotv1.Task) string {
	a := t.Status.FindAttempt(t.Status.Attempt)
	if a == nil || len(a.Runs) == 0 {
		return ""
	}
	last := &a.Runs[len(a.Runs)-1]
	switch exit := explain.ExitText(last.ExitCode, last.Signal); {
	case exit != "":
		return fmt.Sprintf("run %d ended with exit code %s", last.Run, exit)
	case last.Reason != "":
		return fmt.Sprintf("run %d ended with %s", last.Run, last.Reason)
	}
	return ""
}

// timeText returns a time in whole seconds, or a dash if it is not known.
func timeText(at *metav1.MicroTime) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}
