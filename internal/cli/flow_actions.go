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

// flowAction is a command that applies an action to flows.
type flowAction struct {
	conn   connection
	verb   string
	steps  []string // for a retry; if empty, the failed steps
	names  []string
	change func(*flowv1.JobFlow) (string, error)
}

func suspendFlowCommand(d *deps) *cobra.Command {
	return (&flowAction{verb: "suspend", change: actions.SuspendFlow}).newCommand(d, "Suspend JobFlows; running steps continue",
		"Suspends JobFlows: no more steps start until the flows are resumed, and running steps\ncontinue to their end. A flow that is pending or running can be suspended.")
}

func resumeFlowCommand(d *deps) *cobra.Command {
	w := &flowAction{verb: "resume", change: actions.ResumeFlow}
	return w.newCommand(d, "Resume suspended JobFlows",
		"Resumes suspended JobFlows. If a flow waits for an aborted Job, that Job is resumed,\nwhich counts as one of its restarts.")
}

func cancelFlowCommand(d *deps) *cobra.Command {
	return (&flowAction{verb: "cancel", change: actions.CancelFlow}).newCommand(d, "Cancel JobFlows and stop their steps",
		"Stops the running steps of JobFlows. The flows then fail with the reason Canceled. They\nare not deleted and can be retried.")
}

func retryFlowCommand(d *deps) *cobra.Command {
	w := &flowAction{verb: "retry"}
	w.change = func(f *flowv1.JobFlow) (string, error) { return actions.RetryFlow(f, w.steps) }
	cmd := w.newCommand(d, "Retry failed steps of JobFlows and their dependents",
		"Runs the failed steps of JobFlows again, and all steps that depend on them. With --step\nit runs these steps again, whether they have failed or not. Other steps that have\nsucceeded do not run again.")
	cmd.Example = "  " + d.program + " flow retry nightly\n  " + d.program + " flow retry nightly --step train"
	cmd.Flags().StringSliceVar(&w.steps, "step", nil, "step to run again, instead of the failed ones; may be repeated")
	return cmd
}

func (w *flowAction) newCommand(d *deps, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:               w.verb + " FLOW...",
		Short:             short,
		Long:              long + "\n\nRequires full names; prefixes are not accepted.",
		Example:           "  " + d.program + " flow " + w.verb + " nightly",
		Args:              checkArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: d.completeNames(&w.conn, flowKind, anyNumber),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if w.names, err = bareNames(flowKind, args); err != nil {
				return err
			}
			if len(w.steps) > 0 && len(w.names) > 1 {
				return usagef("--step: requires exactly one flow")
			}
			return d.withCluster(&w.conn, func(c *cluster) error { return w.runAction(cmd.Context(), d, c) })
		},
	}
	w.conn.addFlags(cmd.Flags())
	return cmd
}

func (w *flowAction) runAction(ctx context.Context, d *deps, c *cluster) error {
	return forEachName(c, w.names, func(name string) error {
		flow, message, err := patchNamed(ctx, c, flowKind, name, w.change)
		if errors.Is(err, actions.ErrAborted) {
			message, err = resumeJobs(ctx, c, flow)
		}
		if err == nil {
			d.printResult(flowKind, name, message)
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
	return "resume requested for aborted jobs " + strings.Join(names, ", "), nil
}
