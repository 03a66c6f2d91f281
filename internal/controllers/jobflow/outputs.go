package jobflow

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/child"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/probe"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/stepjob"
)

// collect reads the outputs of Jobs that have ended, each once, if anything in the
// flow refers to outputs at all (contract §4 row 8). They are read in the pass that
// sees the end: after the end is recorded the Job may go.
func (c *Controller) collect(ctx context.Context, w *World) error {
	known := map[types.UID]bool{}
	for i := range w.Flow.Status.Steps {
		s := &w.Flow.Status.Steps[i]
		known[uid(s.JobUID)] = s.Outputs != nil || s.Reason == ReasonOutputsLeftOut
	}
	var todo []*Job
	for id, j := range w.Jobs {
		if _, read := w.Outputs[id]; j.ended() && !read && !known[id] {
			todo = append(todo, j)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	if uses, err := c.usesOutputs(ctx, w); err != nil || !uses {
		return err
	}
	for _, j := range todo {
		found, err := c.outputsOf(ctx, w.Flow.Namespace, j)
		if err != nil {
			return fmt.Errorf("read outputs of job %s: %w", j.Name, err)
		}
		w.Outputs[j.UID] = found
		c.memory.Of(client.ObjectKeyFromObject(w.Flow), w.Flow.UID, func(m *memory) { m.outputs[j.UID] = found })
	}
	return nil
}

// usesOutputs tells whether a step, or a template of one, refers to outputs.
func (c *Controller) usesOutputs(ctx context.Context, w *World) (bool, error) {
	if w.Graph.usesOutputs {
		return true, nil
	}
	some := []client.ListOption{client.InNamespace(w.Flow.Namespace), client.MatchingFields{indexMentions: "true"}, client.UnsafeDisableDeepCopy}
	var pods flowv1.JobTemplateList
	if err := c.List(ctx, &pods, some...); err != nil {
		return false, fmt.Errorf("list templates: %w", err)
	}
	var robots robotv1.JobTemplateList
	if err := c.List(ctx, &robots, some...); err != nil {
		return false, fmt.Errorf("list robot templates: %w", err)
	}
	for i := range pods.Items {
		if w.Graph.templates[TemplateKey{Pods, pods.Items[i].Name}] {
			return true, nil
		}
	}
	for i := range robots.Items {
		if w.Graph.templates[TemplateKey{Robots, robots.Items[i].Name}] {
			return true, nil
		}
	}
	return false, nil
}

func (c *Controller) outputsOf(ctx context.Context, namespace string, j *Job) (map[string]string, error) {
	if j.Kind == Robots {
		return c.taskOutputs(ctx, namespace, j)
	}
	pods, err := c.podsOf(ctx, namespace, []probe.Job{{Name: j.Name, UID: j.UID}})
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		owner := metav1.GetControllerOf(&p)
		return owner == nil || owner.UID != j.UID
	})
	slices.SortFunc(own, func(a, b corev1.Pod) int {
		return byIndex(a.Labels, b.Labels, batchv1.KeyTaskSpec, batchv1.KeyTaskIndex)
	})
	var messages []string
	for i := range own {
		for _, s := range own[i].Status.ContainerStatuses {
			if s.State.Terminated != nil {
				messages = append(messages, s.State.Terminated.Message)
			}
		}
	}
	return stepjob.Outputs(messages...), nil
}

func (c *Controller) taskOutputs(ctx context.Context, namespace string, j *Job) (map[string]string, error) {
	var tasks robotv1.TaskList
	err := c.Live.List(ctx, &tasks, client.InNamespace(namespace), client.MatchingLabels{robotv1.LabelJob: child.Label(j.Name)})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(tasks.Items, func(a, b robotv1.Task) int {
		return byIndex(a.Labels, b.Labels, robotv1.LabelTaskGroup, robotv1.LabelTaskIndex)
	})
	var all []map[string]string
	for i := range tasks.Items {
		if tasks.Items[i].Spec.JobName == j.Name {
			all = append(all, tasks.Items[i].Status.Outputs)
		}
	}
	return stepjob.Merge(all...), nil
}

// byIndex orders replicas by what they are replicas of, then by their number.
func byIndex(a, b map[string]string, of, index string) int {
	n, _ := strconv.Atoi(a[index])
	m, _ := strconv.Atoi(b[index])
	return cmp.Or(strings.Compare(a[of], b[of]), n-m)
}
