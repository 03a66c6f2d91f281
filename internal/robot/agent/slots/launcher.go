package slots

import (
	"crypto/ed25519"
	"errors"
	"log/slog"
	"time"
)

// Launcher chooses the program that runs, and supervises trials.
type Launcher struct {
	Store *Store
	// Program identifies the installed program, which this process runs.
	Program Program
	// ReadKeys returns the keys that sign versions (policyfile.ReadUpdateKeys).
	ReadKeys func() ([]ed25519.PublicKey, error)
	// Now is the robot's clock, and Clock returns the time since boot for a start.
	Now   func() time.Time
	Clock func() Start
	Log   *slog.Logger
	// Execute replaces this process by the program of a slot. It returns only an error.
	Execute func(slot Slot, program string) error
	// Try runs the program of a slot as a child, on trial, and returns when it has ended.
	Try func(slot Slot, program string, remaining time.Duration) TrialEnd
}

// TrialEnd is how the process of a trial ended.
type TrialEnd struct {
	// IsStopped is set if the launcher was asked to stop. Status is then its exit status.
	IsStopped bool
	Status    int
	// Problem is how the process ended, for people.
	Problem string
	// IsTimeout is set if it was killed because the trial took too long.
	IsTimeout bool
}

const (
	// trialTimeout bounds all starts of one trial together. A version that hangs in its self-test, which has a
	// limit of its own, is killed then.
	trialTimeout = 45 * time.Second
	// minTrial is the remaining time below which a trial is not started again after a crash.
	minTrial = 35 * time.Second
)

// Run runs the active slot. It returns false if the installed program must run, and true with an exit status
// if the process was asked to stop during a trial. If all goes well it does not return: a slot replaces the
// process.
func (l *Launcher) Run() (status int, isDone bool) {
	state, _, err := l.Store.Load()
	if err != nil {
		l.Log.Error("the installed program runs instead of its update", "error", err, "remedy", "remove the file, and update the agent again")
		return 0, false
	}
	deadline := time.Time{}
	for {
		var runnable bool
		if state, runnable = l.prepareStart(state, deadline); !runnable {
			return 0, false
		}
		if state.Phase == Settled {
			err := l.Execute(state.Active, l.Store.Program(state.Active))
			state = l.giveUp(state, "it cannot be executed: "+err.Error())
			continue
		}
		if deadline.IsZero() {
			deadline = l.Now().Add(trialTimeout)
		}
		end := l.tryOnce(state, deadline)
		if end.IsStopped {
			return end.Status, true
		}
		state = l.readResult(state, end)
	}
}

// prepareStart gives up what cannot be started, and records the next start. It returns false if no slot can be
// started. A state that cannot be written holds in memory.
func (l *Launcher) prepareStart(state State, deadline time.Time) (State, bool) {
	for state.Active != Installed {
		problem, canVerify := l.findProblem(state, deadline)
		if !canVerify {
			return state, false
		}
		if problem == "" {
			next := state.next(event{signal: signalStart, start: l.Clock()})
			err := l.Store.save(next)
			if err == nil || state.Phase == Settled {
				return next, true
			}
			problem = "its start cannot be recorded, so that it could crash forever: " + err.Error()
		}
		state = l.giveUp(state, problem)
	}
	return state, false
}

// findProblem returns why the active slot must not be started. It is empty if it may. If the keys cannot be
// read, canVerify is false: the slot may be right.
func (l *Launcher) findProblem(state State, deadline time.Time) (problem string, canVerify bool) {
	if !state.Installed.Equal(l.Program) {
		return problemReplaced, true
	}
	if problem := state.exhausted(l.Clock()); problem != "" {
		return problem, true
	}
	if !deadline.IsZero() && state.Phase == Trying && deadline.Sub(l.Now()) < minTrial {
		return "it ended before it had passed its self-test, and there is no time for another start", true
	}
	keys, err := l.ReadKeys()
	if err != nil {
		l.Log.Error("the installed program runs instead of its update, because the keys of update.publicKeys cannot be read", "error", err)
		return "", false
	}
	if _, err := l.Store.Verify(state.Active, keys); err != nil {
		return err.Error(), true
	}
	return "", true
}

// problemReplaced is the problem of slots whose installed program was replaced.
const problemReplaced = "the installed program was replaced after the update"

// giveUp makes the slot before active, and returns the new state.
func (l *Launcher) giveUp(state State, problem string) State {
	e := event{signal: signalFail, failure: Failure{Version: l.versionOf(state.Active), Reason: problem, At: l.Now().UTC()}}
	if problem == problemReplaced {
		e = event{signal: signalReplace, at: l.Now().UTC()}
	}
	next := state.next(e)
	l.Log.Warn("a version of the agent is given up", "slot", state.Active, "version", l.versionOf(state.Active), "reason", problem, "next", next.Active.String())
	if err := l.Store.save(next); err != nil {
		l.Log.Error("the state of the slots cannot be written", "error", err)
	}
	return next
}

func (l *Launcher) versionOf(slot Slot) string {
	m, err := l.Store.Manifest(slot)
	if err != nil {
		return ""
	}
	return m.Version
}

// tryOnce runs the version on trial once.
func (l *Launcher) tryOnce(state State, deadline time.Time) TrialEnd {
	l.Log.Info("a version of the agent is on trial", "slot", state.Active, "version", l.versionOf(state.Active), "start", state.TrialStarts)
	return l.Try(state.Active, l.Store.Program(state.Active), deadline.Sub(l.Now()))
}

// readResult returns the state after a trial has ended, which the version on trial has written.
func (l *Launcher) readResult(before State, end TrialEnd) State {
	state, _, err := l.Store.Load()
	if err != nil {
		state, end.IsTimeout = before, true
	}
	if state.Phase == Settled {
		return state
	}
	l.Log.Warn("a version of the agent ended before it had passed its self-test", "slot", state.Active, "end", end.Problem, "problem", state.TrialProblem)
	if end.IsTimeout && state.TrialProblem == "" {
		state.TrialProblem = end.Problem
	}
	return state
}

// Status is what people see of the slots.
type Status struct {
	// Slot that runs. If empty, the installed program does.
	Slot  Slot  `json:"slot"`
	Phase Phase `json:"phase"`
	// LastFailure is the last version that was given up. If nil, none was.
	LastFailure *Failure `json:"lastFailure,omitempty"`
	// Problem is why the state of the slots cannot be used. If empty, it can.
	Problem string `json:"problem,omitempty"`
}

// ReadStatus returns the status, in which slot runs. It is nil if the agent was never updated.
func (s *Store) ReadStatus(runs Slot) *Status {
	state, exists, err := s.Load()
	switch {
	case errors.Is(err, ErrDamaged):
		return &Status{Slot: runs, Phase: Settled, Problem: err.Error()}
	case !exists:
		return nil
	}
	phase := state.Phase
	if runs != state.Active {
		phase = Settled
	}
	return &Status{Slot: runs, Phase: phase, LastFailure: state.LastFailure}
}

// PreviousReads returns the formats that the version before the one on trial reads.
func (s *Store) PreviousReads() (Formats, error) {
	state, _, err := s.Load()
	return state.PreviousReads, err
}
