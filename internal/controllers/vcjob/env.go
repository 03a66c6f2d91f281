package vcjob

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// pluginEnv tells each container which replica it is.
const pluginEnv = "env"

// addIndex puts the number of the replica into the environment, by its new and
// its old name.
func addIndex(pod *corev1.Pod, index int) {
	n := strconv.Itoa(index)
	eachContainer(pod, func(c *corev1.Container) {
		setEnv(c, corev1.EnvVar{Name: "VK_TASK_INDEX", Value: n})
		setEnv(c, corev1.EnvVar{Name: "VC_TASK_INDEX", Value: n})
	})
}

// eachContainer shows every container and init container.
func eachContainer(pod *corev1.Pod, f func(*corev1.Container)) {
	for i := range pod.Spec.InitContainers {
		f(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		f(&pod.Spec.Containers[i])
	}
}

// setEnv sets a variable. What the template says of it gives way: the Job knows
// better which replica this is.
func setEnv(c *corev1.Container, v corev1.EnvVar) {
	c.Env = slices.DeleteFunc(c.Env, func(old corev1.EnvVar) bool { return old.Name == v.Name })
	c.Env = append(c.Env, v)
}
