package controllers

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/testkit"
)

// rayStorage are clusters whose head stores its state in RocksDB.
var rayStorage = []rayCase{
	{"RocksDB: the claim before the head, which mounts it", rayClaim},
	{"RocksDB: a retained claim is used by a later cluster of the name", rayRetainedClaim},
	{"RocksDB: a claim that differs from the spec is not changed, with a warning", rayClaimDrift},
	{"RocksDB: a foreign claim of the name is not used", rayForeignClaim},
	{"RocksDB: a claim of the user is used as it is", rayOwnClaim},
}

// rocksdb lets the head store its state on a volume.
func rocksdb(storage *rayv1.GcsStorage) func(*rayv1.RayCluster) {
	return func(c *rayv1.RayCluster) {
		c.Spec.GcsFaultToleranceOptions = &rayv1.GcsFaultToleranceOptions{Backend: rayv1.BackendRocksDB, Storage: storage}
	}
}

// claimOf returns the name of the claim that a Pod mounts at the path of RocksDB.
func claimOf(pod *corev1.Pod) string {
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		for _, v := range pod.Spec.Volumes {
			if m.MountPath == "/data/gcs" && v.Name == m.Name && v.PersistentVolumeClaim != nil {
				return v.PersistentVolumeClaim.ClaimName
			}
		}
	}
	return ""
}

func rayClaim(s *space) {
	s.kubelet()
	c := s.ray("c", rocksdb(nil), rayGroup("g", 1))
	head := s.awaitHead("c")
	var claim corev1.PersistentVolumeClaim
	s.must(s.Get(s.Context(), s.key("c-gcs-pvc"), &claim)) // it exists before the head
	if !metav1.IsControlledBy(&claim, c) || claim.Labels[rayv1.LabelCluster] != "c" || claim.Spec.Resources.Requests.Storage().String() != "1Gi" {
		s.Errorf("claim %+v", claim)
	}
	s.awaitRayEvent("CreatedPVC", s.name+"/c-gcs-pvc")
	if claimOf(head) != "c-gcs-pvc" || claimOf(&s.awaitNodes("c", "g", 1)[0]) != "" {
		s.Errorf("the head mounts %q", claimOf(head))
	}
	if now := s.rayReady("c"); len(now.Finalizers) > 0 {
		s.Errorf("finalizers %v, and there is no Redis", now.Finalizers)
	}
	s.must(s.Delete(s.Context(), head))
	testkit.EventuallyNoError(s, waitTimeout, "another head on the claim", func() error {
		now := s.awaitHead("c")
		return check(now.UID != head.UID && claimOf(now) == "c-gcs-pvc", "head %s mounts %q", now.Name, claimOf(now))
	})
	// A deleted claim is created again. No controller of this test removes its finalizer.
	s.must(s.Delete(s.Context(), &claim))
	testkit.EventuallyNoError(s, waitTimeout, "another claim", func() error {
		var now corev1.PersistentVolumeClaim
		if err := s.Get(s.Context(), s.key("c-gcs-pvc"), &now); err != nil {
			return err
		}
		if now.DeletionTimestamp != nil && len(now.Finalizers) > 0 {
			now.Finalizers = nil
			return errors.Join(s.Update(s.Context(), &now), errors.New("it is the deleted one"))
		}
		return check(now.UID != claim.UID, "it is the deleted one")
	})
}

func rayRetainedClaim(s *space) {
	s.kubelet()
	retained := rocksdb(&rayv1.GcsStorage{DeletionPolicy: rayv1.RetainStorage})
	c := s.ray("c", retained)
	s.rayReady("c")
	claim := rayExists(s, "c-gcs-pvc", &corev1.PersistentVolumeClaim{})
	if len(claim.OwnerReferences) > 0 {
		s.Errorf("the claim is deleted with %+v", claim.OwnerReferences)
	}
	s.must(s.Delete(s.Context(), c))
	s.rayGone("c")
	for _, pod := range s.rayNodes("c", "") { // no garbage collector may run here
		_ = s.Delete(s.Context(), &pod)
	}
	s.ray("c", retained)
	if got := claimOf(s.awaitHead("c")); got != "c-gcs-pvc" {
		s.Errorf("the head mounts %q", got)
	}
	now := rayExists(s, "c-gcs-pvc", &corev1.PersistentVolumeClaim{})
	if now.UID != claim.UID || now.ResourceVersion != claim.ResourceVersion {
		s.Errorf("the claim is another, or was changed: %+v", now)
	}
	if events := s.rayEvents(raycluster.ReasonStorageDrift); len(events) > 0 {
		s.Errorf("events %+v", events)
	}
}

func rayClaimDrift(s *space) {
	s.kubelet()
	s.ray("c", rocksdb(nil))
	s.rayReady("c")
	claim, head := rayExists(s, "c-gcs-pvc", &corev1.PersistentVolumeClaim{}), s.awaitHead("c")
	s.editRay("c", func(c *rayv1.RayCluster) {
		c.Spec.UpgradeStrategy = &rayv1.RayClusterUpgradeStrategy{Type: ptr.To(rayv1.UpgradeRecreate)}
		c.Spec.GcsFaultToleranceOptions.Storage = &rayv1.GcsStorage{Size: ptr.To(resource.MustParse("5Gi")), DeletionPolicy: rayv1.RetainStorage}
	})
	e := s.awaitRayEvent(raycluster.ReasonStorageDrift, "c-gcs-pvc is not changed, but differs from spec.gcsFaultToleranceOptions.storage: size is 1Gi, not 5Gi; it is deleted with the cluster, and deletionPolicy is Retain")
	if e.Type != corev1.EventTypeWarning {
		s.Errorf("event %+v", e)
	}
	s.rayRests("c")
	s.rayReady("c")
	if now := rayExists(s, "c-gcs-pvc", &corev1.PersistentVolumeClaim{}); now.ResourceVersion != claim.ResourceVersion {
		s.Errorf("the claim was changed: %+v", now)
	}
	if now := s.awaitHead("c"); now.UID != head.UID {
		s.Error("the head was replaced, and its volume is the same")
	}
}

func rayForeignClaim(s *space) {
	s.kubelet()
	foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "c-gcs-pvc"}}
	foreign.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	foreign.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	s.must(s.Create(s.Context(), foreign))
	s.ray("c", rocksdb(nil))
	s.awaitRayEvent("FailedToCreatePVC", "create persistentvolumeclaim c-gcs-pvc: an object of that name exists and is not controlled by this RayCluster; rename the cluster, or delete that object, or name it in spec.gcsFaultToleranceOptions.storage.claimName")
	if pods := s.rayNodes("c", ""); len(pods) > 0 {
		s.Errorf("there are %v", podNames(pods))
	}
	s.editRay("c", func(c *rayv1.RayCluster) {
		c.Spec.GcsFaultToleranceOptions.Storage = &rayv1.GcsStorage{ClaimName: "c-gcs-pvc"}
	})
	if got := claimOf(s.awaitHead("c")); got != "c-gcs-pvc" {
		s.Errorf("the head mounts %q", got)
	}
}

func rayOwnClaim(s *space) {
	s.kubelet()
	s.ray("c", rocksdb(&rayv1.GcsStorage{ClaimName: "mine", SubPath: "one"}))
	if got := claimOf(s.awaitHead("c")); got != "mine" {
		s.Errorf("the head mounts %q", got)
	}
	s.rayReady("c")
	if err := s.Get(s.Context(), s.key("c-gcs-pvc"), &corev1.PersistentVolumeClaim{}); !apierrors.IsNotFound(err) {
		s.Errorf("a claim is created: %v", err)
	}
}
