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
	f.addIf(param, at+".rayStartParams[redis-username]: write it into spec.gcsFaultToleranceOptions.redisUsername")
	f.addIf(hasEnv(env, rayv1.EnvRedisUsername), at+".template: write REDIS_USERNAME into spec.gcsFaultToleranceOptions.redisUsername, not into the environment")
	o := c.Spec.GcsFaultToleranceOptions
	if o == nil {
		f.addIf(!faultTolerant(c) && hasEnv(env, rayv1.EnvRedisAddress), at+".template: RAY_REDIS_ADDRESS is set, and fault tolerance is not on; write spec.gcsFaultToleranceOptions.redisAddress in its place")
		return
	}
	f.checkBackend(o)
	said, both := c.Annotations[rayv1.AnnotationFTEnabled]
	f.addIf(both, "metadata.annotations[%s]: it is %s, and spec.gcsFaultToleranceOptions is there; leave the annotation out", rayv1.AnnotationFTEnabled, said)
	_, both = c.Annotations[rayv1.AnnotationStorageNamespace]
	f.addIf(both, "metadata.annotations[%s]: write it into spec.gcsFaultToleranceOptions.externalStorageNamespace", rayv1.AnnotationStorageNamespace)
	_, param = n.params[paramRedisPassword]
	f.addIf(param, at+".rayStartParams[redis-password]: write it into spec.gcsFaultToleranceOptions.redisPassword")
	f.addIf(hasEnv(env, rayv1.EnvRedisPassword), at+".template: write REDIS_PASSWORD into spec.gcsFaultToleranceOptions.redisPassword, not into the environment")
	f.addIf(hasEnv(env, rayv1.EnvRedisAddress), at+".template: write RAY_REDIS_ADDRESS into spec.gcsFaultToleranceOptions.redisAddress, not into the environment")
}

func (f *findings) checkBackend(o *rayv1.GcsFaultToleranceOptions) {
	const at = "spec.gcsFaultToleranceOptions"
	if o.Backend == rayv1.BackendRocksDB {
		f.addIf(true, at+".backend: rocksdb is not there yet in this version of K8s4r; write redis")
		return
	}
	f.addIf(o.Storage != nil, at+".storage: it is for the backend rocksdb, which is not there yet in this version of K8s4r; leave it out")
	f.addIf(strings.TrimSpace(o.RedisAddress) == "", at+".redisAddress: it is empty; write host:port of a Redis")
}
