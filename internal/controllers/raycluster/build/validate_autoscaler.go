package build

import (
	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

func (f *findings) checkAutoscaler(c *rayv1.RayCluster) {
	o := c.Spec.AutoscalerOptions
	if o == nil {
		o = &rayv1.AutoscalerOptions{}
	}
	head := &c.Spec.HeadGroupSpec.Template
	env := len(head.Spec.Containers) > 0 && hasEnv(head.Spec.Containers[0].Env, rayv1.EnvAutoscalerV2)
	f.addIf(env && !hasAutoscaler(c), "spec.headGroupSpec.template: %s is set, and there is no autoscaler; leave it out, or set spec.enableInTreeAutoscaling", rayv1.EnvAutoscalerV2)
	f.addIf(env && hasAutoscaler(c) && o.Version != nil, "spec.headGroupSpec.template: %s is set, and spec.autoscalerOptions.version too; leave the variable out", rayv1.EnvAutoscalerV2)
	f.addIf(hasEnv(o.Env, rayv1.EnvAutoscalerCommand), "spec.autoscalerOptions.env: %s is what the controller would have run, for commands of yours to call; choose another name", rayv1.EnvAutoscalerCommand)
	f.addIf(derefOr(o.IdleTimeoutSeconds, 0) < 0, "spec.autoscalerOptions.idleTimeoutSeconds: %d is less than nothing; write 0 or more", derefOr(o.IdleTimeoutSeconds, 0))
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
		"%s.template.spec.restartPolicy: it is %s, and autoscaler v2 replaces Pods itself; write Never, or leave it out", at, p)
}

// FindWarnings returns findings about settings that are valid but probably not intended. The
// cluster gets its Pods all the same.
func FindWarnings(c *rayv1.RayCluster) []Invalid {
	f := &findings{reason: InvalidSpec}
	for i := range c.Spec.WorkerGroupSpecs {
		g := &c.Spec.WorkerGroupSpecs[i]
		p := g.Template.Spec.RestartPolicy
		f.addIf(autoscalerVersion(c) == rayv1.AutoscalerV1 && p != "" && p != corev1.RestartPolicyNever,
			"spec.workerGroupSpecs[%s].template.spec.restartPolicy: it is %s, and autoscaler v1 may count a worker twice that comes back of its own accord; write Never. The Pods are created as it says", g.GroupName, p)
	}
	return f.all
}

// checkScaledGroup checks a group that the autoscaler scales.
func (f *findings) checkScaledGroup(c *rayv1.RayCluster, g *rayv1.WorkerGroupSpec, at string) {
	f.addIf(hasAutoscaler(c) && g.Suspend != nil && *g.Suspend, "%s.suspend: the autoscaler would start its Pods again; turn spec.enableInTreeAutoscaling off, or leave suspend out", at)
	v2 := autoscalerVersion(c) == rayv1.AutoscalerV2
	if idle := g.IdleTimeoutSeconds; idle != nil {
		f.addIf(*idle < 0, "%s.idleTimeoutSeconds: %d is less than nothing; write 0 or more", at, *idle)
		f.addIf(!v2, "%s.idleTimeoutSeconds: only autoscaler v2 has one for each group; set spec.enableInTreeAutoscaling and spec.autoscalerOptions.version: v2, or leave it out", at)
	}
	if derefOr(g.Priority, 0) != 0 {
		f.addIf(!v2, "%s.priority: only autoscaler v2 knows priorities; set spec.enableInTreeAutoscaling and spec.autoscalerOptions.version: v2, or leave it out", at)
		f.addIf(!atLeast(c.Spec.RayVersion, 56), "%s.priority: %s", at, versionNeeded(c, 56))
	}
}
