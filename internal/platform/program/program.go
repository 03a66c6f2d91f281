// Package program is the common part of k8s4r-manager and k8s4r-server: from flags to a
// controller-runtime manager that works while it holds its lease.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"

	"k8s4r.io/k8s4r/internal/platform/droppedfields"
	"k8s4r.io/k8s4r/internal/platform/tracing"
	"k8s4r.io/k8s4r/internal/protocol/version"
)

// Program is one of the programs of a cluster.
type Program struct {
	// Name of the program, and of the lease that its working instance holds unless
	// --leader-elect-resource-name names another.
	Name string
	// Replicated: every instance works, without a lease.
	Replicated bool
	// Scheme knows the kinds that it reads and writes.
	Scheme *runtime.Scheme
	// Cache returns the cache options, after the flags are parsed.
	Cache func() cache.Options
	// Controller says how its controllers work.
	Controller config.Controller
	// AddFlags adds the program's own flags to the common ones.
	AddFlags func(*pflag.FlagSet)
	// Complete sets flags that were not given on the command line, from a file. Nil: there is no
	// file.
	Complete func(*pflag.FlagSet) error
	// Validate returns an error that names the flag for each invalid value of those flags.
	Validate func() error
	// LogHandler returns the handler of the log, after the flags are parsed. Nil: JSON, from Info.
	LogHandler func(io.Writer) slog.Handler
	// Trace receives the tracer, which may be nil, before Add is called. If Trace is nil, the
	// program makes no spans and has no flags for them.
	Trace func(*tracing.Tracer)
	// Add adds the program's work to the manager.
	Add func(ctrl.Manager) error
}

// options are the common flags.
type options struct {
	kubeconfig           string
	master               string
	leaderElect          bool
	leaderElectNamespace string
	leaderElectName      string
	metricsAddress       string
	metricsSecure        bool
	probeAddress         string
	qps                  float32
	burst                int
	tracing              tracing.Config
}

func (o *options) addFlags(f *pflag.FlagSet, p Program) {
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path of the kubeconfig; empty: $KUBECONFIG, the cluster in which this Pod runs, or ~/.kube/config")
	f.StringVar(&o.master, "master", "", "address of the API server, such as https://10.0.0.1:6443; empty: that of the kubeconfig")
	if !p.Replicated {
		f.BoolVar(&o.leaderElect, "leader-elect", true, "run only while holding the Lease, so that other replicas can be on standby")
		f.StringVar(&o.leaderElectNamespace, "leader-elect-namespace", "k8s4r-system", "namespace of the Lease")
		f.StringVar(&o.leaderElectName, "leader-elect-resource-name", p.Name, "name of the Lease; Deployments that run different controllers need different ones")
	}
	f.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "address that serves Prometheus metrics, and Go profiles at /debug/pprof/; 0: none")
	f.BoolVar(&o.metricsSecure, "metrics-secure", true, "serve metrics over HTTPS to clients that the API server permits to get /metrics, unless the address is a loopback address; false: over HTTP to all clients, without profiles")
	f.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "address that serves /livez, /healthz and /readyz, each with ?verbose; 0: none")
	f.Float32Var(&o.qps, "qps", 0, "maximum requests per second to the API server; 0: no limit on the client side, only the API server's own fair limits")
	f.IntVar(&o.burst, "burst", 0, "burst of requests that may exceed --qps; 0: twice --qps; no effect without --qps")
}

// validateCommon rejects a lease without a name, two servers at one address, and limits that would
// stop all requests.
func (o *options) validateCommon() error {
	switch {
	case o.leaderElect && o.leaderElectName == "":
		return errors.New("--leader-elect-resource-name: must be the name of a Lease")
	case o.metricsAddress == o.probeAddress && o.probeAddress != "" && o.probeAddress != "0" && !strings.HasSuffix(o.probeAddress, ":0"):
		return fmt.Errorf("--metrics-bind-address=%s: is the address of --health-probe-bind-address too; set another for one of them, such as :11251", o.metricsAddress)
	case o.qps < 0:
		return fmt.Errorf("--qps=%g: must be 0 (no limit) or more", o.qps)
	case o.burst < 0:
		return fmt.Errorf("--burst=%d: must be 0 (twice --qps) or more", o.burst)
	}
	return nil
}

// Main runs the program and returns its exit status: 2 for invalid flags, 1 for any other failure
// including a lost lease, else 0.
func (p Program) Main(args []string, stdout, stderr io.Writer) int {
	var o options
	f := pflag.NewFlagSet(p.Name, pflag.ContinueOnError)
	f.SetOutput(stdout)
	o.addFlags(f, p)
	if p.Trace != nil {
		o.tracing.AddFlags(f)
	}
	p.AddFlags(f)
	says := f.Bool("version", false, "print the version and exit")
	err := f.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil && *says {
		fmt.Fprintln(stdout, p.Name, version.Version)
		return 0
	}
	if err == nil && p.Complete != nil {
		err = p.Complete(f)
	}
	if err == nil {
		err = errors.Join(o.validateCommon(), o.tracing.Validate(), p.Validate())
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := slog.New(p.logHandler(stderr))
	if err := p.runManager(ctx, o, log); err != nil {
		log.Error(p.Name+" has ended", "error", err)
		return 1
	}
	return 0
}

func (p Program) logHandler(to io.Writer) slog.Handler {
	if p.LogHandler == nil {
		return slog.NewJSONHandler(to, nil)
	}
	return p.LogHandler(to)
}

func (p Program) runManager(ctx context.Context, o options, log *slog.Logger) error {
	logger := logr.FromSlogHandler(log.Handler())
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	client, err := o.clientConfig()
	if err != nil {
		return err
	}
	droppedfields.LogOnce(client, logger)
	mgr, err := ctrl.NewManager(client, ctrl.Options{
		Scheme:                        p.Scheme,
		Cache:                         p.Cache(),
		Controller:                    p.Controller,
		Metrics:                       metricsOptions(o.metricsAddress, o.metricsSecure),
		HealthProbeBindAddress:        "0", // health.serve does
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              o.leaderElectName,
		LeaderElectionNamespace:       o.leaderElectNamespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	var health Health
	if err := AddCommonChecks(mgr, &health); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if err := p.startTracing(mgr, o.tracing); err != nil {
		return err
	}
	if !p.Replicated {
		AddLeaderCheck(mgr, &health)
	}
	if err := errors.Join(health.serveHealth(mgr, o.probeAddress), p.Add(NewCheckedManager(mgr, &health))); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// startTracing passes the tracer to the program; it closes when the program ends.
func (p Program) startTracing(mgr ctrl.Manager, c tracing.Config) error {
	if p.Trace == nil {
		return nil
	}
	t, err := tracing.Open(c, p.Name, mgr.GetLogger().WithName("tracing"))
	if err != nil || t == nil {
		return err
	}
	p.Trace(t)
	return mgr.Add(t)
}

// clientConfig has no rate limit unless --qps sets one.
func (o *options) clientConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	overrides := &clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: o.master}}
	client, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	client.QPS, client.Burst = o.qps, o.burst
	if o.qps == 0 {
		client.QPS = -1 // which client-go takes for no limit
	} else if o.burst == 0 {
		client.Burst = int(math.Ceil(2 * float64(o.qps)))
	}
	return client, nil
}
