package doctor

import (
	"context"
	"fmt"
)

// The Leases of the leaders of those who act on kinds that are also ours.
const (
	leaseVolcano = "vc-controller-manager"
	leaseKubeRay = "ray-operator-leader"
)

// volcano looks whether Volcano's controllers run.
func volcano(ctx context.Context, c Cluster) []Finding {
	const check = "Volcano's controllers"
	h, err := holderOf(ctx, c, leaseVolcano)
	switch {
	case err != nil:
		return unknown(check, err)
	case h.lives():
		return bad(Warn, check, fmt.Sprintf("run (%s): ours of vcjobs stands back, and two controllers of JobFlows fight over each status", h),
			"run k8s4r-manager with --controllers=*,-vcjob, and one JobFlow controller: theirs (--controllers=*,-vcjob,-jobflow,-jobtemplate here) or ours")
	}
	return good(check, "do not run")
}

// kubeRay looks whether KubeRay's operator runs.
func kubeRay(ctx context.Context, c Cluster) []Finding {
	const check = "KubeRay's operator"
	h, err := holderOf(ctx, c, leaseKubeRay)
	switch {
	case err != nil:
		return unknown(check, err)
	case h.lives():
		return good(check, "runs (%s); K8s4r leaves its kinds to it", h)
	}
	return good(check, "does not run")
}
