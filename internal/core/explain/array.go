package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

// ExplainIndex returns why an index of an array waits, or how it ended.
func ExplainIndex(ctx context.Context, s Source, v array.View, now time.Time) (*Explanation, error) {
	job, err := s.Job(ctx, v.Group.Namespace, v.Group.Spec.JobName)
	if err != nil && !errors.Is(err, ErrHidden) {
		return nil, err
	}
	a, err := ExplainTask(ctx, s, v.Render(job), now)
	if err != nil {
		return nil, err
	}
	if text := indexSummary(v, lifecycle.TaskState(a.State)); text != "" {
		a.Summary = text
		a.Facts = slices.DeleteFunc(a.Facts, func(f Fact) bool { return f.Name == Placement }) // there is no Task to place
	}
	if v.Range != nil {
		a.addFact("range", rangeText(v.Range))
	}
	return a, nil
}

// indexSummary returns the most important fact about an index without a Task. It is empty if that is
// the same as for other tasks.
func indexSummary(v array.View, s lifecycle.TaskState) string {
	switch {
	case v.Task != nil:
	case s == lifecycle.TaskCompleted:
		return "it succeeded"
	case v.Range == nil:
		return "its range has no Task yet"
	case s == lifecycle.TaskSoftFailed && v.End() == array.EndFailed:
		return "it failed, and gets a Task of its own, which runs it again"
	case v.IsInLine() && !v.IsNext():
		before := array.Left(v.Range).Position(v.Index)
		return fmt.Sprintf("it waits for its turn: its range has %d indexes without an end before it", before)
	}
	return ""
}

func rangeText(t *robotv1.Task) string {
	state := lifecycle.TaskState(t.Status.State).OrPending()
	all, _ := indexset.Parse(t.Spec.Array.Indexes)
	text := fmt.Sprintf("%s with indexes %s is %s", t.Name, array.ShortenSet(all), state)
	if state.IsActive() {
		text += " on " + t.CurrentRobot()
	}
	return text + ": " + array.CountIndexes(t).String()
}

// indexesText returns the counts of a range. It is empty for other tasks.
func (v *view) indexesText() string {
	if !v.task.IsRange() {
		return ""
	}
	return array.CountIndexes(v.task).String()
}
