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
)

const (
	// longPending is how long a task may be pending before status warns about it.
	longPending = time.Minute
	// maxComplaints bounds the number of warnings of one sort.
	maxComplaints = 10
)

func statusCommand(d *deps) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show on one page what is there and what looks wrong",
		Long: `Shows the API server, the kinds, robots by phase, jobs and tasks by state, and
what looks wrong: robots out of contact, and tasks that have waited for more
than a minute, with the reason. It looks at all namespaces, or at the one that
--namespace names.`,
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
		return fmt.Errorf("this cluster does not know the kinds %s: `k8s4r doctor` says how they come there", strings.Join(missing, ", "))
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
	if o.jobs, err = listTyped[*robotv1.Job](ctx, c, jobKind, in); err != nil {
		return o, err
	}
	o.tasks, err = listTyped[*robotv1.Task](ctx, c, taskKind, in)
	return o, err
}

func listTyped[T client.Object](ctx context.Context, c client.Reader, k kind, opts ...client.ListOption) ([]T, error) {
	objects, err := listOf(ctx, c, k, opts...)
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
	fmt.Fprintf(&b, "Robots      %s\n", countByWord(o.robots, toStrings(lifecycle.RobotPhases), func(r *robotv1.Robot) string { return string(robotPhase(r)) }))
	fmt.Fprintf(&b, "Jobs        %s\n", countByWord(o.jobs, toStrings(lifecycle.JobStates), jobWord))
	fmt.Fprintf(&b, "Tasks       %s\n\n", countByWord(o.tasks, toStrings(lifecycle.TaskStates), taskState))
	wrong := slices.Concat(limitLines(o.robotComplaints(now)), limitLines(o.taskComplaints(now)))
	if len(wrong) == 0 {
		b.WriteString("Nothing looks wrong.\n")
		return b.String()
	}
	b.WriteString("What looks wrong:\n")
	for _, line := range wrong {
		fmt.Fprintf(&b, "  %s\n", stripControl(line))
	}
	return b.String()
}

func jobWord(j *robotv1.Job) string { return cmp.Or(j.Status.State, explain.NoState) }

func robotPhase(r *robotv1.Robot) lifecycle.RobotPhase {
	return lifecycle.ParseRobotPhase(r.Status.Phase)
}

func toStrings[S ~string](states []S) []string {
	out := make([]string, 0, len(states)+1)
	for _, s := range states {
		out = append(out, string(s))
	}
	return append(out, explain.NoState)
}

// countByWord counts the items by a property, in the given order.
func countByWord[T any](items []T, order []string, word func(T) string) string {
	counts := map[string]int{}
	for _, item := range items {
		counts[word(item)]++
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

func (o overview) robotComplaints(now time.Time) []string {
	var out []string
	if len(o.robots) == 0 && len(o.tasks) > 0 {
		out = append(out, "there are no robots to run the tasks")
	}
	for _, r := range o.robots {
		if p := robotPhase(r); p != lifecycle.RobotOnline {
			out = append(out, fmt.Sprintf("robot %s is %s, %s%s", r.Name, p, lastSeen(r, now), capitalizeAfterColon(r.Status.Message)))
			continue
		}
		if c := meta.FindStatusCondition(r.Status.Conditions, robotv1.ConditionResponsive); c != nil && c.Status == metav1.ConditionFalse {
			out = append(out, fmt.Sprintf("robot %s does not answer what is dispatched to it%s", r.Name, capitalizeAfterColon(c.Message)))
		}
	}
	return out
}

func lastSeen(r *robotv1.Robot, now time.Time) string {
	if r.Status.LastHeartbeatTime == nil {
		return "never heard of"
	}
	return "last heard of " + sinceText(r.Status.LastHeartbeatTime, now) + " ago"
}

func capitalizeAfterColon(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

func (o overview) taskComplaints(now time.Time) []string {
	var out []string
	for _, t := range o.tasks {
		waits := now.Sub(waitingSince(t))
		if lifecycle.TaskState(t.Status.State).IsPlaceable() && waits > longPending {
			out = append(out, fmt.Sprintf("task %s/%s has waited for a robot for %s%s", t.Namespace, t.Name, duration.HumanDuration(waits), capitalizeAfterColon(explain.NoRobotText(t))))
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

// limitLines shortens a long list of warnings and adds the number of omitted ones.
func limitLines(lines []string) []string {
	if len(lines) <= maxComplaints {
		return lines
	}
	return append(lines[:maxComplaints:maxComplaints], fmt.Sprintf("and %d more like this", len(lines)-maxComplaints))
}
