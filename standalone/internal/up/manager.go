package up

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/server"
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
	var probes probes
	run := func(ctx context.Context) error { return s.runManager(ctx, &probes) }
	s.group.Add("manager and server", component.NewBackground(run, probes.ready))
}

func (s *system) runManager(ctx context.Context, p *probes) error {
	mgr, err := ctrl.NewManager(s.client, s.opts.managerOptions())
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if err := s.addTo(probed{mgr, p}); err != nil {
		return err
	}
	go func() {
		<-mgr.Elected() // also says so without an election
		if mgr.GetCache().WaitForCacheSync(ctx) {
			p.begin()
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
		Scheme: manager.Scheme(),
		Cache:  manager.CacheOptions(),
		// The metrics have a port that was opened before anything started.
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout:       &drain,
		LeaderElection:                !o.embedsCluster(),
		LeaderElectionID:              "k8s4r-up",
		LeaderElectionNamespace:       "k8s4r-system", // config/deploy/namespace.yaml
		LeaderElectionReleaseOnCancel: true,
	}
}

func (s *system) addTo(mgr ctrl.Manager) error {
	if s.opts.runs(partManager) {
		if err := manager.Add(mgr, manager.Config{Controllers: s.opts.controllers, OfflineAfter: s.opts.offlineAfter}); err != nil {
			return err
		}
	}
	if !s.opts.runs(partServer) {
		return nil
	}
	return server.Add(mgr, server.Config{
		MQTTURL: s.mqttURL(), RobotNamespace: s.opts.robotNamespace, OfflineAfter: s.opts.offlineAfter,
	})
}
