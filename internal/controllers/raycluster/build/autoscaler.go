package build

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

const (
	autoscalerName    = "autoscaler"
	autoscalerCommand = "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
)

// hasAutoscaler reports whether Ray's autoscaler sets the number of replicas.
func hasAutoscaler(c *rayv1.RayCluster) bool {
	return c.Spec.EnableInTreeAutoscaling != nil && *c.Spec.EnableInTreeAutoscaling
}

// autoscalerVersion returns the version of the autoscaler. If there is no autoscaler, or Ray's
// default version is used, it returns the empty string.
func autoscalerVersion(c *rayv1.RayCluster) rayv1.AutoscalerVersion {
	if o := c.Spec.AutoscalerOptions; hasAutoscaler(c) && o != nil && o.Version != nil {
		return *o.Version
	}
	return ""
}

// autoscalerVariable returns the values of the head's variable that selects the version in Ray, in
// lower case. There is one for each time that it is set; a value from elsewhere is empty.
func autoscalerVariable(c *rayv1.RayCluster) (values []string) {
	containers := c.Spec.HeadGroupSpec.Template.Spec.Containers
	if len(containers) == 0 {
		return nil
	}
	for _, e := range containers[0].Env {
		if e.Name == rayv1.EnvAutoscalerV2 {
			values = append(values, strings.ToLower(e.Value))
		}
	}
	return values
}

// usesAutoscalerV2 reports whether the autoscaler has version v2, by the spec or by the variable.
func usesAutoscalerV2(c *rayv1.RayCluster) bool {
	return autoscalerVersion(c) == rayv1.AutoscalerV2 ||
		hasAutoscaler(c) && slices.ContainsFunc(autoscalerVariable(c), func(v string) bool { return v == "1" || v == "true" })
}

// addAutoscalerVersion sets the variable that selects the autoscaler version in Ray. The workers learn
// it from the head.
func addAutoscalerVersion(c *rayv1.RayCluster, n *node, e environment) {
	if v := autoscalerVersion(c); v != "" && n.isHead() {
		e.addVariable(rayv1.EnvAutoscalerV2, strconv.FormatBool(v == rayv1.AutoscalerV2))
	}
}

// addAutoscaler adds the container of Ray's autoscaler to the head Pod.
func addAutoscaler(s *Settings, c *rayv1.RayCluster, pod *corev1.Pod) {
	pod.Spec.ServiceAccountName = ServiceAccountName(c)
	a := corev1.Container{
		Name:            autoscalerName,
		Image:           pod.Spec.Containers[0].Image,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         shellCommand(s),
		Args:            []string{autoscalerCommand},
		Resources:       fixedResources("500m", "512Mi"),
		// A Pod that restricted Pod Security admits is also admitted with the autoscaler.
		SecurityContext: pod.Spec.Containers[0].SecurityContext.DeepCopy(),
	}
	e := environment{&a.Env}
	e.addField(rayv1.EnvClusterName, labelPath(rayv1.LabelCluster))
	e.addField(rayv1.EnvClusterNamespace, "metadata.namespace")
	e.addField(rayv1.EnvHeadPodName, "metadata.name")
	e.addVariable(rayv1.EnvCRDVersion, rayv1.GroupVersion.Version)
	e.addVariable(rayv1.EnvAutoscalerCommand, autoscalerCommand)
	applyOptions(&a, c.Spec.AutoscalerOptions)
	addAuthEnv(c, &a)
	addLogs(pod, &a)
	pod.Spec.Containers = append(pod.Spec.Containers, a)
}

// applyOptions applies the user's autoscaler options to its container.
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
	if o.SecurityContext != nil {
		a.SecurityContext = o.SecurityContext
	}
	a.Env = append(a.Env, o.Env...)
	a.EnvFrom = o.EnvFrom
	a.VolumeMounts = o.VolumeMounts
}

// UserServiceAccount returns the service account that the user sets for the head and that must
// exist. If empty, one is created when the cluster needs it.
func UserServiceAccount(c *rayv1.RayCluster) string {
	return c.Spec.HeadGroupSpec.Template.Spec.ServiceAccountName
}

// ServiceAccountName returns the name of the autoscaler's service account.
func ServiceAccountName(c *rayv1.RayCluster) string {
	return firstNonEmpty(UserServiceAccount(c), checkName(c.Name))
}

// ServiceAccount returns the autoscaler's service account, or nil if there is no autoscaler or the
// user sets an account.
func ServiceAccount(c *rayv1.RayCluster) *corev1.ServiceAccount {
	if !hasAutoscaler(c) || UserServiceAccount(c) != "" {
		return nil
	}
	return &corev1.ServiceAccount{ObjectMeta: ownedMeta(c, ServiceAccountName(c), ofCluster(c))}
}

// BuildAutoscalerRole returns the permissions of the autoscaler, or nil if there is none.
func BuildAutoscalerRole(c *rayv1.RayCluster) *rbacv1.Role {
	if !hasAutoscaler(c) {
		return nil
	}
	return &rbacv1.Role{
		ObjectMeta: ownedMeta(c, checkName(c.Name), ofCluster(c)),
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"pods/resize"}, Verbs: []string{"patch"}},
			{APIGroups: []string{rayv1.GroupVersion.Group}, Resources: []string{"rayclusters"}, Verbs: []string{"get", "patch"}},
		},
	}
}

// RoleBinding binds the role to the autoscaler's account. If there is no autoscaler, it returns
// nil.
func RoleBinding(c *rayv1.RayCluster) *rbacv1.RoleBinding {
	if !hasAutoscaler(c) {
		return nil
	}
	return &rbacv1.RoleBinding{
		ObjectMeta: ownedMeta(c, checkName(c.Name), ofCluster(c)),
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: ServiceAccountName(c), Namespace: c.Namespace}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: checkName(c.Name)},
	}
}
