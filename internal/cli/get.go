package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

type getOptions struct {
	conn          connection
	output        string
	selector      string
	allNamespaces bool
	job           string
	index         indexSelector

	kinds  []kind
	names  []string
	labels labels.Selector
}

func getCommand(d *deps) *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:   "get [TYPE [NAME...]]",
		Short: "Display Jobs, tasks, robots, rollouts, flows, Ray clusters and Pods",
		Long: `Lists objects, or displays the named ones. TYPE is one of
  ` + strings.Join(getTypes, ", ") + `.
Without a type, it lists all types but Pods. A named Job is displayed as a tree:
the Job, its task groups, and each task with its robot and exit code. The ranges of
an array are summarized unless the output is wide. A unique prefix of a name is
accepted.

With --job and --index it displays indexes of an array as tasks. An index without a
Task of its own is displayed with what its range knows; no such object exists.`,
		Example: "  " + d.program + " get\n  " + d.program + " get jobs\n  " + d.program + " get job demo\n  " + d.program + " get tasks -l job=demo -o wide\n  " +
			d.program + " get tasks --job demo --index 17\n  " + d.program + " get flows -A\n  " + d.program + " get pods -l ray.io/cluster=demo",
		ValidArgsFunction: d.completeGet(&o.conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parseArgs(args); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runGet(cmd.Context(), d, c) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "", "output format: json, yaml, wide or name; defaults to a table")
	f.StringVarP(&o.selector, "selector", "l", "", "label selector, such as job=demo")
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "list objects in all namespaces")
	f.StringVar(&o.job, "job", "", "list only the tasks of this Job")
	o.index.addFlags(f, "indexes of an array to display, such as 17 or 10-19; requires --job")
	o.conn.addFlags(f)
	completeFlag(cmd, "output", outputJSON, outputYAML, outputWide, outputName)
	completeWith(cmd, "job", d.completeNames(&o.conn, jobKind, anyNumber))
	return cmd
}

// parseArgs parses [TYPE [NAME...]] and TYPE/NAME.
func (o *getOptions) parseArgs(args []string) error {
	if len(args) == 0 {
		args = []string{"all"}
	}
	typ := args[0]
	o.names = args[1:]
	if prefix, _, found := strings.Cut(typ, "/"); found {
		typ, o.names = prefix, args
	}
	if err := o.parseType(typ); err != nil {
		return err
	}
	names, err := bareNames(o.kinds[0], o.names)
	if err != nil {
		return err
	}
	o.names = names
	if o.labels, err = parseSelector(o.selector); err != nil {
		return err
	}
	if err := checkFormat(o.output, outputJSON, outputYAML, outputWide, outputName); err != nil {
		return &usageError{err: err}
	}
	if len(o.names) > 0 && (o.allNamespaces || o.selector != "") {
		return usagef("get: names cannot be combined with --all-namespaces or --selector")
	}
	return o.parseJob()
}

// maxIndexes bounds the indexes that one command displays.
const maxIndexes = 1000

// parseJob validates --job and --index.
func (o *getOptions) parseJob() (err error) {
	switch {
	case o.job != "" && (len(o.kinds) > 1 || !o.kinds[0].isSame(taskKind)):
		return usagef("--job: only tasks can be listed by their Job")
	case o.job != "" && (len(o.names) > 0 || o.allNamespaces || o.selector != ""):
		return usagef("--job: cannot be combined with names, --all-namespaces or --selector")
	case o.index.isSet() && o.job == "":
		return usagef("--index: requires --job")
	}
	if o.job, err = jobKind.bareName(o.job); err != nil {
		return err
	}
	return o.index.parse(maxIndexes)
}

func parseSelector(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, usagef("--selector=%s: %w", text, err)
	}
	return selector, nil
}

func (o *getOptions) parseType(typ string) error {
	if typ == "all" {
		o.kinds = categoryKinds
		if len(o.names) > 0 {
			return usagef("get all: does not accept names")
		}
		return nil
	}
	k, err := findKind(typ)
	o.kinds = []kind{k}
	return err
}

// objectSet is objects of one kind.
type objectSet struct {
	kind    kind
	objects []client.Object
}

func (o *getOptions) runGet(ctx context.Context, d *deps, c *cluster) error {
	sets, err := o.readSets(ctx, c)
	if err != nil && len(sets) == 0 {
		return err
	}
	return errors.Join(o.printSets(ctx, d, c, sets), err)
}

func (o *getOptions) printSets(ctx context.Context, d *deps, c *cluster, sets []objectSet) error {
	switch {
	case o.output == outputName || o.isStructured() && !o.hasOneObject(sets):
		return writeList(d.Out, o.output, sets)
	case o.isStructured():
		return writeObject(d.Out, o.output, sets[0].kind, sets[0].objects[0])
	case len(o.names) > 0 && o.kinds[0].isSame(jobKind):
		return o.printTrees(ctx, d, c, sets[0].objects)
	}
	advanceHeartbeats(ctx, c, robotsIn(sets))
	o.printTables(d, c, sets)
	return nil
}

