// Package slots keeps the versions of the agent that the robot was updated to, in two slots of the state
// directory, and decides which of them runs. The installed program is the launcher: it verifies the active
// slot and runs its program, or runs itself if there is none (docs/explanation/adr/0024-the-agents-update.md).
//
//	agent/state.json      which slot is active, and whether its version is on trial
//	agent/a, agent/b      k8s4r-agent and its manifest.json
//	agent/download        a version while it is fetched
package slots

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Slot is one of two places for a version of the agent's program.
type Slot string

// The slots. Installed is not one: it stands for the program that was installed by hand.
const (
	Installed Slot = ""
	SlotA     Slot = "a"
	SlotB     Slot = "b"
)

// String returns the name of a slot for people.
func (s Slot) String() string {
	if s == Installed {
		return "the installed program"
	}
	return "slot " + string(s)
}

// Phase is what is known of the active slot.
type Phase string

// The phases. A new version is Trying until it has passed its self-test.
const (
	Settled Phase = "settled"
	Trying  Phase = "trying"
)

// stateFormat is the version of the state file. Launchers are older than the agents that write it, so fields
// are only added, and a launcher runs the installed program if the version is another one.
const stateFormat = 1

// The limits after which a slot is given up.
const (
	// MaxTrialStarts is how often a version on trial is started.
	MaxTrialStarts = 3
	// maxLoopStarts within loopPeriod are a crash loop of a settled version.
	maxLoopStarts = 5
	loopPeriod    = time.Minute
)

// State is the content of the state file. The launcher writes it before it starts a slot and after a failed
// trial; in between the running agent writes it.
type State struct {
	Format int   `json:"format"`
	Active Slot  `json:"active"`
	Phase  Phase `json:"phase"`
	// Previous is the slot that was active before.
	Previous Slot `json:"previous"`
	// PreviousReads are the formats of files that the version before reads. They bound what a version on trial
	// writes.
	PreviousReads Formats `json:"previousReads"`
	// TrialStarts counts the starts of the version on trial.
	TrialStarts int `json:"trialStarts,omitempty"`
	// TrialProblem is why the version on trial ended its self-test. If empty, it has not.
	TrialProblem string `json:"trialProblem,omitempty"`
	// Starts are the last starts of a settled version, at most maxLoopStarts. An orderly stop clears them.
	Starts []Start `json:"starts,omitempty"`
	// Installed identifies the installed program at the time of the update. If it is replaced later, the slots
	// are not used any more.
	Installed Program `json:"installed"`
	// LastFailure is the last version that was given up. If nil, none was.
	LastFailure *Failure `json:"lastFailure,omitempty"`
	// Report is about the last order of a Rollout. If nil, the agent has acted by none.
	Report *Report `json:"report,omitempty"`
}

// Report is what the agent reports about an order of a Rollout.
type Report struct {
	wire.AgentUpdate
	// Slot that the order has filled. If empty, it has filled none, or that slot is not the order's any more.
	Slot Slot `json:"slot,omitempty"`
}

// Start is when the launcher started a slot. The clock of the robot may be set, so it does not count.
type Start struct {
	BootID    string        `json:"bootId"`
	SinceBoot time.Duration `json:"sinceBoot"`
}

// Program identifies a file without reading all of it.
type Program struct {
	Size    int64     `json:"size"`
	ModTime time.Time `json:"modTime"`
}

// Equal reports whether two programs are the same file with the same content.
func (p Program) Equal(o Program) bool { return p.Size == o.Size && p.ModTime.Equal(o.ModTime) }

// Failure is a version that was given up.
type Failure struct {
	// Version is empty if the slot could not be read.
	Version string `json:"version"`
	// Reason is one line, at most maxReason bytes.
	Reason string `json:"reason"`
	// At is by the robot's clock.
	At time.Time `json:"at"`
}

const maxReason = 512

