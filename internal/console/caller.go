package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/access"
	"k8s4r.io/k8s4r/internal/events/row"
)

// Gate says who calls and what they may do.
type Gate interface {
	User(r *http.Request) (*access.User, error)
	Allowed(ctx context.Context, u *access.User, do authorizationv1.ResourceAttributes) (bool, error)
}

// caller is who asks.
type caller struct {
	*access.User
	// token that proves it. Empty: a client certificate does, which cannot be handed on.
	token string
}

type callerKey struct{}

// callerOf is who sent the request. Nil: nobody said so.
func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// identify finds out who sends a request, by a token, a session or a client certificate.
func (s *Server) identify(r *http.Request) (*caller, error) {
	token := sessionToken(r)
	if token != "" && r.Header.Get("Authorization") == "" {
		if !safe(r.Method) && r.Header.Get(csrfHeader) == "" {
			return nil, apierrors.NewBadRequest("a change that a session asks for needs the header " + csrfHeader + ": 1")
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	u, err := s.gate.User(r)
	if errors.Is(err, access.ErrUnauthenticated) {
		return nil, apierrors.NewUnauthorized("no valid token, session or client certificate: sign in")
	}
	if err != nil {
		return nil, access.Refusal(err)
	}
	return &caller{User: u, token: bearer(r)}, nil
}

// safe methods change nothing.
func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// config is how the API server is asked in the caller's place: with the caller's own token,
// or, of who came with a client certificate, by acting as them, which the console needs a
// right for (docs/console.md).
func (s *Server) config(c *caller) *rest.Config {
	if c.token != "" {
		own := rest.AnonymousClientConfig(s.api)
		own.BearerToken, own.QPS = c.token, -1
		return own
	}
	as := rest.CopyConfig(s.api)
	as.Impersonate = rest.ImpersonationConfig{UserName: c.Name, UID: c.UID, Groups: c.Groups, Extra: c.Extra}
	return as
}

// client acts as the caller.
func (s *Server) client(c *caller) (client.Client, error) {
	cl, err := client.New(s.config(c), client.Options{Scheme: s.scheme, Mapper: s.mapper})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return cl, nil
}

// may tells whether the caller may do something to objects of a kind. An empty namespace is
// all of them.
func (s *Server) may(ctx context.Context, verb string, k row.Kind, namespace, name string) (bool, error) {
	is := kinds[k]
	ok, err := s.gate.Allowed(ctx, callerOf(ctx).User, authorizationv1.ResourceAttributes{
		Verb: verb, Group: is.version.Group, Resource: is.resource, Namespace: namespace, Name: name,
	})
	if err != nil {
		return false, apierrors.NewServiceUnavailable(err.Error())
	}
	return ok, nil
}

// require refuses who may not get an object.
func (s *Server) require(ctx context.Context, verb string, k row.Kind, namespace, name string) error {
	ok, err := s.may(ctx, verb, k, namespace, name)
	if err != nil || ok {
		return err
	}
	is := kinds[k]
	return apierrors.NewForbidden(is.version.WithResource(is.resource).GroupResource(), name,
		fmt.Errorf("user %q cannot %s %s in namespace %q", callerOf(ctx).Name, verb, is.resource, namespace))
}

// scope is the namespaces whose objects of a kind a caller sees.
type scope struct {
	all   bool
	names []string // sorted
}

func (s scope) holds(namespace string) bool {
	if s.all {
		return true
	}
	_, ok := slices.BinarySearch(s.names, namespace)
	return ok
}

// archive is the scope in the archive's words: nil is all.
func (s scope) archive() []string {
	if s.all {
		return nil
	}
	return append([]string{}, s.names...)
}

// sees finds the namespaces in which the caller may list a kind; of those, only the given
// one unless that is empty. Who may see nothing of what was asked for is told so.
func (s *Server) sees(ctx context.Context, k row.Kind, namespace string) (scope, error) {
	if namespace != "" {
		return scope{names: []string{namespace}}, s.require(ctx, "list", k, namespace, "")
	}
	all, err := s.may(ctx, "list", k, "", "")
	if err != nil || all {
		return scope{all: true}, err
	}
	var out scope
	for _, ns := range s.namespaces() {
		ok, err := s.may(ctx, "list", k, ns, "")
		if err != nil {
			return scope{}, err
		}
		if ok {
			out.names = append(out.names, ns)
		}
	}
	return out, nil
}

// namespaces are those that have objects, sorted. The archive may know of others; who may
// not list everywhere names them.
func (s *Server) namespaces() []string {
	names := append(s.world.Namespaces(), metav1.NamespaceDefault)
	slices.Sort(names)
	return slices.Compact(names)
}
