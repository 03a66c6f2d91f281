package simrobot

import (
	"fmt"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/core/restart"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// runs are those of an attempt that the robot restarts. All methods do nothing for nil.
type runs struct {
	policy     restart.Policy
	isKept     bool // an orderly end is followed by another run, too
	count      restart.Count
	number     int64
	all        []wire.Run // the last ones, with the current one
	next       *time.Time // nil: a run goes on
	startsNone bool
}

func newRuns(s wire.TaskSpec) *runs {
	x := &runs{policy: restart.DefaultPolicy(s.Type), isKept: restart.IsKeptRunning(s.Type)}
	if p := s.RestartPolicy; p != nil {
		x.policy = restart.NewPolicy(s.Type, restart.Fields{Attempts: p.Attempts, Interval: time.Duration(p.Interval), Delay: time.Duration(p.Delay), Mode: p.Mode, OnReboot: p.OnReboot})
	}
	return x
}

// isWaiting reports whether a run has ended and another one follows.
func (x *runs) isWaiting() bool { return x != nil && x.next != nil }

func (x *runs) startNext() {
	if x == nil {
		return
	}
	now := time.Now()
	x.number, x.next = x.number+1, nil
	x.all = append(x.all, wire.Run{Run: x.number, StartedAt: &now})
	x.all = x.all[max(len(x.all)-wire.MaxRuns, 0):]
}

// addTo adds the runs to a report.
func (x *runs) addTo(s *wire.Status) {
	if x == nil || x.number == 0 {
		return
	}
	current := &x.all[len(x.all)-1]
	if s.IsTerminal() && current.FinishedAt == nil {
		current.FinishedAt, current.ExitCode, current.Signal, current.Reason = s.FinishedAt, s.ExitCode, s.Signal, s.Reason
	}
	s.Run, s.StartedAt = x.number, current.StartedAt
	if x.number > 1 {
		s.Runs = slices.Clone(x.all)
	}
}

// restartLocked lets an attempt whose process has exited on its own wait for its next run. It returns false
// if none follows.
func (r *Robot) restartLocked(k key, it *attempt, code int32) bool {
	x := it.runs
	if x == nil || x.startsNone || code == 0 && !x.isKept {
		return false
	}
	now := time.Now()
	d := x.policy.Next(x.count, now, true)
	if d.IsExhausted {
		return false
	}
	current := &x.all[len(x.all)-1]
	current.FinishedAt, current.ExitCode = &now, code
	if code != 0 {
		current.Reason = wire.ReasonExited
	}
	x.count, x.next = d.Count, &d.At
	r.reportWaitLocked(k, it)
	it.timer = time.AfterFunc(d.At.Sub(now), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !it.ended && !r.isStopped() {
			r.startRunLocked(k, it)
		}
	})
	return true
}

// reportWaitLocked reports that an attempt waits for its next run.
func (r *Robot) reportWaitLocked(k key, it *attempt) {
	x := it.runs
	r.addReportLocked(k, it, wire.Status{
		State: wire.ReportRunning, Reason: wire.ReasonRestarting, Event: wire.ReasonRestarting, NextRunAt: x.next,
		Message: fmt.Sprintf("Restarting at %s UTC (run %d): exit code %d", x.next.UTC().Format(time.TimeOnly), x.number+1, x.all[len(x.all)-1].ExitCode),
	})
}

// setStartsNoRunLocked sets whether an attempt may start further runs. One that waits ends at once.
func (r *Robot) setStartsNoRunLocked(k key, it *attempt, startsNone bool) {
	if it.runs.startsNone = startsNone; startsNone && it.runs.isWaiting() {
		r.endAttemptLocked(k, it, "")
	}
}

// isStopped reports whether the robot has been stopped.
func (r *Robot) isStopped() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}
