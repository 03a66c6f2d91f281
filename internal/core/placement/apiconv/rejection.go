package apiconv

import (
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
)

// PlacementStatusFrom returns a diagnosis as it is written into a Task. Rejections beyond
// placement.MaxRejections are only counted, and long values are cut.
func PlacementStatusFrom(d *placement.Diagnosis) *v1alpha1.PlacementStatus {
	if d == nil {
		return nil
	}
	top, omitted := d.Top()
	out := &v1alpha1.PlacementStatus{Robots: int32(d.Robots), Robot: d.Robot, OmittedRejections: int32(omitted)}
	if g := d.Gang; g != nil {
		out.Gang = &v1alpha1.GangShortage{Replicas: int32(g.Replicas), Created: int32(g.Created), Placed: int32(g.Placed)}
	}
	for _, r := range top {
		out.Rejections = append(out.Rejections, v1alpha1.Rejection{
			Check: string(r.Check), Robots: int32(r.Robots), Want: cutValue(r.Want), Got: cutValue(r.Got),
		})
	}
	return out
}

// DiagnosisFrom returns the diagnosis from which a PlacementStatus was made, as far as the status
// contains it.
func DiagnosisFrom(s *v1alpha1.PlacementStatus) *placement.Diagnosis {
	if s == nil {
		return nil
	}
	out := &placement.Diagnosis{Robots: int(s.Robots), Robot: s.Robot, Omitted: int(s.OmittedRejections)}
	if g := s.Gang; g != nil {
		out.Gang = &placement.GangShortage{Replicas: int(g.Replicas), Created: int(g.Created), Placed: int(g.Placed)}
	}
	for _, r := range s.Rejections {
		out.Rejections = append(out.Rejections, placement.RejectionCount{
			Rejection: placement.Rejection{Check: placement.CheckName(r.Check), Want: r.Want, Got: r.Got}, Robots: int(r.Robots),
		})
	}
	return out
}

// cutValue bounds a value to what the API takes. The limit counts characters.
func cutValue(s string) string {
	if len(s) <= v1alpha1.MaxRejectionValue {
		return s
	}
	runes := []rune(s)
	if len(runes) <= v1alpha1.MaxRejectionValue {
		return s
	}
	return string(runes[:v1alpha1.MaxRejectionValue-1]) + "…"
}
