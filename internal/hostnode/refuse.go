package hostnode

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// tokenDir is where a pod sees the token of its service account. An admission plugin adds that
// mount to every pod.
const tokenDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// explainRefusal returns why a pod can never run on this node, and what the user can do. It is
// empty if the pod can run.
func explainRefusal(pod *corev1.Pod, mounts bool) string {
	for i := range pod.Spec.Volumes {
		if reason := refusedVolume(&pod.Spec.Volumes[i]); reason != "" {
			return reason
		}
	}
	for _, c := range allContainers(pod) {
		if reason := refusedContainer(pod, &c, mounts); reason != "" {
			return reason
		}
	}
	return ""
}

func refusedVolume(v *corev1.Volume) string {
	s := v.VolumeSource
	if s.ConfigMap != nil || s.Secret != nil || s.EmptyDir != nil || s.DownwardAPI != nil || s.Projected != nil || s.HostPath != nil {
		return ""
	}
	return fmt.Sprintf("volume %s is of a kind that hostnode does not have: use configMap, secret, emptyDir, downwardAPI, projected or hostPath", v.Name)
}

func refusedContainer(pod *corev1.Pod, c *corev1.Container, mounts bool) string {
	if _, err := buildCommand(c, nil); err != nil {
		return err.Error()
	}
	if mounts {
		return ""
	}
	for _, m := range c.VolumeMounts {
		v := volumeNamed(pod, m.Name)
		where := strings.TrimSuffix(m.MountPath, "/")
		same := v != nil && v.HostPath != nil && strings.TrimSuffix(v.HostPath.Path, "/") == where && m.SubPath == "" && m.SubPathExpr == ""
		if where != tokenDir && !same {
			return fmt.Sprintf("container %s mounts volume %s at %s: k8s4r runs without root and cannot mount anything; run it as root, or mount a hostPath at its own path", c.Name, m.Name, m.MountPath)
		}
	}
	return ""
}
