package vcjob

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// pluginEnv gives each container the index of its replica.
const pluginEnv = "env"

// addIndex sets the index of the replica in the environment, under its current and its
// older name.
func addIndex(pod *corev1.Pod, index int) {
	n := strconv.Itoa(index)
	eachContainer(pod, func(c *corev1.Container) {
		setEnv(c, corev1.EnvVar{Name: "VK_TASK_INDEX", Value: n})
		setEnv(c, corev1.EnvVar{Name: "VC_TASK_INDEX", Value: n})
	})
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

// setEnv sets a variable, overriding the one of the template.
func setEnv(c *corev1.Container, v corev1.EnvVar) {
	c.Env = slices.DeleteFunc(c.Env, func(old corev1.EnvVar) bool { return old.Name == v.Name })
	c.Env = append(c.Env, v)
}
