package hostnode

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// tokenDir is where a pod sees the token of its service account. An admission plugin adds that
// mount to every pod.
const tokenDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// explainUnsupported returns why this node cannot run a pod, and what the user can do. It is empty
// if it can.
func explainUnsupported(pod *corev1.Pod, mounts bool) string {
	for i := range pod.Spec.Volumes {
		if reason := explainUnsupportedVolume(&pod.Spec.Volumes[i]); reason != "" {
			return reason
		}
	}
	for _, c := range allContainers(pod) {
		if reason := explainUnsupportedContainer(pod, &c, mounts); reason != "" {
			return reason
		}
	}
	return ""
}

func explainUnsupportedVolume(v *corev1.Volume) string {
	s := v.VolumeSource
	if s.ConfigMap != nil || s.Secret != nil || s.EmptyDir != nil || s.DownwardAPI != nil || s.Projected != nil || s.HostPath != nil {
		return ""
	}
	return fmt.Sprintf("volume %s has a type that hostnode does not support: use configMap, secret, emptyDir, downwardAPI, projected or hostPath", v.Name)
}

func explainUnsupportedContainer(pod *corev1.Pod, c *corev1.Container, mounts bool) string {
	if _, err := buildCommand(c, nil); err != nil {
		return err.Error()
	}
	if mounts {
		return ""
	}
	for _, m := range c.VolumeMounts {
		v := findVolume(pod, m.Name)
		where := strings.TrimSuffix(m.MountPath, "/")
		same := v != nil && v.HostPath != nil && strings.TrimSuffix(v.HostPath.Path, "/") == where && m.SubPath == "" && m.SubPathExpr == ""
		if where != tokenDir && !same {
			return fmt.Sprintf("container %s mounts volume %s at %s: k8s4r runs without root and cannot mount anything; run it as root, or mount a hostPath at its own path", c.Name, m.Name, m.MountPath)
		}
	}
	return ""
}
