package server

import (
	"context"
	"fmt"
	"net/http"

	ctrl "sigs.k8s.io/controller-runtime"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/server/historyapi"
)

// addHistory registers the history API. It reads the archive at the address; if that is empty, the API
// answers that there is none.
func addHistory(mgr ctrl.Manager, mux *http.ServeMux, address string) error {
	h := &historyapi.Handler{Gate: access.New(mgr.GetClient(), mgr.GetAPIReader()), Namespaces: mgr.GetAPIReader(), Log: mgr.GetLogger().WithName("history")}
	h.Register(mux)
	if address == "" {
		return nil
	}
	store, err := archive.Open(address)
	if err != nil {
		return fmt.Errorf("--archive: %w", err)
	}
	h.Archive = store
	return mgr.Add(closing{store})
}

// closing closes the archive when the server stops, on the leader and on standbys.
type closing struct{ *archive.Store }

// Start blocks until ctx ends, then closes the archive.
func (c closing) Start(ctx context.Context) error {
	<-ctx.Done()
	return c.Close()
}

// NeedLeaderElection returns false: a standby closes the archive, too.
func (closing) NeedLeaderElection() bool { return false }
