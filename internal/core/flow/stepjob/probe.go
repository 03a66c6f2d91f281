package stepjob

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// podPhases are the phases that a probe can wait for.
var podPhases = []string{string(corev1.PodPending), string(corev1.PodRunning), string(corev1.PodSucceeded), string(corev1.PodFailed), string(corev1.PodUnknown)}

// checkProbe returns an error for a probe that can never succeed.
func checkProbe(step *flowv1.Flow, onRobots map[string]bool) error {
	p := step.DependsOn.EffectiveProbe()
	if p == nil {
		return nil
	}
	if len(step.DependsOn.Targets) == 0 {
		return fmt.Errorf("%s: has no Pods to check; add the steps to dependsOn.targets, or remove the probe", fieldPath(step, "dependsOn.probe"))
	}
	if !slices.ContainsFunc(step.DependsOn.Targets, func(t string) bool { return !onRobots[t] }) {
		return fmt.Errorf("%s: all targets run on robots and have no Pods to check; add a step with a pod job to dependsOn.targets, or replace the probe by condition: Running", fieldPath(step, "dependsOn.probe"))
	}
	for i, s := range p.TaskStatusList {
		if s.Phase != "" && !slices.Contains(podPhases, s.Phase) {
			return fmt.Errorf("%s: unknown Pod phase %q; use one of [%s]", fieldPath(step, "dependsOn.probe.taskStatusList[%d].phase", i), s.Phase, strings.Join(podPhases, " "))
		}
	}
	return nil
}

// CheckTasks returns an error if the step's probe names a task that is not among the tasks
// of its targets.
func CheckTasks(step *flowv1.Flow, tasks []string) error {
	p := step.DependsOn.EffectiveProbe()
	if p == nil {
		return nil
	}
	for _, a := range probeQuestions(p) {
		if a.task != "" && !slices.Contains(tasks, a.task) {
			return fmt.Errorf("%s: the Jobs of its targets have no task %s; use one of [%s], or omit it to check the Pods of all tasks",
				fieldPath(step, "dependsOn.probe.%s.taskName", a.list), a.task, strings.Join(tasks, " "))
		}
	}
	return nil
}

// probeQuestion is an entry of a probe: its path and its task.
type probeQuestion struct{ list, task string }

func probeQuestions(p *flowv1.Probe) []probeQuestion {
	var out []probeQuestion
	for i, g := range p.HTTPGetList {
		out = append(out, probeQuestion{fmt.Sprintf("httpGetList[%d]", i), g.TaskName})
	}
	for i, s := range p.TCPSocketList {
		out = append(out, probeQuestion{fmt.Sprintf("tcpSocketList[%d]", i), s.TaskName})
	}
	for i, s := range p.TaskStatusList {
		out = append(out, probeQuestion{fmt.Sprintf("taskStatusList[%d]", i), s.TaskName})
	}
	return out
}

// robotSteps returns the names of the steps that run on robots.
func robotSteps(flows []flowv1.Flow) map[string]bool {
	out := map[string]bool{}
	for i := range flows {
		if isRobotStep(&flows[i]) {
			out[flows[i].Name] = true
		}
	}
	return out
}

func isRobotStep(step *flowv1.Flow) bool {
	return step.TemplateRef != nil && step.TemplateRef.APIGroup == flowv1.TemplateGroupRobots
}
