package cli

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/explain"
	"k8s4r.io/k8s4r/internal/core/flow/view"
)

const (
	// maxExplainedFlows bounds the flows of a list that are explained. Each costs some requests.
	maxExplainedFlows = 20
	// maxExplainedSteps bounds the steps of a flow that are explained. Each costs two requests.
	maxExplainedSteps = 20
	// maxExplainedTasks bounds the tasks of a step that are read for its explanation.
	maxExplainedTasks = 500
)

// explainRobotSteps sets the note of the first pending steps on robots to what their tasks wait
// for, and the note of the flow, unless there is one. The status of the flow does not have it. Steps
// that the user may not read keep their notes. It reports whether there was such a step.
func (v flowView) explainRobotSteps(ctx context.Context, d *deps, c *cluster, f *flowv1.JobFlow) (found bool) {
	explained := 0
	for i := range v.Steps {
		s := &v.Steps[i]
		if !waitsForRobots(s) {
			continue
		}
		if found = true; explained == maxExplainedSteps {
			break
		}
		explained++
		if s.Note = waitingNote(ctx, d, c, f.Namespace, s.Job); s.Note != "" && v.Note == "" {
			v.Note = "step " + s.Name + ": " + s.Note
		}
	}
	return found
}

// waitsForRobots reports whether a step on robots is pending for an unknown reason.
func waitsForRobots(s *view.Step) bool {
	return s.OnRobots && s.State == string(batchv1.JobPending) && s.Note == ""
}

// waitingNote returns what most tasks of a Job wait for. It is empty if that is unknown.
func waitingNote(ctx context.Context, d *deps, c *cluster, namespace, job string) string {
	source := whySource{c}
	j, err := source.Job(ctx, namespace, job)
	if err != nil || j == nil {
		return ""
	}
	tasks, err := listTyped[*robotv1.Task](ctx, c, taskKind, append(inJob(j), client.Limit(maxExplainedTasks))...)
	if err != nil {
		return ""
	}
	parts := &explain.Parts{Tasks: slices.DeleteFunc(tasks, func(t *robotv1.Task) bool { return t.Spec.JobName != job })}
	if parts.Hold, err = source.Hold(ctx); err != nil {
		parts.Hold = "" // as far as the user may read
	}
	a := explain.ExplainJob(j, parts, d.now())
	if len(a.Tasks) == 0 {
		return ""
	}
	return a.Tasks[0].Summary + explain.PrefixColon(a.Tasks[0].Text)
}
