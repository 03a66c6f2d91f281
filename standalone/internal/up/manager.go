package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/manager/admission"
	notes "k8s4r.io/k8s4r/internal/platform/events"
	"k8s4r.io/k8s4r/internal/platform/program"
	"k8s4r.io/k8s4r/internal/platform/tracing"
	"k8s4r.io/k8s4r/internal/server"
	"k8s4r.io/k8s4r/internal/server/logapi"
	"k8s4r.io/k8s4r/standalone/internal/component"
)

// drainTimeout limits the wait for running reconciles during a stop.
const drainTimeout = 10 * time.Second

// addManager adds the manager and the server as one component. They share an informer cache, which
// halves the cost of decoding objects.
func (s *system) addManager() {
	if !s.opts.includesPart(partManager) && !s.opts.includesPart(partServer) {
		return
	}
	s.group.Add("manager and server", component.NewBackground(s.runManager, s.probes.checkReady))
}

func (s *system) runManager(ctx context.Context) error {
	mgr, err := ctrl.NewManager(s.client, s.opts.managerOptions())
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
	cfg := manager.Config{Controllers: o.controllers, OfflineAfter: o.offlineAfter, Archive: o.archiveAddress(), Retention: o.retention}
	return cfg, cfg.ReadEnvironment(os.Getenv)
}

// webhookConfig makes the API server call this process. If the cluster is external, it may be
// unable to reach this process, so the webhook's failure policy is Ignore.
func (s *system) webhookConfig() admission.Config {
	return admission.Config{
		Listener: s.webhook, URL: "https://" + s.webhook.Addr().String(), Unreachable: !s.opts.embedsCluster(),
	}
}

// newWarner returns a function that records a warning event about a robot.
func newWarner(mgr ctrl.Manager) func(client.Object, string, string) {
	events := notes.NewClippingRecorder(mgr.GetEventRecorder("k8s4r-broker"))
	return func(o client.Object, reason, message string) {
		events.Eventf(o, nil, corev1.EventTypeWarning, reason, "Refuse", "%s", message)
	}
}

func (s *system) addTo(mgr ctrl.Manager) error {
	if err := s.addLeases(mgr); err != nil {
		return err
	}
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
		cfg, err := s.opts.managerConfig()
		if err != nil {
			return err
		}
		cfg.Webhook, cfg.Tracer = s.webhookConfig(), tracer
		if err := manager.AddControllers(mgr, cfg); err != nil {
			return err
		}
	}
	if !s.opts.includesPart(partServer) {
		return nil
	}
	if s.registry != nil {
		s.registry.SetDependencies(mgr.GetCache(), s.broker.Disconnect, newWarner(mgr))
		if err := errors.Join(mgr.Add(s.registry), metrics.Registry.Register(s.broker.Collector())); err != nil {
			return err
		}
	}
	bridge := s.bridgeConfig()
	bridge.Tracer = tracer
	return server.Add(mgr, server.Config{
		Gateway: bridge,
		Logs:    server.LogConfig{Dir: s.dir.Join("tasklogs")},
		API:     logapi.ServeConfig{Listener: s.logs, URL: s.joinURL(), Hosts: s.listHosts()},
		Join:    s.joinConfig(),
	})
}
