package build

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

func (f *findings) checkAutoscaler(c *rayv1.RayCluster) {
	o := c.Spec.AutoscalerOptions
	if o == nil {
		o = &rayv1.AutoscalerOptions{}
	}
	head := &c.Spec.HeadGroupSpec.Template
	variable := autoscalerVariable(c)
	isOn := slices.ContainsFunc(variable, func(v string) bool { return v != "0" && v != "false" })
	f.addIf(isOn && !hasAutoscaler(c), "spec.headGroupSpec.template: %s is set, but there is no autoscaler; remove it, or set spec.enableInTreeAutoscaling", rayv1.EnvAutoscalerV2)
	f.addIf(len(variable) > 0 && hasAutoscaler(c) && o.Version != nil, "spec.headGroupSpec.template: %s and spec.autoscalerOptions.version are both set; remove the variable", rayv1.EnvAutoscalerV2)
	f.addIf(hasEnv(o.Env, rayv1.EnvAutoscalerCommand), "spec.autoscalerOptions.env: %s is set by the controller to its own start command; choose another name", rayv1.EnvAutoscalerCommand)
	f.addIf(derefOr(o.IdleTimeoutSeconds, 0) < 0, "spec.autoscalerOptions.idleTimeoutSeconds: %d is negative; use 0 or more", derefOr(o.IdleTimeoutSeconds, 0))
	f.restartPolicy(c, head, "spec.headGroupSpec")
	for i := range c.Spec.WorkerGroupSpecs {
		g := &c.Spec.WorkerGroupSpecs[i]
		at := "spec.workerGroupSpecs[" + g.GroupName + "]"
		f.restartPolicy(c, &g.Template, at)
		f.checkScaledGroup(c, g, at)
	}
}

// restartPolicy checks the restart policy with autoscaler v2: it replaces a Pod whose Ray has
// ended, and would count a Pod that restarts by itself twice.
func (f *findings) restartPolicy(c *rayv1.RayCluster, t *corev1.PodTemplateSpec, at string) {
	p := t.Spec.RestartPolicy
	f.addIf(autoscalerVersion(c) == rayv1.AutoscalerV2 && p != "" && p != corev1.RestartPolicyNever,
		"%s.template.spec.restartPolicy: is %s, but autoscaler v2 replaces Pods itself; use Never, or omit it", at, p)
}

// FindWarnings returns findings about settings that are valid but probably not intended. The
// cluster gets its Pods anyway.
func FindWarnings(c *rayv1.RayCluster) []Invalid {
	f := &findings{reason: InvalidSpec}
	for i := range c.Spec.WorkerGroupSpecs {
		g := &c.Spec.WorkerGroupSpecs[i]
		p := g.Template.Spec.RestartPolicy
		f.addIf(autoscalerVersion(c) == rayv1.AutoscalerV1 && p != "" && p != corev1.RestartPolicyNever,
			"spec.workerGroupSpecs[%s].template.spec.restartPolicy: is %s, but autoscaler v1 may count a worker twice after a restart; use Never. The Pods are created with the given policy", g.GroupName, p)
	}
	return f.all
}

// checkScaledGroup checks a group that the autoscaler scales. Admission lets an update suspend one,
// as KubeRay does: the cluster then stays as it is.
func (f *findings) checkScaledGroup(c *rayv1.RayCluster, g *rayv1.WorkerGroupSpec, at string) {
	f.addIf(hasAutoscaler(c) && g.Suspend != nil && *g.Suspend, "%s.suspend: the autoscaler would create the Pods again; disable spec.enableInTreeAutoscaling, or omit suspend", at)
	v2 := usesAutoscalerV2(c)
	if idle := g.IdleTimeoutSeconds; idle != nil {
		f.addIf(*idle < 0, "%s.idleTimeoutSeconds: %d is negative; use 0 or more", at, *idle)
		f.addIf(!v2, "%s.idleTimeoutSeconds: only supported by autoscaler v2; set spec.enableInTreeAutoscaling and spec.autoscalerOptions.version: v2, or omit it", at)
	}
	if derefOr(g.Priority, 0) != 0 {
		f.addIf(!v2, "%s.priority: only supported by autoscaler v2; set spec.enableInTreeAutoscaling and spec.autoscalerOptions.version: v2, or omit it", at)
		f.addIf(!atLeast(c.Spec.RayVersion, 56), "%s.priority: %s", at, versionNeeded(c, 56))
	}
}
