package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
	"k8s4r.io/k8s4r/internal/core/explain"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// rolloutView renders a Rollout.
type rolloutView struct {
	*robotv1.Rollout
	now time.Time
}

// headLine returns what the Rollout changes, and its phase.
func (v rolloutView) headLine() string {
	return fmt.Sprintf("rollout %s of %s, %s: %s", v.Name, actions.DescribeTarget(v.Rollout), v.revisionText(), v.phaseText())
}

func (v rolloutView) revisionText() string {
	if t := &v.Spec.Target; t.IsAgent() {
		return "to version " + t.Agent.Version
	}
	to := cmp.Or(v.Status.Revision, v.Spec.Target.Revision)
	switch {
	case to == 0:
		return "to the newest revision"
	case v.Status.FromRevision == 0:
		return fmt.Sprintf("to revision %d", to)
	}
	return fmt.Sprintf("revision %d to %d", v.Status.FromRevision, to)
}

// phaseText returns the phase, with the one that a user has requested and the manager has not acted on yet.
func (v rolloutView) phaseText() string {
	phase := actions.RolloutPhase(v.Rollout)
	text := phase
	if next := actions.NextRolloutPhase(v.Rollout); next != phase && v.Spec.DesiredState != "" {
		text += " (" + v.Spec.DesiredState + " requested)"
	}
	return text + explain.PrefixColon(v.Status.Message)
}

// waveTable returns the waves with their units.
func (v rolloutView) waveTable() *table {
	t := &table{header: []string{"WAVE", "UNITS", "STATE", "TOTAL", "UPDATED", "UPDATING", "WAITING", "NO CONTACT", "WINDOW", "HELD", "FAILED"}}
	for i := range v.Spec.Waves {
		w := &v.Spec.Waves[i]
		counts := make([]string, 8)
		for j := range counts {
			counts[j] = "-"
		}
		if i < len(v.Status.Waves) {
			counts = countCells(&v.Status.Waves[i].RolloutCounts)
		}
		t.addRow(append([]string{w.Name, rollout.DescribeIncluded(w), v.waveState(i)}, counts...)...)
	}
	t.addRow(append([]string{"all", "", ""}, countCells(&v.Status.Counts)...)...)
	return t
}

func countCells(c *robotv1.RolloutCounts) []string {
	return []string{formatCount(c.Total), formatCount(c.Updated), formatCount(c.Updating), formatCount(c.Waiting), formatCount(c.OutOfContact), formatCount(c.OutsideWindow), formatCount(c.Held), formatCount(c.Failed)}
}

// waveState returns the progress of the wave with the index i.
func (v rolloutView) waveState(i int) string {
	state := rollout.StateOfWave(v.Rollout, i)
	text := waveStateTexts[state]
	if i >= len(v.Status.Waves) {
		return text
	}
	s := &v.Status.Waves[i]
	if s.WaitingSince != nil && s.FinishedAt == nil && !rollout.HasEnded(v.Rollout) {
		text += " for " + formatSince(s.WaitingSince.Time, v.now)
	}
	if s.Retries > 0 {
		text += fmt.Sprintf(", retry %d", s.Retries)
	}
	return text
}

var waveStateTexts = map[rollout.WaveState]string{
	rollout.WaveNotStarted: "not started", rollout.WaveNeedsApproval: "needs approval", rollout.WaveRunning: "running",
	rollout.WaveWaitsForContact: "waits for contact", rollout.WaveWaitsForHolds: "waits for holds", rollout.WaveWaitsForWindows: "waits for windows",
	rollout.WaveStopped: "stopped", rollout.WaveFinished: "finished",
}

func (v rolloutView) writeTo(w io.Writer) {
	fmt.Fprintln(w, stripControl(v.headLine()))
	switch started, ended := v.Status.StartedAt, v.Status.CompletedAt; {
	case started != nil && ended != nil:
		fmt.Fprintf(w, "took %s\n", formatSince(started.Time, ended.Time))
	case started != nil:
		fmt.Fprintf(w, "started %s ago\n", formatSince(started.Time, v.now))
	}
	if v.Spec.Prefetch {
		fmt.Fprintln(w, describePrefetch(v.Status.Prefetched))
	}
	v.waveTable().writeTo(w)
}

// writeFailures prints the first failed units, and a command for the log of one.
func (v rolloutView) writeFailures(w io.Writer, program, namespaceFlag string) {
	failed := v.Status.FailedUnits
	if len(failed) == 0 {
		return
	}
	t := table{header: []string{"FAILED UNIT", "WAVE", "TASK", "REASON", "MESSAGE"}}
	task := ""
	for i := range failed[:min(len(failed), maxFailures)] {
		f := &failed[i]
		task = cmp.Or(task, f.Task)
		t.addRow(f.Unit, f.Wave, orDash(f.Task), f.Reason, f.Message)
	}
	t.writeTo(w)
	if more := int(v.Status.Counts.Failed) - maxFailures; more > 0 && len(failed) > maxFailures {
		fmt.Fprintf(w, "and %d more; see up to 100 with %s\n", more, quoteArg(fmt.Sprintf("%s get rollout %s -o yaml%s", program, v.Name, namespaceFlag)))
	}
	if task != "" {
		fmt.Fprintf(w, "  logs: %s logs %s%s\n", program, task, namespaceFlag)
	}
}

// writeNext prints the commands that the phase suggests.
func (v rolloutView) writeNext(w io.Writer, program, namespaceFlag string) {
	line := func(what, verb, args string) {
		fmt.Fprintf(w, "  %s: %s rollout %s %s%s\n", what, program, verb, args, namespaceFlag)
	}
	switch actions.NextRolloutPhase(v.Rollout) {
	case robotv1.RolloutWaitingForApproval:
		for i := range v.Spec.Waves {
			if rollout.StateOfWave(v.Rollout, i) == rollout.WaveNeedsApproval {
				line("approve it", "approve", v.Name+" "+v.Spec.Waves[i].Name)
				break
			}
		}
	case robotv1.RolloutPaused:
		line("resume it", "resume", v.Name)
	case robotv1.RolloutAborted:
		line("revert it", "revert", v.Name)
		start := v.Spec.Target.Name
		if v.Spec.Target.IsAgent() {
			start = "--agent MANIFEST=URL"
		}
		line("start a new one", "start", start)
	}
}

// lines returns the head and the waves for a terminal.
func (v rolloutView) lines() [][]span {
	var text bytes.Buffer
	v.writeTo(&text)
	var lines [][]span
	for line := range strings.Lines(text.String()) {
		lines = append(lines, []span{{text: strings.TrimRight(line, "\n")}})
	}
	lines[0][0].color = phaseColor(actions.RolloutPhase(v.Rollout))
	return lines
}

func phaseColor(phase string) string {
	switch phase {
	case robotv1.RolloutComplete:
		return green
	case robotv1.RolloutAborted, robotv1.RolloutReverting, robotv1.RolloutReverted:
		return red
	case robotv1.RolloutPaused, robotv1.RolloutWaitingForApproval, robotv1.RolloutSuperseded:
		return yellow
	}
	return cyan
}

// fitLines keeps the lines that fit the terminal.
func fitLines(lines [][]span, room int) [][]span {
	if len(lines) <= room || room < 2 {
		return lines[:min(len(lines), max(1, room))]
	}
	return append(slices.Clone(lines[:room-1]), []span{{text: fmt.Sprintf("… %d lines more", len(lines)-room+1)}})
}
