package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// flowWish changes the spec of flows, where that means anything.
type flowWish struct {
	conn  connection
	verb  string
	steps []string // of a retry; none: those that have failed
	names []string
	judge func(*flowv1.JobFlow) (string, error)
}

func suspendFlowCommand(d *deps) *cobra.Command {
	return (&flowWish{verb: "suspend", judge: suspendFlow}).command(d, "Start no more steps of JobFlows; those that run go on",
		"Starts no more steps of the JobFlows until they are resumed. Steps that run go on to\ntheir end. A flow that is pending or running can be suspended.")
}

func resumeFlowCommand(d *deps) *cobra.Command {
	w := &flowWish{verb: "resume", judge: resumeFlow}
	return w.command(d, "Let suspended JobFlows go on",
		"Lets suspended JobFlows go on. Where a flow waits because one of its Jobs was aborted,\nthat Job is resumed, which counts as one of its restarts.")
}

func cancelFlowCommand(d *deps) *cobra.Command {
	return (&flowWish{verb: "cancel", judge: cancelFlow}).command(d, "Stop all steps of JobFlows, and end them as failed",
		"Stops what runs of the JobFlows and ends them as failed, for the reason Canceled. They\nstay to be looked at, and can be retried.")
}

func retryFlowCommand(d *deps) *cobra.Command {
	w := &flowWish{verb: "retry"}
	w.judge = func(f *flowv1.JobFlow) (string, error) { return retryFlow(f, w.steps) }
	cmd := w.command(d, "Run failed steps of JobFlows again, and what depends on them",
		"Runs the failed steps of the JobFlows again, or with --step these steps whether they\nhave failed or not, and all that depends on them. What has succeeded otherwise is\nkept.")
	cmd.Example = "  " + d.program + " flow retry nightly\n  " + d.program + " flow retry nightly --step train"
	cmd.Flags().StringSliceVar(&w.steps, "step", nil, "run this step again, instead of those that have failed; may be repeated")
	return cmd
}

func (w *flowWish) command(d *deps, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:               w.verb + " FLOW...",
		Short:             short,
		Long:              long + "\n\nNames must be whole: the beginning is not enough here.",
		Example:           "  " + d.program + " flow " + w.verb + " nightly",
		Args:              args(cobra.MinimumNArgs(1)),
		ValidArgsFunction: d.completeNames(&w.conn, flowKind, anyNumber),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if w.names, err = bareNames(flowKind, args); err != nil {
				return err
			}
			if len(w.steps) > 0 && len(w.names) > 1 {
				return usagef("--step goes with one flow")
			}
			return d.withCluster(&w.conn, func(c *cluster) error { return w.run(cmd.Context(), d, c) })
		},
	}
	w.conn.addFlags(cmd.Flags())
	return cmd
}

func (w *flowWish) run(ctx context.Context, d *deps, c *cluster) error {
	return each(c, w.names, func(name string) error {
		flow, said, err := amend(ctx, c, flowKind, name, w.judge)
		if errors.Is(err, errAborted) {
			said, err = resumeJobs(ctx, c, flow)
		}
		if err == nil {
			d.report(flowKind, name, said)
		}
		return err
	})
}

func flowPhase(f *flowv1.JobFlow) lifecycle.FlowPhase {
	if f.Status.State.Phase == "" {
		return lifecycle.FlowPending
	}
	return lifecycle.FlowPhase(f.Status.State.Phase)
}

// impossibleFlow says what can be done to the flow instead.
func impossibleFlow(f *flowv1.JobFlow) error {
	p := flowPhase(f)
	can := "it can be suspended, canceled or retried"
	switch {
	case p == lifecycle.FlowSucceed:
		can = "it can be retried with --step, or deleted"
	case p == lifecycle.FlowFailed:
		can = "it can be retried, or deleted; what still runs of it can be canceled"
	case p == lifecycle.FlowTerminating:
		can = "it can be retried once it has failed"
	case f.Spec.Suspend:
		can = "it can be resumed, canceled or retried"
	}
	return fmt.Errorf("jobflow %s is %s: %s", f.Name, p, can)
}

func suspendFlow(f *flowv1.JobFlow) (string, error) {
	if !flowPhase(f).Starts() || f.Spec.Cancel {
		return "", impossibleFlow(f)
	}
	if f.Spec.Suspend {
		return "is suspended already", nil
	}
	f.Spec.Suspend = true
	return "suspended; what runs goes on", nil
}

// errAborted means that it is not the flow that has to be resumed.
var errAborted = errors.New("a job was aborted")

func resumeFlow(f *flowv1.JobFlow) (string, error) {
	if f.Spec.Suspend {
		f.Spec.Suspend = false
		return "resumed", nil
	}
	if len(abortedJobs(f)) > 0 && flowPhase(f).Starts() {
		return "", errAborted
	}
	if flowPhase(f).Starts() && !f.Spec.Cancel {
		return "is not suspended", nil
	}
	return "", impossibleFlow(f)
}

