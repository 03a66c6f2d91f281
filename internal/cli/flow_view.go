package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/flow/view"
)

// flowView renders a flow.
type flowView struct{ *view.View }

func viewFlow(f *flowv1.JobFlow, now time.Time) flowView { return flowView{view.New(f, now)} }

// stepFacts returns state, duration and progress of a step in one line.
func stepFacts(s *view.Step) string {
	text := s.State
	if s.Took > 0 {
		text += "  " + duration.HumanDuration(s.Took)
	}
	if s.Total > 0 {
		text += fmt.Sprintf("  %d/%d", s.Done, s.Total)
	}
	return text
}

// stepColor returns the color of a state.
func stepColor(state string) string {
	switch state {
	case string(batchv1.JobCompleted), string(flowv1.Succeed):
		return green
	case string(batchv1.JobRunning), string(batchv1.JobCompleting):
		return cyan
	case string(batchv1.JobFailed), string(batchv1.JobTerminated), string(batchv1.JobAborted):
		return red
	case view.Waiting, view.Skipped, view.Omitted:
		return ""
	}
	return yellow
}

// orderSteps returns the indexes of the steps: each after its targets, branches kept together,
// steps in a cycle last.
func (v flowView) orderSteps() []int {
	waits := make([]int, len(v.Steps))
	var ready, out []int
	for i := len(v.Steps) - 1; i >= 0; i-- {
		if waits[i] = len(v.Steps[i].Targets); waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	for len(ready) > 0 {
		n := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		out = append(out, n)
		for _, f := range slices.Backward(v.Steps[n].Followers) {
			if waits[f]--; waits[f] == 0 {
				ready = append(ready, f)
			}
		}
	}
	for i := range v.Steps {
		if waits[i] > 0 {
			out = append(out, i)
		}
	}
	return out
}

// listNames returns the names of the steps, separated by commas.
func (v flowView) namesOf(steps []int) string {
	var names []string
	for _, i := range steps {
		names = append(names, v.Steps[i].Name)
	}
	return strings.Join(names, ", ")
}
