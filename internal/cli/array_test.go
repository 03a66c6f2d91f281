package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// survey is a running Job with an array of 30 indexes. Of its ranges the first runs, the second
// completed and the third waits. Index 3 has a Task of its own, index 4 failed and has none yet.
func survey() []client.Object {
	j := job("survey")
	j.Status.State = string(lifecycle.JobRunning)
	j.Status.TaskCounts = robotv1.TaskCounts{TotalTasks: 30, SucceededTasks: 13, RunningTasks: 1, FailedTasks: 1, SoftFailedTasks: 1, PendingTasks: 14}
	g := group("survey", "scan", j.Status.TaskCounts, "running")
	g.Spec.Array = &robotv1.Array{Size: 30, RangeSize: 10}
	g.Spec.Tasks = []robotv1.TaskDefinition{{Name: "main", Driver: "exec"}}
	return []client.Object{
		j, g,
		surveyTask(0, "0-9", robotv1.TaskStatus{
			State: "running", Attempt: 2, Attempts: []robotv1.TaskAttempt{{Attempt: 1, Robot: "rover-0", State: "failed", Reason: "AgentRestarted"}, {Attempt: 2, Robot: "rover-1", State: "running"}},
			Array: &robotv1.TaskArrayStatus{Succeeded: "0-2", Failed: "3-4", Failures: []robotv1.IndexFailure{
				{Index: 3, Robot: "rover-0", ExitCode: new(int32(2)), Reason: "Exited"}, {Index: 4, Robot: "rover-0", ExitCode: new(int32(7)), Reason: "Exited"}}},
		}),
		surveyTask(1, "10-19", robotv1.TaskStatus{State: "completed", Attempt: 1, Attempts: []robotv1.TaskAttempt{{Attempt: 1, Robot: "rover-2", State: "completed"}}, Array: &robotv1.TaskArrayStatus{Succeeded: "10-19"}}),
		surveyTask(2, "20-29", robotv1.TaskStatus{State: "pending"}),
		surveyIndex(3, robotv1.TaskStatus{State: "failed", Attempt: 2, Reason: "TooManyAttempts", Attempts: []robotv1.TaskAttempt{
			{Attempt: 1, Robot: "rover-0", State: "failed", ExitCode: new(int32(2)), Reason: "Exited"}, {Attempt: 2, Robot: "rover-2", State: "failed", ExitCode: new(int32(2)), Reason: "Exited"}}}),
	}
}

func surveyTask(n int, indexes string, status robotv1.TaskStatus) *robotv1.Task {
	return task("survey", "scan", n, func(t *robotv1.Task) {
		t.Spec.TargetRobot, t.Spec.Array, t.Status = "rover-1", &robotv1.TaskArray{Indexes: indexes}, status
	})
}

func surveyIndex(index int32, status robotv1.TaskStatus) *robotv1.Task {
	return task("survey", "scan", 3+int(index), func(t *robotv1.Task) {
		t.Name, t.Status = "survey-scan-index-3-main", status
		t.Spec.TargetRobot, t.Spec.Array = "rover-2", &robotv1.TaskArray{Index: &index, Failure: &robotv1.IndexFailure{Index: index}}
	})
}

func TestArray_MatchesGolden(t *testing.T) {
	for name, args := range map[string][]string{
		"array-get-indexes":   {"get", "tasks", "--job", "survey", "--index", "2-5,12,20", "-o", "wide"},
		"array-get-yaml":      {"get", "tasks", "--job", "survey", "--index", "4", "-o", "yaml"},
		"array-get-tasks":     {"get", "tasks", "--job", "survey", "-o", "wide"},
		"array-get-missing":   {"get", "tasks", "--job", "survey", "--index", "30"},
		"array-tree":          {"get", "job", "survey"},
		"array-tree-wide":     {"get", "job", "survey", "-o", "wide"},
		"array-why-own":       {"why", "--job", "survey", "--index", "3"},
		"array-why-failed":    {"why", "--job", "survey", "--index", "4"},
		"array-why-in-line":   {"why", "--job", "survey", "--index", "8"},
		"array-why-completed": {"why", "--job", "survey", "--index", "12"},
		"array-why-range":     {"why", "survey-scan-0-main"},
		"array-requeue":       {"job", "requeue", "survey", "--index", "2-5"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, survey()...)
			golden.Equal(t, name, b.transcript(b.run(args...)))
		})
	}
}

func TestArray_RequeueNamesTasksOfIndexes(t *testing.T) {
	b := newBench(t, survey()...)
	b.run("job", "requeue", "survey", "--index", "2-5,12")
	got := read(b, &robotv1.Job{}, "survey").Spec.Requeue
	want := []string{"survey-scan-index-12-main", "survey-scan-index-2-main", "survey-scan-index-3-main", "survey-scan-index-4-main"}
	slices.Sort(got.Tasks)
	if !slices.Equal(got.Tasks, want) {
		t.Errorf("requeued %v, want %v", got.Tasks, want)
	}
}

func TestArray_RequeueOfRobotIncludesIndexesWithoutTask(t *testing.T) {
	objects := survey()
	objects[0].(*robotv1.Job).Status.State = string(lifecycle.JobCompleted)
	b := newBench(t, append(objects, &robotv1.Robot{ObjectMeta: metaOf("rover-0")})...)
	status := b.run("robot", "requeue", "--failed", "--job", "survey", "rover-0")
	if got := read(b, &robotv1.Job{}, "survey").Spec.Requeue; status != ExitOK || !slices.Equal(got.Tasks, []string{"survey-scan-index-3-main", "survey-scan-index-4-main"}) {
		t.Errorf("exit %d, requeued %v: %s", status, got, b.err.String())
	}
}

