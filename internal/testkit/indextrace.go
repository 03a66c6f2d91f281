package testkit

import (
	"fmt"
	"os"
	"testing"
)

// IndexTrace is a file to which each index of an array appends a line at its start and its end, as Trace
// is for tasks.
type IndexTrace struct{ trace *Trace }

// NewIndexTrace returns an empty trace.
func NewIndexTrace(t testing.TB) *IndexTrace {
	t.Helper()
	return &IndexTrace{NewTrace(t)}
}

// WrapScript returns the shell script work, with a line written to the trace before and after it.
func (l *IndexTrace) WrapScript(work string) string {
	const line = "$K8S4R_TASK_UID $K8S4R_ATTEMPT $K8S4R_TASK_INDEX"
	return fmt.Sprintf(`echo "start %[1]s" >> %[2]s; %[3]s; echo "end %[1]s" >> %[2]s`, line, l.trace.Path, work)
}

// IndexRun is one run of an index: in an attempt of its range, or of its own task.
type IndexRun struct {
	Attempt
	Index int32
}

// CountRuns counts the starts and the ends of each run.
func (l *IndexTrace) CountRuns(t testing.TB) (starts, ends map[IndexRun]int) {
	t.Helper()
	text, err := os.ReadFile(l.trace.Path)
	if err != nil {
		t.Fatal(err)
	}
	starts, ends = map[IndexRun]int{}, map[IndexRun]int{}
	count := map[string]map[IndexRun]int{"start": starts, "end": ends}
	for _, line := range SplitLines(string(text)) {
		var what string
		var r IndexRun
		if _, err := fmt.Sscanf(line, "%s %s %d %d", &what, &r.UID, &r.Number, &r.Index); err != nil || count[what] == nil {
			t.Fatalf("line %q: %v", line, err)
		}
		count[what][r]++
	}
	return starts, ends
}

// CheckIndexes checks that each of the indexes from 0 to size-1 has ended, and that no attempt started
// one twice.
func (l *IndexTrace) CheckIndexes(t testing.TB, size int) {
	t.Helper()
	starts, ends := l.CountRuns(t)
	for run, n := range starts {
		if n != 1 {
			t.Errorf("attempt %d of %s started index %d %d times", run.Number, run.UID, run.Index, n)
		}
	}
	ended := map[int32]bool{}
	for run := range ends {
		ended[run.Index] = true
	}
	for i := range int32(size) {
		if !ended[i] {
			t.Errorf("index %d never ended", i)
		}
	}
}
