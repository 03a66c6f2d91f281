package server

import (
	"net/http"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"k8s4r.io/k8s4r/internal/authority"
	"k8s4r.io/k8s4r/internal/beacon"
	"k8s4r.io/k8s4r/internal/joinapi"
	"k8s4r.io/k8s4r/internal/jointoken"
)

// JoinConfig says how robots join.
type JoinConfig struct {
	// Authority signs their certificates. Nil: none can join.
	Authority *authority.Authority
	// MQTTURL is where robots find the broker. Nil or empty: they must be told.
	MQTTURL func() string
}

// tokens are those of the server's namespace.
func tokens(mgr ctrl.Manager) *jointoken.Store {
	return &jointoken.Store{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: beacon.Namespace, Now: time.Now}
}

// addJoin registers what robots join and renew by.
func addJoin(mgr ctrl.Manager, mux *http.ServeMux, cfg JoinConfig) {
	if cfg.Authority == nil {
		return
	}
	joinapi.New(joinapi.Config{
		Authority: cfg.Authority,
		Tokens:    tokens(mgr),
		Client:    mgr.GetClient(), Live: mgr.GetAPIReader(), MQTTURL: cfg.MQTTURL,
		Count: func(path, state string) { joinRequests.WithLabelValues(path, state).Inc() },
		Now:   time.Now, Log: mgr.GetLogger().WithName("join"),
	}).Register(mux)
}
