package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// Orders of top.
const (
	sortByCPU    = "cpu"
	sortByMemory = "memory"
)

type topOptions struct {
	conn          connection
	selector      string
	sortBy        string
	output        string
	allNamespaces bool
}

func topCommand(d *deps) *cobra.Command {
	return nounCommand("top", "Display the CPU and memory usage of robots and tasks", topRobotsCommand(d), topTasksCommand(d))
}

func topRobotsCommand(d *deps) *cobra.Command {
	return newTopCommand(d, &cobra.Command{
		Use:     "robots",
		Aliases: []string{"robot", "rb"},
		Short:   "Display the CPU and memory usage of robots",
		Long: `Displays what the agents have reported. An agent measures its whole robot when it
connects and when its devices change: REPORTED is how long ago that was. TASKS,
TASKCPU and TASKMEMORY add up what it reports with its heartbeats about the running
tasks of the same namespaces. <unknown> means that nothing was reported. Nothing is
measured for this command.`,
		Example: "  " + d.program + " top robots\n  " + d.program + " top robots -A --sort-by memory -o wide",
	}, listRobotUsage)
}

func topTasksCommand(d *deps) *cobra.Command {
	return newTopCommand(d, &cobra.Command{
		Use:     "tasks",
		Aliases: []string{"task", "rtask"},
		Short:   "Display the CPU and memory usage of running tasks",
		Long: `Displays what the agents have reported about running tasks with their last
heartbeats, beside what the tasks request. <unknown> means that nothing was
reported: a task has just started, or its agent does not measure tasks.`,
		Example: "  " + d.program + " top tasks\n  " + d.program + " top tasks -l job=demo --sort-by cpu",
	}, listTaskUsage)
}

// usageLister returns the rows of a table of usage.
type usageLister func(ctx context.Context, d *deps, c *cluster, opts, selected []client.ListOption) (header []string, rows []usageRow, err error)

func newTopCommand(d *deps, cmd *cobra.Command, list usageLister) *cobra.Command {
	o := &topOptions{}
	cmd.Args = checkArgs(cobra.NoArgs)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		selected, err := o.parseOptions()
		if err != nil {
			return err
		}
		return d.withCluster(&o.conn, func(c *cluster) error { return o.runTop(cmd.Context(), d, c, selected, list) })
	}
	f := cmd.Flags()
	f.StringVarP(&o.selector, "selector", "l", "", "label selector, such as job=demo")
	f.StringVar(&o.sortBy, "sort-by", "", "order by cpu or memory, the largest first; defaults to the name")
	f.StringVarP(&o.output, "output", "o", "", "output format: wide; defaults to a table")
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "list objects in all namespaces")
	o.conn.addFlags(f)
	completeFlag(cmd, "sort-by", sortByCPU, sortByMemory)
	completeFlag(cmd, "output", outputWide)
	return cmd
}

// parseOptions validates the options and returns those that select objects by label.
func (o *topOptions) parseOptions() ([]client.ListOption, error) {
	if err := checkFormat(o.output, outputWide); err != nil {
		return nil, &usageError{err: err}
	}
	if o.sortBy != "" && o.sortBy != sortByCPU && o.sortBy != sortByMemory {
		return nil, usagef("--sort-by=%s: must be %s or %s", o.sortBy, sortByCPU, sortByMemory)
	}
	selector, err := parseSelector(o.selector)
	if err != nil {
		return nil, err
	}
	return []client.ListOption{client.MatchingLabelsSelector{Selector: selector}}, nil
}

func (o *topOptions) runTop(ctx context.Context, d *deps, c *cluster, selected []client.ListOption, list usageLister) error {
	var opts []client.ListOption
	if !o.allNamespaces {
		opts = append(opts, client.InNamespace(c.namespace))
	}
	header, rows, err := list(ctx, d, c, opts, selected)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		scope := getOptions{allNamespaces: o.allNamespaces}
		fmt.Fprintf(d.Err, "no usage to display in %s\n", scope.describeScope(c))
		return nil
	}
	o.sortRows(rows)
	g := getOptions{allNamespaces: o.allNamespaces, output: o.output}
	t := table{header: g.newRow("NAMESPACE", "NAME", header, []string{"CPUREQUEST", "MEMORYREQUEST"})}
	for _, r := range rows {
		t.addRow(g.newRow(r.namespace, r.name, r.cells, []string{formatRequest(r.requested.cores, formatCores), formatRequest(r.requested.bytes, formatMebibytes)})...)
	}
	t.writeTo(d.Out)
	return nil
}

func (o *topOptions) sortRows(rows []usageRow) {
	key := func(r usageRow) float64 {
		switch o.sortBy {
		case sortByCPU:
			return r.used.cores
		case sortByMemory:
			return r.used.bytes
		}
		return 0
	}
	slices.SortStableFunc(rows, func(a, b usageRow) int { return cmp.Compare(key(b), key(a)) })
}

// usage is an amount of CPU and memory.
type usage struct{ cores, bytes float64 }

func (u *usage) add(more usage) { u.cores, u.bytes = u.cores+more.cores, u.bytes+more.bytes }

// usageRow is the usage of one robot or task.
type usageRow struct {
	namespace, name string
	cells           []string
	used            usage // by which rows are sorted; zero if unknown
	requested       usage // zero: nothing is requested
}

