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

	"k8s4r.io/k8s4r/internal/platform/access"
)

// metricsPath is open to all on a loopback address.
const metricsPath = "/metrics"

// accessGate authenticates and authorizes requests (access.Gate).
type accessGate interface {
	Authenticate(r *http.Request) (*access.User, error)
	IsPathAllowed(ctx context.Context, u *access.User, do authorizationv1.NonResourceAttributes) (bool, error)
}

// metricsOptions returns how metrics and profiles are served on address.
//
// On a loopback address metrics are open. On any other address they are served over TLS to
// callers that the API server lets get /metrics. Profiles show memory, secrets included, so they
// are never open; if the listener is neither loopback nor TLS, they are not served, because a
// token would cross the network in plain text.
func metricsOptions(address string, secure bool) metricsserver.Options {
	local := IsLoopback(address)
	o := metricsserver.Options{BindAddress: address, SecureServing: secure && !local}
	if !local && !secure {
		return o
	}
	o.ExtraHandlers = profileHandlers()
	o.FilterProvider = func(config *rest.Config, over *http.Client) (metricsserver.Filter, error) {
		c, err := client.New(config, client.Options{HTTPClient: over, Scheme: scheme.Scheme})
		if err != nil {
			return nil, err
		}
		g := access.New(c, c)
		return func(log logr.Logger, h http.Handler) (http.Handler, error) {
			return authorizeRequests(g, local, log, h), nil
		}, nil
	}
	return o
}

// IsLoopback reports whether host:port is reachable from this machine only.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// profileHandlers returns Go's profiles by path.
func profileHandlers() map[string]http.Handler {
	return map[string]http.Handler{
		"/debug/pprof/":        http.HandlerFunc(pprof.Index),
		"/debug/pprof/cmdline": http.HandlerFunc(pprof.Cmdline),
		"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"/debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
		"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
	}
}

// authorizeRequests serves callers that the API server lets get the path. Metrics may be open.
func authorizeRequests(g accessGate, openMetrics bool, log logr.Logger, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == metricsPath && openMetrics {
			h.ServeHTTP(w, r)
			return
		}
		u, err := g.Authenticate(r)
		switch {
		case errors.Is(err, access.ErrUnauthenticated), errors.Is(err, access.ErrImpersonation):
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		case err != nil:
			log.Error(err, "cannot authenticate a request")
			http.Error(w, "cannot authenticate at the API server; try again later", http.StatusServiceUnavailable)
			return
		}
		allowed, err := g.IsPathAllowed(r.Context(), u, authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: "get"})
		switch {
		case err != nil:
			log.Error(err, "cannot authorize a request")
			http.Error(w, "cannot authorize at the API server; try again later", http.StatusServiceUnavailable)
		case !allowed:
			http.Error(w, strings.TrimSpace(u.Name+" may not get "+r.URL.Path+"; bind the ClusterRole k8s4r-metrics-reader or k8s4r-profiler"), http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
}
