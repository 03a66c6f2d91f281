package build

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

const (
	storageVolume = "gcs-storage"
	storagePath   = "/data/gcs"
)

// defaultStorageSize is the size of a created claim if the spec sets none.
var defaultStorageSize = resource.MustParse("1Gi")

// usesRocksDB reports whether the head stores its state on a volume.
func usesRocksDB(c *rayv1.RayCluster) bool {
	o := c.Spec.GcsFaultToleranceOptions
	return o != nil && o.Backend == rayv1.BackendRocksDB
}

// storageOf returns the settings of the volume, or the zero value if the spec has none.
func storageOf(c *rayv1.RayCluster) rayv1.GcsStorage {
	if !usesRocksDB(c) || c.Spec.GcsFaultToleranceOptions.Storage == nil {
		return rayv1.GcsStorage{}
	}
	return *c.Spec.GcsFaultToleranceOptions.Storage
}

// StorageClaim returns the claim of the volume for the head's state. It returns nil if the cluster
// has no such volume or names a claim of the user.
func StorageClaim(c *rayv1.RayCluster) *corev1.PersistentVolumeClaim {
	storage := storageOf(c)
	if !usesRocksDB(c) || storage.ClaimName != "" {
		return nil
	}
	size := defaultStorageSize
	if storage.Size != nil {
		size = *storage.Size
	}
	modes := slices.Clone(storage.AccessModes)
	if len(modes) == 0 {
		modes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: ownedMeta(c, StorageClaimName(c), map[string]string{rayv1.LabelCluster: c.Name}),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      modes,
			StorageClassName: storage.StorageClassName,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size.DeepCopy()}},
		},
	}
	if storage.DeletionPolicy == rayv1.RetainStorage {
		claim.OwnerReferences = nil
	}
	return claim
}

// DescribeStorageDrift returns how an existing claim differs from the one that the spec asks for,
// or the empty string. The controller does not change existing claims.
func DescribeStorageDrift(want, is *corev1.PersistentVolumeClaim) string {
	var all []string
	add := func(differs bool, format string, args ...any) {
		if differs {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	wantSize, isSize := want.Spec.Resources.Requests[corev1.ResourceStorage], is.Spec.Resources.Requests[corev1.ResourceStorage]
	add(wantSize.Cmp(isSize) != 0, "size is %s, not %s", isSize.String(), wantSize.String())
	if class := want.Spec.StorageClassName; class != nil { // otherwise the API server chooses one
		has := ""
		if is.Spec.StorageClassName != nil {
			has = *is.Spec.StorageClassName
		}
		add(*class != has, "storageClassName is %q, not %q", has, *class)
	}
	add(!slices.Equal(want.Spec.AccessModes, is.Spec.AccessModes), "accessModes are %v, not %v", is.Spec.AccessModes, want.Spec.AccessModes)
	isOwned, wantOwned := metav1.GetControllerOf(is) != nil, metav1.GetControllerOf(want) != nil
	add(isOwned && !wantOwned, "it is deleted with the cluster, and deletionPolicy is Retain; remove its owner reference to keep it")
	add(!isOwned && wantOwned, "it is kept when the cluster is deleted, and deletionPolicy is DeleteWithCluster; delete it yourself")
	return strings.Join(all, "; ")
}

// addStorage mounts the volume for the head's state into the Ray container.
func addStorage(c *rayv1.RayCluster, pod *corev1.Pod) {
	if !usesRocksDB(c) {
		return
	}
	storage, ray := storageOf(c), &pod.Spec.Containers[0]
	source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: firstNonEmpty(storage.ClaimName, StorageClaimName(c))}
	addVolume(pod, corev1.Volume{Name: storageVolume, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: source}})
	ray.VolumeMounts = append(ray.VolumeMounts, corev1.VolumeMount{Name: storageVolume, MountPath: storagePath, SubPath: storage.SubPath})
}

// stripClaimFields removes what only affects a claim that is created later, which no Pod depends
// on.
func stripClaimFields(o *rayv1.GcsFaultToleranceOptions) *rayv1.GcsFaultToleranceOptions {
	if o == nil || o.Storage == nil {
		return o
	}
	o = o.DeepCopy()
	o.Storage = &rayv1.GcsStorage{ClaimName: o.Storage.ClaimName, SubPath: o.Storage.SubPath}
	if o.Storage.ClaimName == "" && o.Storage.SubPath == "" {
		o.Storage = nil
	}
	return o
}
