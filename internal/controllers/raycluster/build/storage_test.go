package build

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

func TestDescribeStorageDrift(t *testing.T) {
	size, class, none := resource.MustParse("1024Mi"), "fast", ""
	withStorage := func(storage rayv1.GcsStorage) *corev1.PersistentVolumeClaim {
		return StorageClaim(cluster(func(c *rayv1.RayCluster) {
			c.Spec.GcsFaultToleranceOptions = &rayv1.GcsFaultToleranceOptions{Backend: rayv1.BackendRocksDB, Storage: &storage}
		}))
	}
	retained := withStorage(rayv1.GcsStorage{DeletionPolicy: rayv1.RetainStorage})
	owned := withStorage(rayv1.GcsStorage{})
	for _, row := range []struct {
		name     string
		want, is *corev1.PersistentVolumeClaim
		drift    string
	}{
		{"the same", owned, owned, ""},
		{"the same size in other words", owned, withStorage(rayv1.GcsStorage{Size: &size}), ""},
		{"a class that the API server chose", owned, withStorage(rayv1.GcsStorage{StorageClassName: &class}), ""},
		{"another class", withStorage(rayv1.GcsStorage{StorageClassName: &none}), withStorage(rayv1.GcsStorage{StorageClassName: &class}), `storageClassName is "fast", not ""`},
		{"another size", withStorage(rayv1.GcsStorage{Size: new(resource.MustParse("2Gi"))}), owned, "size is 1Gi, not 2Gi"},
		{"other modes", withStorage(rayv1.GcsStorage{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}}), owned, "accessModes are [ReadWriteOnce], not [ReadWriteMany]"},
		{"deleted with the cluster", retained, owned, "it is deleted with the cluster, and deletionPolicy is Retain; remove its owner reference to keep it"},
		{"kept", owned, retained, "it is kept when the cluster is deleted, and deletionPolicy is DeleteWithCluster; delete it yourself"},
	} {
		if got := DescribeStorageDrift(row.want, row.is); got != row.drift {
			t.Errorf("%s: %q, want %q", row.name, got, row.drift)
		}
	}
}