// hasOneObject reports whether the user asked for one object, not for a list.
func (o *getOptions) hasOneObject(sets []objectSet) bool {
	return (len(o.names) == 1 || o.index.indexes.Len() == 1) && len(sets[0].objects) == 1
}

func (o *getOptions) isStructured() bool { return o.output == outputJSON || o.output == outputYAML }

// readSets reads the objects. Of several kinds it also returns those that it could read, with the
// errors of the others.
func (o *getOptions) readSets(ctx context.Context, c *cluster) ([]objectSet, error) {
	if len(o.names) > 0 {
		objects, err := o.readNamed(ctx, c)
		if err != nil {
			return nil, err
		}
		return []objectSet{{o.kinds[0], objects}}, nil
	}
	if o.job != "" {
		objects, err := o.readTasksOfJob(ctx, c)
		if err != nil {
			return nil, err
		}
		return []objectSet{{taskKind, objects}}, nil
	}
	opts := []client.ListOption{client.MatchingLabelsSelector{Selector: o.labels}}
	if !o.allNamespaces {
		opts = append(opts, client.InNamespace(c.namespace))
	}
	var sets []objectSet
	var errs []error
	for _, k := range o.kinds {
		objects, err := listObjects(ctx, c, k, opts...)
		switch {
		case err == nil:
			sets = append(sets, objectSet{k, objects})
		case len(o.kinds) > 1 && isMissingKind(err) && k.isOptional():
		case len(o.kinds) > 1 && apierrors.IsForbidden(err):
			errs = append(errs, err)
		default:
			return nil, err
		}
	}
	return sets, errors.Join(errs...)
}

// readTasksOfJob returns the tasks of a Job, or the selected indexes of its array.
func (o *getOptions) readTasksOfJob(ctx context.Context, c *cluster) ([]client.Object, error) {
	found, err := resolveName(ctx, c, jobKind, o.job)
	if err != nil {
		return nil, err
	}
	job := found.(*robotv1.Job)
	if o.index.isSet() {
		views, err := o.index.findIndexes(ctx, c, job)
		return renderIndexes(job, views), err
	}
	tasks, err := listTasks(ctx, c, job)
	objects := make([]client.Object, len(tasks))
	for i, t := range tasks {
		objects[i] = t
	}
	return objects, err
}

func (o *getOptions) readNamed(ctx context.Context, c *cluster) ([]client.Object, error) {
	var objects []client.Object
	for _, name := range o.names {
		object, err := resolveName(ctx, c, o.kinds[0], name)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// printTables prints one table for each kind that has objects.
func (o *getOptions) printTables(d *deps, c *cluster, sets []objectSet) {
	sets = slices.DeleteFunc(sets, func(s objectSet) bool { return len(s.objects) == 0 })
	if len(sets) == 0 {
		fmt.Fprintf(d.Err, "no objects found in %s\n", o.describeScope(c))
	}
	for i, set := range sets {
		if i > 0 {
			fmt.Fprintln(d.Out)
		}
		t := o.newTable(set, d.now())
		t.writeTo(d.Out)
	}
}

func (o *getOptions) describeScope(c *cluster) string {
	if o.allNamespaces {
		return "any namespace"
	}
	return "namespace " + c.namespace
}

func (o *getOptions) newTable(set objectSet, now time.Time) *table {
	columns := columnsOf[set.kind.resourceName()]
	t := &table{header: o.newRow("NAMESPACE", "NAME", columns.header, columns.wideHeader)}
	for _, object := range set.objects {
		name := object.GetName()
		if len(o.kinds) > 1 {
			name = set.kind.formatRef(name)
		}
		cells, wide := columns.cells(object, now)
		t.addRow(o.newRow(object.GetNamespace(), name, cells, wide)...)
	}
	return t
}

func (o *getOptions) newRow(namespace, name string, cells, wide []string) []string {
	row := append([]string{name}, cells...)
	if o.allNamespaces {
		row = append([]string{namespace}, row...)
	}
	if o.output == outputWide {
		row = append(row, wide...)
	}
	return row
}

func formatCount(n int32) string { return fmt.Sprint(n) }

func ageText(o client.Object, now time.Time) string {
	return formatSince(o.GetCreationTimestamp().Time, now)
}

func formatSince(t, now time.Time) string { return duration.HumanDuration(max(0, now.Sub(t))) }

func sinceText(t *metav1.MicroTime, now time.Time) string {
	if t == nil {
		return "never"
	}
	return formatSince(t.Time, now)
}
