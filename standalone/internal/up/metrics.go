package up

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"k8s4r.io/k8s4r/internal/platform/program"
	"k8s4r.io/k8s4r/standalone/internal/component"
)

// newMetrics serves the metrics and health checks of manager, server and broker on a port that was
// opened before anything started.
func newMetrics(l net.Listener, health *program.Health) component.Component {
	mux := http.NewServeMux()
	health.Register(mux)
	mux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return component.NewBackground(func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { server.Close() })()
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, nil)
}

func metricsURL(l net.Listener) string {
	if l == nil {
		return ""
	}
	return "http://" + l.Addr().String() + "/metrics"
}
