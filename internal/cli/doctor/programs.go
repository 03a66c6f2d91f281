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
	up, err := findHolder(ctx, c, leaseUp)
	if err != nil {
		return newUnknown("manager and server", err)
	}
	var found []Finding
	for _, p := range []struct{ lease, name, does string }{
		{leaseManager, "manager", "no objects are reconciled"}, {leaseServer, "server", "robots get no messages"},
	} {
		own, err := findHolder(ctx, c, p.lease)
		switch {
		case err != nil:
			found = append(found, newUnknown(p.name, err)...)
		case own.isActive() && up.isActive():
			found = append(found, newProblem(Fail, p.name, fmt.Sprintf("runs twice: %s, and %s", own, up), "stop either k8s4r up or the deployed programs")...)
		case own.isActive():
			found = append(found, newOK(p.name, "runs: %s", own)...)
		case up.isActive():
			found = append(found, newOK(p.name, "runs in k8s4r up: %s", up)...)
		case own.name != "":
			found = append(found, newProblem(Fail, p.name, fmt.Sprintf("has stopped, so %s: %s", p.does, own), "start "+p.lease+" again; see its log for the reason")...)
		default:
			found = append(found, newProblem(Fail, p.name, fmt.Sprintf("does not run, so %s: no process holds the Lease %s", p.does, p.lease), "start "+p.lease+" or k8s4r up; this check does not find programs that run with --leader-elect=false")...)
		}
	}
	return append(found, checkSeparateManagers(ctx, c)...)
}

// checkSeparateManagers reports managers of single features that have stopped. Without such a
// manager, there is nothing to report.
func checkSeparateManagers(ctx context.Context, c Cluster) []Finding {
	var found []Finding
	for _, feature := range []string{"vcjob", "raycluster"} {
		check, lease := "manager of "+feature, leaseManager+"-"+feature
		own, err := findHolder(ctx, c, lease)
		switch {
		case err != nil:
			found = append(found, newUnknown(check, err)...)
		case own.isActive():
			found = append(found, newOK(check, "runs: %s", own)...)
		case own.name != "":
			found = append(found, newProblem(Fail, check, fmt.Sprintf("has stopped: %s", own), "start "+lease+" again, or delete the Lease if that Deployment was removed")...)
		}
	}
	return found
}
