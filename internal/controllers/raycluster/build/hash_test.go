package build

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// TestHashes_ChangeWithPodSpec checks which changes of a spec change each hash.
func TestHashes_ChangeWithPodSpec(t *testing.T) {
	nine := int32(9)
	recreate := rayv1.UpgradeRecreate
	for _, row := range []struct {
		name                string
		change              func(*rayv1.RayCluster)
		spec, head, workers bool // whether the hash changes
	}{
		{"5.38 replicas", func(c *rayv1.RayCluster) {
			group(c).Replicas, group(c).MinReplicas, group(c).MaxReplicas = &nine, &nine, &nine
		}, false, false, false},
		{"5.38 workersToDelete", func(c *rayv1.RayCluster) { group(c).ScaleStrategy.WorkersToDelete = []string{"w"} }, false, false, false},
		{"5.38 upgradeStrategy", func(c *rayv1.RayCluster) {
			c.Spec.UpgradeStrategy = &rayv1.RayClusterUpgradeStrategy{Type: &recreate}
		}, false, false, false},
		{"5.37 suspending", func(c *rayv1.RayCluster) { no := false; c.Spec.Suspend, group(c).Suspend = &no, &no }, false, false, false},
		{"5.38 tolerations and gates", func(c *rayv1.RayCluster) {
			group(c).Template.Spec.Tolerations = []corev1.Toleration{{Key: "k"}}
			c.Spec.HeadGroupSpec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}}
		}, false, false, false},
		{"empty rayStartParams", func(c *rayv1.RayCluster) { group(c).RayStartParams = map[string]string{} }, false, false, false},
		{"5.38 the head's image", func(c *rayv1.RayCluster) { c.Spec.HeadGroupSpec.Template.Spec.Containers[0].Image = "other" }, true, true, false},
		{"5.38 the workers' image", func(c *rayv1.RayCluster) { group(c).Template.Spec.Containers[0].Image = "other" }, true, false, true},
		{"the head's port", func(c *rayv1.RayCluster) {
			c.Spec.HeadGroupSpec.RayStartParams = map[string]string{"port": "6380"}
		}, true, true, true},
		{"resources", func(c *rayv1.RayCluster) { group(c).Resources = map[string]string{"CPU": "3"} }, true, false, true},
		{"labels", func(c *rayv1.RayCluster) { group(c).Labels = map[string]string{"a": "b"} }, true, false, true},
		{"hosts", func(c *rayv1.RayCluster) { group(c).NumOfHosts = 3 }, true, false, true},
		{"an autoscaler", func(c *rayv1.RayCluster) { yes := true; c.Spec.EnableInTreeAutoscaling = &yes }, true, true, false},
		{"Redis", func(c *rayv1.RayCluster) {
			c.Spec.GcsFaultToleranceOptions = &rayv1.GcsFaultToleranceOptions{RedisAddress: "r:1"}
		}, true, true, true},
		{"RocksDB", func(c *rayv1.RayCluster) {
			c.Spec.GcsFaultToleranceOptions = &rayv1.GcsFaultToleranceOptions{Backend: rayv1.BackendRocksDB}
		}, true, true, true},
		{"NetworkPolicies", func(c *rayv1.RayCluster) { c.Spec.NetworkPolicy = &rayv1.NetworkPolicySpec{} }, false, false, false},
		{"the version of Ray", func(c *rayv1.RayCluster) { c.Spec.RayVersion = "2.53.0" }, true, true, true},
		{"another group", func(c *rayv1.RayCluster) {
			more := group(c).DeepCopy()
			more.GroupName = "more"
			c.Spec.WorkerGroupSpecs = append(c.Spec.WorkerGroupSpecs, *more)
		}, true, false, false},
	} {
		was, is := cluster(), cluster(row.change)
		if (RecreateHash(was) != RecreateHash(is)) != row.spec {
			t.Errorf("%s: the hash of the spec changes: %v", row.name, !row.spec)
		}
		if (HeadHash(was) != HeadHash(is)) != row.head {
			t.Errorf("%s: the hash of the head changes: %v", row.name, !row.head)
		}
		if (GroupHash(was, group(was)) != GroupHash(is, group(is))) != row.workers {
			t.Errorf("%s: the hash of the workers changes: %v", row.name, !row.workers)
		}
	}
}

