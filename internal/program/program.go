// Package program is what k8s4r-manager and k8s4r-server have in common: the
// way from flags to a controller-runtime manager that works while it holds its
// lease.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Program is one of the programs of a cluster.
type Program struct {
	// Name of the program, and of the lease that the one working instance of a
	// cluster holds.
	Name string
	// Scheme knows the kinds that it reads and writes.
	Scheme *runtime.Scheme
	// Cache says how they are kept.
	Cache cache.Options
	// AddFlags adds its own flags to those that all programs have.
	AddFlags func(*pflag.FlagSet)
	// Validate refuses values of those flags that make no sense, each by a
	// sentence that names the flag.
	Validate func() error
	// Add puts its work into the manager.
	Add func(ctrl.Manager) error
}

// options are the flags that all programs have.
type options struct {
	kubeconfig           string
	leaderElect          bool
	leaderElectNamespace string
	metricsAddress       string
	probeAddress         string
}

func (o *options) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "file that names the cluster; empty: $KUBECONFIG, the cluster that this runs in, or ~/.kube/config")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "work only while holding the lease, so that several can stand by")
	f.StringVar(&o.leaderElectNamespace, "leader-elect-namespace", "k8s4r-system", "namespace of the lease")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "address that serves Prometheus metrics; 0: none")
	f.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "address that serves /healthz and /readyz; 0: none")
}

// Main runs the program and returns its exit status: 2 for flags that make no
// sense, 1 for any other failure, a lost lease among them, else 0.
func (p Program) Main(args []string, stdout, stderr io.Writer) int {
	var o options
	f := pflag.NewFlagSet(p.Name, pflag.ContinueOnError)
	f.SetOutput(stdout)
	o.addFlags(f)
	p.AddFlags(f)
	err := f.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	if err := p.run(ctx, o, log); err != nil {
		log.Error(p.Name+" has ended", "error", err)
		return 1
	}
	return 0
}

func (p Program) run(ctx context.Context, o options, log *slog.Logger) error {
	logger := logr.FromSlogHandler(log.Handler())
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	client, err := clientConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(client, ctrl.Options{
		Scheme:                        p.Scheme,
		Cache:                         p.Cache,
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:        o.probeAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              p.Name,
		LeaderElectionNamespace:       o.leaderElectNamespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if err := errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("ping", healthz.Ping),
		p.Add(mgr),
	); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// clientConfig has no rate limit of its own: the API server has one that is
// fair to all.
func clientConfig(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	client, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	client.QPS = -1
	return client, nil
}
