package vcjob

import (
	"flag"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// pluginEnv gives each container the index of its replica.
const pluginEnv = "env"

func defineEnv(*flag.FlagSet) effects { return effects{changePod: addIndex} }

// addIndex sets the index of the replica in the environment, under its current and its
// older name.
func addIndex(_ *builder, r replica, pod *corev1.Pod) {
	n := strconv.Itoa(r.index)
	vars := []corev1.EnvVar{{Name: "VK_TASK_INDEX", Value: n}, {Name: "VC_TASK_INDEX", Value: n}}
	eachContainer(pod, func(c *corev1.Container) { setEnv(c, vars) })
}

// eachContainer calls f for every container and init container.
func eachContainer(pod *corev1.Pod, f func(*corev1.Container)) {
	for i := range pod.Spec.InitContainers {
		f(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		f(&pod.Spec.Containers[i])
	}
}

// setEnv sets variables, overriding those of the template.
func setEnv(c *corev1.Container, vars []corev1.EnvVar) {
	set := make(map[string]bool, len(vars))
	for i := range vars {
		set[vars[i].Name] = true
	}
	c.Env = append(slices.DeleteFunc(c.Env, func(old corev1.EnvVar) bool { return set[old.Name] }), vars...)
}
