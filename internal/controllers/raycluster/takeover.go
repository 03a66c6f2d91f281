package raycluster

import (
	"sync"
	"time"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// maxClockSkew is how far the clocks of the API server and of the manager may differ.
const maxClockSkew = 5 * time.Second

// takeover knows since when no other controller creates Pods: neither an earlier leader of the
// manager nor KubeRay's operator. A standby manager starts long before it leads, so the time of its
// start is not enough.
type takeover struct {
	mu sync.Mutex // guards at
	at time.Time
}

// recordReconcile records that this controller acts. Only the first call counts.
func (t *takeover) recordReconcile(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at.IsZero() {
		t.at = now
	}
}

// recordPeer records that another controller may act until then.
func (t *takeover) recordPeer(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until.After(t.at) {
		t.at = until
	}
}

// isSolePodCreator reports whether no other controller can have created Pods of the cluster that this
// one has not seen. readBack is when it last compared its cache with the API server.
func (t *takeover) isSolePodCreator(c *rayv1.RayCluster, readBack time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.CreationTimestamp.After(t.at.Add(maxClockSkew)) || !readBack.Before(t.at)
}
