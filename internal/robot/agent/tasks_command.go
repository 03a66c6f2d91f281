package agent

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/localapi"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

const tasksUsage = `Usage: k8s4r-agent tasks [flags]

Lists the tasks of this robot. It needs no network. Root, the agent's user and the
members of the agent's localGroup may use it.

`

// tasksCommand prints the tasks of the running agent.
func tasksCommand(args []string, stdout, stderr io.Writer) int {
	c := newLocalCommand("k8s4r-agent tasks", tasksUsage)
	output := c.String(outputFlag, "text", "`format` of the output: text or json")
	err := c.parseLocal(args, stdout)
	switch {
	case err != nil:
	case len(c.args) > 0:
		err = fmt.Errorf("unexpected argument %q", c.args[0])
	case *output != "text" && *output != "json":
		err = fmt.Errorf("-%s %q must be text or json", outputFlag, *output)
	}
	if err != nil {
		return exitForError(err, stdout, stderr)
	}
	all, err := c.client().ListTasks(context.Background())
	if err != nil {
		return failCommand(stderr, err)
	}
	if *output == "json" {
		writeJSON(stdout, all)
	} else {
		writeLocalTasks(stdout, all, time.Now())
	}
	return exitOK
}

// failCommand prints why a command has failed, and returns the exit status.
func failCommand(stderr io.Writer, err error) int {
	_, _ = fmt.Fprintln(stderr, "k8s4r-agent:", oneLine(err))
	return exitFailed
}

func writeLocalTasks(w io.Writer, all localapi.Tasks, now time.Time) {
	if m := all.Maintenance; m != nil {
		fmt.Fprintf(w, "Maintenance %s\n\n", describeMaintenance(m))
	}
	for _, hold := range all.Holds {
		fmt.Fprintf(w, "Hold of %s\n", describeHold(hold))
	}
	if len(all.Holds) > 0 {
		fmt.Fprintln(w)
	}
	if len(all.Tasks) == 0 {
		fmt.Fprintln(w, "No tasks.")
		return
	}
	table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	defer table.Flush()
	fmt.Fprintln(table, "TASK\tJOB\tSTATE\tRUN\tRESTARTS\tSINCE\tNEXT RUN\tREASON")
	slices.SortStableFunc(all.Tasks, func(a, b runner.LiveTask) int { return cmp.Compare(a.FullName(), b.FullName()) })
	for _, t := range all.Tasks {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", t.FullName(), cmp.Or(t.Job, "-"), t.State, formatRun(t), t.Restarts,
			formatSince(now, t.Since), formatUntil(now, t.NextRunAt), cmp.Or(t.Reason, "-"))
	}
}

// describeMaintenance returns since when there is a maintenance, by the clock of the robot, who began it and why.
func describeMaintenance(m *wire.Maintenance) string {
	return fmt.Sprintf("since %s, by %s: %s", m.Since.Local().Format("2006-01-02 15:04:05 MST"), m.By, m.Reason)
}

// describeHold returns what is held, since when by the clock of the robot, by whom and why.
func describeHold(h wire.Hold) string {
	target := "the robot"
	if h.UID != "" {
		target = h.Namespace + "/" + h.Name
	}
	return fmt.Sprintf("%s, since %s, by %s: %s", target, h.Since.Local().Format("2006-01-02 15:04:05 MST"), h.By, h.Reason)
}

// formatRun returns the number of the run, or "-" if the agent does not count them.
func formatRun(t runner.LiveTask) string {
	if t.Run == 0 {
		return "-"
	}
	return strconv.FormatInt(t.Run, 10)
}

// formatSince returns how long ago a time was, or "-" if there is none.
func formatSince(now time.Time, t *time.Time) string {
	if t == nil {
		return "-"
	}
	return formatAge(now, t)
}

// formatUntil returns how long it is until a time, such as "in 5s", or "-" if there is none.
func formatUntil(now time.Time, t *time.Time) string {
	switch {
	case t == nil:
		return "-"
	case !t.After(now):
		return "now"
	}
	return "in " + formatAge(*t, &now)
}
