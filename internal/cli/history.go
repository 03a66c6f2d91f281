package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"k8s4r.io/k8s4r/internal/protocol/actionlog"
	logquery "k8s4r.io/k8s4r/internal/protocol/logs/query"
)

type historyOptions struct {
	conn          connection
	who           bool
	task          string
	job           string
	attempt       int32
	user          string
	since         string
	limit         int
	output        string
	server        string
	allNamespaces bool

	query actionlog.Query
}

// historyKinds are the kinds whose actions are recorded, by the names that users type.
var historyKinds = []struct {
	kind  string
	names []string
}{
	{"Job", []string{"job", "jobs", "rjob"}},
	{"TaskGroup", []string{"group", "groups", "taskgroup", "taskgroups", "rtg"}},
	{"Task", []string{"task", "tasks", "rtask"}},
	{"Robot", []string{"robot", "robots", "rb"}},
	{"JobFlow", []string{"flow", "flows", "jobflow", "jobflows", "jf"}},
	{"CronJobFlow", []string{"cronjobflow", "cronjobflows", "cjf"}},
	{"VCJob", []string{"vcjob", "vcjobs", "vj"}},
	{"RayCluster", []string{"raycluster", "rayclusters"}},
}

func historyCommand(d *deps) *cobra.Command {
	var o historyOptions
	cmd := &cobra.Command{
		Use:   "history {TASK | --job JOB | --who [KIND [NAME]]}",
		Short: "Show the runs of a task, or who did what to Jobs, workflows and robots",
		Long: `Lists the runs of a task's last attempt, or of each task of a Job: how often its robot has
started it, and how each run ended. Runs that the robot made without contact are listed
once it is connected again, with a line that shows when it was out of contact.

With --who it lists from the archive which user created, changed or deleted objects, and
what each request asked for, the last first. It covers one object, a kind or a namespace,
also after the objects were deleted. You see the kinds that you may list. Actions of
K8s4r's own programs are not recorded.`,
		Example:           "  " + d.program + " history demo-inspect-3-main\n  " + d.program + " history --job demo --limit 1000 -o json\n  " + d.program + " history --who job demo\n  " + d.program + " history --who --user anna --since 24h -A\n  " + d.program + " history --who robot rover-1 -o json",
		Args:              checkArgs(cobra.MaximumNArgs(2)),
		ValidArgsFunction: d.completeNames(&o.conn, taskKind, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parseArgs(args, d.now()); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runHistory(cmd.Context(), d, c) })
		},
	}
	o.addFlags(cmd.Flags())
	completeFlag(cmd, "output", outputJSON)
	_ = cmd.RegisterFlagCompletionFunc("job", d.completeNames(&o.conn, jobKind, anyNumber))
	return cmd
}

func (o *historyOptions) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.who, "who", false, "list the actions of users")
	f.StringVar(&o.job, "job", "", "list the runs of all tasks of this Job, instead of one task")
	f.Int32Var(&o.attempt, "attempt", 0, "attempt of the task; defaults to the last one")
	f.StringVar(&o.user, "user", "", "with --who, list only actions of this user")
	f.StringVar(&o.since, "since", "", "with --who, list only newer actions: a duration such as 24h, or a time such as 2026-11-21T17:00:00Z")
	f.IntVar(&o.limit, "limit", 100, "maximum number of actions, or of runs of a task, to list")
	f.StringVarP(&o.output, "output", "o", "", "output format: json; defaults to a table")
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "with --who, list actions in all namespaces")
	f.StringVar(&o.server, "logs-server", "", "URL of k8s4r-server; defaults to its published address")
	o.conn.addFlags(f)
}

// maxHistory bounds the actions, or the runs of a task, that one command lists.
const maxHistory = 100_000

func (o *historyOptions) parseArgs(args []string, now time.Time) error {
	if o.limit < 1 || o.limit > maxHistory {
		return usagef("--limit=%d: must be from 1 to %d", o.limit, maxHistory)
	}
	if err := checkFormat(o.output, outputJSON); err != nil {
		return &usageError{err: err}
	}
	if o.who {
		return o.parseActionArgs(args, now)
	}
	return o.parseRunArgs(args)
}

