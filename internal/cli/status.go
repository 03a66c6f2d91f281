package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/explain"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

const (
	// longPending is how long a task may be pending before status lists it as a problem.
	longPending = time.Minute
	// maxProblems bounds the number of listed problems of one kind.
	maxProblems = 10
)

func statusCommand(d *deps) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Display a summary of the cluster and its problems",
		Long: `Displays the API server, robots by phase, and jobs and tasks by state. Problems
are listed below: disconnected robots, tasks that have been pending for more
than a minute, with the reason, tasks whose robot is about to restart them, and
ended tasks that may still be running on a robot.
It covers all namespaces, or the one that is given with --namespace.`,
		Example: "  " + d.program + " status",
		Args:    checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.withCluster(&conn, func(c *cluster) error {
				return printStatus(cmd.Context(), d, c, conn.overrides.Context.Namespace)
			})
		},
	}
	conn.addFlags(cmd.Flags())
	return cmd
}

// overview is the data of the status page.
type overview struct {
	server, version string
	kinds           []string
	robots          []*robotv1.Robot
	jobs            []*robotv1.Job
	tasks           []*robotv1.Task
}

func printStatus(ctx context.Context, d *deps, c *cluster, namespace string) error {
	o, err := readOverview(ctx, c, namespace)
	if err != nil {
		return err
	}
	fmt.Fprint(d.Out, o.renderPage(d.now()))
	if missing := o.missingKinds(); len(missing) > 0 {
		return fmt.Errorf("the kinds %s are not installed in this cluster: run `k8s4r doctor` to see how to install them", strings.Join(missing, ", "))
	}
	return nil
}

func readOverview(ctx context.Context, c *cluster, namespace string) (o overview, err error) {
	o.server = c.server
	if o.version, err = c.version(ctx); err != nil {
		return o, err
	}
	if o.kinds, err = c.kinds(ctx); err != nil || len(o.missingKinds()) > 0 {
		return o, err
	}
	in := client.InNamespace(namespace)
	if o.robots, err = listTyped[*robotv1.Robot](ctx, c, robotKind, in); err != nil {
		return o, err
	}
	advanceHeartbeats(ctx, c, o.robots)
	if o.jobs, err = listTyped[*robotv1.Job](ctx, c, jobKind, in); err != nil {
		return o, err
	}
	o.tasks, err = listTyped[*robotv1.Task](ctx, c, taskKind, in)
	return o, err
}

func listTyped[T client.Object](ctx context.Context, c client.Reader, k kind, opts ...client.ListOption) ([]T, error) {
	objects, err := listObjects(ctx, c, k, opts...)
	out := make([]T, 0, len(objects))
	for _, o := range objects {
		out = append(out, o.(T))
	}
	return out, err
}

func (o overview) missingKinds() []string {
	var missing []string
	for _, k := range kinds {
		if !slices.Contains(o.kinds, k.plural) {
			missing = append(missing, k.plural)
		}
	}
	return missing
}

// renderPage is a pure function of the overview and the time.
func (o overview) renderPage(now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "API server  %s, %s\n", o.server, o.version)
	if len(o.missingKinds()) > 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "Robots      %s\n", countBy(o.robots, statesAsStrings(lifecycle.RobotPhases), func(r *robotv1.Robot) string { return string(robotPhase(r)) }))
	fmt.Fprintf(&b, "Jobs        %s\n", countBy(o.jobs, statesAsStrings(lifecycle.JobStates), jobStateText))
	fmt.Fprintf(&b, "Tasks       %s\n\n", countBy(o.tasks, statesAsStrings(lifecycle.TaskStates), taskState))
	problems := slices.Concat(limitLines(o.robotProblems(now)), limitLines(o.taskProblems(now)))
	if len(problems) == 0 {
		b.WriteString("No problems found.\n")
		return b.String()
	}
	b.WriteString("Problems:\n")
	for _, line := range problems {
		fmt.Fprintf(&b, "  %s\n", stripControl(line))
	}
	return b.String()
}

func jobStateText(j *robotv1.Job) string { return cmp.Or(j.Status.State, explain.NoState) }

func robotPhase(r *robotv1.Robot) lifecycle.RobotPhase {
	return lifecycle.ParseRobotPhase(r.Status.Phase)
}

func statesAsStrings[S ~string](states []S) []string {
	out := make([]string, 0, len(states)+1)
	for _, s := range states {
		out = append(out, string(s))
	}
	return append(out, explain.NoState)
}

// countBy counts the items by a property, in the given order.
func countBy[T any](items []T, order []string, property func(T) string) string {
	counts := map[string]int{}
	for _, item := range items {
		counts[property(item)]++
	}
	var parts []string
	for _, w := range order {
		if counts[w] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[w], w))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func (o overview) robotProblems(now time.Time) []string {
	var out []string
	if len(o.robots) == 0 && len(o.tasks) > 0 {
		out = append(out, "no robots exist to run the tasks")
	}
	for _, r := range o.robots {
		if p := robotPhase(r); p != lifecycle.RobotOnline {
			out = append(out, fmt.Sprintf("robot %s is %s, %s%s", r.Name, p, lastSeen(r, now), explain.PrefixColon(r.Status.Message)))
			continue
		}
		if c := apiconv.Impairment(r); c != nil {
			out = append(out, fmt.Sprintf("robot %s gets no new tasks%s", r.Name, explain.PrefixColon(c.Message)))
		}
		if c := meta.FindStatusCondition(r.Status.Conditions, robotv1.ConditionHeld); c != nil && c.Status == metav1.ConditionTrue {
			out = append(out, fmt.Sprintf("robot %s has a hold%s", r.Name, explain.PrefixColon(c.Message)))
		}
	}
	return out
}

func lastSeen(r *robotv1.Robot, now time.Time) string {
	if r.Status.LastHeartbeatTime == nil {
		return "never seen"
	}
	return "last seen " + sinceText(r.Status.LastHeartbeatTime, now) + " ago"
}

func (o overview) taskProblems(now time.Time) []string {
	var out []string
	for _, t := range o.tasks {
		if next := taskstate.NextRunAt(t); next != nil && !t.Status.IsStopRequested() {
			out = append(out, fmt.Sprintf("task %s/%s restarts at %s (run %d)%s", t.Namespace, t.Name, timeText(next), taskstate.CurrentRun(t)+1, explain.PrefixColon(lastRunText(t))))
		}
		if text := explain.UnconfirmedStopText(t); text != "" {
			out = append(out, fmt.Sprintf("task %s/%s is %s, and %s", t.Namespace, t.Name, taskState(t), text))
		}
		waits := now.Sub(waitingSince(t))
		if lifecycle.TaskState(t.Status.State).IsPlaceable() && waits > longPending {
			out = append(out, fmt.Sprintf("task %s/%s has been waiting for a robot for %s%s", t.Namespace, t.Name, duration.HumanDuration(waits), explain.PrefixColon(explain.NoRobotText(t))))
		}
	}
	return out
}

func waitingSince(t *robotv1.Task) time.Time {
	if c := explain.UnplacedCondition(t); c != nil {
		return c.LastTransitionTime.Time
	}
	if end := explain.LastAttempt(t); end.FinishedAt != nil {
		return end.FinishedAt.Time
	}
	return t.CreationTimestamp.Time
}

// limitLines shortens a long list of problems and adds the number of omitted ones.
func limitLines(lines []string) []string {
	if len(lines) <= maxProblems {
		return lines
	}
	return append(lines[:maxProblems:maxProblems], fmt.Sprintf("and %d more", len(lines)-maxProblems))
}