// abortedJobs are the Jobs that hold the flow up.
func abortedJobs(f *flowv1.JobFlow) (names []string) {
	for _, j := range f.Status.JobStatusList {
		if j.State == batchv1.JobAborted && slices.Contains(f.Status.UnKnowJobs, j.Name) {
			names = append(names, j.Name)
		}
	}
	return names
}

// resumeJobs sends aborted Jobs the Command to go on.
func resumeJobs(ctx context.Context, c *cluster, f *flowv1.JobFlow) (string, error) {
	names := abortedJobs(f)
	for _, name := range names {
		job, err := readNamed[*batchv1.Job](ctx, c, podJobKind, name)
		if err != nil {
			return "", err
		}
		command := &busv1.Command{
			ObjectMeta:   metav1.ObjectMeta{Namespace: f.Namespace, GenerateName: "resume-", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.GroupVersion.WithKind("Job"))}},
			Action:       "ResumeJob",
			TargetObject: metav1.NewControllerRef(job, batchv1.GroupVersion.WithKind("Job")),
		}
		if err := c.Create(ctx, command); err != nil {
			return "", wrap(err, "resume job %s", name)
		}
	}
	return "resume requested of aborted " + strings.Join(names, ", "), nil
}

func cancelFlow(f *flowv1.JobFlow) (string, error) {
	if f.Spec.Cancel {
		return "is canceled already", nil
	}
	if _, ok := lifecycle.StepFlow(flowPhase(f), lifecycle.FlowCancel); !ok {
		return "", impossibleFlow(f)
	}
	f.Spec.Cancel = true
	return "cancel requested", nil
}

// retryFlow wishes for steps to run again. Cancel holds a retry up, and is taken back.
func retryFlow(f *flowv1.JobFlow, steps []string) (string, error) {
	for _, name := range steps {
		if !slices.ContainsFunc(f.Spec.Flows, func(s flowv1.Flow) bool { return s.Name == name }) {
			return "", fmt.Errorf("jobflow %s has no step %s; there are %s", f.Name, name, first(stepNames(f)))
		}
	}
	if _, ok := lifecycle.StepFlow(flowPhase(f), lifecycle.FlowRetry); !ok {
		return "", impossibleFlow(f)
	}
	if len(steps) == 0 && flowPhase(f) != lifecycle.FlowFailed && !hasFailedStep(f) {
		return "", fmt.Errorf("jobflow %s is %s and none of its steps has failed: name what is to run again with --step", f.Name, flowPhase(f))
	}
	next, err := nextRetry(f, steps)
	if err != nil {
		return "", err
	}
	if next == nil && !f.Spec.Cancel {
		return "retry" + ofSteps(steps) + " is requested already", nil
	}
	if next != nil {
		f.Spec.Retry = next
	}
	f.Spec.Cancel = false
	said := "retry" + ofSteps(steps) + " requested"
	if f.Spec.Suspend {
		said += "; the flow stays suspended until it is resumed"
	}
	return said, nil
}

// nextRetry is what spec.retry becomes. Nil: it says so already. One that was not
// taken up yet must not be lost.
func nextRetry(f *flowv1.JobFlow, steps []string) (*flowv1.RetryRequest, error) {
	have := f.Spec.Retry
	next := &flowv1.RetryRequest{Generation: f.Status.Retry + 1, Flows: slices.Clone(steps)}
	if have == nil || have.Generation <= f.Status.Retry {
		return next, nil
	}
	next.Generation = have.Generation + 1
	switch {
	case len(have.Flows) == 0 && len(steps) == 0:
		return nil, nil
	case len(have.Flows) == 0 || len(steps) == 0:
		return nil, fmt.Errorf("jobflow %s has a retry of other steps that was not taken up yet; wait until it runs again", f.Name)
	}
	next.Flows = append(slices.Clone(have.Flows), steps...)
	slices.Sort(next.Flows)
	next.Flows = slices.Compact(next.Flows)
	if len(next.Flows) == len(have.Flows) {
		return nil, nil
	}
	return next, nil
}

func hasFailedStep(f *flowv1.JobFlow) bool {
	v := viewFlow(f, time.Time{}) // how long it took is not asked
	return slices.ContainsFunc(v.steps, func(s flowStep) bool { return s.failed() })
}

func stepNames(f *flowv1.JobFlow) (names []string) {
	for _, s := range f.Spec.Flows {
		names = append(names, s.Name)
	}
	return names
}

func ofSteps(steps []string) string {
	if len(steps) == 0 {
		return " of the failed steps"
	}
	return " of " + strings.Join(steps, ", ")
}
