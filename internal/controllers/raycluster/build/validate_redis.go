package build

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// faultTolerance checks that storage outside the head is configured in one place only.
func (f *findings) faultTolerance(c *rayv1.RayCluster) {
	n := headNode(c)
	var env []corev1.EnvVar
	if len(n.template.Spec.Containers) > 0 {
		env = n.rayContainer().Env
	}
	const at = "spec.headGroupSpec"
	_, param := n.params[paramRedisUsername]
	f.addIf(param, at+".rayStartParams[redis-username]: set spec.gcsFaultToleranceOptions.redisUsername instead")
	f.addIf(hasEnv(env, rayv1.EnvRedisUsername), at+".template: set spec.gcsFaultToleranceOptions.redisUsername instead of the variable REDIS_USERNAME")
	o := c.Spec.GcsFaultToleranceOptions
	if o == nil {
		f.addIf(!faultTolerant(c) && hasEnv(env, rayv1.EnvRedisAddress), at+".template: RAY_REDIS_ADDRESS is set, but fault tolerance is not enabled; set spec.gcsFaultToleranceOptions.redisAddress instead")
		return
	}
	_, both := c.Annotations[rayv1.AnnotationFTEnabled]
	f.addIf(both, "metadata.annotations[%s]: cannot be combined with spec.gcsFaultToleranceOptions; remove the annotation", rayv1.AnnotationFTEnabled)
	if usesRocksDB(c) {
		f.checkRocksDB(c, env)
		return
	}
	f.addIf(o.Storage != nil, "spec.gcsFaultToleranceOptions.storage: only used by the backend rocksdb; omit it, or set backend: rocksdb")
	f.addIf(strings.TrimSpace(o.RedisAddress) == "", "spec.gcsFaultToleranceOptions.redisAddress: must not be empty; set host:port of a Redis server")
	_, both = c.Annotations[rayv1.AnnotationStorageNamespace]
	f.addIf(both, "metadata.annotations[%s]: set spec.gcsFaultToleranceOptions.externalStorageNamespace instead", rayv1.AnnotationStorageNamespace)
	_, param = n.params[paramRedisPassword]
	f.addIf(param, at+".rayStartParams[redis-password]: set spec.gcsFaultToleranceOptions.redisPassword instead")
	f.addIf(hasEnv(env, rayv1.EnvRedisPassword), at+".template: set spec.gcsFaultToleranceOptions.redisPassword instead of the variable REDIS_PASSWORD")
	f.addIf(hasEnv(env, rayv1.EnvRedisAddress), at+".template: set spec.gcsFaultToleranceOptions.redisAddress instead of the variable RAY_REDIS_ADDRESS")
}
