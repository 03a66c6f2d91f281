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
	"k8s4r.io/k8s4r/internal/controllers/jobflow/probe"
	"k8s4r.io/k8s4r/internal/core/flow/stepjob"
	"k8s4r.io/k8s4r/internal/core/naming"
)

// collectOutputs reads the outputs of ended Jobs once, if anything in the flow refers to
// outputs. It must happen in the pass that sees the end: once the end is recorded, the Job
// may be deleted.
func (c *Controller) collectOutputs(ctx context.Context, in *Input) error {
	known := map[types.UID]bool{}
	for i := range in.Flow.Status.Steps {
		s := &in.Flow.Status.Steps[i]
		known[toUID(s.JobUID)] = s.Outputs != nil || s.Reason == ReasonOutputsOmitted
	}
	var todo []*Job
	for id, j := range in.Jobs {
		if _, read := in.Outputs[id]; j.hasEnded() && !read && !known[id] {
			todo = append(todo, j)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	if uses, err := c.needsOutputs(ctx, in); err != nil || !uses {
		return err
	}
	for _, j := range todo {
		found, err := c.readOutputs(ctx, in.Flow.Namespace, j)
		if err != nil {
			return fmt.Errorf("read outputs of job %s: %w", j.Name, err)
		}
		in.Outputs[j.UID] = found
		c.memory.Update(client.ObjectKeyFromObject(in.Flow), in.Flow.UID, func(m *memory) { m.outputs[j.UID] = found })
	}
	return nil
}

// needsOutputs reports whether a step, or a template of one, refers to outputs.
func (c *Controller) needsOutputs(ctx context.Context, in *Input) (bool, error) {
	if in.Graph.usesOutputs {
		return true, nil
	}
	some := []client.ListOption{client.InNamespace(in.Flow.Namespace), client.MatchingFields{fieldUsesOutputs: "true"}, client.UnsafeDisableDeepCopy}
	var pods flowv1.JobTemplateList
	if err := c.List(ctx, &pods, some...); err != nil {
		return false, fmt.Errorf("list templates: %w", err)
	}
	var robots robotv1.JobTemplateList
	if err := c.List(ctx, &robots, some...); err != nil {
		return false, fmt.Errorf("list robot templates: %w", err)
	}
	for i := range pods.Items {
		if in.Graph.templates[TemplateKey{Pods, pods.Items[i].Name}] {
			return true, nil
		}
	}
	for i := range robots.Items {
		if in.Graph.templates[TemplateKey{Robots, robots.Items[i].Name}] {
			return true, nil
		}
	}
	return false, nil
}

func (c *Controller) readOutputs(ctx context.Context, namespace string, j *Job) (stepjob.Outputs, error) {
	if j.Kind == Robots {
		return c.readRobotOutputs(ctx, namespace, j)
	}
	pods, err := c.listPods(ctx, namespace, []probe.Job{{Name: j.Name, UID: j.UID}})
	if err != nil {
		return stepjob.Outputs{}, err
	}
	own := slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		owner := metav1.GetControllerOf(&p)
		return owner == nil || owner.UID != j.UID
	})
	slices.SortFunc(own, func(a, b corev1.Pod) int {
		return compareReplicas(a.Labels, b.Labels, batchv1.KeyTaskSpec, batchv1.KeyTaskIndex)
	})
	var messages []string
	for i := range own {
		for _, s := range own[i].Status.ContainerStatuses {
			if s.State.Terminated != nil {
				messages = append(messages, s.State.Terminated.Message)
			}
		}
	}
	return stepjob.ParseOutputs(messages...), nil
}

func (c *Controller) readRobotOutputs(ctx context.Context, namespace string, j *Job) (stepjob.Outputs, error) {
	var tasks robotv1.TaskList
	err := c.Live.List(ctx, &tasks, client.InNamespace(namespace), client.MatchingLabels{robotv1.LabelPrefixedJob: naming.LabelValue(j.Name)})
	if err != nil {
		return stepjob.Outputs{}, err
	}
	slices.SortFunc(tasks.Items, func(a, b robotv1.Task) int {
		return compareReplicas(a.Labels, b.Labels, robotv1.LabelTaskGroup, robotv1.LabelTaskIndex)
	})
	var all []map[string]string
	for i := range tasks.Items {
		if tasks.Items[i].Spec.JobName == j.Name {
			all = append(all, tasks.Items[i].Status.Outputs)
		}
	}
	return stepjob.MergeOutputs(all...), nil
}

// compareReplicas orders replicas by task and then by index.
func compareReplicas(a, b map[string]string, of, index string) int {
	n, _ := strconv.Atoi(a[index])
	m, _ := strconv.Atoi(b[index])
	return cmp.Or(strings.Compare(a[of], b[of]), n-m)
}
