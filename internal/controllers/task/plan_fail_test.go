package task

import (
	"slices"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestRescheduleDelay(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name       string
		inFunction string
		inMax      time.Duration
		want       []time.Duration // before the first, second … attempt
	}{
		{"constant stays", v1alpha1.DelayConstant, 0, []time.Duration{5 * s, 5 * s, 5 * s, 5 * s}},
		{"exponential doubles", v1alpha1.DelayExponential, 0, []time.Duration{5 * s, 10 * s, 20 * s, 40 * s}},
		{"left out means exponential", "", 0, []time.Duration{5 * s, 10 * s, 20 * s, 40 * s}},
		{"fibonacci adds the two before", v1alpha1.DelayFibonacci, 0, []time.Duration{5 * s, 5 * s, 10 * s, 15 * s, 25 * s, 40 * s}},
		{"maxDelay bounds the growth", v1alpha1.DelayExponential, 15 * s, []time.Duration{5 * s, 10 * s, 15 * s, 15 * s}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &v1alpha1.ReschedulePolicy{Delay: v1alpha1.NewDuration(5 * s), DelayFunction: c.inFunction}
			if c.inMax > 0 {
				p.MaxDelay = v1alpha1.NewDuration(c.inMax)
			}
			var got []time.Duration
			for n := range c.want {
				got = append(got, rescheduleDelay(p, n+1))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("delay %v, want %v", got, c.want)
			}
		})
	}
	forever := &v1alpha1.ReschedulePolicy{Delay: v1alpha1.NewDuration(time.Hour)}
	if got := rescheduleDelay(forever, 1000); got != maxRescheduleDelay {
		t.Errorf("delay before the thousandth attempt: %s", got)
	}
}
