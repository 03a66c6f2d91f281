package doctor

import (
	"context"
	"fmt"
)

// The Leases by which the programs say that they work. One of `k8s4r up` against
// somebody else's cluster does the work of both.
const (
	leaseManager = "k8s4r-manager"
	leaseServer  = "k8s4r-server"
	leaseUp      = "k8s4r-up"
)

// programs looks whether manager and server work.
func programs(ctx context.Context, c Cluster) []Finding {
	up, err := holderOf(ctx, c, leaseUp)
	if err != nil {
		return unknown("manager and server", err)
	}
	var found []Finding
	for _, p := range []struct{ lease, name, does string }{
		{leaseManager, "manager", "no object is acted on"}, {leaseServer, "server", "no robot is spoken to"},
	} {
		own, err := holderOf(ctx, c, p.lease)
		switch {
		case err != nil:
			found = append(found, unknown(p.name, err)...)
		case own.lives() && up.lives():
			found = append(found, bad(Fail, p.name, fmt.Sprintf("works twice: %s, and %s", own, up), "stop one: either k8s4r up or the deployed programs")...)
		case own.lives():
			found = append(found, good(p.name, "works: %s", own)...)
		case up.lives():
			found = append(found, good(p.name, "works in k8s4r up: %s", up)...)
		case own.name != "":
			found = append(found, bad(Fail, p.name, fmt.Sprintf("works no more, so %s: %s", p.does, own), "start "+p.lease+" again; its log says why it has ended")...)
		default:
			found = append(found, bad(Fail, p.name, fmt.Sprintf("does not work, so %s: nobody holds the Lease %s", p.does, p.lease), "start "+p.lease+" or k8s4r up; with --leader-elect=false it takes no Lease and cannot be seen")...)
		}
	}
	return found
}
