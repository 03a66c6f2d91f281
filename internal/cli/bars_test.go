package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

func runningView() jobView {
	j := job("demo")
	j.Status.State = "running"
	return jobView{job: j, groups: []*robotv1.TaskGroup{
		group("demo", "inspect", robotv1.TaskCounts{TotalTasks: 200, SucceededTasks: 12, RunningTasks: 16}, "running"),
		group("demo", "a-group-with-a-name-of-some-length", robotv1.TaskCounts{TotalTasks: 3, SucceededTasks: 1, FailedTasks: 1, UnknownTasks: 1}, "running"),
	}}
}

func lostView() jobView {
	v := runningView()
	v.lostSince, v.lostErr = noon.Add(-5*time.Second), errors.New("connection refused")
	return v
}

func manyGroups() jobView {
	v := runningView()
	v.groups = nil
	for i := range 30 {
		state := "completed"
		if i%3 == 0 {
			state = "running"
		}
		v.groups = append(v.groups, group("demo", fmt.Sprintf("g%02d", i), robotv1.TaskCounts{TotalTasks: 2, SucceededTasks: 1}, state))
	}
	return v
}

func calledView(name string) jobView {
	v := runningView()
	v.job.Spec.Name = name
	return v
}

func TestDrawBars_FitsTerminal(t *testing.T) {
	completed := runningView()
	completed.job.Status.State, completed.job.Status.CompletedAt = "completed", at(-time.Minute)
	for _, row := range []struct {
		name, golden string
		in           jobView
		size         size
		color        bool
	}{
		{"a wide terminal has the longest bars", "bars-wide", runningView(), size{200, 50}, false},
		{"a terminal of 80 columns", "bars-80", runningView(), size{80, 24}, false},
		{"with colors", "bars-color", runningView(), size{80, 24}, true},
		{"a narrow terminal has no bars", "bars-40", runningView(), size{40, 24}, false},
		{"a terminal of a few columns cuts", "bars-10", runningView(), size{10, 24}, false},
		{"more groups than lines: those that run stay", "bars-many", manyGroups(), size{80, 14}, false},
		{"the display name comes last", "bars-called", calledView("Survey of \x1b[31mhall 3, and then of the shaft below it, by all robots"), size{80, 24}, false},
		{"an equal display name is omitted", "bars-80", calledView("demo"), size{80, 24}, false},
		{"no group yet", "bars-none", jobView{job: job("demo")}, size{80, 24}, false},
		{"the server is unreachable", "bars-lost", lostView(), size{100, 24}, false},
		{"the age of an ended Job is constant", "bars-completed", completed, size{80, 24}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			lines := drawBars(row.in, row.size, row.color, noon)
			for _, line := range lines {
				if visibleWidth(line) >= row.size.width {
					t.Errorf("wraps: %q", line)
				}
			}
			if len(lines) >= row.size.height {
				t.Errorf("%d lines scroll a terminal of %d", len(lines), row.size.height)
			}
			golden.Equal(t, row.golden, strings.Join(lines, "\n")+"\n")
		})
	}
}

func TestDivideBar_FillsAllCells(t *testing.T) {
	for total := int32(0); total < 30; total++ {
		for succeeded := int32(0); succeeded <= total; succeeded++ {
			for failed := int32(0); succeeded+failed <= total; failed++ {
				c := robotv1.TaskCounts{TotalTasks: total, SucceededTasks: succeeded, FailedTasks: failed, RunningTasks: total - succeeded - failed}
				if got := visibleWidth(paintLine(divideBar(c, 17), false)); got != 17 {
					t.Fatalf("%+v: %d cells", c, got)
				}
			}
		}
	}
}

func TestDivideBar_KeepsWidthForInvalidCounts(t *testing.T) {
	for _, c := range []robotv1.TaskCounts{{TotalTasks: 1, SucceededTasks: 9}, {TotalTasks: 0, RunningTasks: 3}, {TotalTasks: 4, FailedTasks: -2}} {
		if got := visibleWidth(paintLine(divideBar(c, 10), false)); got != 10 {
			t.Errorf("%+v: %d cells", c, got)
		}
	}
}

func TestRedrawLines_ReplacesOldLines(t *testing.T) {
	for _, row := range []struct {
		name     string
		old, new []string
		width    int
		want     string
	}{
		{"the first frame moves up no lines", nil, []string{"a"}, 80, "\r\x1b[Ja\n"},
		{"the next frame moves up each line", []string{"a", "b"}, []string{"c"}, 80, "\x1b[2A\r\x1b[Jc\n"},
		{"a terminal that became narrower has wrapped the old lines", []string{"0123456789", "b"}, []string{"c"}, 4, "\x1b[4A\r\x1b[Jc\n"},
		{"colors have no width", []string{"\x1b[32mabc\x1b[0m"}, []string{"c"}, 4, "\x1b[1A\r\x1b[Jc\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := redrawLines(row.old, row.new, row.width); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

func TestScreen_WritesNothingWithoutChange(t *testing.T) {
	var out safeBuffer
	s := &screen{out: &out, terminal: terminal{live: true, size: func() size { return size{80, 24} }}}
	s.showView(runningView(), noon)
	first := out.String()
	s.showView(runningView(), noon)
	if out.String() != first {
		t.Errorf("wrote again: %q", out.String()[len(first):])
	}
	s.showView(runningView(), noon.Add(time.Second))
	if out.String() == first {
		t.Error("the time does not move")
	}
}

func TestTerminalOf_PipeIsNotLive(t *testing.T) {
	if got := detectTerminal(&safeBuffer{}, func(string) string { return "" }); got.live || got.color {
		t.Errorf("%+v", got)
	}
}