// parseActionArgs parses [KIND [NAME]] and KIND/NAME.
func (o *historyOptions) parseActionArgs(args []string, now time.Time) (err error) {
	if o.job != "" || o.attempt != 0 {
		return usagef("history: --who cannot be combined with --job and --attempt")
	}
	if len(args) == 1 {
		if kind, name, found := strings.Cut(args[0], "/"); found {
			args = []string{kind, name}
		}
	}
	o.query = actionlog.Query{User: o.user}
	if len(args) > 0 {
		if o.query.Kind, err = parseHistoryKind(args[0]); err != nil {
			return err
		}
	}
	if len(args) > 1 {
		o.query.Name = args[1]
	}
	if o.since != "" {
		if o.query.Since, err = logquery.ParseSince(o.since, now); err != nil {
			return usagef("--since=%s: %w", o.since, err)
		}
	}
	if o.query.Name != "" && o.allNamespaces {
		return usagef("history: a name cannot be combined with --all-namespaces")
	}
	return nil
}

func parseHistoryKind(name string) (string, error) {
	var all []string
	for _, k := range historyKinds {
		if slices.Contains(k.names, strings.ToLower(name)) {
			return k.kind, nil
		}
		all = append(all, k.names[0])
	}
	return "", usagef("unknown type %q: must be %s", name, strings.Join(all, ", "))
}

func (o *historyOptions) runHistory(ctx context.Context, d *deps, c *cluster) error {
	if o.who {
		return o.listActions(ctx, d, c)
	}
	return o.listRuns(ctx, d, c)
}

func (o *historyOptions) listActions(ctx context.Context, d *deps, c *cluster) error {
	if !o.allNamespaces {
		o.query.Namespace = c.namespace
	}
	all, more, err := o.readActions(ctx, c)
	if err != nil {
		return wrapError(err, "read the history")
	}
	if o.output == outputJSON {
		return encodeObject(d.Out, outputJSON, map[string]any{"items": all})
	}
	if len(all) == 0 {
		fmt.Fprintln(d.Err, "no actions found")
		return nil
	}
	printActions(d, all, o.allNamespaces)
	if more {
		fmt.Fprintf(d.Err, "there are older actions; list them with --limit=%d\n", min(10*o.limit, maxHistory))
	}
	return nil
}

// readActions reads pages up to the limit.
func (o *historyOptions) readActions(ctx context.Context, c *cluster) (all []actionlog.Action, more bool, err error) {
	all = []actionlog.Action{}
	for q := o.query; ; {
		q.Limit = min(o.limit-len(all), actionlog.MaxLimit)
		p, err := c.actions(ctx, o.server, q)
		if err != nil {
			return nil, false, err
		}
		all = append(all, p.Items...)
		if q.Continue = p.Continue; q.Continue == "" || len(all) >= o.limit {
			return all, q.Continue != "", nil
		}
	}
}

func printActions(d *deps, all []actionlog.Action, withNamespace bool) {
	t := table{header: []string{"TIME", "USER", "ACTION", "OBJECT", "RESULT"}}
	for _, a := range all {
		user := a.User
		if a.Impersonator != "" && a.Impersonator != a.User {
			user += " (by " + a.Impersonator + ")"
		}
		object := strings.ToLower(a.Kind) + "/" + cmp.Or(a.Name, "*")
		if withNamespace {
			object = a.Namespace + " " + object
		}
		t.addRow(a.Time.UTC().Format(time.RFC3339), user, a.Action, object, describeCode(a.Code))
	}
	t.writeTo(d.Out)
}

// describeCode returns the result of a request by the HTTP status of its answer.
func describeCode(code int) string {
	if code >= 400 {
		return "refused (" + strconv.Itoa(code) + ")"
	}
	return "done"
}
