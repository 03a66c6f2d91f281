package hostnode

import (
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/robot/shim"
)

func TestRun_Predicates(t *testing.T) {
	unready := runningRun()
	unready.started = false
	type facts struct{ ended, succeeded, running, up bool }
	for _, c := range []struct {
		name string
		in   *run
		want facts
		at   time.Time
	}{
		{"not reported yet", dispatched(), facts{}, time.Time{}},
		{"running", runningRun(), facts{running: true, up: true}, time.Time{}},
		{"before the end of its postStart hook", beforeHook(), facts{running: true}, time.Time{}},
		{"before its startup probe has succeeded", unready, facts{running: true}, time.Time{}},
		{"succeeded", exited(0, noon), facts{ended: true, succeeded: true}, noon},
		{"failed", exited(3, noon), facts{ended: true}, noon},
		{"unknown end", unknownEnd(), facts{ended: true}, time.Time{}},
		{"its shim has recorded the exit but is still running", &run{state: shim.State{Exit: &shim.Exit{At: noon}}}, facts{}, time.Time{}},
	} {
		got := facts{c.in.hasEnded(), c.in.hasSucceeded(), c.in.isRunning(), c.in.isUp()}
		if got != c.want || !c.in.finishedAt().Equal(c.at) {
			t.Errorf("%s: %+v, finished at %v; want %+v, %v", c.name, got, c.in.finishedAt(), c.want, c.at)
		}
	}
}

func TestContainerRecord_IsRunning(t *testing.T) {
	for name, c := range map[string]struct {
		last *run
		want bool
	}{"never started": {nil, false}, "not reported yet": {dispatched(), true}, "running": {runningRun(), true}, "ended": {exited(0, noon), false}} {
		if got := (&containerRecord{last: c.last}).isRunning(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
