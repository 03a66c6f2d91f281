package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Refusal says why no robot took a demand.
type Refusal struct {
	// Robots is how many there were.
	Robots int
	// Robot is the only one that was asked. Empty: all were.
	Robot string
	// Gang says what the others of the demand's gang have to do with it.
	// Empty: nothing.
	Gang string

	verdicts map[Verdict]int
	because  *Refusal // of the one of the gang that found no robot
}

// maxKinds bounds the sentence: with hundreds of kinds of robots nobody reads
// all of their reasons.
const maxKinds = 5

// only is the refusal of the one robot that was asked.
func only(robot string, v Verdict) *Refusal {
	return &Refusal{Robot: robot, verdicts: map[Verdict]int{v: 1}}
}

// Verdicts of the robots, the most frequent first.
func (r *Refusal) Verdicts() []Verdict {
	if r.because != nil {
		return r.because.Verdicts()
	}
	return slices.SortedFunc(maps.Keys(r.verdicts), func(a, b Verdict) int {
		return cmp.Or(
			cmp.Compare(r.verdicts[b], r.verdicts[a]),
			cmp.Compare(a.Message, b.Message),
			cmp.Compare(a.Reason, b.Reason),
		)
	})
}

// String is a sentence for people, such as
// "0 of 3 robots: 2: label env=prod missing; 1: no place left".
func (r *Refusal) String() string {
	kinds := r.Verdicts()
	if r.because != nil {
		return r.Gang + ": " + r.because.String()
	}
	if r.Gang != "" {
		return r.Gang
	}
	if r.Robot != "" {
		return fmt.Sprintf("robot %s: %s", r.Robot, kinds[0].Message)
	}
	if r.Robots == 0 {
		return "0 of 0 robots: none is in this namespace or shared with it"
	}
	var parts []string
	for i, v := range kinds {
		if i == maxKinds {
			parts = append(parts, fmt.Sprintf("and %d more kinds of reasons", len(kinds)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%d: %s", r.verdicts[v], v.Message))
	}
	return fmt.Sprintf("0 of %d robots: %s", r.Robots, strings.Join(parts, "; "))
}
