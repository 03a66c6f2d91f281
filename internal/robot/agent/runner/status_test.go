package runner

import (
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/shim"
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

func TestEndStatus_OfExitedShim(t *testing.T) {
	for name, c := range map[string]struct {
		state      shim.State
		shimFailed bool
		want       string // empty: unknown, reported as AgentRestarted
	}{
		"failed before the start":     {shim.State{}, true, wire.ReasonStartFailed},
		"killed before the start":     {shim.State{}, false, ""},
		"failed while the task ran":   {shim.State{MayHaveStarted: true}, true, ""},
		"killed while the task ran":   {shim.State{MayHaveStarted: true}, false, ""},
		"recorded the end":            {shim.State{Exit: &shim.Exit{Code: 143}}, false, wire.ReasonExited},
		"recorded an orderly stop":    {shim.State{Exit: &shim.Exit{Code: 143, StopReason: wire.ReasonAgentStopped}}, false, wire.ReasonAgentStopped},
		"recorded the end by SIGTERM": {shim.State{Exit: &shim.Exit{Code: 143, Signal: 15}}, false, wire.ReasonSignaled},
	} {
		if end, known := endStatus(c.state, c.shimFailed); known != (c.want != "") || end.Reason != c.want {
			t.Errorf("%s: reason %q, known %v; want %q", name, end.Reason, known, c.want)
		}
	}
}
