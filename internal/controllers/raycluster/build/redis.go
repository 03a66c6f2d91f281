package build

import (
	"maps"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// faultTolerant reports whether the head stores its state outside its Pod.
func faultTolerant(c *rayv1.RayCluster) bool {
	return c.Spec.GcsFaultToleranceOptions != nil || strings.EqualFold(c.Annotations[rayv1.AnnotationFTEnabled], "true")
}

// usesRedis reports whether the head stores its state in Redis.
func usesRedis(c *rayv1.RayCluster) bool { return faultTolerant(c) && !usesRocksDB(c) }

// storageNamespace returns the namespace that separates this cluster's keys from others.
func storageNamespace(c *rayv1.RayCluster) string {
	if o := c.Spec.GcsFaultToleranceOptions; o != nil {
		return firstNonEmpty(o.ExternalStorageNamespace, string(c.UID))
	}
	return firstNonEmpty(c.Annotations[rayv1.AnnotationStorageNamespace], string(c.UID))
}

// addFaultTolerance sets on the head where it stores its state, and makes workers wait for a new
// head.
func addFaultTolerance(c *rayv1.RayCluster, n *node, e environment) {
	if !faultTolerant(c) {
		return
	}
	if !n.isHead() {
		e.addDefault(rayv1.EnvReconnectTimeout, "600")
		return
	}
	if usesRocksDB(c) {
		e.addDefault(rayv1.EnvGCSStorage, string(rayv1.BackendRocksDB))
		e.addDefault(rayv1.EnvGCSStoragePath, storagePath)
		return
	}
	e.addDefault(rayv1.EnvStorageNamespace, storageNamespace(c))
	o := c.Spec.GcsFaultToleranceOptions
	if o == nil {
		// The cleanup Job does not run ray start, so it gets the password from the environment.
		if p, ok := n.params[paramRedisPassword]; ok && !strings.HasPrefix(p, "$") {
			e.addDefault(rayv1.EnvRedisPassword, p)
		}
		return
	}
	e.addDefault(rayv1.EnvRedisAddress, o.RedisAddress)
	addCredential(e, rayv1.EnvRedisUsername, o.RedisUsername)
	addCredential(e, rayv1.EnvRedisPassword, o.RedisPassword)
}

func addCredential(e environment, name string, from *rayv1.RedisCredential) {
	if from != nil {
		e.addMissing(corev1.EnvVar{Name: name, Value: from.Value, ValueFrom: from.ValueFrom.DeepCopy()})
	}
}

// cleanup removes the keys of one cluster from Redis. Older versions of Ray accept no user name.
const cleanup = `python - <<'EOF'
import inspect, os, sys
from urllib.parse import urlparse
from ray._private.gcs_utils import cleanup_redis_storage

address = os.environ.get("RAY_REDIS_ADDRESS", "").split(",")[0]
if not address:
    sys.exit("RAY_REDIS_ADDRESS is not set: there is no Redis to clean up")
if "://" not in address:
    address = "redis://" + address
url = urlparse(address)
wanted = {
    "host": url.hostname,
    "port": url.port or 6379,
    "username": os.environ.get("REDIS_USERNAME", url.username or ""),
    "password": os.environ.get("REDIS_PASSWORD", url.password or ""),
    "use_ssl": url.scheme == "rediss",
    "storage_namespace": os.environ["RAY_external_storage_namespace"],
}
taken = inspect.signature(cleanup_redis_storage).parameters
done = cleanup_redis_storage(**{k: v for k, v in wanted.items() if k in taken})
sys.exit(0 if done else "the keys of " + wanted["storage_namespace"] + " could not be removed")
EOF
`

// NeedsRedisCleanup reports whether the keys of a cluster in Redis are removed when it is deleted.
// It is false if there are none or the operator keeps them.
func NeedsRedisCleanup(s *Settings, c *rayv1.RayCluster) bool {
	return s.RedisCleanup && usesRedis(c)
}

// RedisCleanupJob returns the Job that removes the cluster's keys from Redis. It returns nil if
// there is nothing to remove, or if the head has no container whose image could run it: a cluster
// stored before validation existed may have none.
func RedisCleanupJob(s *Settings, c *rayv1.RayCluster) *batchv1.Job {
	if !NeedsRedisCleanup(s, c) || len(c.Spec.HeadGroupSpec.Template.Spec.Containers) == 0 {
		return nil
	}
	head := HeadPod(s, c)
	labels := head.Labels // but not the node type: the head's Service must not select the Job's Pod
	labels[rayv1.LabelNodeType] = rayv1.NodeTypeRedisCleanup
	annotations := cleanupAnnotations(head.Annotations)
	spec := head.Spec
	spec.Containers = spec.Containers[:1]
	spec.RestartPolicy = corev1.RestartPolicyNever
	ray := &spec.Containers[0]
	ray.Command, ray.Args = shellCommand(s), []string{cleanup}
	ray.LivenessProbe, ray.ReadinessProbe, ray.StartupProbe = nil, nil, nil
	ray.Ports = nil
	ray.Resources = fixedResources("200m", "256Mi")
	// Redis may start at the same time, for example after a failure of the machine: a minute.
	e := environment{&ray.Env}
	e.addVariable(rayv1.EnvRedisConnectRetries, "120")
	e.addVariable(rayv1.EnvRedisConnectWait, "500")
	none, limit := int32(0), int64(300)
	meta := ownedMeta(c, RedisCleanupJobName(c), labels)
	meta.Annotations = annotations
	return &batchv1.Job{
		ObjectMeta: meta,
		Spec: batchv1.JobSpec{
			BackoffLimit:          &none,
			ActiveDeadlineSeconds: &limit,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels), Annotations: maps.Clone(annotations)},
				Spec:       spec,
			},
		},
	}
}

// cleanupAnnotations returns the annotations of a head without those that identify its spec.
func cleanupAnnotations(head map[string]string) map[string]string {
	for _, ofHeads := range []string{rayv1.AnnotationTemplateHash, rayv1.AnnotationSharedHash, rayv1.AnnotationRecreateHash, rayv1.AnnotationVersion} {
		delete(head, ofHeads)
	}
	return head
}

// fixedResources returns resources with equal requests and limits.
func fixedResources(cpu, memory string) corev1.ResourceRequirements {
	all := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory),
	}
	return corev1.ResourceRequirements{Requests: all, Limits: all.DeepCopy()}
}
