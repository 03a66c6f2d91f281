package stepjob

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// podPhases that a probe can wait for.
var podPhases = []string{string(corev1.PodPending), string(corev1.PodRunning), string(corev1.PodSucceeded), string(corev1.PodFailed), string(corev1.PodUnknown)}

// checkProbe finds a probe that could never succeed: one that asks nobody, or for
// what there is not.
func checkProbe(step *flowv1.Flow, onRobots map[string]bool) error {
	p := probeOf(step)
	if p == nil || len(asked(p)) == 0 {
		return nil
	}
	if len(step.DependsOn.Targets) == 0 {
		return fmt.Errorf("%s: there is nobody to ask; name the steps whose Pods it asks in dependsOn.targets, or leave it out", field(step, "dependsOn.probe"))
	}
	if !slices.ContainsFunc(step.DependsOn.Targets, func(t string) bool { return !onRobots[t] }) {
		return fmt.Errorf("%s: its targets run on robots and have no Pods to ask; name a step of pods in dependsOn.targets, or leave it out and write condition: Running", field(step, "dependsOn.probe"))
	}
	for i, s := range p.TaskStatusList {
		if s.Phase != "" && !slices.Contains(podPhases, s.Phase) {
			return fmt.Errorf("%s: Pods know no phase %q; write one of [%s]", field(step, "dependsOn.probe.taskStatusList[%d].phase", i), s.Phase, strings.Join(podPhases, " "))
		}
	}
	return nil
}

// CheckTasks finds a task that a step's probe asks and that the Jobs of its targets,
// which have these, do not have.
func CheckTasks(step *flowv1.Flow, tasks []string) error {
	p := probeOf(step)
	if p == nil {
		return nil
	}
	for _, a := range asked(p) {
		if a.task != "" && !slices.Contains(tasks, a.task) {
			return fmt.Errorf("%s: the Jobs of its targets have no task %s; name one of [%s], or leave it out to ask the Pods of all",
				field(step, "dependsOn.probe.%s.taskName", a.list), a.task, strings.Join(tasks, " "))
		}
	}
	return nil
}

func probeOf(step *flowv1.Flow) *flowv1.Probe {
	if step.DependsOn == nil {
		return nil
	}
	return step.DependsOn.Probe
}

// question of a probe: where it stands, and whose Pods it asks.
type question struct{ list, task string }

func asked(p *flowv1.Probe) []question {
	var out []question
	for i, g := range p.HTTPGetList {
		out = append(out, question{fmt.Sprintf("httpGetList[%d]", i), g.TaskName})
	}
	for i, s := range p.TCPSocketList {
		out = append(out, question{fmt.Sprintf("tcpSocketList[%d]", i), s.TaskName})
	}
	for i, s := range p.TaskStatusList {
		out = append(out, question{fmt.Sprintf("taskStatusList[%d]", i), s.TaskName})
	}
	return out
}

// robotSteps are the steps whose Jobs run on robots.
func robotSteps(flows []flowv1.Flow) map[string]bool {
	out := map[string]bool{}
	for i := range flows {
		if onRobots(&flows[i]) {
			out[flows[i].Name] = true
		}
	}
	return out
}

func onRobots(step *flowv1.Flow) bool {
	return step.TemplateRef != nil && step.TemplateRef.APIGroup == flowv1.TemplateGroupRobots
}
