package why

import (
	"regexp"
	"strconv"
	"strings"
)

// Refused says what robots lack, as the sentence of their refusal does (placement.Refusal).
type Refused struct {
	// Robots that were asked.
	Robots int `json:"robots"`
	// Gang is what the others that have to start with it have to do with it. Empty: nothing.
	Gang string `json:"gang,omitempty"`
	// Lacks, the most frequent first; More is the sentence's end where there are too many.
	Lacks []Lack `json:"lacks"`
	More  string `json:"more,omitempty"`
}

// Lack is one thing that speaks against a number of robots.
type Lack struct {
	Robots int    `json:"robots"`
	What   string `json:"what"`
}

var (
	asked = regexp.MustCompile(`^(?:(.*): )?0 of (\d+) robots: (\d+: .*)$`)
	lack  = regexp.MustCompile(`^(\d+): (.*)$`)
	rest  = regexp.MustCompile(`^and \d+ more kinds of reasons$`)
)

// readRefused reads the sentence. Nil: it is another one.
func readRefused(sentence string) *Refused {
	all := asked.FindStringSubmatch(sentence)
	if all == nil {
		return nil
	}
	r := &Refused{Robots: number(all[2]), Gang: all[1]}
	for part := range strings.SplitSeq(all[3], "; ") {
		one := lack.FindStringSubmatch(part)
		switch last := len(r.Lacks) - 1; {
		case one != nil:
			r.Lacks = append(r.Lacks, Lack{number(one[1]), one[2]})
		case rest.MatchString(part):
			r.More = part
		default: // a label or constraint that a user wrote with the separator in it
			r.Lacks[last].What += "; " + part
		}
	}
	return r
}

// number reads digits. One that is too great for a number of robots is none.
func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}
