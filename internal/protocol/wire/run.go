package wire

import (
	"cmp"
	"slices"
)

// MaxRunNumber bounds the number of a run: programs that read numbers as floating point have it exactly.
const MaxRunNumber = 1<<53 - 1

// boundRuns returns the status with runs within their bounds: the last MaxRuns, each once, in the order
// of their numbers, which are at most Run. A report without a run has none, and no next one.
func (s Status) boundRuns() Status {
	if s.Run = min(max(s.Run, 0), MaxRunNumber); s.Run == 0 {
		s.Runs, s.NextRunAt = nil, nil
		return s
	}
	var runs []Run
	for _, r := range s.Runs {
		if r.Run >= 1 && r.Run <= s.Run {
			r.Reason = TruncateText(r.Reason, maxToken)
			runs = append(runs, r)
		}
	}
	slices.SortStableFunc(runs, func(a, b Run) int { return cmp.Compare(a.Run, b.Run) })
	runs = slices.CompactFunc(runs, func(a, b Run) bool { return a.Run == b.Run })
	s.Runs = runs[max(len(runs)-MaxRuns, 0):]
	return s
}
