package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"k8s4r.io/k8s4r/internal/platform/certexpiry"
	"k8s4r.io/k8s4r/internal/platform/jointoken"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/internal/server/joinapi"
	"k8s4r.io/k8s4r/internal/server/revocation"
)

// JoinConfig configures how robots join.
type JoinConfig struct {
	// Authority signs their certificates. If nil, robots cannot join.
	Authority *ca.Authority
	// MQTTURL returns the broker's URL for robots. If nil or empty, robots need
	// --mqtt-url.
	MQTTURL func() string
	// RevocationFile is written with the list of revoked certificates, for external brokers. If
	// empty, there is none.
	RevocationFile string
	// Certificates has the CA. If nil, a tracker is created and registered as a metric.
	Certificates *certexpiry.Tracker
}

// caMaintainer keeps the files of the CA up to date, and reports when it expires.
type caMaintainer struct {
	authority    *ca.Authority
	certificates *certexpiry.Tracker
	log          logr.Logger
}

// NeedLeaderElection reports that each server reads the CA, because each serves with its certificates.
func (caMaintainer) NeedLeaderElection() bool { return false }

// Start refreshes the CA until ctx ends.
func (m caMaintainer) Start(ctx context.Context) error {
	for {
		signer, next := m.authority.CAs()
		m.certificates.Set("robots-ca", signer)
		m.certificates.Set("robots-ca-next", next)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(m.authority.RefreshInterval()):
		}
		if err := m.authority.Refresh(); err != nil {
			m.log.Error(err, "cannot refresh the CA of robots, will try again")
		}
	}
}

// newTokenStore returns the join tokens of the server's namespace.
func newTokenStore(mgr ctrl.Manager) *jointoken.Store {
	return &jointoken.Store{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: serveraddr.Namespace, Now: time.Now}
}

// addJoin registers the join API.
func addJoin(mgr ctrl.Manager, mux *http.ServeMux, cfg JoinConfig, tokens joinapi.Tokens) error {
	if cfg.Authority == nil {
		return nil
	}
	joinapi.New(joinapi.Config{
		Authority: cfg.Authority,
		Tokens:    tokens,
		Client:    mgr.GetClient(), Live: mgr.GetAPIReader(), MQTTURL: cfg.MQTTURL,
		CountRequest: func(path, state string) { joinRequests.WithLabelValues(path, state).Inc() },
		Now:          time.Now, Log: mgr.GetLogger().WithName("join"),
	}).Register(mux)
	err := mgr.Add(caMaintainer{cfg.Authority, cfg.Certificates, mgr.GetLogger().WithName("ca")})
	if cfg.RevocationFile != "" {
		err = errors.Join(err, mgr.Add(&revocation.Writer{
			File: cfg.RevocationFile, Authority: cfg.Authority, Robots: mgr.GetClient(), Informers: mgr.GetCache(), Log: mgr.GetLogger().WithName("revocation"),
		}))
	}
	return err
}
