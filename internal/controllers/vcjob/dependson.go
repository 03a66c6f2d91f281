package vcjob

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

// dependencyMessage names the tasks that the Pods of a task wait for. Empty if none.
func (p *plan) dependencyMessage(t *batchv1.TaskSpec) string {
	if t.DependsOn == nil || len(t.DependsOn.Name) == 0 {
		return ""
	}
	var waits []string
	for _, name := range t.DependsOn.Name {
		if !p.isTaskReady(p.findTask(name)) {
			waits = append(waits, name)
		}
	}
	anyDoes := t.DependsOn.Iteration == batchv1.IterationAny
	if len(waits) == 0 || anyDoes && len(waits) < len(t.DependsOn.Name) {
		return ""
	}
	return fmt.Sprintf("task %s waits for %s", t.Name, strings.Join(waits, ", "))
}

// isTaskReady reports whether at least minAvailable Pods of a task have succeeded or are
// running with all containers ready.
func (p *plan) isTaskReady(t *batchv1.TaskSpec) bool {
	if t == nil {
		return false
	}
	var n int32
	for _, pod := range p.currentPods[t.Name] {
		if pod.DeletionTimestamp == nil && (pod.Status.Phase == corev1.PodSucceeded || isReady(pod)) {
			n++
		}
	}
	return n >= *t.MinAvailable
}
