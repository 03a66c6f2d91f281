package doctor

import (
	"context"
	"fmt"
)

// Leases that the programs hold while they run. A `k8s4r up` against an existing cluster does the
// work of manager and server.
const (
	leaseManager = "k8s4r-manager"
	leaseServer  = "k8s4r-server"
	leaseUp      = "k8s4r-up"
)

// checkPrograms checks whether manager and server run.
func checkPrograms(ctx context.Context, c Cluster) []Finding {
	up, err := holderOf(ctx, c, leaseUp)
	if err != nil {
		return newUnknown("manager and server", err)
	}
	var found []Finding
	for _, p := range []struct{ lease, name, does string }{
		{leaseManager, "manager", "no object is acted on"}, {leaseServer, "server", "no robot is spoken to"},
	} {
		own, err := holderOf(ctx, c, p.lease)
		switch {
		case err != nil:
			found = append(found, newUnknown(p.name, err)...)
		case own.isAlive() && up.isAlive():
			found = append(found, newProblem(Fail, p.name, fmt.Sprintf("works twice: %s, and %s", own, up), "stop one: either k8s4r up or the deployed programs")...)
		case own.isAlive():
			found = append(found, newOK(p.name, "works: %s", own)...)
		case up.isAlive():
			found = append(found, newOK(p.name, "works in k8s4r up: %s", up)...)
		case own.name != "":
			found = append(found, newProblem(Fail, p.name, fmt.Sprintf("works no more, so %s: %s", p.does, own), "start "+p.lease+" again; its log says why it has ended")...)
		default:
			found = append(found, newProblem(Fail, p.name, fmt.Sprintf("does not work, so %s: nobody holds the Lease %s", p.does, p.lease), "start "+p.lease+" or k8s4r up; with --leader-elect=false it takes no Lease and cannot be seen")...)
		}
	}
	return found
}
