package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

type startRolloutOptions struct {
	conn           connection
	job            string   // empty: the agents
	agents         []string // MANIFEST=URL
	selector       string
	name           string
	revision       int64
	waves          []string
	maxUnavailable string
	abortAt        string
	onAbort        string
	deadline       string
	retry          int32
	maxWaiting     string
	rate           int32
	noFollow       bool
	ignoreWindows  bool
	prefetch       prefetchOptions
	wait           bool
	waitTimeout    time.Duration
	dryRun         string
	output         string

	spec      robotv1.RolloutSpec
	addedWave bool // whether the last wave was added to those of the user
}

func startRolloutCommand(d *deps) *cobra.Command {
	var o startRolloutOptions
	cmd := &cobra.Command{
		Use:   "start {JOB | --agent MANIFEST=URL} [--wave SPEC]...",
		Short: "Change the units of a Job to a revision, or agents to a version, in waves",
		Long: `Creates a Rollout, which changes the units of a Job to the newest revision or to the one of
--revision. A unit is a robot if the Job is of type system or sysbatch, and a replica if it
is of type service. The Job must have update.strategy Rollout.

With --agent in place of a Job it updates the agents of the robots of the namespace, or of
those that --selector matches. MANIFEST is a file of agent-key sign, and URL is where the
robots download the program; repeat the flag for each platform. A robot needs the public
key in update.publicKeys of its policy file. It needs the verb updateagents on robots.

Each --wave adds a wave. Its SPEC has one of
  10%                  units until 10% of all are in this wave and the ones before
  5                    units until 5 are in this wave and the ones before
  label=site:hall      robots with this label; may be repeated; not for a service
and, separated by commas, any of
  name=canary          name of the wave; defaults to wave-1, wave-2, ...
  pause=1h             time between the end of the wave and the start of the next one
  healthy-for=2m       how long a unit must run until it counts as updated
  abort-at=20%:5       abort if 20% of the finished units of the wave have failed, once 5
                       have finished; without :5 the first one counts
  approval             the wave starts only after ` + "`rollout approve`" + `
The last wave must be 100%. It is added if it is missing.

Requires the full name of the Job; prefixes are not accepted.`,
		Example: "  " + d.program + " rollout start demo\n  " +
			d.program + " rollout start demo --wave 1,name=canary,healthy-for=10m --wave 10%,pause=1h --wave 100%,approval --abort-at 5%:20\n  " +
			d.program + " rollout start demo --wave label=site:hall --on-abort revert --wait\n  " +
			d.program + " rollout start demo --revision 2 --dry-run -o yaml\n  " +
			d.program + " rollout start --agent arm64.json=https://example.com/k8s4r-agent-arm64 --wave 1 --wave 10%,pause=1h --max-unavailable 5%",
		Args:              checkArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, jobKind, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parseArgs(args, d.suffix); err != nil {
				return err
			}
			if o.dryRun == dryRunClient {
				r := o.newRollout(o.conn.overrides.Context.Namespace)
				return o.printRollout(d, r, " (dry run)")
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.startRollout(cmd.Context(), d, c) })
		},
	}
	o.addFlags(cmd.Flags())
	addDryRunFlag(cmd, &o.dryRun, "create nothing: client only prints the Rollout, server also validates it")
	completeFlag(cmd, "on-abort", robotv1.OnAbortPause, robotv1.OnAbortRevert)
	completeFlag(cmd, "output", outputJSON, outputYAML, outputName)
	return cmd
}

