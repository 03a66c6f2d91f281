package cli

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// Bounds of a Job that are checked before it is sent.
const (
	maxCount    = 1_000_000
	maxPriority = 100
	maxStem     = 40 // bytes of the command in a generated name
)

type runOptions struct {
	conn        connection
	name        string
	count       int32
	array       runArray
	selector    map[string]string
	cpu, memory string
	timeout     time.Duration
	env         []string
	driver      string
	priority    int32
	detach      bool
	logs        bool
	waitTimeout time.Duration
	dryRun      string
	output      string
	command     []string
}

func runCommand(d *deps) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "Run a command on robots and wait until it has ended",
		Long: `Creates a Job that runs the command on robots, displays its progress, and exits
with its outcome: 0 if it completed, 1 if it failed or was canceled, 2 if the
command line is invalid or the API server rejected the Job, 124 if --wait-timeout
expired, 130 on Ctrl-C. After 124 and 130 the Job continues.

With --logs, which is on if there is one task, it prints what the tasks write to
standard output, and everything else to standard error. If there are several tasks,
each line begins with the task's name.

With --array or --items it runs the command once for each index or item. A robot gets
a range of indexes at a time and runs them one after another. An index that fails is
tried again as a task of its own.`,
		Example: "  " + d.program + " run --count 3 -- inspect --track 7\n  " +
			d.program + " run --selector site=mine-2 --timeout 5m -- /opt/survey.sh\n  " +
			d.program + " run --count 3 --logs -- hostname\n  " +
			d.program + " run --array 0-999 -- sh -c 'render --frame $K8S4R_TASK_INDEX'\n  " +
			d.program + " run --items fields.txt -- /opt/survey.sh",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("logs") {
				o.logs = o.hasOneTask() && o.waits()
			}
			if err := o.parseArgs(args, d.suffix); err != nil {
				return err
			}
			return o.runJob(cmd.Context(), d)
		},
	}
	o.addFlags(cmd.Flags())
	// Flags after the command belong to the command, with or without "--".
	cmd.Flags().SetInterspersed(false)
	completeFlag(cmd, "driver", robotv1.DriverExec, robotv1.DriverRawExec)
	completeFlag(cmd, "dry-run", dryRunClient, dryRunServer)
	completeFlag(cmd, "output", outputJSON, outputYAML, outputName)
	return cmd
}

func (o *runOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.name, "name", "", "name of the Job; defaults to run-COMMAND-xxxxx")
	f.Int32Var(&o.count, "count", 1, "number of tasks that run the command, spread over the robots")
	o.array.addFlags(f)
	f.StringToStringVar(&o.selector, "selector", nil, "labels of the robots that may run the command, such as site=mine-2")
	f.StringVar(&o.cpu, "cpu", "", "CPU cores that each task requires, such as 500m or 2")
	f.StringVar(&o.memory, "memory", "", "memory that each task requires, such as 128Mi")
	f.DurationVar(&o.timeout, "timeout", 0, "stop a task that runs longer, such as 5m; 0 means no limit")
	f.StringArrayVar(&o.env, "env", nil, "environment variable NAME=VALUE; may be repeated")
	f.StringVar(&o.driver, "driver", robotv1.DriverExec, "driver that runs the command: exec or raw_exec")
	f.Int32Var(&o.priority, "priority", 50, "priority of the Job, from 0 to 100; higher priorities are placed first")
	f.BoolVar(&o.logs, "logs", false, "print what the tasks write; defaults to true if there is one task to wait for")
	f.BoolVarP(&o.detach, "detach", "d", false, "create the Job and do not wait for it")
	f.DurationVar(&o.waitTimeout, "wait-timeout", 0, "how long to wait for the end, such as 1h; 0 means no limit")
	f.StringVar(&o.dryRun, "dry-run", "", "create nothing: client only prints the Job, server also validates it")
	f.StringVarP(&o.output, "output", "o", "", "output format of the Job: json, yaml or name; requires --detach or --dry-run")
	o.conn.addFlags(f)
}

