// Package historyapi serves GET /v1/history/actions: who did what to which object, from the archive.
// It requires the verb list for the kind of the objects.
package historyapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/protocol/actionlog"
)

// Gate authenticates and authorizes requests.
type Gate interface {
	Authenticate(r *http.Request) (*access.User, error)
	IsAllowed(ctx context.Context, u *access.User, do authorizationv1.ResourceAttributes) (bool, error)
}

// Archive lists actions.
type Archive interface {
	ListActions(ctx context.Context, f archive.ActionFilter) (archive.Page[archive.Action], error)
}

// Handler serves requests. All fields but Archive are required.
type Handler struct {
	Gate Gate
	// Archive is nil if there is none.
	Archive Archive
	// Namespaces reads namespaces from the API server, not from a cache.
	Namespaces client.Reader
	Log        logr.Logger
}

// Register adds the route to mux.
func (h *Handler) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET "+actionlog.Path, h.handleActions)
}

func (h *Handler) handleActions(w http.ResponseWriter, r *http.Request) {
	page, err := h.listActions(r)
	if err != nil {
		h.writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(page) // the client may be gone
}

func (h *Handler) listActions(r *http.Request) (*actionlog.Page, error) {
	u, err := access.AuthenticateConnection(h.Gate, r)
	if err != nil {
		return nil, err
	}
	q, err := actionlog.Parse(r.URL.Query())
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	f, err := h.newFilter(r.Context(), u, q)
	if err != nil {
		return nil, err
	}
	if h.Archive == nil {
		return nil, apierrors.NewServiceUnavailable("there is no archive: start k8s4r-server with --archive, the address that k8s4r-manager has")
	}
	p, err := h.Archive.ListActions(r.Context(), f)
	if errors.Is(err, archive.ErrCursor) {
		return nil, apierrors.NewBadRequest("continue: not from a page of this list; omit it to start with the first page")
	}
	if err != nil {
		return nil, err
	}
	return newPage(p), nil
}

// newFilter returns what the user may see of a query.
func (h *Handler) newFilter(ctx context.Context, u *access.User, q actionlog.Query) (archive.ActionFilter, error) {
	f := archive.ActionFilter{Name: q.Name, User: q.User, Since: q.Since, Until: q.Until, Limit: q.Limit, Cursor: q.Continue}
	kinds := archive.ActionKinds()
	if q.Kind != "" {
		if _, ok := archive.ActionResource(archive.Kind(q.Kind)); !ok {
			return f, apierrors.NewBadRequest(fmt.Sprintf("kind=%.100s: must be one of %q", q.Kind, kinds))
		}
		kinds = []archive.Kind{archive.Kind(q.Kind)}
	}
	everywhere, err := h.selectKinds(ctx, u, kinds, "")
	if err != nil {
		return f, err
	}
	f.Kinds = everywhere
	if q.Namespace == "" {
		return f, requireKinds(f.Kinds, u, kinds, "")
	}
	f.Namespaces = []string{q.Namespace}
	if len(everywhere) == len(kinds) {
		return f, nil // also what was in deleted namespaces of that name
	}
	if f.NamespaceUID, err = h.findNamespace(ctx, q.Namespace); err != nil {
		return f, err
	}
	if f.NamespaceUID == "" {
		return f, requireKinds(f.Kinds, u, kinds, q.Namespace)
	}
	if f.Kinds, err = h.selectKinds(ctx, u, kinds, q.Namespace); err != nil {
		return f, err
	}
	return f, requireKinds(f.Kinds, u, kinds, q.Namespace)
}

// selectKinds returns the kinds that the user may list. It is never nil.
func (h *Handler) selectKinds(ctx context.Context, u *access.User, kinds []archive.Kind, namespace string) ([]archive.Kind, error) {
	allowed := []archive.Kind{}
	for _, k := range kinds {
		r, _ := archive.ActionResource(k)
		ok, err := h.Gate.IsAllowed(ctx, u, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Group: r.Group, Resource: r.Resource})
		if err != nil {
			return nil, apierrors.NewServiceUnavailable(err.Error())
		}
		if ok {
			allowed = append(allowed, k)
		}
	}
	return allowed, nil
}

// requireKinds returns a Forbidden error if the user may list none of the kinds.
func requireKinds(allowed []archive.Kind, u *access.User, kinds []archive.Kind, namespace string) error {
	if len(allowed) > 0 {
		return nil
	}
	r, _ := archive.ActionResource(kinds[0])
	if namespace == "" {
		return apierrors.NewForbidden(r, "", fmt.Errorf("user %q cannot list %s in all namespaces; name one with namespace", u.Name, r.Resource))
	}
	return apierrors.NewForbidden(r, "", fmt.Errorf("user %q cannot list %s in namespace %q", u.Name, r.Resource, namespace))
}

// findNamespace returns the UID of a namespace. It is empty if there is no such namespace.
func (h *Handler) findNamespace(ctx context.Context, name string) (string, error) {
	n := &corev1.Namespace{}
	err := h.Namespaces.Get(ctx, client.ObjectKey{Name: name}, n)
	if client.IgnoreNotFound(err) != nil {
		return "", apierrors.NewServiceUnavailable(err.Error())
	}
	return string(n.UID), nil
}

func newPage(p archive.Page[archive.Action]) *actionlog.Page {
	out := &actionlog.Page{Items: []actionlog.Action{}, Continue: p.Next}
	for _, a := range p.Items {
		out.Items = append(out.Items, actionlog.Action{
			ID: a.ID, Time: a.At, User: a.User, Impersonator: a.Impersonator, Verb: a.Verb, Action: a.Did, Kind: string(a.Kind),
			Namespace: a.Namespace, Name: a.Name, UID: a.UID, Code: a.Code,
		})
	}
	return out
}

// writeError responds with a Status, as the API server does.
func (h *Handler) writeError(w http.ResponseWriter, err error) {
	access.WriteError(w, h.Log, err, "list actions", "the archive cannot be read")
}
