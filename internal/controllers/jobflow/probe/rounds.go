package probe

import (
	"fmt"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// roundResult is the result of one round. The zero value means that all checks passed.
type roundResult struct {
	message    string // the first check that failed
	noPods     bool   // there is no Pod to check yet
	listFailed bool   // the Pods could not be listed
}

// waitingMessage returns the message of a round in which there may be a Pod to check later.
func (f roundResult) waitingMessage() string {
	if f.noPods {
		return f.message + " yet"
	}
	return f.message
}

// roundCounter counts successful and failed rounds in a row.
type roundCounter struct {
	probe        *flowv1.Probe
	ended        bool // there will be no more Pods
	good, failed int32
}

// addRound returns the result of the probe after one more round.
func (t *roundCounter) addRound(f roundResult) Result {
	if f.message == "" {
		t.failed = 0
		t.good++
		if need := valueOr(t.probe.SuccessThreshold, 1); t.good < need {
			return Result{Waiting, fmt.Sprintf("succeeded in %d of %d rounds", t.good, need)}
		}
		// Keep the counter from overflowing.
		t.good--
		return Result{State: Ready}
	}
	t.good = 0
	if t.ended && !f.listFailed {
		return Result{Failed, "the targets have ended and are not ready: " + f.message}
	}
	if f.noPods || f.listFailed {
		t.failed = 0
		return Result{Waiting, f.waitingMessage()}
	}
	t.failed++
	if limit := valueOr(t.probe.FailureThreshold, 0); limit > 0 && t.failed >= limit {
		return Result{Failed, fmt.Sprintf("%s (failed %d times in a row)", f.message, t.failed)}
	}
	return Result{Waiting, f.message}
}

func valueOr(set *int32, otherwise int32) int32 {
	if set == nil {
		return otherwise
	}
	return *set
}
