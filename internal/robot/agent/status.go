package agent

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
)

const statusUsage = `Usage: k8s4r-agent status [flags]

Shows the state of the agent of this robot. The exit status is 0 if the robot gets
tasks, else 1. The configuration is that of the service, /etc/k8s4r/agent.yaml,
unless --config names another file.

`

// statusCommand prints the state of the running agent.
func statusCommand(args []string, stdout, stderr io.Writer) int {
	a := newAgentQuery("k8s4r-agent status", statusUsage)
	if err := a.parseQuery(args, stdout); err != nil {
		return exitForError(err, stdout, stderr)
	}
	h, err := a.fetchHealth(context.Background())
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "k8s4r-agent:", oneLine(err))
		return exitFailed
	}
	if a.output == "json" {
		writeJSON(stdout, h)
	} else {
		writeStatus(stdout, h, time.Now())
	}
	if h.notReadyReason() != nil {
		return exitFailed
	}
	return exitOK
}

// writeStatus prints the state as text.
func writeStatus(w io.Writer, h Health, now time.Time) {
	fmt.Fprintf(w, "Robot     %s\n", h.RobotID)
	fmt.Fprintf(w, "Agent     %s, process %d, up for %s\n", h.Version, h.PID, formatAge(now, &h.StartedAt))
	writeUpdate(w, h.Update)
	writeOrder(w, h.AgentUpdate)
	fmt.Fprintf(w, "Broker    %s, %s\n", h.Broker, h.describeConnection(now))
	fmt.Fprintf(w, "Server    %s\n", describeLastAnswer(now, h.LastContact))
	fmt.Fprintf(w, "State     %s, journal %d kB, %s\n", h.StateDir, (h.JournalBytes+999)/1000, pluralize(h.ReportsPending, "report pending", "reports pending"))
	if c := h.Cache; c != nil {
		fmt.Fprintf(w, "Cache     %s of artifacts, %d of %d MB\n", pluralize(c.Files, "file", "files"), (c.Bytes+999_999)/1_000_000, c.Quota/1_000_000)
	}
	for _, what := range slices.Sorted(maps.Keys(h.Errors)) {
		fmt.Fprintf(w, "Errors    %s: %s\n", what, pluralize(h.Errors[what], "time", "times"))
	}
	if h.Maintenance != nil {
		fmt.Fprintf(w, "Maintenance %s\n", describeMaintenance(h.Maintenance))
	}
	for _, hold := range h.Holds {
		fmt.Fprintf(w, "Hold      %s\n", describeHold(hold))
	}
	if h.Problem != "" {
		fmt.Fprintf(w, "Problem   %s\n", h.Problem)
		return
	}
	fmt.Fprintf(w, "Tasks     %d\n", len(h.Tasks))
	if len(h.Tasks) > 0 {
		fmt.Fprintln(w)
		writeTasks(w, h.Tasks, now)
	}
}

// writeUpdate prints the state of the agent's own updates. A nil one prints nothing.
func writeUpdate(w io.Writer, u *slots.Status) {
	if u == nil {
		return
	}
	phase := ""
	if u.Phase == slots.Trying {
		phase = ", on trial"
	}
	fmt.Fprintf(w, "Program   %s%s\n", u.Slot, phase)
	if u.Problem != "" {
		fmt.Fprintf(w, "Update    %s\n", u.Problem)
	}
	if f := u.LastFailure; f != nil {
		fmt.Fprintf(w, "Update    version %s was given up at %s: %s\n", cmp.Or(f.Version, "unknown"), f.At.Local().Format("2006-01-02 15:04:05 MST"), f.Reason)
	}
}

// writeOrder prints what has become of the order of a Rollout. A nil one prints nothing.
func writeOrder(w io.Writer, u *wire.AgentUpdate) {
	if u == nil {
		return
	}
	change := "to"
	if u.IsRevert {
		change = "back from"
	}
	line := fmt.Sprintf("%s version %s: %s since %s", change, u.Version, u.State, u.At.Local().Format("2006-01-02 15:04:05 MST"))
	if u.Message != "" {
		line += ": " + u.Message
	}
	fmt.Fprintf(w, "Rollout   %s\n", line)
}

func (h Health) describeConnection(now time.Time) string {
	switch {
	case !h.Connected && h.Since == nil:
		return "never connected"
	case !h.Connected:
		return "no connection for " + formatAge(now, h.Since)
	case !h.Registered:
		return "connected for " + formatAge(now, h.Since) + ", not registered: the robot waits for approval, or no server is running"
	}
	return "connected for " + formatAge(now, h.Since) + ", registered"
}

func describeLastAnswer(now time.Time, t *time.Time) string {
	if t == nil {
		return "has not acknowledged a heartbeat yet"
	}
	return "last responded " + formatAge(now, t) + " ago"
}

func pluralize(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func writeTasks(w io.Writer, tasks []runner.LiveTask, now time.Time) {
	table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	defer table.Flush()
	fmt.Fprintln(table, "TASK\tATTEMPT\tDRIVER\tSTATE\tPID\tFOR\tCPU\tMEMORY\tUID")
	for _, t := range tasks {
		pid, since, cpu, memory := "-", "-", "-", "-"
		if t.PID > 0 {
			pid = strconv.Itoa(t.PID)
		}
		if t.Since != nil {
			since = formatAge(now, t.Since)
		}
		if u := t.Usage; u != nil {
			cpu, memory = fmt.Sprintf("%.1f%%", u.CPUPercent), fmt.Sprintf("%dMi", u.MemoryBytes>>20)
		}
		fmt.Fprintf(table, "%s/%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Namespace, t.Name, t.Attempt, t.Driver, t.State, pid, since, cpu, memory, t.UID)
	}
}
