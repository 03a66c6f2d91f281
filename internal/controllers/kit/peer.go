package kit

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// leaseGracePeriod is how long after the last renewal of its lease a peer counts as
// running. Peers renew every few seconds, and replacing one takes a few more.
const leaseGracePeriod = time.Minute

// yieldRecheckInterval is how long an object is left to the peer before the next check.
// The check reads a cache and is cheap.
const yieldRecheckInterval = 15 * time.Second

// PeerOperator detects another controller of the same kind in the cluster, such as
// KubeRay's operator. Two controllers of one object would undo each other's writes, so
// ours yields while the peer renews its lease.
type PeerOperator struct {
	// LeaseName is the name of the peer's leader election lease, in any namespace.
	LeaseName string
	// DisplayName and ObjectKind appear in log messages: "KubeRay's operator", "RayClusters".
	DisplayName, ObjectKind string
	// DisableFlag is the manager's flag that disables our controller permanently.
	DisableFlag string
	// LeaseReader reads at least the leases of that name.
	LeaseReader client.Reader

	mu      sync.Mutex // guards running
	running bool
}

// AddLeaseCache adds a cache of the leases of that name to the manager. The manager's own
// cache would hold the leases of all nodes, which change every few seconds.
func (p *PeerOperator) AddLeaseCache(mgr ctrl.Manager) error {
	leases, err := cluster.New(mgr.GetConfig(), func(o *cluster.Options) {
		o.Scheme = mgr.GetScheme()
		o.Cache.DefaultTransform = cache.TransformStripManagedFields()
		o.Cache.ByObject = map[client.Object]cache.ByObject{
			&coordinationv1.Lease{}: {Field: fields.OneTermEqualSelector("metadata.name", p.LeaseName)},
		}
	})
	if err != nil {
		return fmt.Errorf("create lease cache: %w", err)
	}
	p.LeaseReader = leases.GetCache()
	return mgr.Add(leases)
}

// YieldUntil returns when to check again whether the peer runs. A time that is not
// after now means that it does not run.
func (p *PeerOperator) YieldUntil(ctx context.Context, now time.Time) (time.Time, error) {
	var leases coordinationv1.LeaseList
	if err := p.LeaseReader.List(ctx, &leases); err != nil {
		return time.Time{}, fmt.Errorf("list leases: %w", err)
	}
	var until time.Time
	namespace := ""
	for i := range leases.Items {
		l := &leases.Items[i]
		if l.Name != p.LeaseName || l.Spec.RenewTime == nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
			continue
		}
		if at := l.Spec.RenewTime.Add(leaseGracePeriod); at.After(until) {
			until, namespace = at, l.Namespace
		}
	}
	p.logTransition(ctx, until.After(now), namespace)
	// The lease may be deleted earlier, and no watch triggers the objects that wait.
	if soon := now.Add(yieldRecheckInterval); soon.Before(until) {
		return soon, nil
	}
	return until, nil
}

// logTransition logs when the peer starts and when it stops.
func (p *PeerOperator) logTransition(ctx context.Context, running bool, namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == running {
		return
	}
	p.running = running
	log := ctrl.LoggerFrom(ctx).WithValues("lease", p.LeaseName, "namespace", namespace)
	if running {
		log.Info(p.DisplayName + " runs in this cluster: leaving " + p.ObjectKind + " to it. Set " + p.DisableFlag + " to disable this controller permanently.")
		return
	}
	log.Info(p.DisplayName + " no longer runs: taking over its " + p.ObjectKind)
}