// The shared hash changes if new workers could not work with the existing head.
func TestSharedHash(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*rayv1.RayCluster)
		want   bool // whether the hash changes
	}{
		{"the head's port", func(c *rayv1.RayCluster) {
			c.Spec.HeadGroupSpec.RayStartParams = map[string]string{"port": "6380"}
		}, true},
		{"the head's port, to say what it is anyway", func(c *rayv1.RayCluster) {
			c.Spec.HeadGroupSpec.RayStartParams = map[string]string{"port": "6379"}
		}, false},
		{"the name of its Service", func(c *rayv1.RayCluster) {
			c.Spec.HeadGroupSpec.HeadService = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
		}, true},
		{"the type of its Service", func(c *rayv1.RayCluster) { c.Spec.HeadGroupSpec.ServiceType = corev1.ServiceTypeNodePort }, false},
		{"the version of Ray", func(c *rayv1.RayCluster) { c.Spec.RayVersion = "2.53.0" }, true},
		{"a token", func(c *rayv1.RayCluster) { c.Spec.AuthOptions = &rayv1.AuthOptions{Mode: rayv1.AuthToken} }, true},
		{"images", func(c *rayv1.RayCluster) {
			c.Spec.HeadGroupSpec.Template.Spec.Containers[0].Image, group(c).Template.Spec.Containers[0].Image = "h", "w"
		}, false},
		{"Redis", func(c *rayv1.RayCluster) {
			c.Spec.GcsFaultToleranceOptions = &rayv1.GcsFaultToleranceOptions{RedisAddress: "r:1"}
		}, false},
	} {
		if (SharedHash(cluster()) != SharedHash(cluster(row.change))) != row.want {
			t.Errorf("%s: the hash changes: %v", row.name, !row.want)
		}
	}
}

// A rolling update replaces a head for changes that affect its Pod, wherever they are in the spec,
// and for no others.
func TestHeadHash_CoversWhatAffectsTheHead(t *testing.T) {
	autoscaler := func(change func(*rayv1.AutoscalerOptions)) func(*rayv1.RayCluster) {
		return func(c *rayv1.RayCluster) {
			yes := true
			c.Spec.EnableInTreeAutoscaling = &yes
			if change != nil {
				c.Spec.AutoscalerOptions = &rayv1.AutoscalerOptions{}
				change(c.Spec.AutoscalerOptions)
			}
		}
	}
	annotated := func(pairs ...string) func(*rayv1.RayCluster) {
		return func(c *rayv1.RayCluster) {
			c.Annotations = map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				c.Annotations[pairs[i]] = pairs[i+1]
			}
		}
	}
	rocksdb := func(storage *rayv1.GcsStorage) func(*rayv1.RayCluster) {
		return func(c *rayv1.RayCluster) {
			c.Spec.GcsFaultToleranceOptions = &rayv1.GcsFaultToleranceOptions{Backend: rayv1.BackendRocksDB, Storage: storage}
		}
	}
	seconds, mode, image := int32(30), "Aggressive", "other"
	size := resource.MustParse("5Gi")
	const ft, namespace = rayv1.AnnotationFTEnabled, rayv1.AnnotationStorageNamespace
	for _, row := range []struct {
		name    string
		was, is func(*rayv1.RayCluster)
		differs bool
	}{
		{"the first idleTimeoutSeconds", autoscaler(nil), autoscaler(func(o *rayv1.AutoscalerOptions) { o.IdleTimeoutSeconds = &seconds }), false},
		{"the first upscalingMode", autoscaler(nil), autoscaler(func(o *rayv1.AutoscalerOptions) { o.UpscalingMode = &mode }), false},
		{"idleTimeoutSeconds beside an image", autoscaler(func(o *rayv1.AutoscalerOptions) { o.Image = &image }),
			autoscaler(func(o *rayv1.AutoscalerOptions) { o.Image, o.IdleTimeoutSeconds = &image, &seconds }), false},
		{"the autoscaler's image", autoscaler(nil), autoscaler(func(o *rayv1.AutoscalerOptions) { o.Image = &image }), true},
		{"ft-enabled", annotated(), annotated(ft, "true"), true},
		{"ft-enabled, to say no", annotated(), annotated(ft, "false"), false},
		{"its namespace", annotated(ft, "true"), annotated(ft, "true", namespace, "mine"), true},
		{"its namespace, to say what it is anyway", annotated(ft, "true"), annotated(ft, "true", namespace, "u-1"), false},
		{"what only a new claim gets", rocksdb(nil), rocksdb(&rayv1.GcsStorage{Size: &size, StorageClassName: &mode, DeletionPolicy: rayv1.RetainStorage}), false},
		{"another claim", rocksdb(nil), rocksdb(&rayv1.GcsStorage{ClaimName: "mine"}), true},
		{"another directory of the volume", rocksdb(nil), rocksdb(&rayv1.GcsStorage{SubPath: "a"}), true},
		{"a namespace of nothing", annotated(), annotated(namespace, "mine"), false},
	} {
		was, is := cluster(row.was), cluster(row.is)
		if (HeadHash(was) != HeadHash(is)) != row.differs {
			t.Errorf("%s: the hash of the head changes: %v", row.name, !row.differs)
		}
		if o := is.Spec.GcsFaultToleranceOptions; o != nil && (RecreateHash(was) != RecreateHash(is)) != row.differs {
			t.Errorf("%s: the hash of the spec changes: %v", row.name, !row.differs)
		}
	}
}
