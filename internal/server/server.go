// Package server assembles k8s4r-server: the gateway between robots and the API
// server, the join and log APIs, flags and leader election.
package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	corev1 "k8s.io/api/core/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/platform/apiserve"
	"k8s4r.io/k8s4r/internal/platform/certexpiry"
	"k8s4r.io/k8s4r/internal/platform/connlimit"
	notes "k8s4r.io/k8s4r/internal/platform/events"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/internal/server/gateway"
	"k8s4r.io/k8s4r/internal/server/joinapi"
	"k8s4r.io/k8s4r/internal/server/logapi"
	"k8s4r.io/k8s4r/internal/server/logstore"
)

// eventSource is the reporter of the server's events.
const eventSource = "k8s4r-server"

// Config configures the server.
type Config struct {
	Gateway gateway.Config
	Logs    LogConfig
	API     apiserve.Config
	Join    JoinConfig
	// Archive is the address of the archive that the history API reads (archive.Open). Empty: none.
	Archive string
}

// Scheme returns the kinds that the server reads and writes.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// Fails only if two types have the same name, which every test would show.
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}

// Add adds the server to mgr, which provides leases, cache and health checks. The caller
// chooses the rate limit of mgr's client.
func Add(mgr ctrl.Manager, cfg Config) error {
	events, err := notes.NewRecorder(mgr, eventSource)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	store, err := openLogs(cfg.Logs)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if cfg.Join.Certificates == nil {
		cfg.Join.Certificates = &certexpiry.Tracker{}
		if err := metrics.Registry.Register(cfg.Join.Certificates); err != nil {
			return fmt.Errorf("server: %w", err)
		}
	}
	var notifier logapi.Notifier
	tokens := newTokenStore(mgr)
	cfg.Gateway.Tokens = tokens
	g, err := gateway.New(cfg.Gateway, gateway.Cluster{
		Client:    mgr.GetClient(),
		APIReader: mgr.GetAPIReader(),
		Informers: mgr.GetCache(),
		Warn: func(o client.Object, reason, message string) {
			events.Eventf(o, nil, corev1.EventTypeWarning, reason, "Dispatch", "%s", message)
		},
		Logs:          store,
		OnTaskChanged: notifier.NotifyTask,
	}, metrics.Registry, mgr.GetLogger().WithName("server"))
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return errors.Join(
		mgr.AddReadyzCheck("mqtt", func(*http.Request) error { return g.Ready() }),
		mgr.Add(g),
		addAPI(mgr, cfg, store, &notifier, tokens),
	)
}

// addAPI adds the HTTPS API if there is anything to serve.
func addAPI(mgr ctrl.Manager, cfg Config, store logstore.Store, notifier *logapi.Notifier, tokens joinapi.Tokens) error {
	mux := http.NewServeMux()
	if err := errors.Join(addJoin(mgr, mux, cfg.Join, tokens), addLogs(mgr, mux, store, notifier), addHistory(mgr, mux, cfg.Archive)); err != nil {
		return err
	}
	hasNoAPI := store == nil && cfg.Join.Authority == nil
	if hasNoAPI || cfg.API.Listener == nil && (cfg.API.Address == "" || cfg.API.Address == "0") {
		return nil
	}
	cfg.API.ServerName = serveraddr.HostName(serveraddr.Name)
	if cfg.Join.Authority != nil {
		cfg.API.Certificates = cfg.Join.Authority
	}
	cfg.API.Connections.CountOpen = func(state connlimit.State, change int) {
		apiConnections.WithLabelValues(string(state)).Add(float64(change))
	}
	cfg.API.Connections.CountRefused = func(reason connlimit.Reason) { refusedConnections.WithLabelValues(string(reason)).Inc() }
	announce := func(ctx context.Context, a serveraddr.Address) error {
		return serveraddr.PublishAddress(ctx, mgr.GetClient(), mgr.GetAPIReader(), serveraddr.Name, a)
	}
	return mgr.Add(apiserve.New(cfg.API, mux, announce, mgr.GetLogger().WithName("api")))
}
