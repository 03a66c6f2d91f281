package doctor

import (
	"context"
	"fmt"
)

// Leases of the peer operators' leaders.
const (
	leaseVolcano = "vc-controller-manager"
	leaseKubeRay = "ray-operator-leader"
)

// checkVolcano checks whether Volcano's controllers run.
func checkVolcano(ctx context.Context, c Cluster) []Finding {
	const check = "Volcano's controllers"
	h, err := holderOf(ctx, c, leaseVolcano)
	switch {
	case err != nil:
		return newUnknown(check, err)
	case h.isAlive():
		return newProblem(Warn, check, fmt.Sprintf("run (%s): ours of vcjobs stands back, and two controllers of JobFlows fight over each status", h),
			"run k8s4r-manager with --controllers=*,-vcjob, and one JobFlow controller: theirs (--controllers=*,-vcjob,-jobflow,-jobtemplate here) or ours")
	}
	return newOK(check, "do not run")
}

// kubeRay checks whether KubeRay's operator runs.
func kubeRay(ctx context.Context, c Cluster) []Finding {
	const check = "KubeRay's operator"
	h, err := holderOf(ctx, c, leaseKubeRay)
	switch {
	case err != nil:
		return newUnknown(check, err)
	case h.isAlive():
		return newOK(check, "runs (%s); K8s4r leaves its kinds to it", h)
	}
	return newOK(check, "does not run")
}
