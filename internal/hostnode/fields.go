package hostnode

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// fieldValue returns the value of a field of a pod, for env and downwardAPI volumes.
func (w *podState) fieldValue(path string) (string, error) {
	if base, key, ok := splitSubscript(path); ok {
		switch base {
		case "metadata.labels":
			return w.pod.Labels[key], nil
		case "metadata.annotations":
			return w.pod.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return w.pod.Name, nil
	case "metadata.namespace":
		return w.pod.Namespace, nil
	case "metadata.uid":
		return string(w.pod.UID), nil
	case "metadata.labels":
		return formatPairs(w.pod.Labels), nil
	case "metadata.annotations":
		return formatPairs(w.pod.Annotations), nil
	case "spec.nodeName":
		return w.pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return w.pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return w.hostIP, nil
	case "status.podIP", "status.podIPs":
		return w.podIP, nil
	}
	return "", fmt.Errorf("fieldPath %q is not supported", path)
}

// splitSubscript splits base['key'].
func splitSubscript(path string) (base, key string, ok bool) {
	base, rest, ok := strings.Cut(path, "['")
	if !ok || !strings.HasSuffix(rest, "']") {
		return "", "", false
	}
	return base, strings.TrimSuffix(rest, "']"), true
}

// formatPairs formats a map like the files of downwardAPI volumes.
func formatPairs(m map[string]string) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(lines, "\n")
}

// resourceOf returns the value of a container's resource in units of the divisor, rounded up. An
// unset limit is the node's capacity.
func (w *podState) resourceOf(ref *corev1.ResourceFieldSelector, of string, node corev1.ResourceList) (string, error) {
	c := findContainer(w.pod, cmp.Or(ref.ContainerName, of))
	if c == nil {
		return "", fmt.Errorf("resourceFieldRef names container %q, which the pod does not have", ref.ContainerName)
	}
	kind, name, ok := strings.Cut(ref.Resource, ".")
	if !ok || kind != "limits" && kind != "requests" {
		return "", fmt.Errorf("resource %q is invalid: must be limits.NAME or requests.NAME", ref.Resource)
	}
	value := c.Resources.Requests[corev1.ResourceName(name)]
	if kind == "limits" {
		value = node[corev1.ResourceName(name)]
		if limit, set := c.Resources.Limits[corev1.ResourceName(name)]; set {
			value = limit
		}
	}
	return formatInUnits(value, ref.Divisor, name), nil
}

func formatInUnits(value, divisor resource.Quantity, name string) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == string(corev1.ResourceCPU) {
		return strconv.FormatInt(divideUp(value.MilliValue(), divisor.MilliValue()), 10)
	}
	return strconv.FormatInt(divideUp(value.Value(), divisor.Value()), 10)
}

func divideUp(a, b int64) int64 { return (a + b - 1) / max(b, 1) }

func findContainer(pod *corev1.Pod, name string) *corev1.Container {
	for _, c := range allContainers(pod) {
		if c.Name == name {
			return &c
		}
	}
	return nil
}
