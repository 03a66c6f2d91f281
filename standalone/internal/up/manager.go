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

	"k8s4r.io/k8s4r/internal/admission"
	"k8s4r.io/k8s4r/internal/logapi"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/notes"
	"k8s4r.io/k8s4r/internal/program"
	"k8s4r.io/k8s4r/internal/server"
	"k8s4r.io/k8s4r/internal/tracing"
	"k8s4r.io/k8s4r/standalone/internal/component"
)

// drainTimeout is how long reconciles that run may take to end at a stop.
const drainTimeout = 10 * time.Second

// addManager adds manager and server as one component: they share an informer
// cache, which halves what decoding every object costs.
func (s *system) addManager() {
	if !s.opts.runs(partManager) && !s.opts.runs(partServer) {
		return
	}
	s.group.Add("manager and server", component.NewBackground(s.runManager, s.probes.ready))
}

func (s *system) runManager(ctx context.Context) error {
	mgr, err := ctrl.NewManager(s.client, s.opts.managerOptions())
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	program.AddLeaderCheck(mgr, &s.probes.Health)
	if err := errors.Join(program.AddCommonChecks(mgr, &s.probes.Health), s.addTo(program.Checked(mgr, &s.probes.Health))); err != nil {
		return err
	}
	go func() {
		<-mgr.Elected() // also says so without an election
		if mgr.GetCache().WaitForCacheSync(ctx) {
			s.probes.begin()
		}
	}()
	return mgr.Start(ctx)
}

// managerOptions lets only one of several `up` work on a cluster that is not
// its own. The lease is not the deployed programs': they hold one each, and
// this process does the work of both.
func (o *options) managerOptions() ctrl.Options {
	drain := drainTimeout
	return ctrl.Options{
		Scheme:     manager.Scheme(),
		Cache:      manager.CacheOptions(),
		Controller: manager.ControllerOptions(),
		// The metrics have a port that was opened before anything started.
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout:       &drain,
		LeaderElection:                !o.embedsCluster(),
		LeaderElectionID:              "k8s4r-up",
		LeaderElectionNamespace:       systemNamespace,
		LeaderElectionReleaseOnCancel: true,
	}
}

// managerConfig is what flags and environment say of the controllers.
func (o *options) managerConfig() (manager.Config, error) {
	cfg := manager.Config{Controllers: o.controllers, OfflineAfter: o.offlineAfter, Archive: o.archiveAddress(), Retention: o.retention}
	return cfg, cfg.ReadEnvironment(os.Getenv)
}

// webhookConfig has the API server ask this process. Another cluster's may not reach
// it, and is not held up by that.
func (s *system) webhookConfig() admission.Config {
	return admission.Config{
		Listener: s.webhook, URL: "https://" + s.webhook.Addr().String(), Unreachable: !s.opts.embedsCluster(),
	}
}

// warner tells people about a robot, as an event.
func warner(mgr ctrl.Manager) func(client.Object, string, string) {
	events := notes.Clipped(mgr.GetEventRecorder("k8s4r-broker"))
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
	if s.opts.runs(partManager) {
		cfg, err := s.opts.managerConfig()
		if err != nil {
			return err
		}
		cfg.Webhook, cfg.Tracer = s.webhookConfig(), tracer
		if err := manager.Add(mgr, cfg); err != nil {
			return err
		}
	}
	if !s.opts.runs(partServer) {
		return nil
	}
	if s.registry != nil {
		s.registry.Follow(mgr.GetCache(), s.broker.Disconnect, warner(mgr))
		if err := errors.Join(mgr.Add(s.registry), metrics.Registry.Register(s.broker.Collector())); err != nil {
			return err
		}
	}
	bridge := s.bridgeConfig()
	bridge.Tracer = tracer
	return server.Add(mgr, server.Config{
		Bridge: bridge,
		Logs:   server.LogConfig{Dir: s.dir.Join("tasklogs")},
		API:    logapi.ServeConfig{Listener: s.logs, URL: s.joinURL(), Hosts: s.hosts()},
		Join:   s.joinConfig(),
	})
}
