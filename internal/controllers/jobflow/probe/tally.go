package probe

import (
	"fmt"
	"strings"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// finding is what a round has found. The zero value: all holds.
type finding struct {
	message string // what does not hold
	early   bool   // there is nobody to ask yet
	unread  bool   // who there is to ask is not known
}

// tally counts rounds in a row.
type tally struct {
	probe        *flowv1.Probe
	over         bool // nobody is to come any more
	good, failed int32
}

// count is the result after one more round.
func (t *tally) count(f finding) Result {
	if f.message == "" {
		t.failed = 0
		t.good++
		if need := orElse(t.probe.SuccessThreshold, 1); t.good < need {
			return Result{Waiting, fmt.Sprintf("holds since %d of %d rounds", t.good, need)}
		}
		// Counting on would change nothing but, some day, the sign.
		t.good--
		return Result{State: Ready}
	}
	t.good = 0
	if t.over && !f.unread {
		return Result{Failed, "the targets have ended, and are not ready: " + strings.TrimSuffix(f.message, " yet")}
	}
	if f.early || f.unread {
		t.failed = 0
		return Result{Waiting, f.message}
	}
	t.failed++
	if limit := orElse(t.probe.FailureThreshold, 0); limit > 0 && t.failed >= limit {
		return Result{Failed, fmt.Sprintf("%s (failed %d times in a row)", f.message, t.failed)}
	}
	return Result{Waiting, f.message}
}

func orElse(set *int32, otherwise int32) int32 {
	if set == nil {
		return otherwise
	}
	return *set
}
