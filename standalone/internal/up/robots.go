package up

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1alpha1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/standalone/internal/robots"
)

func (s *system) addRobots() error {
	if !s.opts.includesPart(partRobots) {
		return nil
	}
	agent, err := robots.FindAgent()
	if err != nil {
		return err
	}
	cfg := robots.Config{
		Agent:     agent,
		IDs:       s.opts.robotIDs(),
		Connect:   s.robotFlags,
		Heartbeat: heartbeatInterval(s.opts.offlineAfter),
		StateDir:  s.dir.Join("robots"),
		LogDir:    s.dir.Join("logs"),
		Log:       s.terminal,
	}
	if s.opts.includesPart(partManager) && s.opts.includesPart(partServer) {
		cfg.Ready = robotsOnline(s.client, s.opts.robotNamespace, cfg.IDs)
	}
	s.group.Add("robots", robots.New(cfg))
	return nil
}

// heartbeatInterval returns the interval for robots that would be Offline between two heartbeats of
// the default interval. If the default is short enough, it returns 0.
func heartbeatInterval(offlineAfter time.Duration) time.Duration {
	const usual, shortest = 30 * time.Second, time.Second
	if third := offlineAfter / 3; third < usual {
		return max(third.Round(time.Second), shortest)
	}
	return 0
}

// robotsOnline returns a check that all robots in ids can be given tasks.
func robotsOnline(cluster *rest.Config, namespace string, ids []string) func(context.Context) error {
	return func(ctx context.Context) error {
		scheme := runtime.NewScheme()
		if err := robotv1alpha1.AddToScheme(scheme); err != nil {
			return err
		}
		c, err := client.New(cluster, client.Options{Scheme: scheme})
		if err != nil {
			return fmt.Errorf("client: %w", err)
		}
		for _, id := range ids {
			var r robotv1alpha1.Robot
			if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: id}, &r); err != nil {
				return err
			}
			if r.Status.Phase != string(lifecycle.RobotOnline) {
				return fmt.Errorf("%s is %q", id, r.Status.Phase)
			}
		}
		return nil
	}
}
