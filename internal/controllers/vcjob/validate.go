package vcjob

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

// validateSpec returns a message about what keeps a spec with defaults from ever running.
// Empty if it is valid. Admission, where it is installed, reports the same earlier, except
// for cycles.
func validateSpec(s *batchv1.JobSpec) string {
	if len(s.Tasks) == 0 {
		return "spec.tasks: a Job needs at least one task"
	}
	if why := validateLimits(s); why != "" {
		return why
	}
	names := map[string]bool{}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if names[t.Name] {
			return fmt.Sprintf("spec.tasks: several tasks are named %s; give each task a unique name (a task without a name is named %s plus its index)", t.Name, batchv1.DefaultTaskName)
		}
		names[t.Name] = true
		if *t.MinAvailable > t.Replicas {
			return fmt.Sprintf("spec.tasks[%d].minAvailable: %d is greater than the replicas of task %s (%d)", i, *t.MinAvailable, t.Name, t.Replicas)
		}
	}
	if all := totalReplicas(s); s.MinAvailable > all {
		return fmt.Sprintf("spec.minAvailable: %d is greater than the sum of all replicas, which is %d", s.MinAvailable, all)
	}
	return cmp.Or(validatePlugins(s), validateDependencies(s, names))
}

// validateDependencies rejects unknown targets and cycles of dependsOn.
func validateDependencies(s *batchv1.JobSpec, names map[string]bool) string {
	after := map[string][]string{}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if t.DependsOn == nil {
			continue
		}
		for _, other := range t.DependsOn.Name {
			if !names[other] {
				return fmt.Sprintf("spec.tasks[%d].dependsOn: unknown task %s; use a name of spec.tasks", i, other)
			}
		}
		after[t.Name] = t.DependsOn.Name
	}
	if cycle := findCycle(s, after); cycle != nil {
		return fmt.Sprintf("spec.tasks: the tasks depend on each other: %s; remove one of these dependsOn", strings.Join(cycle, " after "))
	}
	return ""
}

// findCycle returns a cycle of the graph, with its first task repeated at the end. Nil if
// there is none.
func findCycle(s *batchv1.JobSpec, after map[string][]string) []string {
	done, onPath := map[string]bool{}, map[string]bool{}
	var path []string
	var visit func(string) []string
	visit = func(name string) []string {
		if onPath[name] {
			return append(slices.Clone(path[slices.Index(path, name):]), name)
		}
		if done[name] {
			return nil
		}
		path, onPath[name] = append(path, name), true
		for _, other := range after[name] {
			if cycle := visit(other); cycle != nil {
				return cycle
			}
		}
		path, onPath[name], done[name] = path[:len(path)-1], false, true
		return nil
	}
	for i := range s.Tasks {
		if cycle := visit(s.Tasks[i].Name); cycle != nil {
			return cycle
		}
	}
	return nil
}
