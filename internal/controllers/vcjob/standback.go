package vcjob

import "k8s4r.io/k8s4r/internal/controllers/standback"

// VolcanoLease is the name of the Lease by which Volcano's controllers elect
// their leader.
const VolcanoLease = "vc-controller-manager"

// volcano is whom this controller leaves the Jobs to.
func volcano() *standback.Rival {
	return &standback.Rival{
		Lease: VolcanoLease, Name: "Volcano's own controller", Objects: "Jobs", Off: "--controllers=*,-" + Name,
	}
}
