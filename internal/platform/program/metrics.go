package program

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"k8s4r.io/k8s4r/internal/access"
)

// metricsPath is open to all on a loopback address.
const metricsPath = "/metrics"

// gate tells who calls, and what they may do (access.Gate).
type gate interface {
	User(r *http.Request) (*access.User, error)
	AllowedPath(ctx context.Context, u *access.User, do authorizationv1.NonResourceAttributes) (bool, error)
}

// metricsOptions say how metrics and profiles are served on address.
//
// On a loopback address metrics are for all who are there. On any other they come over TLS,
// and only to callers whom the API server lets get /metrics: they say how much of what runs.
// Profiles show what is in memory, secrets included, so they are never for all; where the
// listener is neither loopback nor TLS, a token would go over the network for everyone to read,
// and there are none.
func metricsOptions(address string, secure bool) metricsserver.Options {
	local := Loopback(address)
	o := metricsserver.Options{BindAddress: address, SecureServing: secure && !local}
	if !local && !secure {
		return o
	}
	o.ExtraHandlers = profiles()
	o.FilterProvider = func(config *rest.Config, over *http.Client) (metricsserver.Filter, error) {
		c, err := client.New(config, client.Options{HTTPClient: over, Scheme: scheme.Scheme})
		if err != nil {
			return nil, err
		}
		g := access.New(c, c)
		return func(log logr.Logger, h http.Handler) (http.Handler, error) { return guarded(g, local, log, h), nil }, nil
	}
	return o
}

// Loopback tells whether an address to listen on, host:port, is only this machine's.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// profiles are those of Go, by path.
func profiles() map[string]http.Handler {
	return map[string]http.Handler{
		"/debug/pprof/":        http.HandlerFunc(pprof.Index),
		"/debug/pprof/cmdline": http.HandlerFunc(pprof.Cmdline),
		"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"/debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
		"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
	}
}

// guarded lets those through whom the API server lets get the path. Metrics may be open.
func guarded(g gate, openMetrics bool, log logr.Logger, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == metricsPath && openMetrics {
			h.ServeHTTP(w, r)
			return
		}
		u, err := g.User(r)
		switch {
		case errors.Is(err, access.ErrUnauthenticated), errors.Is(err, access.ErrImpersonation):
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		case err != nil:
			log.Error(err, "who asks cannot be found out")
			http.Error(w, "the API server does not say who asks; try again later", http.StatusServiceUnavailable)
			return
		}
		allowed, err := g.AllowedPath(r.Context(), u, authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: "get"})
		switch {
		case err != nil:
			log.Error(err, "what somebody may do cannot be found out")
			http.Error(w, "the API server does not say who may; try again later", http.StatusServiceUnavailable)
		case !allowed:
			http.Error(w, strings.TrimSpace(u.Name+" may not get "+r.URL.Path+"; bind the ClusterRole k8s4r-metrics-reader or k8s4r-profiler"), http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
}
