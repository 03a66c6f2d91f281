package raycluster

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// ownCache returns a cache of the objects that carry the labels of RayClusters. It is separate
// from the manager's cache, which selects Pods by another label; one selector cannot match both. It
// has no Secrets: the manager may read them by name only.
func ownCache(mgr ctrl.Manager, options Options) (cache.Cache, error) {
	ofClusters, err := labels.Parse(rayv1.LabelCluster)
	if err != nil {
		return nil, err
	}
	nodes, err := labels.Parse(fmt.Sprintf("%s in (%s, %s)", rayv1.LabelNodeType, rayv1.NodeTypeHead, rayv1.NodeTypeWorker))
	if err != nil {
		return nil, err
	}
	own, err := cluster.New(mgr.GetConfig(), func(o *cluster.Options) {
		o.Scheme = mgr.GetScheme()
		o.Cache.DefaultTransform = cache.TransformStripManagedFields()
		o.Cache.DefaultNamespaces = options.Namespaces
		o.Cache.ByObject = map[client.Object]cache.ByObject{
			&corev1.Pod{}:                   {Label: nodes},
			&corev1.Service{}:               {Label: ofClusters},
			&corev1.PersistentVolumeClaim{}: {Label: ofClusters},
			&networkingv1.NetworkPolicy{}:   {Label: ofClusters},
			&batchv1.Job{}:                  {Label: ofClusters},
			// KubeRay's operator may be installed in any namespace.
			&coordinationv1.Lease{}: {
				Namespaces: map[string]cache.Config{cache.AllNamespaces: {}},
				Field:      fields.OneTermEqualSelector("metadata.name", KubeRayLease),
			},
		}
	})
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	for name, values := range map[string]client.IndexerFunc{indexPods: byCluster, indexNodes: byNode} {
		if err := own.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, name, values); err != nil {
			return nil, fmt.Errorf("index %s: %w", name, err)
		}
	}
	if options.Gates.NetworkPolicy { // an index starts the watch
		if err := own.GetFieldIndexer().IndexField(context.Background(), &networkingv1.NetworkPolicy{}, indexPolicies, byCluster); err != nil {
			return nil, fmt.Errorf("index %s: %w", indexPolicies, err)
		}
	}
	return own.GetCache(), mgr.Add(own)
}
