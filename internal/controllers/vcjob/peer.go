package vcjob

import "k8s4r.io/k8s4r/internal/controllers/kit"

// VolcanoLease is the leader election Lease of Volcano's controllers.
const VolcanoLease = "vc-controller-manager"

// newPeerOperator describes the operator to which this controller yields.
func newPeerOperator() *kit.PeerOperator {
	return &kit.PeerOperator{
		LeaseName: VolcanoLease, DisplayName: "Volcano's own controller", ObjectKind: "Jobs", DisableFlag: "--controllers=*,-" + Name,
	}
}
