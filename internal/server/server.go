// Package server assembles k8s4r-server: the bridge between robots and the API
// server, its flags and its leader election.
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
	"k8s4r.io/k8s4r/internal/beacon"
	"k8s4r.io/k8s4r/internal/bridge"
	"k8s4r.io/k8s4r/internal/logapi"
	"k8s4r.io/k8s4r/internal/logstore"
	"k8s4r.io/k8s4r/internal/notes"
)

// reporter is the name under which the server reports events.
const reporter = "k8s4r-server"

// Config is what an operator says of the server.
type Config struct {
	Bridge bridge.Config
	Logs   LogConfig
	API    logapi.ServeConfig
	Join   JoinConfig
}

// Scheme knows the kinds that the server reads and writes.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// Registering types fails only for two of one name, which the first test
	// would show.
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}

// Add starts the server with mgr, which holds its lease, its cache and its
// health checks. Whoever makes mgr chooses its client's rate limit.
func Add(mgr ctrl.Manager, cfg Config) error {
	events := notes.Clipped(mgr.GetEventRecorder(reporter))
	store, err := openLogs(cfg.Logs)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	var wakes logapi.Wakes
	cfg.Bridge.Tokens = tokens(mgr)
	b, err := bridge.New(cfg.Bridge, bridge.Cluster{
		Client:    mgr.GetClient(),
		Live:      mgr.GetAPIReader(),
		Informers: mgr.GetCache(),
		Warn: func(o client.Object, reason, message string) {
			events.Eventf(o, nil, corev1.EventTypeWarning, reason, "Dispatch", "%s", message)
		},
		Logs:    store,
		Changed: wakes.Wake,
	}, metrics.Registry, mgr.GetLogger().WithName("server"))
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return errors.Join(
		mgr.AddReadyzCheck("mqtt", func(*http.Request) error { return b.Ready() }),
		mgr.Add(b),
		addAPI(mgr, cfg, store, &wakes),
	)
}

// addAPI serves what there is to serve over HTTPS.
func addAPI(mgr ctrl.Manager, cfg Config, store logstore.Store, wakes *logapi.Wakes) error {
	mux := http.NewServeMux()
	addJoin(mgr, mux, cfg.Join)
	if err := addLogs(mgr, mux, store, wakes); err != nil {
		return err
	}
	nothing := store == nil && cfg.Join.Authority == nil
	if nothing || cfg.API.Listener == nil && (cfg.API.Address == "" || cfg.API.Address == "0") {
		return nil
	}
	if cfg.Join.Authority != nil {
		cfg.API.Proof = cfg.Join.Authority
	}
	announce := func(ctx context.Context, a beacon.Address) error {
		return beacon.Publish(ctx, mgr.GetClient(), mgr.GetAPIReader(), a)
	}
	return mgr.Add(logapi.NewService(cfg.API, mux, announce, mgr.GetLogger().WithName("api")))
}
