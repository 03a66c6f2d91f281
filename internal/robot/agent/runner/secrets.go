package runner

import (
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// secretsPause is the least time between two requests for the secrets of an attempt.
const secretsPause = wire.MaxRepeatInterval

// waitsForSecrets is why an attempt waits longer than its restart policy says.
const waitsForSecrets = "Waiting for contact, because the agent was restarted and no longer has the values of secretEnv"

// lostSecrets are the values of secretEnv that an agent before had in its memory.
type lostSecrets struct {
	isMissing   bool // the next run has to wait for them
	isRefused   bool // the server sends none for an attempt that has started
	requestedAt time.Time
}

// lacksSecrets reports whether the agent has to ask for the values of the task's secretEnv.
func (attempt *attempt) lacksSecrets() bool {
	return attempt.restarts != nil && attempt.restarts.secrets.isMissing
}

// setSendsSecrets records whether the server sends the secrets of attempts that have started. Those of an
// earlier version do not.
func (r *Runner) setSendsSecrets(sends bool) {
	r.sendsSecrets = sends
	for _, attempt := range r.live {
		if attempt.lacksSecrets() {
			attempt.restarts.secrets.isRefused = !sends
		}
	}
}

// requestSecrets repeats the last report of each attempt whose secrets are missing, as long as there is
// contact. A task that runs gets them before it needs them.
func (r *Runner) requestSecrets(p *plan) {
	if !r.sendsSecrets || !r.hasContact() {
		return
	}
	now := r.bootTime()
	for _, attempt := range r.live {
		if !attempt.lacksSecrets() || attempt.lastReport.Seq == 0 || now.Before(attempt.restarts.secrets.requestedAt.Add(secretsPause)) {
			continue
		}
		attempt.restarts.secrets.requestedAt, attempt.restarts.reports.isHeld = now, false
		p.reports = append(p.reports, r.buildReport(attempt, attempt.lastReport))
	}
}

// takeSecrets takes the values of secretEnv from a dispatch of an attempt that lacks them. If nil, the
// dispatch has none.
func (r *Runner) takeSecrets(p *plan, attempt *attempt, values wire.Secrets) {
	if values == nil || !attempt.lacksSecrets() || checkSecrets(wire.Dispatch{Task: attempt.task, Secrets: values}) != nil {
		return
	}
	attempt.secrets, attempt.restarts.secrets = values, lostSecrets{}
	r.sealSecrets(attempt)
	switch {
	case attempt.restarts.isWaiting():
		r.reportWait(p, attempt)
	case attempt.lastReport.Seq > 0:
		attempt.lastReport = r.buildReport(attempt, attempt.lastReport) // without the request
	}
}

// secretsLostStatus returns the report about an attempt that cannot go on after the end of a run.
func secretsLostStatus(end wire.Status) wire.Status {
	s := unknownEndStatus()
	s.Message = "The agent was restarted and has the values of secretEnv no more, and the server is too old to send them again, " +
		"so the robot cannot restart the task: " + describeRunEnd(end)
	return s
}
