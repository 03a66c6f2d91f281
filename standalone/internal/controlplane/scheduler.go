package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/standalone/internal/component"
)

// profiles are the scheduler names that pods may have: the default, and the one of manifests for
// Volcano.
const profiles = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 1000, burst: 1000}
profiles:
- schedulerName: default-scheduler
- schedulerName: volcano
`

func newScheduler(c credentials) component.Monitored {
	synced := make(chan struct{})
	run := func(ctx context.Context) error { return runScheduler(ctx, c, func() { close(synced) }) }
	ready := func(context.Context) error {
		select {
		case <-synced:
			return nil
		default:
			return errors.New("caches are not filled yet")
		}
	}
	return component.NewBackground(run, ready)
}

// runScheduler does what the kube-scheduler command does, without its signal handlers: a process
// can install them only once.
func runScheduler(ctx context.Context, c credentials, synced func()) error {
	config := c.scheduler + ".config"
	if err := keyfile.WriteFile(config, fmt.Appendf(nil, profiles, c.scheduler)); err != nil {
		return err
	}
	o := options.NewOptions()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, section := range o.Flags.FlagSets {
		flags.AddFlagSet(section)
	}
	// Losing a lease would end the whole process.
	err := flags.Parse([]string{"--config=" + config, "--leader-elect=false", "--secure-port=0", "--profiling=false"})
	if err != nil {
		return err
	}
	if err := o.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("feature gates: %w", err)
	}
	cc, scheduler, err := app.Setup(ctx, o)
	if err != nil {
		return fmt.Errorf("options: %w", err)
	}
	go func() {
		if scheduler.WaitForHandlersSync(ctx) == nil {
			synced()
		}
	}()
	err = app.Run(ctx, cc, scheduler)
	if ctx.Err() != nil {
		return ctx.Err() // Run returns an error even after an orderly stop
	}
	return errors.Join(err, os.ErrProcessDone)
}
