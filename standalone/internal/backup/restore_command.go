package backup

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// NewRestoreCommand returns the command `restore`.
func NewRestoreCommand(defaultDataDir string, stdout io.Writer) *cobra.Command {
	o := RestoreOptions{Now: time.Now}
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore the data of k8s4r up from a backup",
		Long: `Makes a backup the content of a data directory in which "k8s4r up" does not run.
The next "k8s4r up" places nothing until the robots that are connected have reported
what they ran since the backup, and runs none of it again.`,
		Example:      "  k8s4r restore --replace k8s4r-2026-01-31.tar.gz",
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(_ *cobra.Command, args []string) error {
			o.File = args[0]
			res, err := Restore(o)
			if err != nil {
				return err
			}
			return printResult(stdout, o, res)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.DataDir, "data-dir", defaultDataDir, "data directory to restore to")
	f.BoolVar(&o.Replace, "replace", false, "move a data directory that is not empty aside, and restore in its place")
	return cmd
}

// printResult prints what was restored, and where the old directory is.
func printResult(w io.Writer, o RestoreOptions, res Result) error {
	_, err := fmt.Fprintf(w, "Restored the backup of %s to %s (epoch %d).\n", res.Manifest.CreatedAt.Format(time.RFC3339), o.DataDir, res.State.Epoch)
	if res.MovedTo != "" {
		_, more := fmt.Fprintf(w, "The data before is in %s. Delete it when you do not need it any more.\n", res.MovedTo)
		err = errors.Join(err, more)
	}
	return err
}
