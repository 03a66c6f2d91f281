package slots

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

var (
	at        = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	installed = Program{Size: 7, ModTime: at}
	broken    = Failure{Version: "v2", Reason: "broken", At: at}
)

// TestNext_EachPhaseAndSignal walks the whole table of the state machine.
func TestNext_EachPhaseAndSignal(t *testing.T) {
	reads := Formats{Journal: 2, Shim: 2, Local: 1}
	start := Start{BootID: "boot", SinceBoot: time.Second}
	settled := State{Format: 1, Active: SlotA, Phase: Settled, Previous: SlotB, Installed: installed, Starts: []Start{start}}
	trying := State{Format: 1, Active: SlotB, Phase: Trying, Previous: SlotA, PreviousReads: reads, Installed: installed, TrialStarts: 1, TrialProblem: "slow"}
	back := func(to Slot) State {
		return State{Format: 1, Active: to, Phase: Settled, Installed: installed, LastFailure: &broken}
	}
	change := func(s State, f func(*State)) State { f(&s); return s }
	for name, c := range map[string]struct {
		from   State
		signal slotSignal
		want   State
	}{
		"settled, order":   {settled, signalOrder, State{Format: 1, Active: SlotB, Phase: Trying, Previous: SlotA, PreviousReads: reads, Installed: installed}},
		"settled, start":   {settled, signalStart, change(settled, func(s *State) { s.Starts = []Start{start, start} })},
		"settled, pass":    {settled, signalPass, settled},
		"settled, stop":    {settled, signalStop, change(settled, func(s *State) { s.Starts = nil })},
		"settled, fail":    {settled, signalFail, back(SlotB)},
		"settled, replace": {settled, signalReplace, State{Format: 1, Phase: Settled, Installed: installed}},
		"trying, order":    {trying, signalOrder, trying},
		"trying, start":    {trying, signalStart, change(trying, func(s *State) { s.TrialStarts, s.TrialProblem = 2, "" })},
		"trying, pass":     {trying, signalPass, change(trying, func(s *State) { s.Phase, s.TrialStarts = Settled, 0 })},
		"trying, stop":     {trying, signalStop, trying},
		"trying, fail":     {trying, signalFail, back(SlotA)},
		"trying, replace":  {trying, signalReplace, State{Format: 1, Phase: Settled, Installed: installed}},
	} {
		before := fmt.Sprintf("%+v", c.from)
		e := event{signal: c.signal, order: Order{SlotB, reads, installed}, start: start, failure: broken}
		if got := c.from.next(e); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if fmt.Sprintf("%+v", c.from) != before {
			t.Errorf("%s changed the state before", name)
		}
	}
}

func TestExhausted(t *testing.T) {
	starts := func(boot string, seconds ...int) (all []Start) {
		for _, s := range seconds {
			all = append(all, Start{boot, time.Duration(s) * time.Second})
		}
		return all
	}
	now := Start{"boot", 100 * time.Second}
	for name, c := range map[string]struct {
		state State
		want  string
	}{
		"a trial":                       {State{Phase: Trying, TrialStarts: 2}, ""},
		"a trial that crashed":          {State{Phase: Trying, TrialStarts: 3}, "it ended 3 times before"},
		"a trial with a problem":        {State{Phase: Trying, TrialProblem: "no contact"}, "no contact"},
		"a version that runs":           {State{Phase: Settled}, ""},
		"four fast starts":              {State{Phase: Settled, Starts: starts("boot", 90, 92, 94, 96)}, ""},
		"five fast starts":              {State{Phase: Settled, Starts: starts("boot", 41, 92, 94, 96, 98)}, "it ended 5 times within 1m0s"},
		"five starts in more time":      {State{Phase: Settled, Starts: starts("boot", 40, 92, 94, 96, 98)}, ""},
		"five starts of an older boot":  {State{Phase: Settled, Starts: starts("other", 90, 92, 94, 96, 98)}, ""},
		"a trial after many old starts": {State{Phase: Trying, Starts: starts("boot", 90, 92, 94, 96, 98)}, ""},
	} {
		got := c.state.exhausted(now)
		if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestNext_BoundsWhatItKeeps(t *testing.T) {
	s := State{Format: 1, Active: SlotA, Phase: Settled}
	for i := range 20 {
		s = s.next(event{signal: signalStart, start: Start{SinceBoot: time.Duration(i)}})
	}
	if len(s.Starts) != maxLoopStarts || s.Starts[4].SinceBoot != 19 {
		t.Errorf("starts %v", s.Starts)
	}
	s = s.next(event{signal: signalFail, failure: Failure{Reason: strings.Repeat("x", 10_000)}})
	if len(s.LastFailure.Reason) != maxReason {
		t.Errorf("a reason of %d bytes", len(s.LastFailure.Reason))
	}
}

func TestFormats_CheckReadable(t *testing.T) {
	now := Formats{Journal: 2, Shim: 2, Local: 1}
	if err := now.CheckReadable(now); err != nil {
		t.Error(err)
	}
	if err := now.CheckReadable(Formats{Journal: 3, Shim: 3, Local: 3}); err != nil {
		t.Errorf("a version before that reads more: %v", err)
	}
	later := Formats{Journal: 3, Shim: 2, Local: 1}
	if err := later.CheckReadable(now); err == nil || !strings.Contains(err.Error(), "format 3 of journal") {
		t.Errorf("a journal that the version before cannot read: %v", err)
	}
}
