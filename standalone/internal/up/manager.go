package up

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/manager/admission"
	"k8s4r.io/k8s4r/internal/platform/apiserve"
	"k8s4r.io/k8s4r/internal/platform/droppedfields"
	notes "k8s4r.io/k8s4r/internal/platform/events"
	"k8s4r.io/k8s4r/internal/platform/program"
	"k8s4r.io/k8s4r/internal/platform/tracing"
	"k8s4r.io/k8s4r/internal/server"
	"k8s4r.io/k8s4r/standalone/internal/component"
	"k8s4r.io/k8s4r/standalone/internal/install"
)

// drainTimeout limits the wait for running reconciles during a stop.
const drainTimeout = 10 * time.Second

// addManager adds the manager and the server as one component. They share an informer cache, which
// halves the cost of decoding objects. The cache is filled as the manager, which may read all that
// the server may list. Every other request is made as the program that makes it.
func (s *system) addManager() {
	if !s.opts.includesPart(partManager) && !s.opts.includesPart(partServer) {
		return
	}
	s.group.Add("manager and server", component.NewBackground(s.runManager, s.probes.checkReady))
}

func (s *system) runManager(ctx context.Context) error {
	if err := install.RepeatInterrupted(func() error { return s.prepareAccounts(ctx) }); err != nil {
		return err
	}
	opts := s.opts.managerOptions()
	opts.LeaderElectionConfig = s.client // the lease is that of the process
	config := actAs(s.opts.cacheAccount(), s.client)
	droppedfields.LogOnce(config, logr.FromSlogHandler(s.log.Handler()))
	mgr, err := ctrl.NewManager(config, opts)
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	program.AddLeaderCheck(mgr, &s.probes.Health)
	if err := errors.Join(program.AddCommonChecks(mgr, &s.probes.Health), s.addTo(program.NewCheckedManager(mgr, &s.probes.Health))); err != nil {
		return err
	}
	go func() {
		<-mgr.Elected() // also closed if there is no election
		if mgr.GetCache().WaitForCacheSync(ctx) {
			s.probes.markStarted()
		}
	}()
	return mgr.Start(ctx)
}

// cacheAccount returns the account as which the common cache is filled.
func (o *options) cacheAccount() string {
	if o.includesPart(partManager) {
		return managerAccount
	}
	return serverAccount
}

// managerOptions enables leader election among several `up` processes on one external cluster. The
// lease is not that of the deployed programs: each of them has its own, and this process replaces
// both.
func (o *options) managerOptions() ctrl.Options {
	drain := drainTimeout
	return ctrl.Options{
		Scheme:     manager.NewScheme(),
		Cache:      manager.CacheOptions(),
		Controller: manager.ControllerOptions(),
		// The metrics are served on a port that is opened before anything starts.
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout:       &drain,
		LeaderElection:                !o.embedsCluster(),
		LeaderElectionID:              "k8s4r-up",
		LeaderElectionNamespace:       systemNamespace,
		LeaderElectionReleaseOnCancel: true,
	}
}

// managerConfig returns the configuration of the controllers from flags and environment.
func (o *options) managerConfig() (manager.Config, error) {
	cfg := manager.Config{Controllers: o.controllers, OfflineAfter: o.offlineAfter, Archive: o.archiveAddress(), Retention: o.retention, Finished: o.finished}
	return cfg, cfg.ReadEnvironment(os.Getenv)
}

// webhookConfig makes the API server call this process. If the cluster is external, it may be
// unable to reach this process, so the webhook's failure policy is Ignore. The process registers
// the webhook: the manager may only update a registration.
func (s *system) webhookConfig() (admission.Config, error) {
	registrar, err := client.New(s.client, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return admission.Config{}, fmt.Errorf("create client: %w", err)
	}
	return admission.Config{
		Listener: s.webhook, URL: "https://" + s.webhook.Addr().String(), Unreachable: !s.opts.embedsCluster(), Registrar: registrar,
		RecordActions: !s.opts.embedsCluster(), // the embedded cluster has an audit log
	}, nil
}

// newWarner returns a function that records a warning event about a robot.
func newWarner(mgr ctrl.Manager) (func(client.Object, string, string), error) {
	events, err := notes.NewRecorder(mgr, "k8s4r-broker")
	if err != nil {
		return nil, err
	}
	return func(o client.Object, reason, message string) {
		events.Eventf(o, nil, corev1.EventTypeWarning, reason, "Refuse", "%s", message)
	}, nil
}

func (s *system) addTo(mgr ctrl.Manager) error {
	tracer, err := tracing.Open(s.opts.tracing, "k8s4r", mgr.GetLogger().WithName("tracing"))
	if err != nil {
		return err
	}
	if tracer != nil {
		if err := mgr.Add(tracer); err != nil {
			return err
		}
	}
	if s.opts.includesPart(partManager) {
		if err := s.addControllers(mgr, tracer); err != nil {
			return err
		}
	}
	if !s.opts.includesPart(partServer) {
		return nil
	}
	if s.opts.cacheAccount() != serverAccount {
		if mgr, err = shareCache(mgr, actAs(serverAccount, s.client)); err != nil {
			return fmt.Errorf("server: %w", err)
		}
	}
	return s.addServer(mgr, tracer)
}

// addControllers adds the manager's work to mgr, which acts as the manager.
func (s *system) addControllers(mgr ctrl.Manager, tracer *tracing.Tracer) error {
	cfg, err := s.opts.managerConfig()
	if err != nil {
		return err
	}
	if cfg.Webhook, err = s.webhookConfig(); err != nil {
		return err
	}
	cfg.Tracer, cfg.Restore = tracer, s.restore
	cfg.API = apiserve.Config{Listener: s.plans}
	if s.opts.advertise != "" {
		cfg.API.URL = "https://" + net.JoinHostPort(s.opts.advertise, strconv.Itoa(s.plans.Addr().(*net.TCPAddr).Port))
	}
	return errors.Join(s.addLease(mgr, managerAccount), manager.AddControllers(mgr, cfg))
}

// addServer adds the server's work to mgr, which acts as the server.
func (s *system) addServer(mgr ctrl.Manager, tracer *tracing.Tracer) error {
	if err := s.addLease(mgr, serverAccount); err != nil {
		return err
	}
	if s.registry != nil {
		warn, err := newWarner(mgr)
		if err != nil {
			return err
		}
		s.registry.SetDependencies(mgr.GetCache(), s.broker.Disconnect, warn)
		if err := errors.Join(mgr.Add(s.registry), metrics.Registry.Register(s.broker.Collector())); err != nil {
			return err
		}
	}
	bridge := s.bridgeConfig()
	bridge.Tracer, bridge.Restore = tracer, s.restore
	return server.Add(mgr, server.Config{
		Gateway: bridge,
		Logs:    server.LogConfig{Dir: s.dir.Join("tasklogs")},
		API:     apiserve.Config{Listener: s.logs, URL: s.joinURL(), Hosts: s.listHosts()},
		Join:    s.joinConfig(),
		Archive: s.opts.archiveAddress(),
	})
}
