package cli

import (
	"strings"
	"testing"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestPrefetchOptions(t *testing.T) {
	number := func(n int32) *int32 { return &n }
	bytes := func(n int64) *int64 { return &n }
	for name, test := range map[string]struct {
		options prefetchOptions
		limits  *robotv1.RolloutPrefetchLimits
		err     string
	}{
		"off":                {options: prefetchOptions{robots: 10}},
		"defaults":           {options: prefetchOptions{enabled: true, robots: 10}},
		"limits":             {options: prefetchOptions{enabled: true, robots: 3, rate: "1Mi"}, limits: &robotv1.RolloutPrefetchLimits{MaxRobots: number(3), BytesPerSecond: bytes(1 << 20)}},
		"rate alone":         {options: prefetchOptions{robots: 10, rate: "1Mi"}, err: "--prefetch-rate=1Mi: requires --prefetch"},
		"robots alone":       {options: prefetchOptions{robots: 3}, err: "--prefetch-robots=3: requires --prefetch"},
		"rate of no number":  {options: prefetchOptions{enabled: true, robots: 10, rate: "fast"}, err: "must be from 1Ki to 1Ti"},
		"rate that is small": {options: prefetchOptions{enabled: true, robots: 10, rate: "100"}, err: "must be from 1Ki to 1Ti"},
		"rate that is large": {options: prefetchOptions{enabled: true, robots: 10, rate: "2Ti"}, err: "must be from 1Ki to 1Ti"},
		"no robots":          {options: prefetchOptions{enabled: true}, err: "--prefetch-robots=0: must be from 1 to 10000"},
		"too many robots":    {options: prefetchOptions{enabled: true, robots: 10_001}, err: "must be from 1 to 10000"},
	} {
		t.Run(name, func(t *testing.T) {
			var s robotv1.RolloutSpec
			err := test.options.setOn(&s)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %s", err, test.err)
				}
				return
			}
			if err != nil || s.Prefetch != test.options.enabled || !equalLimits(s.PrefetchLimits, test.limits) {
				t.Errorf("error %v, prefetch %t, limits %+v", err, s.Prefetch, s.PrefetchLimits)
			}
		})
	}
}

func equalLimits(a, b *robotv1.RolloutPrefetchLimits) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a.MaxRobots == *b.MaxRobots && *a.BytesPerSecond == *b.BytesPerSecond
}
