package vcjob

import (
	"fmt"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/naming"
)

// maxPodReferences bounds the mounts and variables that volumes and plugins add to a Pod. It is more
// than fits into a stored Pod.
const maxPodReferences = 20_000

// maxDependencies bounds the names in dependsOn of a task.
const maxDependencies = batchv1.MaxTasks

// validateLimits returns a message about a number or a list that is too large to be followed. Empty
// if there is none. It repeats the limits of the schema, for definitions of another operator.
func validateLimits(s *batchv1.JobSpec) string {
	if n := len(s.Tasks); n > batchv1.MaxTasks {
		return fmt.Sprintf("spec.tasks: %d tasks, at most %d are allowed; divide them among several Jobs", n, batchv1.MaxTasks)
	}
	if n := len(s.Policies); n > batchv1.MaxPolicies {
		return fmt.Sprintf("spec.policies: %d policies, at most %d are allowed; combine events in one policy", n, batchv1.MaxPolicies)
	}
	added := referencesPerContainer(s)
	for i := range s.Tasks {
		if why := validateTaskLimits(&s.Tasks[i], added); why != "" {
			return fmt.Sprintf("spec.tasks[%d].%s", i, why)
		}
	}
	if n := sumReplicas(s); n > batchv1.MaxJobPods {
		return fmt.Sprintf("spec.tasks: the Job has %d Pods in total, at most %d are allowed; divide them among several Jobs", n, batchv1.MaxJobPods)
	}
	return ""
}

func validateTaskLimits(t *batchv1.TaskSpec, added int) string {
	containers := len(t.Template.Spec.InitContainers) + len(t.Template.Spec.Containers)
	switch {
	case len(t.Name) > naming.MaxLabel:
		return fmt.Sprintf("name: has %d characters, at most %d are allowed", len(t.Name), naming.MaxLabel)
	case t.Replicas < 0:
		return fmt.Sprintf("replicas: %d is negative; use 0 or more", t.Replicas)
	case t.Replicas > batchv1.MaxTaskReplicas:
		return fmt.Sprintf("replicas: %d is more than %d; divide the Pods among several tasks or Jobs", t.Replicas, batchv1.MaxTaskReplicas)
	case len(t.Policies) > batchv1.MaxPolicies:
		return fmt.Sprintf("policies: %d policies, at most %d are allowed; combine events in one policy", len(t.Policies), batchv1.MaxPolicies)
	case t.DependsOn != nil && len(t.DependsOn.Name) > maxDependencies:
		return fmt.Sprintf("dependsOn.name: %d names, at most %d are allowed", len(t.DependsOn.Name), maxDependencies)
	case containers*added > maxPodReferences:
		return fmt.Sprintf("template: %d containers would get %d mounts and variables each, %d in total are allowed; use fewer containers, volumes or tasks", containers, added, maxPodReferences)
	}
	return ""
}

// referencesPerContainer returns how many mounts and variables volumes and plugins add to each
// container.
func referencesPerContainer(s *batchv1.JobSpec) int {
	n := len(s.Volumes)
	all, _ := loadPlugins(s)
	for i := range all {
		if count := all[i].countReferences; count != nil {
			n += count(s)
		}
	}
	return n
}
