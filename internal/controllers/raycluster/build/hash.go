package build

import (
	"crypto/sha1"
	"encoding/base32"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// RecreateHash is what the spec of a cluster says of its Pods. What an autoscaler or a
// queue changes of its own accord is left out, as is suspending: to suspend one group must
// not recreate the others.
func RecreateHash(c *rayv1.RayCluster) string {
	s := c.Spec.DeepCopy()
	s.UpgradeStrategy, s.Suspend = nil, nil
	settle(&s.HeadGroupSpec.Template)
	for i := range s.WorkerGroupSpecs {
		g := &s.WorkerGroupSpecs[i]
		g.Replicas, g.MinReplicas, g.MaxReplicas = nil, nil, nil
		g.ScaleStrategy.WorkersToDelete, g.Suspend = nil, nil
		settle(&g.Template)
	}
	return hash(s)
}

// settle leaves out what queues write into templates while a cluster is suspended.
func settle(t *corev1.PodTemplateSpec) {
	t.Spec.Tolerations, t.Spec.SchedulingGates = nil, nil
}

// shape is all of a spec that a Pod follows from. What is not set must not be in the hash:
// a field that is new here would otherwise replace every Pod.
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
	Storage    string                          `json:",omitempty"` // heads: by annotation, and not the UID
	Options    *rayv1.AutoscalerOptions        `json:",omitempty"` // heads
	Autoscaled bool                            `json:",omitempty"` // heads
	Reconnects bool                            `json:",omitempty"` // workers
	NumOfHosts int32                           `json:",omitempty"` // workers
}

func newShape(c *rayv1.RayCluster, n *node) shape {
	s := sharedShape(c)
	s.Template, s.Params, s.Resources, s.Labels = *n.template.DeepCopy(), n.params, n.resources, n.labels
	s.Overwrite, s.Autoscaler = c.Annotations[rayv1.AnnotationOverwriteCommand], version(c)
	settle(&s.Template)
	return s
}

// sharedShape is what head and workers must agree on: without it they do not find each
// other, or do not let each other in.
func sharedShape(c *rayv1.RayCluster) shape {
	return shape{RayVersion: c.Spec.RayVersion, Auth: c.Spec.AuthOptions, Port: headPort(c), Service: HeadServiceName(c)}
}

// SharedHash is what the spec says that head and workers must agree on. With a head that
// bears another no worker works that is made now.
func SharedHash(c *rayv1.RayCluster) string { return hash(sharedShape(c)) }

// HeadHash is what the spec says of the head. A rolling update replaces a head that
// bears another.
func HeadHash(c *rayv1.RayCluster) string {
	s := newShape(c, headNode(c))
	s.Redis, s.Autoscaled, s.Options = c.Spec.GcsFaultToleranceOptions, autoscaled(c), containerOptions(c)
	if s.Redis == nil && faultTolerant(c) {
		s.Annotated = true
		if is := storageNamespace(c); is != string(c.UID) {
			s.Storage = is
		}
	}
	return hash(s)
}

// containerOptions are those of the autoscaler that its container follows from. The
// others it reads from the cluster while it runs: no head goes for them. Nil: there are
// none.
func containerOptions(c *rayv1.RayCluster) *rayv1.AutoscalerOptions {
	if !autoscaled(c) || c.Spec.AutoscalerOptions == nil {
		return nil
	}
	o := c.Spec.AutoscalerOptions.DeepCopy()
	o.IdleTimeoutSeconds, o.UpscalingMode = nil, nil
	if equality.Semantic.DeepEqual(*o, rayv1.AutoscalerOptions{}) {
		return nil
	}
	return o
}

// GroupHash is what the spec says of the workers of a group. A rolling update replaces
// those that bear another.
func GroupHash(c *rayv1.RayCluster, g *rayv1.WorkerGroupSpec) string {
	s := newShape(c, workerNode(g))
	s.Reconnects, s.NumOfHosts = faultTolerant(c), g.NumOfHosts
	return hash(s)
}

// hash is short enough for a label, and the same for the same JSON.
func hash(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the parts of a spec have come out of JSON
	}
	sum := sha1.Sum(text)
	return base32.HexEncoding.EncodeToString(sum[:])
}
