package wire

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStatus_WithinLimitsBoundsRuns(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	of := func(numbers ...int64) (runs []Run) {
		for _, n := range numbers {
			runs = append(runs, Run{Run: n, Reason: ReasonExited})
		}
		return runs
	}
	for name, c := range map[string]struct {
		in   Status
		want []int64
		run  int64
		next bool
	}{
		"in order":                         {Status{Run: 3, Runs: of(1, 2, 3), NextRunAt: &at}, []int64{1, 2, 3}, 3, true},
		"in another order, one twice":      {Status{Run: 3, Runs: of(3, 1, 3, 2)}, []int64{1, 2, 3}, 3, false},
		"more than ten":                    {Status{Run: 12, Runs: of(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)}, []int64{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 12, false},
		"numbers that the attempt has not": {Status{Run: 2, Runs: of(-1, 0, 1, 2, 3)}, []int64{1, 2}, 2, false},
		"no run":                           {Status{Runs: of(1), NextRunAt: &at}, nil, 0, false},
		"a negative number":                {Status{Run: -5, Runs: of(-5), NextRunAt: &at}, nil, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(c.in.Runs)
			got := c.in.WithinLimits()
			var numbers []int64
			for _, r := range got.Runs {
				numbers = append(numbers, r.Run)
			}
			if !slices.Equal(numbers, c.want) || got.Run != c.run || (got.NextRunAt != nil) != c.next {
				t.Errorf("run %d, runs %v, next %v", got.Run, numbers, got.NextRunAt)
			}
			if !slices.Equal(c.in.Runs, before) {
				t.Errorf("the runs of the caller became %v", c.in.Runs)
			}
		})
	}
	long := Status{Run: 1, Runs: []Run{{Run: 1, Reason: strings.Repeat("x", 1000)}}}.WithinLimits()
	if n := len(long.Runs[0].Reason); n != maxToken {
		t.Errorf("a reason has %d bytes", n)
	}
}