func (o *startRolloutOptions) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&o.agents, "agent", nil, "MANIFEST=URL of a version of the agent, in place of a Job; may be repeated for other platforms")
	f.StringVarP(&o.selector, "selector", "l", "", "labels of the robots whose agents are updated, such as site=hall; requires --agent; defaults to all of the namespace")
	f.StringVar(&o.name, "name", "", "name of the Rollout; defaults to JOB-xxxxx or agent-VERSION-xxxxx")
	f.Int64Var(&o.revision, "revision", 0, "revision to change to; 0 means the newest one")
	f.StringArrayVar(&o.waves, "wave", nil, "wave, such as 10%,pause=1h; may be repeated; defaults to one wave with all units")
	f.StringVar(&o.maxUnavailable, "max-unavailable", "", "number or percentage of units of a task group that may be changing at the same time, or of robots with --agent; defaults to update.maxParallel of the group, or no limit")
	f.StringVar(&o.abortAt, "abort-at", "", "abort if this percentage of all finished units has failed, such as 20%, or 20%:5 if it counts once 5 have finished")
	f.StringVar(&o.onAbort, "on-abort", robotv1.OnAbortPause, "what follows an abort: pause leaves all units as they are, revert returns them to the revision of before")
	f.StringVar(&o.deadline, "deadline", "", "how long a unit may take until it is healthy, also if its robot loses contact; defaults to 10m")
	f.Int32Var(&o.retry, "retry", 0, fmt.Sprintf("how often a failed unit is tried again, at most %d", maxRetry))
	f.StringVar(&o.maxWaiting, "max-waiting", "", "how long a wave waits for units whose robots are out of contact, or that are held there; defaults to 10m")
	f.Int32Var(&o.rate, "rate", 0, "units that may be changed in a minute; 0 means no limit")
	f.BoolVar(&o.noFollow, "no-follow", false, "do not change units of finished waves later, such as robots that come back or join")
	f.BoolVar(&o.ignoreWindows, "ignore-windows", false, "interrupt tasks also outside the maintenance windows of their robots; needs the verb ignorewindows")
	o.prefetch.addFlags(f)
	f.BoolVar(&o.wait, "wait", false, "wait until the rollout has ended, and exit as rollout status --watch")
	f.DurationVar(&o.waitTimeout, "wait-timeout", 0, "how long to wait, such as 1h; requires --wait; 0 means no limit")
	f.StringVarP(&o.output, "output", "o", "", "output format of the Rollout: json, yaml or name")
	o.conn.addFlags(f)
}

// parseArgs reads the arguments, validates all options and makes the spec.
func (o *startRolloutOptions) parseArgs(args []string, suffix func() string) (err error) {
	if (len(args) == 1) == (len(o.agents) > 0) {
		return usagef("rollout start: requires either the name of a Job or --agent")
	}
	if len(args) == 1 {
		if o.job, err = jobKind.bareName(args[0]); err != nil {
			return err
		}
	}
	if err := errors.Join(o.checkName(), o.checkNumbers(), o.checkOutput(), o.makeSpec()); err != nil {
		return &usageError{err: err}
	}
	if o.name == "" {
		o.name = o.baseName() + "-" + suffix()
	}
	return nil
}

// baseName returns the beginning of the name of a Rollout without a name.
func (o *startRolloutOptions) baseName() string {
	if o.job == "" {
		return agentRolloutName(o.spec.Target.Agent.Version)
	}
	return o.job[:min(len(o.job), maxJobInName)]
}

// maxJobInName bounds the part of the Job's name in that of a Rollout.
const maxJobInName = 200

func (o *startRolloutOptions) checkName() error {
	if o.name == "" {
		return nil
	}
	problems := validation.IsDNS1123Subdomain(o.name)
	return errorUnless(len(problems) == 0, "--name=%s: must be lower case letters, digits, dashes and dots, at most 253, and start and end with a letter or digit", shortenText(o.name, 40))
}

func (o *startRolloutOptions) checkNumbers() error {
	return errors.Join(
		errorUnless(o.revision >= 0 && o.revision <= maxRevision, "--revision=%d: must be from 0 to %d", o.revision, int64(maxRevision)),
		errorUnless(o.revision == 0 || o.job != "", "--revision=%d: cannot be combined with --agent, whose manifest has the version", o.revision),
		errorUnless(o.selector == "" || o.job == "", "--selector=%s: requires --agent; a Job selects its robots by its constraints, and a wave by label=", shortenText(o.selector, 80)),
		errorUnless(o.retry >= 0 && o.retry <= maxRetry, "--retry=%d: must be from 0 to %d", o.retry, maxRetry),
		errorUnless(o.rate >= 0 && o.rate <= maxUnits, "--rate=%d: must be from 0 to %d", o.rate, maxUnits),
		errorUnless(o.waitTimeout >= 0, "--wait-timeout=%s: must not be negative", o.waitTimeout),
		errorUnless(o.waitTimeout == 0 || o.wait, "--wait-timeout=%s: requires --wait", o.waitTimeout),
	)
}

func (o *startRolloutOptions) checkOutput() error {
	return errors.Join(
		checkDryRun(o.dryRun),
		checkFormat(o.output, outputJSON, outputYAML, outputName),
		errorUnless(o.onAbort == robotv1.OnAbortPause || o.onAbort == robotv1.OnAbortRevert, "--on-abort=%s: must be pause or revert", o.onAbort),
		errorUnless(!o.wait || o.dryRun == "", "--wait: cannot be combined with --dry-run"),
		errorUnless(!o.wait || o.output == "" || o.output == outputName, "--wait: cannot be combined with --output=%s", o.output),
	)
}

