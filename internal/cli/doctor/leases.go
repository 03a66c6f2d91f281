package doctor

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// fresh is how old the last renewal of a Lease may be whose holder lives: holders
// renew every few seconds, clocks differ, and an update takes its time.
const fresh = time.Minute

// holder is who holds a Lease, and for how long it has not renewed it. Without a name:
// nobody.
type holder struct {
	lease, name string
	silent      time.Duration
}

func (h holder) lives() bool { return h.name != "" && h.silent < fresh }

func (h holder) String() string {
	return fmt.Sprintf("Lease %s, renewed %s ago by %s", h.lease, duration.HumanDuration(max(h.silent, 0)), h.name)
}

// holderOf is who renewed a Lease of this name last, in whichever namespace. One that
// was given back has no holder.
func holderOf(ctx context.Context, c Cluster, name string) (last holder, err error) {
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
		if last.name == "" || h.silent < last.silent {
			last = h
		}
	}
	return last, nil
}
