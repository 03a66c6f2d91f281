package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
)

// flowAction is a command that changes the spec of flows, or rejects the change.
type flowAction struct {
	conn  connection
	verb  string
	steps []string // for a retry; if empty, the failed steps
	names []string
	judge func(*flowv1.JobFlow) (string, error)
}

func suspendFlowCommand(d *deps) *cobra.Command {
	return (&flowAction{verb: "suspend", judge: actions.SuspendFlow}).newCommand(d, "Start no more steps of JobFlows; those that run go on",
		"Starts no more steps of the JobFlows until they are resumed. Steps that run go on to\ntheir end. A flow that is pending or running can be suspended.")
}

func resumeFlowCommand(d *deps) *cobra.Command {
	w := &flowAction{verb: "resume", judge: actions.ResumeFlow}
	return w.newCommand(d, "Let suspended JobFlows go on",
		"Lets suspended JobFlows go on. Where a flow waits because one of its Jobs was aborted,\nthat Job is resumed, which counts as one of its restarts.")
}

func cancelFlowCommand(d *deps) *cobra.Command {
	return (&flowAction{verb: "cancel", judge: actions.CancelFlow}).newCommand(d, "Stop all steps of JobFlows, and end them as failed",
		"Stops what runs of the JobFlows and ends them as failed, for the reason Canceled. They\nstay to be looked at, and can be retried.")
}

func retryFlowCommand(d *deps) *cobra.Command {
	w := &flowAction{verb: "retry"}
	w.judge = func(f *flowv1.JobFlow) (string, error) { return actions.RetryFlow(f, w.steps) }
	cmd := w.newCommand(d, "Run failed steps of JobFlows again, and what depends on them",
		"Runs the failed steps of the JobFlows again, or with --step these steps whether they\nhave failed or not, and all that depends on them. What has succeeded otherwise is\nkept.")
	cmd.Example = "  " + d.program + " flow retry nightly\n  " + d.program + " flow retry nightly --step train"
	cmd.Flags().StringSliceVar(&w.steps, "step", nil, "run this step again, instead of those that have failed; may be repeated")
	return cmd
}

func (w *flowAction) newCommand(d *deps, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:               w.verb + " FLOW...",
		Short:             short,
		Long:              long + "\n\nNames must be whole: the beginning is not enough here.",
		Example:           "  " + d.program + " flow " + w.verb + " nightly",
		Args:              checkArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: d.completeNames(&w.conn, flowKind, anyNumber),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if w.names, err = bareNames(flowKind, args); err != nil {
				return err
			}
			if len(w.steps) > 0 && len(w.names) > 1 {
				return usagef("--step goes with one flow")
			}
			return d.withCluster(&w.conn, func(c *cluster) error { return w.runAction(cmd.Context(), d, c) })
		},
	}
	w.conn.addFlags(cmd.Flags())
	return cmd
}

func (w *flowAction) runAction(ctx context.Context, d *deps, c *cluster) error {
	return forEachName(c, w.names, func(name string) error {
		flow, said, err := patchNamed(ctx, c, flowKind, name, w.judge)
		if errors.Is(err, actions.ErrAborted) {
			said, err = resumeJobs(ctx, c, flow)
		}
		if err == nil {
			d.printResult(flowKind, name, said)
		}
		return err
	})
}

// resumeJobs creates a ResumeJob Command for each aborted Job of the flow.
func resumeJobs(ctx context.Context, c *cluster, f *flowv1.JobFlow) (string, error) {
	names := actions.AbortedJobs(f)
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
			return "", wrapError(err, "resume job %s", name)
		}
	}
	return "resume requested of aborted " + strings.Join(names, ", "), nil
}
