package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// MaxRejections bounds the rejections that a message lists. A fleet may be rejected
// for hundreds of different reasons.
const MaxRejections = 5

// Diagnosis describes why no robot was found for a demand. Demands of one class share it, so it
// must not be changed.
type Diagnosis struct {
	// Robots is the number of robots that were checked. Zero if Robot is set.
	Robots int
	// Robot is the only robot that was checked. If empty, all robots were checked.
	Robot string
	// Gang is set if too few robots were found for the demand's gang. The other fields then
	// describe the first of its demands that got no robot.
	Gang *GangShortage
	// Rejections in the order of compareRejections, each at most once.
	Rejections []RejectionCount
	// Omitted is the number of further rejections that are not listed.
	Omitted int

	cause *Diagnosis // its fields are copied when the cycle ends, see resolveCause
}

// RejectionCount is a rejection with the number of robots to which it applies.
type RejectionCount struct {
	Rejection
	Robots int
}

// GangShortage holds how many replicas of a gang exist and how many got a robot.
type GangShortage struct {
	Replicas int // number that the gang needs
	Created  int // number that exist; if it is less than Replicas, placement was not tried
	Placed   int // number that got a robot before one got none
}

// String returns a clause such as "gang needs 2 replicas and only 1 exists".
func (g *GangShortage) String() string {
	switch {
	case g.Created == 1 && g.Replicas > 1:
		return fmt.Sprintf("gang needs %d replicas and only 1 exists", g.Replicas)
	case g.Created < g.Replicas:
		return fmt.Sprintf("gang needs %d replicas and only %d exist", g.Replicas, g.Created)
	}
	return fmt.Sprintf("gang needs robots for all %d replicas and found %d; next replica", g.Replicas, g.Placed)
}

// diagnoseRobot returns the diagnosis of a demand that only one robot may run.
func diagnoseRobot(robot string, r Rejection) *Diagnosis {
	return &Diagnosis{Robot: robot, Rejections: []RejectionCount{{r, 1}}}
}

// sortRejections returns the rejections of counts in the order of compareRejections.
func sortRejections(counts map[Rejection]int) []RejectionCount {
	out := make([]RejectionCount, 0, len(counts))
	for r, n := range counts {
		out = append(out, RejectionCount{r, n})
	}
	slices.SortFunc(out, compareRejections)
	return out
}

// compareRejections orders by the number of robots, largest first, then by check and values.
func compareRejections(a, b RejectionCount) int {
	return cmp.Or(
		cmp.Compare(b.Robots, a.Robots),
		strings.Compare(string(a.Check), string(b.Check)),
		strings.Compare(a.Want, b.Want),
		strings.Compare(a.Got, b.Got),
	)
}

// resolveCause copies the diagnosis of the demand for which a gang found no robot.
func (d *Diagnosis) resolveCause() {
	if c := d.cause; c != nil {
		d.Robots, d.Robot, d.Rejections, d.Omitted, d.cause = c.Robots, c.Robot, c.Rejections, c.Omitted, nil
	}
}

// Top returns the first MaxRejections rejections, and how many others there are.
func (d *Diagnosis) Top() (top []RejectionCount, omitted int) {
	n := min(len(d.Rejections), MaxRejections)
	return d.Rejections[:n], d.Omitted + len(d.Rejections) - n
}

// Equal reports whether both have the same message.
func (d *Diagnosis) Equal(o *Diagnosis) bool {
	if d == o || d == nil || o == nil {
		return d == o
	}
	top, omitted := d.Top()
	otherTop, otherOmitted := o.Top()
	return d.Robots == o.Robots && d.Robot == o.Robot && omitted == otherOmitted && slices.Equal(top, otherTop) &&
		(d.Gang == o.Gang || d.Gang != nil && o.Gang != nil && *d.Gang == *o.Gang)
}

// String returns a message such as
// "0 of 3 robots: 2: label env=prod missing; 1: task limit reached". It is empty for nil.
func (d *Diagnosis) String() string {
	switch {
	case d == nil:
		return ""
	case d.Gang == nil:
		return d.robotsText()
	case d.Gang.Created < d.Gang.Replicas:
		return d.Gang.String()
	}
	return d.Gang.String() + ": " + d.robotsText()
}

func (d *Diagnosis) robotsText() string {
	top, omitted := d.Top()
	switch {
	case d.Robot != "" && len(top) > 0:
		return fmt.Sprintf("robot %s: %s", d.Robot, top[0])
	case d.Robots == 0:
		return "0 of 0 robots: none is in this namespace or shared with it"
	}
	var parts []string
	for _, r := range top {
		parts = append(parts, fmt.Sprintf("%d: %s", r.Robots, r.Rejection))
	}
	if omitted > 0 {
		parts = append(parts, omittedText(omitted))
	}
	return fmt.Sprintf("0 of %d robots: %s", d.Robots, strings.Join(parts, "; "))
}

// omittedText returns the end of a list with omitted rejections.
func omittedText(n int) string {
	if n == 1 {
		return "and 1 more reason"
	}
	return fmt.Sprintf("and %d more reasons", n)
}
