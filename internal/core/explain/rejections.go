package explain

import (
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
)

// Rejections lists why robots cannot take a task, from status.placement of the task.
type Rejections struct {
	// Robots is the number of robots that were checked.
	Robots int `json:"robots"`
	// Gang describes how many replicas of the task's gang found a robot. It is empty if the task
	// belongs to no gang.
	Gang string `json:"gang,omitempty"`
	// Checks that rejected robots, ordered by the number of robots, largest first.
	Checks []Rejection `json:"checks"`
	// Omitted is the number of further rejections that are not listed.
	Omitted int `json:"omitted,omitempty"`
}

// Rejection is one check that rejected robots.
type Rejection struct {
	Check string `json:"check"`
	// Robots is the number of robots that it rejected.
	Robots int    `json:"robots"`
	Want   string `json:"want,omitempty"`
	Got    string `json:"got,omitempty"`
	// Text is a message such as "label env=prod missing".
	Text string `json:"text"`
}

// listRejections returns nil if at most one robot was checked, because then there is no list.
func listRejections(s *robotv1.PlacementStatus) *Rejections {
	if s == nil || s.Robot != "" || len(s.Rejections) == 0 {
		return nil
	}
	d := apiconv.DiagnosisFrom(s)
	out := &Rejections{Robots: d.Robots, Omitted: d.Omitted}
	if d.Gang != nil {
		out.Gang = d.Gang.String()
	}
	for _, r := range d.Rejections {
		out.Checks = append(out.Checks, Rejection{Check: string(r.Check), Robots: r.Robots, Want: r.Want, Got: r.Got, Text: r.String()})
	}
	return out
}
