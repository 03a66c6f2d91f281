package raycluster

import (
	"testing"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// A field whose gate is off is refused, and nothing is created.
func TestPlan_RefusesFieldsOfGatesThatAreOff(t *testing.T) {
	for gate, set := range map[string]func(*rayv1.RayClusterSpec){
		"RayClusterNetworkPolicy": func(s *rayv1.RayClusterSpec) { s.NetworkPolicy = &rayv1.NetworkPolicySpec{} },
		"GCSFaultToleranceEmbeddedStorage": func(s *rayv1.RayClusterSpec) {
			s.GcsFaultToleranceOptions = &rayv1.GcsFaultToleranceOptions{Backend: rayv1.BackendRocksDB}
		},
	} {
		c := testCluster(testGroup("g", 1, 1))
		set(&c.Spec)
		for value, refused := range map[string]bool{"": false, gate + "=true": false, gate + "=false": true} {
			o := testOptions()
			if err := o.Gates.Set(value); err != nil {
				t.Fatal(err)
			}
			got := Plan(t0, o, Input{Cluster: c})
			if (len(got.Rejections) == 1) != refused || (len(got.Create) == 0) != refused {
				t.Errorf("%q: %+v", value, got.Rejections)
			}
		}
	}
}
