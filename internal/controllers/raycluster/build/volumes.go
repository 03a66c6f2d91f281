package build

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

const (
	sharedMemory     = "shared-mem"
	sharedMemoryPath = "/dev/shm"
	logs             = "ray-logs"
	logsPath         = "/tmp/ray"
)

// addSharedMemory mounts shared memory of the size of the container's memory for Ray's object
// store: the container runtime's default is 64 MB.
func addSharedMemory(n *node, pod *corev1.Pod) {
	ray := &pod.Spec.Containers[0]
	if _, set := n.params[paramPlasma]; set || mountAt(ray, sharedMemoryPath) != nil {
		return
	}
	source := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
	for _, all := range []corev1.ResourceList{ray.Resources.Limits, ray.Resources.Requests} {
		if q, ok := all[corev1.ResourceMemory]; ok && !q.IsZero() {
			limit := q.DeepCopy()
			source.SizeLimit = &limit
			break
		}
	}
	addVolume(pod, corev1.Volume{Name: sharedMemory, VolumeSource: corev1.VolumeSource{EmptyDir: source}})
	ray.VolumeMounts = append(ray.VolumeMounts, corev1.VolumeMount{Name: sharedMemory, MountPath: sharedMemoryPath})
}

// addLogs mounts Ray's logs into the autoscaler, from the user's volume if there is one.
func addLogs(pod *corev1.Pod, autoscaler *corev1.Container) {
	ray := &pod.Spec.Containers[0]
	mount := mountAt(ray, logsPath)
	if mount == nil {
		addVolume(pod, corev1.Volume{Name: logs, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		mount = &corev1.VolumeMount{Name: logs, MountPath: logsPath}
		ray.VolumeMounts = append(ray.VolumeMounts, *mount)
	}
	if mountAt(autoscaler, logsPath) == nil {
		autoscaler.VolumeMounts = append(autoscaler.VolumeMounts, *mount.DeepCopy())
	}
}

// mountAt returns the container's mount at a path, or nil.
func mountAt(c *corev1.Container, path string) *corev1.VolumeMount {
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].MountPath == path {
			return &c.VolumeMounts[i]
		}
	}
	return nil
}

// addVolume adds a volume unless the user has one of that name, which is used instead.
func addVolume(pod *corev1.Pod, v corev1.Volume) {
	if !slices.ContainsFunc(pod.Spec.Volumes, func(had corev1.Volume) bool { return had.Name == v.Name }) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v)
	}
}
