package testkit

import (
	"fmt"
	"os"
	"testing"
)

// Trace is a file to which every task appends a line at its start and its end. It shows what
// really ran, independent of reports. Appends of short lines are atomic.
type Trace struct{ Path string }

// NewTrace returns an empty trace.
func NewTrace(t testing.TB) *Trace {
	t.Helper()
	f, err := os.CreateTemp("", "k8s4r-trace-")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	t.Cleanup(func() { os.Remove(f.Name()) })
	return &Trace{f.Name()}
}

// WrapScript returns the shell script work, with a line written to the trace before and after it.
func (l *Trace) WrapScript(work string) string {
	return fmt.Sprintf(`echo "start $K8S4R_TASK_UID $K8S4R_ATTEMPT" >> %[1]s; %[2]s; echo "end $K8S4R_TASK_UID $K8S4R_ATTEMPT" >> %[1]s`, l.Path, work)
}

// Attempt is one run of a task.
type Attempt struct {
	UID    string
	Number int32
}

// CountRuns counts the starts and the ends of each attempt.
func (l *Trace) CountRuns(t testing.TB) (starts, ends map[Attempt]int) {
	t.Helper()
	text, err := os.ReadFile(l.Path)
	if err != nil {
		t.Fatal(err)
	}
	starts, ends = map[Attempt]int{}, map[Attempt]int{}
	count := map[string]map[Attempt]int{"start": starts, "end": ends}
	for _, line := range SplitLines(string(text)) {
		var what string
		var a Attempt
		if _, err := fmt.Sscanf(line, "%s %s %d", &what, &a.UID, &a.Number); err != nil || count[what] == nil {
			t.Fatalf("line %q: %v", line, err)
		}
		count[what][a]++
	}
	return starts, ends
}
