package server

import (
	"net/http"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"k8s4r.io/k8s4r/internal/platform/jointoken"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/internal/server/joinapi"
)

// JoinConfig configures how robots join.
type JoinConfig struct {
	// Authority signs their certificates. If nil, robots cannot join.
	Authority *ca.Authority
	// MQTTURL returns the broker's URL for robots. If nil or empty, robots need
	// --mqtt-url.
	MQTTURL func() string
}

// newTokenStore returns the join tokens of the server's namespace.
func newTokenStore(mgr ctrl.Manager) *jointoken.Store {
	return &jointoken.Store{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: serveraddr.Namespace, Now: time.Now}
}

// addJoin registers the join API.
func addJoin(mgr ctrl.Manager, mux *http.ServeMux, cfg JoinConfig, tokens joinapi.Tokens) {
	if cfg.Authority == nil {
		return
	}
	joinapi.New(joinapi.Config{
		Authority: cfg.Authority,
		Tokens:    tokens,
		Client:    mgr.GetClient(), Live: mgr.GetAPIReader(), MQTTURL: cfg.MQTTURL,
		CountRequest: func(path, state string) { joinRequests.WithLabelValues(path, state).Inc() },
		Now:          time.Now, Log: mgr.GetLogger().WithName("join"),
	}).Register(mux)
}