const unknownUsage = "<unknown>"

// taskUsage returns what the agent last reported about a running task.
func taskUsage(t *robotv1.Task) (u usage, known bool) {
	if r := t.Status.Resources; r != nil {
		return usage{r.CPUPercent / 100, float64(r.MemoryBytes)}, true
	}
	return usage{}, false
}

func taskRequest(t *robotv1.Task) (u usage) {
	if r := t.Spec.Resources; r != nil {
		return usage{quantityValue(r.CPU), quantityValue(r.Memory)}
	}
	return usage{}
}

func quantityValue(q *resource.Quantity) float64 {
	if q == nil {
		return 0
	}
	return q.AsApproximateFloat64()
}

// listRunningTasks returns the running tasks, sorted by namespace and name.
func listRunningTasks(ctx context.Context, c *cluster, opts ...client.ListOption) ([]*robotv1.Task, error) {
	objects, err := listObjects(ctx, c, taskKind, opts...)
	if err != nil {
		return nil, err
	}
	var tasks []*robotv1.Task
	for _, o := range objects {
		if t := o.(*robotv1.Task); lifecycle.TaskState(t.Status.State) == lifecycle.TaskRunning {
			tasks = append(tasks, t)
		}
	}
	return tasks, nil
}

func listTaskUsage(ctx context.Context, _ *deps, c *cluster, opts, selected []client.ListOption) (header []string, rows []usageRow, err error) {
	tasks, err := listRunningTasks(ctx, c, slices.Concat(opts, selected)...)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range tasks {
		used, known := taskUsage(t)
		cells := []string{orDash(t.Spec.TargetRobot), unknownUsage, unknownUsage}
		if known {
			cells[1], cells[2] = formatCores(used.cores), formatMebibytes(used.bytes)
		}
		rows = append(rows, usageRow{t.Namespace, t.Name, cells, used, taskRequest(t)})
	}
	return []string{"ROBOT", "CPU(cores)", "MEMORY(bytes)"}, rows, nil
}

func listRobotUsage(ctx context.Context, d *deps, c *cluster, opts, selected []client.ListOption) (header []string, rows []usageRow, err error) {
	robots, err := listObjects(ctx, c, robotKind, slices.Concat(opts, selected)...)
	if err != nil {
		return nil, nil, err
	}
	tasks, err := listRunningTasks(ctx, c, opts...)
	if err != nil {
		return nil, nil, err
	}
	byRobot := map[client.ObjectKey][]*robotv1.Task{}
	for _, t := range tasks {
		key := client.ObjectKey{Namespace: t.NamespaceOfRobot(t.Status.Attempt), Name: t.Spec.TargetRobot}
		byRobot[key] = append(byRobot[key], t)
	}
	for _, o := range robots {
		rows = append(rows, robotUsageRow(o.(*robotv1.Robot), byRobot[client.ObjectKeyFromObject(o)], d.now()))
	}
	return []string{"CPU(cores)", "CPU%", "MEMORY(bytes)", "MEMORY%", "REPORTED", "TASKS", "TASKCPU", "TASKMEMORY"}, rows, nil
}

func robotUsageRow(r *robotv1.Robot, tasks []*robotv1.Task, now time.Time) usageRow {
	row := usageRow{namespace: r.Namespace, name: r.Name}
	row.cells, row.used = deviceCells(r.Status.DeviceInfo, now)
	var ofTasks usage
	measured := 0
	for _, t := range tasks {
		if u, known := taskUsage(t); known {
			ofTasks.add(u)
			measured++
		}
		row.requested.add(taskRequest(t))
	}
	cpu, memory := formatCores(ofTasks.cores), formatMebibytes(ofTasks.bytes)
	if measured < len(tasks) { // a sum of only some tasks would be wrong
		cpu, memory = unknownUsage, unknownUsage
	}
	row.cells = append(row.cells, fmt.Sprint(len(tasks)), cpu, memory)
	return row
}

// deviceCells returns what the agent measured of its whole robot, and when.
func deviceCells(info *robotv1.DeviceInfo, now time.Time) (cells []string, used usage) {
	cells = []string{unknownUsage, unknownUsage, unknownUsage, unknownUsage, unknownUsage}
	if info == nil {
		return cells, used
	}
	if c := info.CPU; c != nil && c.LogicalCores > 0 {
		used.cores = c.UsagePercent / 100 * float64(c.LogicalCores)
		cells[0], cells[1] = formatCores(used.cores), formatPercent(c.UsagePercent)
	}
	if m := info.Memory; m != nil && m.Total > 0 {
		used.bytes = float64(m.Used)
		cells[2], cells[3] = formatMebibytes(used.bytes), formatPercent(m.UsagePercent)
	}
	if info.LastUpdated != nil {
		cells[4] = formatSince(info.LastUpdated.Time, now) + " ago"
	}
	return cells, used
}

func formatCores(n float64) string     { return fmt.Sprintf("%.0fm", math.Ceil(n*1000)) }
func formatMebibytes(n float64) string { return fmt.Sprintf("%.0fMi", n/(1<<20)) }
func formatPercent(n float64) string   { return fmt.Sprintf("%.0f%%", n) }

func formatRequest(n float64, format func(float64) string) string {
	if n == 0 {
		return "-"
	}
	return format(n)
}
