package build

import (
	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// environment is the list of a container's variables.
type environment struct{ all *[]corev1.EnvVar }

// addVariable appends a variable. It overrides a variable of the user, because the last one wins.
func (e environment) addVariable(name, value string) {
	*e.all = append(*e.all, corev1.EnvVar{Name: name, Value: value})
}

// addField appends a variable with the value of a field of the Pod.
func (e environment) addField(name, path string) {
	*e.all = append(*e.all, fromField(name, path))
}

// addMissing appends a variable unless it exists.
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

// setEnv sets the environment of the Ray container, in the order of KubeRay, and that of the init
// containers.
func setEnv(s *Settings, c *rayv1.RayCluster, n *node, pod *corev1.Pod, start string) {
	e := environment{&pod.Spec.Containers[0].Env}
	addAutoscalerVersion(c, n, e)
	addFaultTolerance(c, n, e)
	addAuth(c, pod)
	for i := range pod.Spec.InitContainers {
		addHeadAddress(s, c, environment{&pod.Spec.InitContainers[i].Env})
	}
	for i := range s.Env {
		e.addMissing(*s.Env[i].DeepCopy())
	}
	if !n.isHead() {
		addHeadAddress(s, c, e)
	}
	e.addField(rayv1.EnvClusterName, labelPath(rayv1.LabelCluster))
	e.addField(rayv1.EnvClusterNamespace, "metadata.namespace")
	e.addField(rayv1.EnvCloudInstanceID, "metadata.name")
	e.addField(rayv1.EnvNodeTypeName, labelPath(rayv1.LabelGroup))
	e.addVariable(rayv1.EnvStartCommand, start)
	e.addDefault(rayv1.EnvRayPort, headPort(c))
	if isOwnedByRayService(c) {
		e.addDefault(rayv1.EnvDeathInfoTimeout, "0")
		e.addDefault(rayv1.EnvGCSRequestTimeout, "5")
		e.addDefault(rayv1.EnvServeKVTimeout, "5")
	}
	host := "127.0.0.1"
	if !n.isHead() {
		host = headFQDN(s, c)
	}
	e.addDefault(rayv1.EnvRayAddress, host+":"+headPort(c))
	e.addDefault(rayv1.EnvUsageInUse, "1")
	if n.isHead() {
		e.addVariable(rayv1.EnvUsageTags, "kuberay_version="+Version+";kuberay_crd=RayCluster")
	}
	e.addDefault(rayv1.EnvDiskUsage, "1")
}

// addHeadAddress adds the full and the short DNS name of the head.
func addHeadAddress(s *Settings, c *rayv1.RayCluster, e environment) {
	e.addVariable(rayv1.EnvFQRayIP, headFQDN(s, c))
	e.addVariable(rayv1.EnvRayIP, HeadServiceName(c))
}

// addMetricsPort adds the container port that Prometheus scrapes, unless the user has it.
func addMetricsPort(n *node, ray *corev1.Container) {
	for i := range ray.Ports {
		if ray.Ports[i].Name == portMetrics {
			return
		}
	}
	ray.Ports = append(ray.Ports, corev1.ContainerPort{Name: portMetrics, ContainerPort: metricsPort(n)})
}