// Formats are the versions of the files in the state directory.
type Formats struct {
	Journal int `json:"journal"`
	Shim    int `json:"shim"`
	Local   int `json:"local"`
}

// CheckReadable returns an error if an agent that writes these formats writes something that one with other
// formats cannot read.
func (f Formats) CheckReadable(by Formats) error {
	for _, c := range []struct {
		name         string
		writes, read int
	}{{"journal", f.Journal, by.Journal}, {"shim", f.Shim, by.Shim}, {"local.json", f.Local, by.Local}} {
		if c.writes > c.read {
			return fmt.Errorf("it writes format %d of %s and the version before reads only format %d; update to a version in between first", c.writes, c.name, c.read)
		}
	}
	return nil
}

// slotSignal is what happens to the slots.
type slotSignal string

const (
	// signalOrder makes the other slot active, on trial.
	signalOrder slotSignal = "order"
	// signalStart is given before the active slot is started.
	signalStart slotSignal = "start"
	// signalPass ends a trial: the version has passed its self-test.
	signalPass slotSignal = "pass"
	// signalStop ends an agent in order.
	signalStop slotSignal = "stop"
	// signalFail gives the active slot up.
	signalFail slotSignal = "fail"
	// signalRevert makes the slot before active, which is no failure.
	signalRevert slotSignal = "revert"
	// signalReport ends an order that changes no slot.
	signalReport slotSignal = "report"
	// signalReplace is given when the installed program was replaced.
	signalReplace slotSignal = "replace"
)

// event is a signal with what belongs to it.
type event struct {
	signal slotSignal

	order   Order            // of signalOrder
	start   Start            // of signalStart
	failure Failure          // of signalFail
	report  wire.AgentUpdate // of signalRevert and signalReport
	at      time.Time        // of signalPass and signalReplace, by the robot's clock
}

// Order is what the running agent knows when it orders a trial.
type Order struct {
	Slot      Slot
	Reads     Formats // of the running agent
	Installed Program
	// Report is what the version on trial reports. If nil, no Rollout has ordered it.
	Report *wire.AgentUpdate
}

// ErrOnTrial refuses an update during a trial.
var ErrOnTrial = errors.New("the running version is on trial itself; try again after its self-test, which takes at most 30s")

// edges has the change of the state for each phase and signal. A signal without an edge changes nothing.
var edges = map[Phase]map[slotSignal]func(*State, event){
	Settled: {
		signalOrder:   (*State).beginTrial,
		signalStart:   (*State).recordStart,
		signalStop:    func(s *State, _ event) { s.Starts = nil },
		signalFail:    (*State).goBack,
		signalRevert:  (*State).revert,
		signalReport:  func(s *State, e event) { s.Report = &Report{AgentUpdate: e.report} },
		signalReplace: (*State).forgetSlots,
	},
	Trying: {
		signalStart:   func(s *State, _ event) { s.TrialStarts++; s.TrialProblem = "" },
		signalPass:    (*State).pass,
		signalFail:    (*State).goBack,
		signalReplace: (*State).forgetSlots,
	},
}

// next returns the state after an event. It shares no memory with s.
func (s State) next(e event) State {
	s.Starts = slices.Clone(s.Starts)
	if s.Report != nil {
		r := *s.Report
		s.Report = &r
	}
	if apply := edges[s.Phase][e.signal]; apply != nil {
		apply(&s, e)
	}
	return s
}

func (s *State) beginTrial(e event) {
	report := s.Report
	if e.order.Report != nil {
		report = &Report{AgentUpdate: *e.order.Report, Slot: e.order.Slot}
	} else if report != nil && report.Slot == e.order.Slot {
		report.Slot = Installed // a person at the robot has replaced it
	}
	*s = State{
		Format: stateFormat, Active: e.order.Slot, Phase: Trying, Previous: s.Active,
		PreviousReads: e.order.Reads, Installed: e.order.Installed, LastFailure: s.LastFailure, Report: report,
	}
}

