package up

import (
	"context"
	"crypto/x509"
	"log/slog"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/platform/certexpiry"
	"k8s4r.io/k8s4r/standalone/internal/component"
	"k8s4r.io/k8s4r/standalone/internal/controlplane"
)

// controlPlaneConfig returns the configuration of the embedded cluster.
func (s *system) controlPlaneConfig() controlplane.Config {
	return controlplane.Config{
		Dir: s.dir.Path, Listener: s.api, Lifetime: s.opts.clusterCertificates,
		OnCertificates: func(all map[string]*x509.Certificate) {
			for name, c := range all {
				s.certificates.Set(name, c)
			}
		},
		Warn: func(message string, err error) { s.terminal.Warn(message, "error", err) },
	}
}

// newCoreClient returns a client of Kubernetes' own kinds without a cache.
func newCoreClient(cluster *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.New(cluster, client.Options{Scheme: scheme})
}

// expiryInterval is the time between two comparisons of the published expiries with the current
// ones.
const expiryInterval = 10 * time.Second

// newExpiryPublisher publishes the expiries of certificates for `k8s4r doctor` whenever they change.
func newExpiryPublisher(cluster *rest.Config, tracker *certexpiry.Tracker, log *slog.Logger) component.Component {
	return component.NewBackground(func(ctx context.Context) error {
		c, err := newCoreClient(cluster)
		if err != nil {
			return err
		}
		var published map[string]certexpiry.Validity
		for {
			if now := tracker.Certificates(); !maps.Equal(now, published) {
				if err := certexpiry.Publish(ctx, c, now); err == nil {
					published = now
				} else if ctx.Err() == nil {
					log.Warn("will try again", "error", err)
				}
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(expiryInterval):
			}
		}
	}, nil)
}
