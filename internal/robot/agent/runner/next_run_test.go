package runner

import (
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/core/restart"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func TestDecideNextRun(t *testing.T) {
	now := time.Unix(1000, 0)
	failed := wire.Status{State: wire.ReportFailed, Reason: wire.ReasonExited, ExitCode: 3, Run: 2}
	due, later := restart.Decision{At: now}, restart.Decision{At: now.Add(1)}
	offline := restart.Decision{At: now, EndsWithContact: true} // the policy is used up
	missing, refused := lostSecrets{isMissing: true}, lostSecrets{isMissing: true, isRefused: true}
	highest := failed
	highest.Run = wire.MaxRunNumber
	for name, test := range map[string]struct {
		in     nextRunInput
		want   runStart
		reason string // of the end
	}{
		"a run that is due":              {nextRunInput{next: due}, startNow, ""},
		"one that is due later":          {nextRunInput{next: later}, startWhenDue, ""},
		"one without contact":            {nextRunInput{next: offline}, startNow, ""},
		"a usual one when contact is":    {nextRunInput{next: due, hasContact: true}, startNow, ""},
		"a stage before has not started": {nextRunInput{next: later, awaitsEarlierStage: true}, startAfterStage, ""},
		"the secrets are missing":        {nextRunInput{next: due, secrets: missing, awaitsEarlierStage: true}, startWithSecrets, ""},
		"maintenance":                    {nextRunInput{next: due, secrets: missing, isInMaintenance: true}, startAfterMaintenance, ""},

		"no restart is left":                {nextRunInput{next: restart.Decision{IsExhausted: true}, stopReason: wire.ReasonStopped, isInMaintenance: true}, startNever, wire.ReasonExited},
		"the highest number of a run":       {nextRunInput{next: due, last: highest}, startNever, wire.ReasonExited},
		"a stop before all else":            {nextRunInput{next: later, stopReason: wire.ReasonStopped, isPaused: true, isPastBoot: true, secrets: refused}, startNever, wire.ReasonStopped},
		"a pause":                           {nextRunInput{next: later, isPaused: true, isPastBoot: true, secrets: refused}, startNever, wire.ReasonPaused},
		"the robot was off":                 {nextRunInput{next: later, isPastBoot: true, secrets: refused, endsOnReboot: true}, startNever, wire.ReasonSelfStopped},
		"the server refuses the secrets":    {nextRunInput{next: later, secrets: refused, endsOnReboot: true, isPastDeadline: true}, startNever, wire.ReasonAgentRestarted},
		"a reboot that is reported":         {nextRunInput{next: later, endsOnReboot: true, isPastDeadline: true}, startNever, wire.ReasonRobotRebooted},
		"the deadline before the run":       {nextRunInput{next: later, isPastDeadline: true, isInMaintenance: true}, startNever, wire.ReasonSelfStopped},
		"contact ends what is without":      {nextRunInput{next: offline, hasContact: true, isInMaintenance: true}, startNever, wire.ReasonExited},
		"not while the robot may go down":   {nextRunInput{next: offline, hasContact: true, mayGoDown: true}, startNow, ""},
		"secrets that need contact":         {nextRunInput{next: offline, secrets: missing}, startNever, wire.ReasonExited},
		"used up, and a stop":               {nextRunInput{next: offline, stopReason: wire.ReasonStopped}, startNever, wire.ReasonStopped},
		"used up, and a newer attempt":      {nextRunInput{next: offline, stopReason: wire.ReasonSuperseded}, startNever, wire.ReasonSuperseded},
		"used up, and a stop of the agent":  {nextRunInput{next: offline, stopReason: wire.ReasonAgentStopped}, startNever, wire.ReasonExited},
		"used up, and a pause":              {nextRunInput{next: offline, isPaused: true}, startNever, wire.ReasonExited},
		"used up, and the robot was off":    {nextRunInput{next: offline, isPastBoot: true}, startNever, wire.ReasonExited},
		"used up, and the deadline":         {nextRunInput{next: offline, isPastDeadline: true}, startNever, wire.ReasonExited},
		"used up, and a reported reboot":    {nextRunInput{next: offline, endsOnReboot: true}, startNever, wire.ReasonRobotRebooted},
		"used up, and the secrets are gone": {nextRunInput{next: offline, secrets: refused}, startNever, wire.ReasonExited},
	} {
		test.in.now = now
		if test.in.last.Run == 0 {
			test.in.last = failed
		}
		d := decideNextRun(test.in)
		if d.start != test.want || d.end.Reason != test.reason {
			t.Errorf("%s: start %d, end %+v; want %d, %q", name, d.start, d.end, test.want, test.reason)
		}
		if d.start == startNever && (d.end.State != wire.ReportFailed || d.end.Reason != wire.ReasonExited && !strings.Contains(d.end.Message, "exit code 3")) {
			t.Errorf("%s: the end %+v does not name that of the last run", name, d.end)
		}
	}
}