const (
	dryRunClient = "client"
	dryRunServer = "server"
)

// parseArgs reads the arguments, sets the name and validates all options.
func (o *runOptions) parseArgs(args []string, suffix func() string) error {
	if len(args) == 0 || args[0] == "" {
		return usagef("run: no command given; put it after the flags, such as run --count 3 -- inspect --fast")
	}
	o.command = args
	err := errors.Join(o.checkName(), o.checkRun(), o.array.checkArray(o.count), o.checkNeeds(), o.checkEnv(), o.checkOutput())
	if err != nil {
		return &usageError{err: err}
	}
	if o.name == "" {
		o.name = fmt.Sprintf("run-%s-%s", nameStem(args[0]), suffix())
	}
	return nil
}

func errorUnless(ok bool, format string, a ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, a...)
}

func (o *runOptions) checkName() error {
	if o.name == "" {
		return nil
	}
	if problems := validation.IsDNS1123Subdomain(o.name); len(problems) > 0 {
		return fmt.Errorf("--name=%s: %s", shortenText(o.name, 40), problems[0])
	}
	return nil
}

func (o *runOptions) checkRun() error {
	return errors.Join(
		errorUnless(o.count >= 1 && o.count <= maxCount, "--count=%d: must be from 1 to %d", o.count, maxCount),
		errorUnless(o.priority >= 0 && o.priority <= maxPriority, "--priority=%d: must be from 0 to %d", o.priority, maxPriority),
		errorUnless(o.timeout >= 0, "--timeout=%s: must not be negative", o.timeout),
		errorUnless(o.waitTimeout >= 0, "--wait-timeout=%s: must not be negative", o.waitTimeout),
		errorUnless(o.driver == robotv1.DriverExec || o.driver == robotv1.DriverRawExec,
			"--driver=%s: must be exec or raw_exec; for other drivers apply a Job manifest", o.driver),
	)
}

func (o *runOptions) checkNeeds() error {
	_, cpuErr := parseQuantity("cpu", o.cpu, "500m or 2")
	_, memoryErr := parseQuantity("memory", o.memory, "128Mi or 2Gi")
	return errors.Join(cpuErr, memoryErr)
}

// parseQuantity parses a quantity. If value is empty, it returns nil.
func parseQuantity(flag, value, example string) (*resource.Quantity, error) {
	if value == "" {
		return nil, nil
	}
	q, err := resource.ParseQuantity(value)
	if err != nil || q.Sign() <= 0 {
		return nil, fmt.Errorf("--%s=%s: must be a quantity above zero, such as %s", flag, value, example)
	}
	return &q, nil
}

func (o *runOptions) checkEnv() error {
	for _, e := range o.env {
		if name, _, found := strings.Cut(e, "="); !found || name == "" || strings.ContainsRune(e, 0) {
			return fmt.Errorf("--env=%s: must be NAME=VALUE", e)
		}
	}
	return nil
}

// hasOneTask reports whether the command runs once.
func (o *runOptions) hasOneTask() bool { return o.count == 1 && !o.array.isSet() }

// waits reports whether the command waits for the end of the Job.
func (o *runOptions) waits() bool { return !o.detach && o.dryRun == "" }

func (o *runOptions) checkOutput() error {
	printed := !o.waits()
	return errors.Join(
		errorUnless(o.dryRun == "" || o.dryRun == dryRunClient || o.dryRun == dryRunServer, "--dry-run=%s: must be client or server", o.dryRun),
		checkFormat(o.output, outputJSON, outputYAML, outputName),
		errorUnless(o.output == "" || printed, "--output=%s: requires --detach or --dry-run", o.output),
		errorUnless(!o.logs || !printed, "--logs: cannot be combined with --detach or --dry-run"),
	)
}

