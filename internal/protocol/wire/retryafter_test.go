package wire

import (
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: 0, time.Millisecond: time.Second, 40 * time.Second: 40 * time.Second, time.Hour: MaxRetryAfter, -time.Second: 0,
	} {
		if got := ParseRetryAfter(FormatRetryAfter(d)); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
	for text, want := range map[string]time.Duration{"": 0, "-1": 0, "1.5": 0, "soon": 0, "99999999999999999999": 0, "2000000000": MaxRetryAfter} {
		if got := ParseRetryAfter(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
