// Package standback tells whether another controller of the same kind runs in the
// cluster. Two controllers of one object would each undo what the other does.
package standback

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

// grace after its last renewal a rival is taken to be gone. It renews every few
// seconds, and an update of it takes some more.
const grace = time.Minute

// look is how long an object is left alone before another look, which is at a
// cache and costs nothing.
const look = 15 * time.Second

// Rival is another controller of the same kind.
type Rival struct {
	// Lease is the name by which it elects its leader, in whichever namespace.
	Lease string
	// Name of it in a sentence, and of the objects that it works on.
	Name, Objects string
	// Off is the flag that stops ours for good.
	Off string
	// Leases shows at least those of that name.
	Leases client.Reader

	mu       sync.Mutex
	standing bool
}

// Follow has the manager keep the Leases of that name in a cache of their own: there
// is one Lease for each node, and they change every few seconds.
func (r *Rival) Follow(mgr ctrl.Manager) error {
	leases, err := cluster.New(mgr.GetConfig(), func(o *cluster.Options) {
		o.Scheme = mgr.GetScheme()
		o.Cache.DefaultTransform = cache.TransformStripManagedFields()
		o.Cache.ByObject = map[client.Object]cache.ByObject{
			&coordinationv1.Lease{}: {Field: fields.OneTermEqualSelector("metadata.name", r.Lease)},
		}
	})
	if err != nil {
		return fmt.Errorf("cache of leases: %w", err)
	}
	r.Leases = leases.GetCache()
	return mgr.Add(leases)
}

// Until is when to look again whether the rival runs. Not after now: it does not.
func (r *Rival) Until(ctx context.Context, now time.Time) (time.Time, error) {
	var leases coordinationv1.LeaseList
	if err := r.Leases.List(ctx, &leases); err != nil {
		return time.Time{}, fmt.Errorf("list leases: %w", err)
	}
	var until time.Time
	where := ""
	for i := range leases.Items {
		l := &leases.Items[i]
		if l.Name != r.Lease || l.Spec.RenewTime == nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
			continue
		}
		if at := l.Spec.RenewTime.Add(grace); at.After(until) {
			until, where = at, l.Namespace
		}
	}
	r.say(ctx, until.After(now), where)
	// It may be taken away before, and no watch says so to every object.
	if soon := now.Add(look); soon.Before(until) {
		return soon, nil
	}
	return until, nil
}

// say logs when it begins and when it ends.
func (r *Rival) say(ctx context.Context, standing bool, where string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.standing == standing {
		return
	}
	r.standing = standing
	log := ctrl.LoggerFrom(ctx).WithValues("lease", r.Lease, "namespace", where)
	if standing {
		log.Info(r.Name + " runs in this cluster, so this one leaves its " + r.Objects + " alone; " + r.Off + " says so for good")
		return
	}
	log.Info(r.Name + " runs no more, this one takes over its " + r.Objects)
}
