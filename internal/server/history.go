package server

import (
	"fmt"
	"net/http"

	ctrl "sigs.k8s.io/controller-runtime"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/platform/program"
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
	return program.AddCloser(mgr, store)
}
