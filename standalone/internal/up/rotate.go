package up

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"k8s4r.io/k8s4r/internal/server/ca"
)

// robotCADir is the directory of the robots' CA in the data directory.
var robotCADir = []string{"pki", "robots"}

// NewCACommand returns the command `ca`.
func NewCACommand(stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{Use: "ca", Short: "Replace the CA of robots of `k8s4r up`", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newRotateCommand(stdout))
	return cmd
}

func newRotateCommand(stdout io.Writer) *cobra.Command {
	var dataDir string
	var period time.Duration
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the CA that signs the certificates of robots",
		Long: `Asks "k8s4r up" on this machine to replace the CA that signs the certificates of
robots, such as after its key has leaked. up does it while it runs, within a
minute, in three steps: robots trust the next CA beside the current one; after a
period the next CA signs; after another period the old one is no longer trusted.
Robots get both with the renewals of their certificates. A robot that is off for
a whole period has to join again with a token.`,
		Example:      "  k8s4r ca rotate\n  k8s4r ca rotate --period 168h",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			dir := filepath.Join(append([]string{dataDir}, robotCADir...)...)
			err := ca.RequestRotation(dir, period)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return fmt.Errorf("%s: there is no CA of robots; set --data-dir to that of k8s4r up", dir)
			case errors.Is(err, ca.ErrRotating):
				return fmt.Errorf("%s: %w; it has ended when rotation.json there is gone", dir, err)
			case err != nil:
				return fmt.Errorf("request a rotation: %w", err)
			}
			fmt.Fprintf(stdout, "k8s4r up replaces the CA of robots: the next CA signs in %[1]s, and %[1]s later the old one is no longer trusted.\n"+
				"If robots' certificates are valid for longer than that, each step takes as long as they are.\nk8s4r doctor shows the CAs.\n", period)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&dataDir, "data-dir", DefaultDataDir(), "data directory of k8s4r up")
	f.DurationVar(&period, "period", ca.DefaultRobotLifetime, fmt.Sprintf("time in which all robots renew their certificates, from %s to %s", ca.MinRotationPeriod, ca.MaxRotationPeriod))
	return cmd
}
