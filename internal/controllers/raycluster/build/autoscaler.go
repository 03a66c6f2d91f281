package build

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

const (
	autoscalerName    = "autoscaler"
	autoscalerCommand = "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
)

// autoscaled tells whether Ray's autoscaler decides on replicas.
func autoscaled(c *rayv1.RayCluster) bool {
	return c.Spec.EnableInTreeAutoscaling != nil && *c.Spec.EnableInTreeAutoscaling
}

// version of the autoscaler. Empty: none, or what Ray runs by itself.
func version(c *rayv1.RayCluster) rayv1.AutoscalerVersion {
	if o := c.Spec.AutoscalerOptions; autoscaled(c) && o != nil && o.Version != nil {
		return *o.Version
	}
	return ""
}

// addAutoscalerVersion tells Ray which autoscaler there is.
func addAutoscalerVersion(c *rayv1.RayCluster, e environment) {
	if v := version(c); v != "" {
		e.add(rayv1.EnvAutoscalerV2, strconv.FormatBool(v == rayv1.AutoscalerV2))
	}
}

// addAutoscaler runs Ray's autoscaler beside the head.
func addAutoscaler(s *Settings, c *rayv1.RayCluster, pod *corev1.Pod) {
	pod.Spec.ServiceAccountName = ServiceAccountName(c)
	a := corev1.Container{
		Name:            autoscalerName,
		Image:           pod.Spec.Containers[0].Image,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         shell(s),
		Args:            []string{autoscalerCommand},
		Resources:       fixed("500m", "512Mi"),
	}
	e := environment{&a.Env}
	e.addField(rayv1.EnvClusterName, labelPath(rayv1.LabelCluster))
	e.addField(rayv1.EnvClusterNamespace, "metadata.namespace")
	e.addField(rayv1.EnvHeadPodName, "metadata.name")
	e.add(rayv1.EnvCRDVersion, rayv1.GroupVersion.Version)
	e.add(rayv1.EnvAutoscalerCommand, autoscalerCommand)
	applyOptions(&a, c.Spec.AutoscalerOptions)
	addAuthEnv(c, &a)
	addLogs(pod, &a)
	pod.Spec.Containers = append(pod.Spec.Containers, a)
}

// applyOptions sets what the user wants of the autoscaler.
func applyOptions(a *corev1.Container, o *rayv1.AutoscalerOptions) {
	if o == nil {
		return
	}
	o = o.DeepCopy()
	if o.Resources != nil {
		a.Resources = *o.Resources
	}
	if o.Image != nil && *o.Image != "" {
		a.Image = *o.Image
	}
	if o.ImagePullPolicy != nil {
		a.ImagePullPolicy = *o.ImagePullPolicy
	}
	if len(o.Command) > 0 {
		a.Command = o.Command
	}
	if len(o.Args) > 0 {
		a.Args = o.Args
	}
	a.SecurityContext = o.SecurityContext
	a.Env = append(a.Env, o.Env...)
	a.EnvFrom = o.EnvFrom
	a.VolumeMounts = o.VolumeMounts
}

// UserServiceAccount is the account that the user wants for the head, and that must
// exist. Empty: one is made, if the cluster needs any.
func UserServiceAccount(c *rayv1.RayCluster) string {
	return c.Spec.HeadGroupSpec.Template.Spec.ServiceAccountName
}

// ServiceAccountName is the account that the autoscaler acts by.
func ServiceAccountName(c *rayv1.RayCluster) string {
	return or(UserServiceAccount(c), checkName(c.Name))
}

// ServiceAccount that the autoscaler acts by. Nil: there is no autoscaler, or the user
// has an account for it.
func ServiceAccount(c *rayv1.RayCluster) *corev1.ServiceAccount {
	if !autoscaled(c) || UserServiceAccount(c) != "" {
		return nil
	}
	return &corev1.ServiceAccount{ObjectMeta: owned(c, ServiceAccountName(c), ofCluster(c))}
}

// Role is what the autoscaler may do. Nil: there is none.
func Role(c *rayv1.RayCluster) *rbacv1.Role {
	if !autoscaled(c) {
		return nil
	}
	return &rbacv1.Role{
		ObjectMeta: owned(c, checkName(c.Name), ofCluster(c)),
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"pods/resize"}, Verbs: []string{"patch"}},
			{APIGroups: []string{rayv1.GroupVersion.Group}, Resources: []string{"rayclusters"}, Verbs: []string{"get", "patch"}},
		},
	}
}

// RoleBinding lets the autoscaler's account do that. Nil: there is none.
func RoleBinding(c *rayv1.RayCluster) *rbacv1.RoleBinding {
	if !autoscaled(c) {
		return nil
	}
	return &rbacv1.RoleBinding{
		ObjectMeta: owned(c, checkName(c.Name), ofCluster(c)),
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: ServiceAccountName(c), Namespace: c.Namespace}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: checkName(c.Name)},
	}
}
