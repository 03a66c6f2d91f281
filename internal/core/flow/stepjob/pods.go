package stepjob

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// BuildPodJobSpec returns the spec of a step's pod job: a copy of the template's, patched
// and with references replaced. Without patch and references it is identical to the
// template's.
func BuildPodJobSpec(t *flowv1.JobTemplate, step *flowv1.Flow, v Values) (batchv1.JobSpec, error) {
	spec := *t.Spec.DeepCopy()
	if hasPatch(step) {
		nameTasks(spec.Tasks)
		if err := mergePatch(step, podPatch, &spec); err != nil {
			return batchv1.JobSpec{}, err
		}
		if err := checkAddedTasks(t, step, spec.Tasks); err != nil {
			return batchv1.JobSpec{}, err
		}
	}
	err := expandPods(&spec, expander{lookup: v.lookupReference, literal: escapeForKubelet})
	if err != nil {
		return batchv1.JobSpec{}, fmt.Errorf("JobTemplate %s: spec.%w", t.Name, err)
	}
	return spec, nil
}

// nameTasks sets the default names of tasks, so that a patch can refer to them.
func nameTasks(tasks []batchv1.TaskSpec) {
	for i := range tasks {
		if tasks[i].Name == "" {
			tasks[i].Name = defaultTaskName(i)
		}
	}
}

// TaskNames returns the names of the tasks of a pod job.
func TaskNames(spec *batchv1.JobSpec) []string {
	out := make([]string, 0, len(spec.Tasks))
	for i := range spec.Tasks {
		out = append(out, cmp.Or(spec.Tasks[i].Name, defaultTaskName(i)))
	}
	return out
}

// defaultTaskName returns the name of a task without a name.
func defaultTaskName(i int) string { return fmt.Sprint(batchv1.DefaultTaskName, i) }

// checkAddedTasks returns an error if the patch adds a task without containers or a
// container without image. The Pods would be rejected later with a less helpful message.
func checkAddedTasks(t *flowv1.JobTemplate, step *flowv1.Flow, tasks []batchv1.TaskSpec) error {
	names := TaskNames(&t.Spec)
	for i := range tasks {
		path := fieldPath(step, "patch.jobSpec.tasks[%s]", tasks[i].Name)
		if !slices.Contains(names, tasks[i].Name) && len(tasks[i].Template.Spec.Containers) == 0 {
			return fmt.Errorf("%s: JobTemplate %s has no such task and the patch gives it no template; name one of [%s], or set template.spec.containers",
				path, t.Name, strings.Join(names, " "))
		}
		for _, c := range tasks[i].Template.Spec.Containers {
			if c.Image == "" && !isTemplateImageless(t, tasks[i].Name, c.Name) {
				return fmt.Errorf("%s.template.spec.containers[%s]: JobTemplate %s has no such container and the patch gives it no image; name one that it has, or set image",
					path, c.Name, t.Name)
			}
		}
	}
	return nil
}

// isTemplateImageless reports whether the template itself has the container without an
// image.
func isTemplateImageless(t *flowv1.JobTemplate, task, container string) bool {
	for i := range t.Spec.Tasks {
		if t.Spec.Tasks[i].Name != task && defaultTaskName(i) != task {
			continue
		}
		for _, c := range t.Spec.Tasks[i].Template.Spec.Containers {
			if c.Name == container {
				return true
			}
		}
	}
	return false
}

// expandPods replaces the references in a pod job. Paths in errors are relative to the
// spec.
func expandPods(spec *batchv1.JobSpec, e expander) error {
	for i := range spec.Tasks {
		pod := &spec.Tasks[i].Template.Spec
		path := fmt.Sprintf("tasks[%d].template.spec.", i)
		if err := expandContainers(path+"initContainers", pod.InitContainers, e); err != nil {
			return err
		}
		if err := expandContainers(path+"containers", pod.Containers, e); err != nil {
			return err
		}
	}
	return nil
}

func expandContainers(path string, containers []corev1.Container, e expander) error {
	for i := range containers {
		c := &containers[i]
		at := fmt.Sprintf("%s[%s].", path, c.Name)
		if err := e.expandAll(at+"command", c.Command); err != nil {
			return err
		}
		if err := e.expandAll(at+"args", c.Args); err != nil {
			return err
		}
		for j := range c.Env {
			if err := e.expandField(fmt.Sprintf("%senv[%s]", at, c.Env[j].Name), &c.Env[j].Value); err != nil {
				return err
			}
		}
	}
	return nil
}
