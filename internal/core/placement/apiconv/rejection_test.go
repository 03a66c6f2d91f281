package apiconv_test

import (
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
)

func TestPlacementStatus_KeepsTheMessage(t *testing.T) {
	label := placement.RejectionCount{Rejection: placement.Rejection{Check: placement.CheckLabel, Want: "env=prod"}, Robots: 2}
	driver := placement.RejectionCount{Rejection: placement.Rejection{Check: placement.CheckDriver, Want: "docker", Got: "exec"}, Robots: 1}
	for _, c := range []struct {
		name string
		in   *placement.Diagnosis
	}{
		{"no diagnosis", nil},
		{"no robots", &placement.Diagnosis{}},
		{"several rejections", &placement.Diagnosis{Robots: 3, Rejections: []placement.RejectionCount{label, driver}}},
		{"one robot", &placement.Diagnosis{Robot: "r1", Rejections: []placement.RejectionCount{driver}}},
		{"a gang that is not complete", &placement.Diagnosis{Gang: &placement.GangShortage{Replicas: 3, Created: 2}}},
		{"a gang without robots", &placement.Diagnosis{Gang: &placement.GangShortage{Replicas: 3, Created: 3, Placed: 1}, Robots: 2, Rejections: []placement.RejectionCount{label}}},
		{"omitted rejections", &placement.Diagnosis{Robots: 9, Rejections: []placement.RejectionCount{label}, Omitted: 7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := apiconv.DiagnosisFrom(apiconv.PlacementStatusFrom(c.in))
			if !reflect.DeepEqual(got, c.in) || got.String() != c.in.String() {
				t.Errorf("got %q, want %q", got, c.in)
			}
		})
	}
}

func TestPlacementStatus_IsBounded(t *testing.T) {
	d := &placement.Diagnosis{Robots: 40}
	for i := range 40 {
		want := strings.Repeat("ä", 5000) + string(rune('a'+i))
		d.Rejections = append(d.Rejections, placement.RejectionCount{Rejection: placement.Rejection{Check: placement.CheckLabel, Want: want}, Robots: 1})
	}
	s := apiconv.PlacementStatusFrom(d)
	if len(s.Rejections) != v1alpha1.MaxRejections || s.OmittedRejections != 35 {
		t.Errorf("%d rejections and %d omitted", len(s.Rejections), s.OmittedRejections)
	}
	for _, r := range s.Rejections {
		if n := utf8.RuneCountInString(r.Want); n != v1alpha1.MaxRejectionValue {
			t.Errorf("a value of %d characters", n)
		}
	}
}