var notInLabel = regexp.MustCompile(`[^a-z0-9]+`)

// nameStem turns the path of a command into the start of a valid object name.
func nameStem(command string) string {
	word := notInLabel.ReplaceAllString(strings.ToLower(path.Base(command)), "-")
	word = strings.Trim(word[:min(len(word), maxStem)], "-")
	if word == "" {
		return "command"
	}
	return word
}

// newJob returns the Job that the validated options describe.
func (o *runOptions) newJob(namespace string) *robotv1.Job {
	task := robotv1.TaskDefinition{
		Name:      "main",
		Driver:    o.driver,
		Config:    robotv1.TaskConfig{ExecConfig: &robotv1.ExecConfig{Command: o.command[0], Args: o.command[1:]}},
		Resources: o.newResources(),
		Env:       o.newEnv(),
	}
	if o.timeout > 0 {
		task.Timeout = robotv1.NewDuration(o.timeout)
	}
	group := robotv1.TaskGroupDefinition{Name: nameStem(o.command[0])}
	group.Tasks = []robotv1.TaskDefinition{task}
	if group.Array = o.array.newArray(); group.Array == nil {
		group.Count = &o.count
	}
	job := &robotv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: o.name, Namespace: namespace},
		Spec: robotv1.JobSpec{
			Type:          robotv1.JobTypeBatch,
			RobotSelector: o.selector,
			Priority:      &o.priority,
			TaskGroups:    []robotv1.TaskGroupDefinition{group},
		},
	}
	setKind(job, jobKind)
	return job
}

func (o *runOptions) newResources() *robotv1.Resources {
	cpu, _ := parseQuantity("cpu", o.cpu, "")
	memory, _ := parseQuantity("memory", o.memory, "")
	if cpu == nil && memory == nil {
		return nil
	}
	return &robotv1.Resources{CPU: cpu, Memory: memory}
}

func (o *runOptions) newEnv() map[string]string {
	if len(o.env) == 0 {
		return nil
	}
	env := map[string]string{}
	for _, e := range o.env {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	return env
}

func (o *runOptions) runJob(ctx context.Context, d *deps) error {
	if o.dryRun == dryRunClient {
		return o.printJob(d, o.newJob(o.conn.overrides.Context.Namespace), " (dry run)")
	}
	return d.withCluster(&o.conn, func(c *cluster) error { return o.submitJob(ctx, d, c) })
}

func (o *runOptions) submitJob(ctx context.Context, d *deps, c *cluster) error {
	job := o.newJob(c.namespace)
	var opts []client.CreateOption
	if o.dryRun == dryRunServer {
		opts = append(opts, client.DryRunAll)
	}
	if err := c.Create(ctx, job, opts...); err != nil {
		return fmt.Errorf("create job %s: %w", o.name, err)
	}
	if o.dryRun != "" {
		return o.printJob(d, job, " (server dry run)")
	}
	if o.logs {
		fmt.Fprintf(d.Err, "%s created\n", jobKind.formatRef(job.Name))
		return d.waitWithOutput(ctx, c, job, o)
	}
	if err := o.printJob(d, job, ""); err != nil || o.detach {
		return err
	}
	return d.waitForJob(ctx, c, job, o.waitTimeout)
}

func (o *runOptions) printJob(d *deps, job *robotv1.Job, how string) error {
	if o.output == "" {
		fmt.Fprintf(d.Out, "%s created%s\n", jobKind.formatRef(job.Name), how)
		return nil
	}
	return writeObject(d.Out, o.output, jobKind, job)
}

// completeFlag completes fixed values of a flag.
func completeFlag(cmd *cobra.Command, flag string, values ...string) {
	completeWith(cmd, flag, cobra.FixedCompletions(slices.Clone(values), cobra.ShellCompDirectiveNoFileComp))
}

func completeWith(cmd *cobra.Command, flag string, f completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the flag does not exist: a mistake in this package
	}
}
