package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/platform/connlimit"
)

// Gate authenticates and authorizes callers.
type Gate interface {
	Authenticate(r *http.Request) (*access.User, error)
	IsAllowed(ctx context.Context, u *access.User, do authorizationv1.ResourceAttributes) (bool, error)
}

// caller is the user that sent a request.
type caller struct {
	*access.User
	// token of the caller. If empty, the caller presented a client certificate, which cannot be
	// forwarded.
	token string
	// until is the end of the caller's session. If zero, the caller has no session.
	until time.Time
}

type callerKey struct{}

// callerFromContext returns the caller of the request. It is nil for requests without authentication.
func callerFromContext(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// identifyConnection is identifyCaller for a new request, whose connection counts for the caller from
// now on.
func (s *Server) identifyConnection(r *http.Request) (*caller, error) {
	c, err := s.identifyCaller(r)
	if err != nil {
		return nil, err
	}
	if err := connlimit.Authenticate(r.Context(), "user "+c.Name); err != nil {
		return nil, apierrors.NewTooManyRequests(err.Error(), 1)
	}
	return c, nil
}

// identifyCaller authenticates a request by a token, a session or a client certificate.
func (s *Server) identifyCaller(r *http.Request) (*caller, error) {
	var until time.Time
	if hasSession(r) {
		token, end, err := s.openSession(r.Header.Get(sessionHeader))
		if errors.Is(err, errSessionEnded) {
			return nil, apierrors.NewUnauthorized(err.Error() + ": sign in again")
		}
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
		until = end
	}
	u, err := s.gate.Authenticate(r)
	if errors.Is(err, access.ErrUnauthenticated) {
		return nil, apierrors.NewUnauthorized("no valid token, session or client certificate: sign in")
	}
	if err != nil {
		return nil, access.StatusError(err)
	}
	return &caller{User: u, token: bearerToken(r), until: until}, nil
}

func bearerToken(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return strings.TrimSpace(token)
}

// callerConfig returns the configuration of a client that acts as the caller: with the caller's
// own token or, for a client certificate, by impersonation. The latter needs a permission of the
// console (docs/how-to/use-the-console.md).
func (s *Server) callerConfig(c *caller) *rest.Config {
	if c.token != "" {
		own := rest.AnonymousClientConfig(s.api)
		own.BearerToken, own.QPS = c.token, -1
		return own
	}
	as := rest.CopyConfig(s.api)
	as.Impersonate = rest.ImpersonationConfig{UserName: c.Name, UID: c.UID, Groups: c.Groups, Extra: c.Extra}
	return as
}

// callerClient returns a client that acts as the caller.
func (s *Server) callerClient(c *caller) (client.Client, error) {
	cl, err := client.New(s.callerConfig(c), client.Options{Scheme: s.scheme, Mapper: s.mapper})
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return cl, nil
}

// isAllowed reports whether the caller has a permission for objects of a kind. If namespace is
// empty, the permission must hold in all namespaces.
func (s *Server) isAllowed(ctx context.Context, verb string, k row.Kind, namespace, name string) (bool, error) {
	return s.isResourceAllowed(ctx, verb, kinds[k].groupResource(), namespace, name)
}

func (s *Server) isResourceAllowed(ctx context.Context, verb string, r schema.GroupResource, namespace, name string) (bool, error) {
	ok, err := s.gate.IsAllowed(ctx, callerFromContext(ctx).User, authorizationv1.ResourceAttributes{
		Verb: verb, Group: r.Group, Resource: r.Resource, Namespace: namespace, Name: name,
	})
	if err != nil {
		return false, apierrors.NewServiceUnavailable(err.Error())
	}
	return ok, nil
}

// requireAccess returns a Forbidden error unless the caller has the permission.
func (s *Server) requireAccess(ctx context.Context, verb string, k row.Kind, namespace, name string) error {
	return s.requireResource(ctx, verb, kinds[k].groupResource(), namespace, name)
}

// requireResource is requireAccess for resources that are not kinds of the console, too.
func (s *Server) requireResource(ctx context.Context, verb string, r schema.GroupResource, namespace, name string) error {
	ok, err := s.isResourceAllowed(ctx, verb, r, namespace, name)
	if err != nil || ok {
		return err
	}
	return apierrors.NewForbidden(r, name, fmt.Errorf("user %q cannot %s %s in namespace %q", callerFromContext(ctx).Name, verb, r.Resource, namespace))
}

// scope is the set of namespaces in which a caller can see objects of a kind.
type scope struct {
	all   bool
	names []string // sorted
}

func (s scope) includes(namespace string) bool {
	if s.all {
		return true
	}
	_, ok := slices.BinarySearch(s.names, namespace)
	return ok
}

// findScope returns the namespaces in which the caller may list a kind. If namespace is not
// empty, it returns that namespace alone, or a Forbidden error.
func (s *Server) findScope(ctx context.Context, k row.Kind, namespace string) (scope, error) {
	if namespace != "" {
		return scope{names: []string{namespace}}, s.requireAccess(ctx, "list", k, namespace, "")
	}
	all, err := s.isAllowed(ctx, "list", k, "", "")
	if err != nil || all {
		return scope{all: true}, err
	}
	var out scope
	for _, ns := range s.listNamespaces() {
		ok, err := s.isAllowed(ctx, "list", k, ns, "")
		if err != nil {
			return scope{}, err
		}
		if ok {
			out.names = append(out.names, ns)
		}
	}
	return out, nil
}

// listNamespaces returns the namespaces that have live objects, and the default one, sorted.
// Callers without permission for all namespaces must name those that exist only in the archive.
func (s *Server) listNamespaces() []string {
	names := append(s.store.Namespaces(), metav1.NamespaceDefault)
	slices.Sort(names)
	return slices.Compact(names)
}
