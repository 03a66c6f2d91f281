package build

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// checkRocksDB checks the backend rocksdb: it uses no Redis, and its volume and variables are the
// controller's.
func (f *findings) checkRocksDB(c *rayv1.RayCluster, env []corev1.EnvVar) {
	o := c.Spec.GcsFaultToleranceOptions
	f.checkNoRedis(c, o, env)
	f.checkStorage(o.Storage)
	const at = "spec.headGroupSpec.template"
	for _, name := range []string{rayv1.EnvGCSStorage, rayv1.EnvGCSStoragePath} {
		f.addIf(hasEnv(env, name), "%s: the controller sets the variable %s for the backend rocksdb; remove it", at, name)
	}
	n := headNode(c)
	for i := range n.template.Spec.Volumes {
		f.addIf(n.template.Spec.Volumes[i].Name == storageVolume, "%s.spec.volumes[%s]: the controller adds a volume of this name for the backend rocksdb; choose another name", at, storageVolume)
	}
	if len(n.template.Spec.Containers) == 0 {
		return
	}
	mounts := n.rayContainer().VolumeMounts
	for i := range mounts {
		f.addIf(mounts[i].Name == storageVolume || strings.TrimRight(mounts[i].MountPath, "/") == storagePath,
			"%s.spec.containers[0].volumeMounts[%s]: the controller mounts %s at %s for the backend rocksdb; choose another volume and path", at, mounts[i].Name, storageVolume, storagePath)
	}
}

// checkNoRedis checks that nothing configures Redis beside another backend.
func (f *findings) checkNoRedis(c *rayv1.RayCluster, o *rayv1.GcsFaultToleranceOptions, env []corev1.EnvVar) {
	const remedy = "only used by the backend redis, and backend is rocksdb; omit it"
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"redisAddress", o.RedisAddress != ""},
		{"redisUsername", o.RedisUsername != nil},
		{"redisPassword", o.RedisPassword != nil},
		{"externalStorageNamespace", o.ExternalStorageNamespace != ""},
	} {
		f.addIf(field.set, "spec.gcsFaultToleranceOptions.%s: %s", field.name, remedy)
	}
	_, set := c.Annotations[rayv1.AnnotationStorageNamespace]
	f.addIf(set, "metadata.annotations[%s]: %s", rayv1.AnnotationStorageNamespace, remedy)
	_, set = headNode(c).params[paramRedisPassword]
	f.addIf(set, "spec.headGroupSpec.rayStartParams[redis-password]: %s", remedy)
	for _, name := range []string{rayv1.EnvRedisPassword, rayv1.EnvRedisAddress} {
		f.addIf(hasEnv(env, name), "spec.headGroupSpec.template: the variable %s is %s", name, remedy)
	}
}

// checkStorage checks the claim of the volume. storage may be nil.
func (f *findings) checkStorage(storage *rayv1.GcsStorage) {
	if storage == nil {
		return
	}
	const at = "spec.gcsFaultToleranceOptions.storage"
	if storage.ClaimName != "" {
		for _, field := range []struct {
			name string
			set  bool
		}{
			{"size", storage.Size != nil}, {"storageClassName", storage.StorageClassName != nil}, {"accessModes", len(storage.AccessModes) > 0},
		} {
			f.addIf(field.set, "%s.%s: only for a claim that is created, and claimName names an existing one; omit one of them", at, field.name)
		}
		return
	}
	f.addIf(storage.Size != nil && storage.Size.Sign() <= 0, "%s.size: must be greater than 0; use a quantity such as 1Gi", at)
}
