package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"k8s4r.io/k8s4r/internal/cli/doctor"
)

func doctorCommand(d *deps) *cobra.Command {
	var conn connection
	var format string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether the cluster can run K8s4r, and suggest remedies",
		Long: `Checks the version of the API server, the CRDs and who installed them, the
admission policies, whether the manager and the server run, whether a restore holds back
tasks, the identities of robots, the certificates of k8s4r up and the server, Volcano's controllers and
KubeRay's operator, and the webhook, to which it submits an invalid JobFlow with
dry run. It changes nothing. Each line has a level, a finding and a remedy: OK,
WARN (a part of K8s4r does not work) or FAIL (K8s4r does not work). The exit
status is 1 if a line has the level FAIL.`,
		Example: "  " + d.program + " doctor\n  " + d.program + " doctor -o json",
		Args:    checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format, outputJSON); err != nil {
				return err
			}
			return d.withCluster(&conn, func(c *cluster) error {
				return d.printFindings(format, doctor.ExamineCluster(cmd.Context(), doctor.Cluster{
					Client: c, Server: c.server, Version: c.version, Namespace: c.namespace, Now: d.now,
				}))
			})
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "output format: json; defaults to one line for each finding")
	conn.addFlags(cmd.Flags())
	return cmd
}

// examination is the output of doctor in JSON.
type examination struct {
	Worst    doctor.Level     `json:"worst"`
	Findings []doctor.Finding `json:"findings"`
}

// printFindings prints the findings. It returns an error if the worst level is Fail.
func (d *deps) printFindings(format string, found []doctor.Finding) error {
	e := examination{doctor.WorstLevel(found), found}
	if format == outputJSON {
		if err := encodeObject(d.Out, format, e); err != nil {
			return err
		}
	} else {
		e.printLines(d.Out)
	}
	if e.Worst == doctor.Fail {
		return &outcomeError{status: ExitFailed}
	}
	return nil
}

func (e examination) printLines(w io.Writer) {
	for _, f := range e.Findings {
		line := fmt.Sprintf("%-4s  %s: %s", f.Level, f.Check, f.Message)
		if f.Remedy != "" {
			line += " => " + f.Remedy
		}
		fmt.Fprintln(w, stripControl(line))
	}
}
