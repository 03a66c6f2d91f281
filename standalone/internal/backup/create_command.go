package backup

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// NewBackupCommand returns the command `backup`.
func NewBackupCommand(defaultDataDir string, stdout io.Writer) *cobra.Command {
	o := CreateOptions{Now: time.Now}
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Back up the data of k8s4r up to one file",
		Long: `Writes the objects, the keys and the history of "k8s4r up" to one file, whether it
runs or not. The file contains private keys: keep it as you keep those.`,
		Example:      "  k8s4r backup k8s4r-$(date +%F).tar.gz",
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return runBackup(ctx, o, args[0], stdout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.DataDir, "data-dir", defaultDataDir, "data directory of k8s4r up")
	f.BoolVar(&o.IncludeLogs, "logs", false, "include the logs of tasks")
	return cmd
}

func runBackup(ctx context.Context, o CreateOptions, file string, stdout io.Writer) (err error) {
	if o.File, err = filepath.Abs(file); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	m, err := Create(ctx, o)
	if err != nil {
		return err
	}
	var size int64
	for _, f := range m.Files {
		size += f.Size
	}
	_, err = fmt.Fprintf(stdout, "Backed up %s to %s: %d files, %d bytes. It contains private keys.\n", o.DataDir, file, len(m.Files), size)
	return err
}
