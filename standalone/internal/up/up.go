// Package up implements the command `k8s4r up`: all of K8s4r in one process, with local robots as
// child processes.
package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"k8s4r.io/k8s4r/standalone/internal/datadir"
	"k8s4r.io/k8s4r/standalone/internal/memory"
)

// stopTimeout limits an orderly stop. kube-apiserver completes running requests, and etcd closes
// its database.
const stopTimeout = 30 * time.Second

// NewCommand returns the command `up`.
func NewCommand(stdout, stderr io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run all of K8s4r on this machine",
		Long: `Runs a Kubernetes API server with its etcd, an MQTT broker, and K8s4r's manager,
server and console in one process, and some robots as child processes. All data
is in one directory; the next start continues with it, also after a crash. With
--ephemeral, the data is gone at the end, and other systems on this machine keep
their ports.

The file up.json in that directory exists while everything is ready, and has the
addresses. A process that is killed leaves it until the next start: scripts must
compare its pid with that of the process.`,
		Example:      "  k8s4r up\n  k8s4r up --ephemeral --robots 5\n  k8s4r up --advertise-address 192.168.1.10",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.completeRetention(cmd.Flags())
			if o.ephemeral {
				if err := o.makeEphemeral(cmd.Flags()); err != nil {
					return err
				}
			}
			if err := o.validate(); err != nil {
				return errors.Join(err, o.removeIfEphemeral())
			}
			ctx, release := withSignals(cmd.Context(), os.Exit)
			defer release()
			return runUp(ctx, o, stdout, stderr)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// runUp locks the data directory while the system runs.
func runUp(ctx context.Context, o options, stdout, stderr io.Writer) error {
	dir, err := datadir.Open(o.dataDir)
	if err != nil {
		return errors.Join(err, o.removeIfEphemeral())
	}
	return errors.Join(runIn(ctx, dir, o, stdout, stderr), dir.Close(), o.removeIfEphemeral())
}

func (o *options) removeIfEphemeral() error {
	if !o.ephemeral {
		return nil
	}
	return removeData(o.dataDir)
}

func runIn(ctx context.Context, dir *datadir.Dir, o options, stdout, stderr io.Writer) error {
	memory.BeginStart()
	if err := removeState(dir); err != nil {
		return err
	}
	s, err := assembleSystem(dir, o, stderr)
	if err != nil {
		return err
	}
	s.group.Started = func(name string, took time.Duration) {
		fmt.Fprintf(stderr, "%-20s ready after %s\n", name, took.Round(10*time.Millisecond))
	}
	result := runSystem(ctx, s, stdout)
	fmt.Fprintln(stderr, "stopping")
	return errors.Join(result, stopSystem(s))
}

// runSystem starts the system and blocks until it is stopped, which returns nil, or until a part of
// it fails.
func runSystem(ctx context.Context, s *system, stdout io.Writer) error {
	if err := s.group.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // what failed did so because of the stop
		}
		return err
	}
	if err := s.currentState().writeFile(s.dir); err != nil {
		return err
	}
	memory.Settle()
	printSummary(stdout, s.currentState(), s.opts.ephemeral, s.signInLink())
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.group.Failed():
		return err
	}
}

func stopSystem(s *system) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return errors.Join(removeState(s.dir), s.group.Stop(ctx))
}
