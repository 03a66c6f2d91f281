package runner

import (
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func TestKillTimeout_Defaults(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`{}`:                    5 * time.Second,
		`{"killTimeout":"0s"}`:  0,
		`{"killTimeout":"90s"}`: 90 * time.Second,
	} {
		// Also after the journal has stored it.
		spec, err := wire.Decode[wire.TaskSpec]([]byte(text))
		must(t, err)
		kept, err := wire.Encode(spec)
		must(t, err)
		again, err := wire.Decode[wire.TaskSpec](kept)
		must(t, err)
		if got := killTimeout(again); got != want {
			t.Errorf("%s is %v, want %v", text, got, want)
		}
	}
}