// makeSpec makes the spec from the options. Fields that the user did not set stay empty.
func (o *startRolloutOptions) makeSpec() error {
	s := robotv1.RolloutSpec{
		Target:  robotv1.RolloutTarget{Kind: jobKind.kind, Name: o.job, Revision: o.revision},
		OnAbort: o.onAbort,
		Retry:   o.retry,

		IgnoreWindows: o.ignoreWindows,
	}
	var targetErr, waveErr, shareErr, abortErr, deadlineErr, waitingErr error
	if o.job == "" {
		targetErr = o.makeAgentTarget(&s)
	}
	s.Waves, o.addedWave, waveErr = parseWaves(o.waves)
	if o.maxUnavailable != "" {
		share, err := parseShare(o.maxUnavailable)
		s.MaxUnavailable, shareErr = &share, wrapError(err, "--max-unavailable=%s", o.maxUnavailable)
	}
	if o.abortAt != "" {
		s.AbortAt, abortErr = parseAbort("--abort-at", o.abortAt)
	}
	if o.deadline != "" {
		s.Deadline, deadlineErr = parseRolloutDuration("--deadline", o.deadline)
	}
	if o.maxWaiting != "" {
		s.MaxWaiting, waitingErr = parseRolloutDuration("--max-waiting", o.maxWaiting)
	}
	if o.rate > 0 {
		s.Rate = &robotv1.RolloutRate{PerMinute: o.rate}
	}
	if o.noFollow {
		follow := false
		s.Follow = &follow
	}
	prefetchErr := o.prefetch.setOn(&s)
	o.spec = s
	return errors.Join(targetErr, waveErr, shareErr, abortErr, deadlineErr, waitingErr, prefetchErr)
}

func (o *startRolloutOptions) newRollout(namespace string) *robotv1.Rollout {
	r := &robotv1.Rollout{ObjectMeta: metav1.ObjectMeta{Name: o.name, Namespace: namespace}, Spec: o.spec}
	setKind(r, rolloutKind)
	return r
}

func (o *startRolloutOptions) startRollout(ctx context.Context, d *deps, c *cluster) error {
	if err := o.checkTarget(ctx, c); err != nil {
		return err
	}
	r := o.newRollout(c.namespace)
	var opts []client.CreateOption
	if o.dryRun == dryRunServer {
		opts = append(opts, client.DryRunAll)
	}
	if err := c.Create(ctx, r, opts...); err != nil {
		return fmt.Errorf("create rollout %s: %w", o.name, err)
	}
	if o.dryRun != "" {
		return o.printRollout(d, r, " (server dry run)")
	}
	if err := o.printRollout(d, r, ""); err != nil {
		return err
	}
	if o.wait {
		return d.waitForRollout(ctx, c, r, o.waitTimeout)
	}
	if o.output == "" {
		fmt.Fprintf(d.Err, "watch it: %s rollout status %s --watch%s\n", d.program, o.name, c.namespaceFlag)
	}
	return nil
}

// checkTarget returns an error if the Job cannot be the target. The Rollout would only never start.
func (o *startRolloutOptions) checkTarget(ctx context.Context, c *cluster) error {
	if o.job == "" {
		return nil
	}
	job, err := readNamed[*robotv1.Job](ctx, c, jobKind, o.job)
	if err != nil {
		return err
	}
	if err := checkRevisionType(job); err != nil {
		return err
	}
	if !rollout.IsUsedBy(job) {
		return fmt.Errorf("job %s changes its tasks at once: set spec.update.strategy to Rollout first", job.Name)
	}
	for i := range o.spec.Waves {
		if w := &o.spec.Waves[i]; len(w.RobotSelector) > 0 && job.Spec.Type == robotv1.JobTypeService {
			return usagef("wave %s: a job of type service has no waves by label; use a percentage or a number of replicas", w.Name)
		}
	}
	if o.revision == 0 {
		return nil
	}
	revisions, err := readRevisions(ctx, c, job)
	if err != nil {
		return err
	}
	if _, err := revisions.find(o.revision); err != nil {
		return err
	}
	if o.revision != job.Status.UpdateRevision && o.revision != job.Status.CurrentRevision {
		return fmt.Errorf("revision %d is not the definition of job %s: run k8s4r job rollback %s --to-revision %d first, and start without --revision", o.revision, job.Name, job.Name, o.revision)
	}
	return nil
}

func (o *startRolloutOptions) printRollout(d *deps, r *robotv1.Rollout, how string) error {
	if last := &r.Spec.Waves[len(r.Spec.Waves)-1]; o.addedWave && len(o.waves) > 0 {
		fmt.Fprintf(d.Err, "added wave %s with 100%%, so that every unit is covered\n", last.Name)
	}
	if o.output == "" {
		fmt.Fprintf(d.Out, "%s created%s\n", rolloutKind.formatRef(r.Name), how)
		return nil
	}
	return writeObject(d.Out, o.output, rolloutKind, r)
}