func TestArray_IndexOfSeveralGroups(t *testing.T) {
	other := group("survey", "other", robotv1.TaskCounts{}, "running")
	other.Spec.Array, other.Spec.Tasks = &robotv1.Array{Indexes: "4,90"}, []robotv1.TaskDefinition{{Name: "main"}}
	b := newBench(t, append(survey(), other)...)
	if status := b.run("why", "--job", "survey", "--index", "4"); status != ExitFailed || !strings.Contains(b.err.String(), "several groups have index 4: select one of other, scan with --group") {
		t.Errorf("exit %d: %s", status, b.err.String())
	}
	if status := b.run("why", "--job", "survey", "--index", "4", "--group", "other"); status != ExitOK || !strings.Contains(b.out.String(), "its range has no Task yet") {
		t.Errorf("exit %d: %s%s", status, b.out.String(), b.err.String())
	}
}

func TestRun_Array(t *testing.T) {
	items := filepath.Join(t.TempDir(), "items")
	if err := os.WriteFile(items, []byte("north field\r\n\nsouth\nwest"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"indexes":           {[]string{"--array", "0-9,20"}, `"indexes": "0-9,20"`},
		"items":             {[]string{"--items", items}, `"north field",`},
		"size of ranges":    {[]string{"--array", "0-9", "--range-size", "5"}, `"rangeSize": 5`},
		"items and indexes": {[]string{"--items", items, "--array", "7-9"}, `"west"`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			args := slices.Concat([]string{"run", "--dry-run=client", "-o", "json"}, c.args, []string{"--", "inspect"})
			if status := b.run(args...); status != ExitOK || !strings.Contains(b.out.String(), c.want) || strings.Contains(b.out.String(), `"count"`) {
				t.Errorf("exit %d: %s%s", status, b.out.String(), b.err.String())
			}
		})
	}
}

func TestRun_RejectsArrays(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for want, args := range map[string][]string{
		"--array=9-0: \"9-0\": the range ends before it begins": {"--array", "9-0"},
		"--array=0-9:2: \"0-9:2\": want a number or a range":    {"--array", "0-9:2"},
		"--array: has 100001 indexes; the maximum is 100000":    {"--array", "0-100000"},
		"--count=3: cannot be combined with --array or --items": {"--array", "0-9", "--count", "3"},
		"--range-size: requires --array or --items":             {"--range-size", "3"},
		"--range-size=1001: must be from 0 to 1000":             {"--array", "0-9", "--range-size", "1001"},
		"has no items": {"--items", file("none", "\n\n")},
		"has 2 items for 3 indexes; there must be one for each": {"--items", file("two", "a\nb"), "--array", "0-2"},
		"has more than 1000 items":                              {"--items", file("many", strings.Repeat("a\n", 1001))},
		"larger than 131072 bytes":                              {"--items", file("large", strings.Repeat("a", 140_000))},
		"no such file or directory":                             {"--items", filepath.Join(dir, "missing")},
	} {
		b := newBench(t)
		if status := b.run(slices.Concat([]string{"run"}, args, []string{"--", "inspect"})...); status != ExitUsage || !strings.Contains(b.err.String(), want) {
			t.Errorf("exit %d, want %q: %s", status, want, b.err.String())
		}
	}
}

func TestLogs_OfIndex(t *testing.T) {
	line := func(index int32, text string) string {
		r := record.Record{Time: noon, Stream: record.Stdout, Index: &index, Text: []byte(text)}
		return string(r.Append(nil))
	}
	for name, c := range map[string]struct {
		args  []string
		out   string
		asked []string
	}{
		"of its Task":                  {[]string{"--index", "3"}, "own\n", []string{"default/survey-scan-index-3-main?format=records"}},
		"of its first attempt":         {[]string{"--index", "3", "--attempt", "1"}, "ranged\n", []string{"default/survey-scan-0-main?format=records&index=3"}},
		"of its range":                 {[]string{"--index", "4"}, "ranged\n", []string{"default/survey-scan-0-main?format=records&index=4"}},
		"of an attempt of its range":   {[]string{"--index", "4", "--attempt", "1", "-f"}, "ranged\n", []string{"default/survey-scan-0-main?attempt=1&format=records&index=4"}},
		"followed while it has no end": {[]string{"--index", "5", "-f"}, "ranged\n", []string{"default/survey-scan-0-main?follow=true&format=records&index=5"}},
		"before its range has started": {[]string{"--index", "20"}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			b, s := logBench(t, map[string][]logAnswer{
				"survey-scan-index-3-main": {{text: logRecord(record.Stdout, "own\n")}},
				"survey-scan-0-main":       {{text: line(4, "ranged")}},
			}, survey()...)
			status := b.run(append([]string{"logs", "--job", "survey"}, c.args...)...)
			if status != ExitOK || b.out.String() != c.out || !slices.Equal(s.asked, c.asked) {
				t.Errorf("exit %d, %q, asked %q: %s", status, b.out.String(), s.asked, b.err.String())
			}
		})
	}
}

func TestLogs_OfJobShowIndexes(t *testing.T) {
	text := string(record.Record{Time: noon, Stream: record.Stdout, Partial: true, Index: new(int32(7)), Text: []byte("one ")}.Append(nil)) +
		string(record.Record{Time: noon, Stream: record.Stdout, Index: new(int32(7)), Text: []byte("line")}.Append(nil))
	b, _ := logBench(t, map[string][]logAnswer{"t1": {{text: text}}}, job("demo"), aTask("t1", lifecycle.TaskRunning, 1))
	if status := b.run("logs", "--job", "demo"); status != ExitOK || b.out.String() != "[t1#7] one line\n" {
		t.Errorf("exit %d, %q: %s", status, b.out.String(), b.err.String())
	}
}