func (s *State) pass(e event) {
	s.Phase, s.TrialStarts, s.Starts = Settled, 0, nil
	if s.isOrdered() && s.Report.State == wire.AgentTrying {
		s.Report.State, s.Report.At = wire.AgentSettled, e.at
	}
}

// isOrdered reports whether the last order of a Rollout has filled the active slot.
func (s *State) isOrdered() bool {
	return s.Active != Installed && s.Report != nil && s.Report.Slot == s.Active
}

// failReport ends the order that has filled the active slot, if one has.
func (s *State) failReport(reason string, at time.Time) {
	if s.isOrdered() {
		r := s.Report
		r.State, r.Message, r.At, r.Slot = wire.AgentFailed, wire.TruncateText(reason, wire.MaxUpdateMessage), at, Installed
	}
}

func (s *State) recordStart(e event) {
	s.Starts = append(s.Starts, e.start)
	s.Starts = s.Starts[max(len(s.Starts)-maxLoopStarts, 0):]
}

// goBack makes the slot before active. Behind that one there is only the installed program.
func (s *State) goBack(e event) {
	f := e.failure
	f.Reason = f.Reason[:min(len(f.Reason), maxReason)]
	s.failReport(f.Reason, f.At)
	*s = State{Format: stateFormat, Active: s.Previous, Phase: Settled, Installed: s.Installed, LastFailure: &f, Report: s.Report}
}

// revert makes the slot before active. That version has passed its self-test, so it runs without a trial.
func (s *State) revert(e event) {
	*s = State{Format: stateFormat, Active: s.Previous, Phase: Settled, Installed: s.Installed, LastFailure: s.LastFailure, Report: &Report{AgentUpdate: e.report}}
}

func (s *State) forgetSlots(e event) {
	if s.Phase == Trying {
		s.failReport(problemReplaced, e.at)
	}
	if s.Report != nil {
		s.Report.Slot = Installed
	}
	*s = State{Format: stateFormat, Active: Installed, Phase: Settled, Installed: s.Installed, LastFailure: s.LastFailure, Report: s.Report}
}

// exhausted returns why the active slot must not be started once more. It is empty if it may.
func (s State) exhausted(now Start) string {
	switch {
	case s.Phase == Trying && s.TrialProblem != "":
		return s.TrialProblem
	case s.Phase == Trying && s.TrialStarts >= MaxTrialStarts:
		return fmt.Sprintf("it ended %d times before it had passed its self-test", s.TrialStarts)
	case s.Phase == Settled && s.isLooping(now):
		return fmt.Sprintf("it ended %d times within %v", maxLoopStarts, loopPeriod)
	}
	return ""
}

// isLooping reports whether the last starts were in this boot and within loopPeriod.
func (s State) isLooping(now Start) bool {
	if len(s.Starts) < maxLoopStarts {
		return false
	}
	first := s.Starts[0]
	return first.BootID == now.BootID && now.SinceBoot-first.SinceBoot < loopPeriod
}

// inactive returns the slot for the next version.
func (s State) inactive() Slot {
	if s.Active == SlotA {
		return SlotB
	}
	return SlotA
}

// validate returns an error for a state that no agent has written.
func (s State) validate() error {
	isSlot := func(x Slot) bool { return x == Installed || x == SlotA || x == SlotB }
	switch {
	case s.Format != stateFormat:
		return fmt.Errorf("format %d is not known, only %d", s.Format, stateFormat)
	case s.Phase != Settled && s.Phase != Trying:
		return fmt.Errorf("phase %.20q is not known", s.Phase)
	case !isSlot(s.Active) || !isSlot(s.Previous):
		return fmt.Errorf("slot %.20q or %.20q is not known", s.Active, s.Previous)
	case s.Phase == Trying && (s.Active == Installed || s.Active == s.Previous):
		return errors.New("the slot on trial is the one before")
	}
	return nil
}
