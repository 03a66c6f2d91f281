package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/explain"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// printTrees prints each Job with its groups and tasks.
func (o *getOptions) printTrees(ctx context.Context, d *deps, c *cluster, jobs []client.Object) error {
	for i, object := range jobs {
		job := object.(*robotv1.Job)
		p, err := readJobParts(ctx, c, job)
		if err != nil {
			return err
		}
		tasks := slices.Concat(p.tasks, array.ListFailures(job, p.groups, p.tasks))
		if i > 0 {
			fmt.Fprintln(d.Out)
		}
		tree := newTree(job, p.groups, tasks, o.output == outputWide, d.now())
		tree.writeTo(d.Out)
	}
	return nil
}

func groupsOf(job *robotv1.Job, objects []client.Object) []*robotv1.TaskGroup {
	var own []client.Object
	for _, o := range objects {
		if o.(*robotv1.TaskGroup).Spec.JobName == job.Name {
			own = append(own, o)
		}
	}
	return sortGroups(job, own)
}

// newTree is a pure function that returns a table of a Job, its groups and its tasks.
func newTree(job *robotv1.Job, groups []*robotv1.TaskGroup, tasks []*robotv1.Task, wide bool, now time.Time) *table {
	t := &table{header: []string{"NAME", "STATE", "ROBOT", "EXIT", "ATTEMPT", "AGE", "REASON"}}
	if wide {
		t.header = append(t.header, "MESSAGE")
	}
	t.addRow("job/"+jobTitle(job), orDash(job.Status.State), "-", "-", "-", ageText(job, now), job.Status.StatusDescription)
	byGroup := map[string][]*robotv1.Task{}
	for _, task := range tasks {
		byGroup[task.Spec.TaskGroupName] = append(byGroup[task.Spec.TaskGroupName], task)
	}
	for i, g := range groups {
		branch, stem := branchPrefixes(i == len(groups)-1)
		t.addRow(branch+"group/"+g.Spec.GroupName, orDash(g.Status.State), "-", "-", "-", ageText(g, now), countsText(g.Status.TaskCounts))
		own := byGroup[g.Name]
		if g.Spec.Array != nil && !wide {
			own = hideRanges(t, stem, own)
		}
		for j, task := range own {
			leaf, _ := branchPrefixes(j == len(own)-1)
			t.addRow(taskRow(stem+leaf+"task/"+task.Name, task, wide, now)...)
		}
	}
	return t
}

// hideRanges adds one row for the ranges of an array. It returns the Tasks of single indexes that
// have not completed, which get rows of their own.
func hideRanges(t *table, stem string, tasks []*robotv1.Task) (shown []*robotv1.Task) {
	ranges, counts := 0, map[lifecycle.TaskState]int{}
	for _, task := range tasks {
		state := lifecycle.TaskState(task.Status.State).OrPending()
		switch {
		case task.IsRange():
			ranges++
			counts[state]++
		case state != lifecycle.TaskCompleted:
			shown = append(shown, task)
		}
	}
	branch, _ := branchPrefixes(len(shown) == 0)
	t.addRow(fmt.Sprintf("%s%s%d ranges", stem, branch, ranges), "-", "-", "-", "-", "-", statesText(counts))
	return shown
}

// statesText returns the numbers of tasks by state.
func statesText(counts map[lifecycle.TaskState]int) string {
	var parts []string
	for _, s := range lifecycle.TaskStates {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	return orDash(strings.Join(parts, ", "))
}

// branchPrefixes returns the lines that lead to a node, and the lines that lead past it to its
// children.
func branchPrefixes(last bool) (to, past string) {
	if last {
		return "└─ ", "   "
	}
	return "├─ ", "│  "
}

func taskRow(name string, task *robotv1.Task, wide bool, now time.Time) []string {
	end := explain.LastAttempt(task)
	row := []string{name, markedState(task), orDash(end.Robot), exitText(end.ExitCode, end.Signal), attemptText(end.Attempt), ageText(task, now), orDash(taskReason(task, end))}
	if wide {
		row = append(row, task.Status.Message)
	}
	return row
}

// taskReason returns why the task is in its state. For a waiting task this is the reason of
// placement, for a failed task the task's own reason: its last attempt knows only its own exit.
func taskReason(task *robotv1.Task, end robotv1.TaskAttempt) string {
	state := lifecycle.TaskState(task.Status.State)
	if state.IsPlaceable() {
		if c := explain.UnplacedCondition(task); c != nil {
			return c.Message
		}
	}
	if state == lifecycle.TaskFailed {
		return cmp.Or(task.Status.Reason, end.Reason)
	}
	return end.Reason
}

func taskState(t *robotv1.Task) string {
	return string(lifecycle.TaskState(t.Status.State).OrPending())
}

// markedState returns the state of a task, with a mark if its process may still be running although the
// task has ended.
func markedState(t *robotv1.Task) string {
	if t.Status.UnconfirmedStop != nil && lifecycle.TaskState(t.Status.State).IsTerminal() {
		return taskState(t) + " (unconfirmed)"
	}
	return taskState(t)
}

// attemptText returns the number of the attempt, or a dash before the first one.
func attemptText(n int32) string {
	if n == 0 {
		return "-"
	}
	return formatCount(n)
}
