package build

import (
	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// environment is the list of a container's variables.
type environment struct{ all *[]corev1.EnvVar }

// add appends a variable. Where the user has it too, ours counts, for the last one does.
func (e environment) add(name, value string) {
	*e.all = append(*e.all, corev1.EnvVar{Name: name, Value: value})
}

// addField appends a variable that has the value of a field of the Pod.
func (e environment) addField(name, path string) {
	*e.all = append(*e.all, fromField(name, path))
}

// addMissing appends a variable unless it is there.
func (e environment) addMissing(v corev1.EnvVar) {
	if !hasEnv(*e.all, v.Name) {
		*e.all = append(*e.all, v)
	}
}

func (e environment) addDefault(name, value string) {
	e.addMissing(corev1.EnvVar{Name: name, Value: value})
}

func hasEnv(env []corev1.EnvVar, name string) bool {
	for i := range env {
		if env[i].Name == name {
			return true
		}
	}
	return false
}

func fromField(name, path string) corev1.EnvVar {
	ref := &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: ref}}
}

func labelPath(label string) string { return "metadata.labels['" + label + "']" }

// setEnv fills the environment of the Ray container, in an order that users see, and
// of the init containers.
func setEnv(s *Settings, c *rayv1.RayCluster, n *node, pod *corev1.Pod, start string) {
	for i := range pod.Spec.InitContainers {
		addHeadAddress(s, c, environment{&pod.Spec.InitContainers[i].Env}.addDefault)
	}
	e := environment{&pod.Spec.Containers[0].Env}
	for i := range s.Env {
		e.addMissing(*s.Env[i].DeepCopy())
	}
	if !n.head() {
		addHeadAddress(s, c, e.add)
	}
	e.addField(rayv1.EnvClusterName, labelPath(rayv1.LabelCluster))
	e.addField(rayv1.EnvClusterNamespace, "metadata.namespace")
	e.addField(rayv1.EnvCloudInstanceID, "metadata.name")
	e.addField(rayv1.EnvNodeTypeName, labelPath(rayv1.LabelGroup))
	e.add(rayv1.EnvStartCommand, start)
	e.addDefault(rayv1.EnvRayPort, headPort(c))
	if serves(c) {
		e.addDefault(rayv1.EnvDeathInfoTimeout, "0")
		e.addDefault(rayv1.EnvGCSRequestTimeout, "5")
		e.addDefault(rayv1.EnvServeKVTimeout, "5")
	}
	host := "127.0.0.1"
	if !n.head() {
		host = fqdn(s, c)
	}
	e.addDefault(rayv1.EnvRayAddress, host+":"+headPort(c))
	e.addDefault(rayv1.EnvUsageInUse, "1")
	if n.head() {
		e.add(rayv1.EnvUsageTags, "kuberay_version="+Version+";kuberay_crd=RayCluster")
	}
	e.addDefault(rayv1.EnvDiskUsage, "1")
	addFaultTolerance(c, n, e)
	addAutoscalerVersion(c, e)
}

// addHeadAddress says where the head is: by its full name, and by its short one.
func addHeadAddress(s *Settings, c *rayv1.RayCluster, add func(name, value string)) {
	add(rayv1.EnvFQRayIP, fqdn(s, c))
	add(rayv1.EnvRayIP, HeadServiceName(c))
}

// addMetricsPort names the port where Prometheus finds Ray.
func addMetricsPort(n *node, ray *corev1.Container) {
	for i := range ray.Ports {
		if ray.Ports[i].Name == portMetrics {
			return
		}
	}
	ray.Ports = append(ray.Ports, corev1.ContainerPort{Name: portMetrics, ContainerPort: metricsPort(n)})
}
