package build

import (
	"crypto/sha1"
	"encoding/base32"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// RecreateHash returns a hash of the spec for the strategy Recreate. It leaves out what autoscalers
// and queues change, what no Pod depends on, and suspension: suspending one group must not recreate
// the others.
func RecreateHash(c *rayv1.RayCluster) string {
	s := c.Spec.DeepCopy()
	s.UpgradeStrategy, s.Suspend, s.NetworkPolicy = nil, nil, nil
	s.GcsFaultToleranceOptions = stripClaimFields(s.GcsFaultToleranceOptions)
	stripQueueFields(&s.HeadGroupSpec.Template)
	for i := range s.WorkerGroupSpecs {
		g := &s.WorkerGroupSpecs[i]
		g.Replicas, g.MinReplicas, g.MaxReplicas = nil, nil, nil
		g.ScaleStrategy.WorkersToDelete, g.Suspend = nil, nil
		stripQueueFields(&g.Template)
	}
	return hashJSON(s)
}

// stripQueueFields removes what queues write into templates while a cluster is suspended.
func stripQueueFields(t *corev1.PodTemplateSpec) {
	t.Spec.Tolerations, t.Spec.SchedulingGates = nil, nil
}

// shape is everything in a spec that a Pod depends on. Unset fields must not appear in the hash: a
// field that is added here would otherwise replace every Pod.
type shape struct {
	Template   corev1.PodTemplateSpec
	Params     map[string]string               `json:",omitempty"`
	Resources  map[string]string               `json:",omitempty"`
	Labels     map[string]string               `json:",omitempty"`
	Overwrite  string                          `json:",omitempty"`
	RayVersion string                          `json:",omitempty"`
	Autoscaler rayv1.AutoscalerVersion         `json:",omitempty"`
	Auth       *rayv1.AuthOptions              `json:",omitempty"`
	Port       string                          `json:",omitempty"`
	Service    string                          `json:",omitempty"`
	Redis      *rayv1.GcsFaultToleranceOptions `json:",omitempty"` // heads
	Annotated  bool                            `json:",omitempty"` // heads: fault tolerant by annotation
	Storage    string                          `json:",omitempty"` // heads: set by annotation; if empty, the UID is used
	Options    *rayv1.AutoscalerOptions        `json:",omitempty"` // heads
	Autoscaled bool                            `json:",omitempty"` // heads
	Reconnects bool                            `json:",omitempty"` // workers
	NumOfHosts int32                           `json:",omitempty"` // workers
}

func newShape(c *rayv1.RayCluster, n *node) shape {
	s := sharedShape(c)
	s.Template, s.Params, s.Resources, s.Labels = *n.template.DeepCopy(), n.params, n.resources, n.labels
	s.Overwrite, s.Autoscaler = c.Annotations[rayv1.AnnotationOverwriteCommand], autoscalerVersion(c)
	stripQueueFields(&s.Template)
	return s
}

// sharedShape returns what the head and the workers must agree on to find and to authenticate each
// other.
func sharedShape(c *rayv1.RayCluster) shape {
	return shape{RayVersion: c.Spec.RayVersion, Auth: c.Spec.AuthOptions, Port: headPort(c), Service: HeadServiceName(c)}
}

// SharedHash returns the hash of sharedShape. New workers cannot work with a head that has another
// one.
func SharedHash(c *rayv1.RayCluster) string { return hashJSON(sharedShape(c)) }

// HeadHash returns the hash of the head's shape. A rolling update replaces a head that has another
// one.
func HeadHash(c *rayv1.RayCluster) string {
	s := newShape(c, headNode(c))
	s.Redis, s.Autoscaled, s.Options = stripClaimFields(c.Spec.GcsFaultToleranceOptions), hasAutoscaler(c), containerOptions(c)
	if s.Redis == nil && faultTolerant(c) {
		s.Annotated = true
		if is := storageNamespace(c); is != string(c.UID) {
			s.Storage = is
		}
	}
	return hashJSON(s)
}

// containerOptions returns the autoscaler options that affect its container, or nil if there are
// none. The autoscaler reads the others from the cluster, so the head is not replaced for them.
func containerOptions(c *rayv1.RayCluster) *rayv1.AutoscalerOptions {
	if !hasAutoscaler(c) || c.Spec.AutoscalerOptions == nil {
		return nil
	}
	o := c.Spec.AutoscalerOptions.DeepCopy()
	o.IdleTimeoutSeconds, o.UpscalingMode = nil, nil
	if equality.Semantic.DeepEqual(*o, rayv1.AutoscalerOptions{}) {
		return nil
	}
	return o
}

// GroupHash returns the hash of the shape of a group's workers. A rolling update replaces workers
// that have another one.
func GroupHash(c *rayv1.RayCluster, g *rayv1.WorkerGroupSpec) string {
	s := newShape(c, workerNode(g))
	s.Reconnects, s.NumOfHosts = faultTolerant(c), g.NumOfHosts
	return hashJSON(s)
}

// hashJSON returns a hash of v's JSON that is short enough for a label.
func hashJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the parts of a spec were decoded from JSON
	}
	sum := sha1.Sum(text)
	return base32.HexEncoding.EncodeToString(sum[:])
}
