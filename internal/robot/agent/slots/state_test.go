package slots

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

var (
	at        = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	installed = Program{Size: 7, ModTime: at}
	broken    = Failure{Version: "v2", Reason: "broken", At: at}
	reverted  = wire.AgentUpdate{Rollout: "r", IsRevert: true, Version: "v2", State: wire.AgentSettled, At: at}
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
		"settled, revert":  {settled, signalRevert, State{Format: 1, Active: SlotB, Phase: Settled, Installed: installed, Report: &Report{AgentUpdate: reverted}}},
		"settled, report":  {settled, signalReport, change(settled, func(s *State) { s.Report = &Report{AgentUpdate: reverted} })},
		"trying, revert":   {trying, signalRevert, trying},
		"trying, report":   {trying, signalReport, trying},
		"settled, replace": {settled, signalReplace, State{Format: 1, Phase: Settled, Installed: installed}},
		"trying, order":    {trying, signalOrder, trying},
		"trying, start":    {trying, signalStart, change(trying, func(s *State) { s.TrialStarts, s.TrialProblem = 2, "" })},
		"trying, pass":     {trying, signalPass, change(trying, func(s *State) { s.Phase, s.TrialStarts = Settled, 0 })},
		"trying, stop":     {trying, signalStop, trying},
		"trying, fail":     {trying, signalFail, back(SlotA)},
		"trying, replace":  {trying, signalReplace, State{Format: 1, Phase: Settled, Installed: installed}},
	} {
		before := fmt.Sprintf("%+v", c.from)
		e := event{signal: c.signal, order: Order{Slot: SlotB, Reads: reads, Installed: installed}, report: reverted, at: at, start: start, failure: broken}
		if got := c.from.next(e); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if fmt.Sprintf("%+v", c.from) != before {
			t.Errorf("%s changed the state before", name)
		}
	}
}

// TestNext_KeepsTheReportOfAnOrder follows the report about the order of a Rollout through what happens later.
func TestNext_KeepsTheReportOfAnOrder(t *testing.T) {
	order := func(slot Slot, rollout string) event {
		return event{signal: signalOrder, order: Order{Slot: slot, Report: &wire.AgentUpdate{Rollout: rollout, Version: "v2", State: wire.AgentTrying}}}
	}
	byPerson := func(slot Slot) event { return event{signal: signalOrder, order: Order{Slot: slot}} }
	pass, fail := event{signal: signalPass, at: at}, event{signal: signalFail, failure: broken}
	replace := event{signal: signalReplace, at: at}
	for name, c := range map[string]struct {
		events         []event
		state, message string
		slot           Slot
	}{
		"on trial":                             {[]event{order(SlotA, "r")}, wire.AgentTrying, "", SlotA},
		"passed":                               {[]event{order(SlotA, "r"), pass}, wire.AgentSettled, "", SlotA},
		"failed":                               {[]event{order(SlotA, "r"), fail}, wire.AgentFailed, "broken", Installed},
		"crashed later":                        {[]event{order(SlotA, "r"), pass, fail}, wire.AgentFailed, "broken", Installed},
		"replaced on trial":                    {[]event{order(SlotA, "r"), replace}, wire.AgentFailed, problemReplaced, Installed},
		"replaced later":                       {[]event{order(SlotA, "r"), pass, replace}, wire.AgentSettled, "", Installed},
		"a person's update":                    {[]event{order(SlotA, "r"), pass, byPerson(SlotB), pass}, wire.AgentSettled, "", SlotA},
		"a person's update fails":              {[]event{order(SlotA, "r"), pass, byPerson(SlotB), fail}, wire.AgentSettled, "", SlotA},
		"a person's update of its slot":        {[]event{order(SlotA, "r"), pass, byPerson(SlotB), pass, byPerson(SlotA), fail}, wire.AgentSettled, "", Installed},
		"a later order":                        {[]event{order(SlotA, "q"), pass, order(SlotB, "r"), pass}, wire.AgentSettled, "", SlotB},
		"back from a person's update, crashed": {[]event{order(SlotA, "r"), pass, byPerson(SlotB), fail, fail}, wire.AgentFailed, "broken", Installed},
	} {
		s := State{Format: stateFormat, Phase: Settled}
		for _, e := range c.events {
			s = s.next(e)
		}
		if r := s.Report; r == nil || r.Rollout != "r" || r.State != c.state || r.Message != c.message || r.Slot != c.slot {
			t.Errorf("%s: the report is %+v, want %s %q of %s", name, r, c.state, c.message, c.slot)
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
