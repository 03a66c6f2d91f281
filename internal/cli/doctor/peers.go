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
	h, err := findHolder(ctx, c, leaseVolcano)
	switch {
	case err != nil:
		return newUnknown(check, err)
	case h.isActive():
		return newProblem(Warn, check, fmt.Sprintf("run (%s): the vcjob controller of K8s4r yields to them, but two JobFlow controllers write each status", h),
			"start k8s4r-manager with --controllers=*,-vcjob and disable Volcano's JobFlow controller, or start k8s4r-manager with --controllers=*,-vcjob,-jobflow,-jobtemplate")
	}
	return newOK(check, "do not run")
}

// checkKubeRay checks whether KubeRay's operator runs.
func checkKubeRay(ctx context.Context, c Cluster) []Finding {
	const check = "KubeRay's operator"
	h, err := findHolder(ctx, c, leaseKubeRay)
	switch {
	case err != nil:
		return newUnknown(check, err)
	case h.isActive():
		return newOK(check, "runs (%s); the raycluster controller of K8s4r yields to it", h)
	}
	return newOK(check, "does not run")
}
