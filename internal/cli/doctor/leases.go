package doctor

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// renewalTimeout is the longest time since the renewal of a Lease whose holder counts as active. Holders
// renew every few seconds; clocks differ, and an update of the program takes some time.
const renewalTimeout = time.Minute

// holder is the holder of a Lease, and the time since it last renewed it. If name is empty, the
// Lease has no holder.
type holder struct {
	lease, name  string
	sinceRenewal time.Duration
}

func (h holder) isActive() bool { return h.name != "" && h.sinceRenewal < renewalTimeout }

func (h holder) String() string {
	return fmt.Sprintf("Lease %s, renewed %s ago by %s", h.lease, duration.HumanDuration(max(h.sinceRenewal, 0)), h.name)
}

// findHolder returns the holder that renewed a Lease of this name last, in any namespace. A
// released Lease has no holder.
func findHolder(ctx context.Context, c Cluster, name string) (last holder, err error) {
	var all coordinationv1.LeaseList
	if err := c.List(ctx, &all); err != nil {
		return last, err
	}
	for i := range all.Items {
		l := &all.Items[i]
		if l.Name != name || l.Spec.RenewTime == nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
			continue
		}
		h := holder{l.Namespace + "/" + l.Name, *l.Spec.HolderIdentity, c.Now().Sub(l.Spec.RenewTime.Time)}
		if last.name == "" || h.sinceRenewal < last.sinceRenewal {
			last = h
		}
	}
	return last, nil
}
