// Package access authenticates and authorizes callers of our own APIs by asking the API server:
// TokenReview for tokens, its client CA for certificates, SubjectAccessReview for permissions.
// RBAC stays the only place of permissions.
package access

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	// ErrUnauthenticated means that the caller has no valid credentials.
	ErrUnauthenticated = errors.New("no valid bearer token or client certificate")
	// ErrImpersonation rejects headers that only the API server may act on.
	ErrImpersonation = errors.New("impersonation is not supported: remove --as")
)

// User is an authenticated caller.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

const (
	// tokenTTL and verdictFor are how long an answer of the API server counts.
	tokenTTL  = 30 * time.Second
	accessTTL = 10 * time.Second
	caTTL     = time.Minute
)

// Gate asks the API server and caches its answers for seconds.
type Gate struct {
	client   client.Client
	live     client.Reader
	now      func() time.Time
	tokens   answerCache[[sha256.Size]byte, *User] // nil: not valid
	verdicts answerCache[string, bool]
	ca       answerCache[string, *x509.CertPool]
}

// New returns a Gate. live bypasses the cache: a cache of all ConfigMaps for one would be a
// waste.
func New(c client.Client, live client.Reader) *Gate {
	return &Gate{client: c, live: live, now: time.Now}
}

// Authenticate returns the sender of a request. It fails with ErrUnauthenticated or
// ErrImpersonation, or with another error if the API server cannot be asked.
func (g *Gate) Authenticate(r *http.Request) (*User, error) {
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return nil, ErrImpersonation
		}
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return g.userOfToken(r.Context(), strings.TrimSpace(token))
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return g.userOfCertificate(r.Context(), r.TLS.PeerCertificates)
	}
	return nil, ErrUnauthenticated
}

// StatusError returns an error of Authenticate as the API server would answer it.
func StatusError(err error) error {
	switch {
	case errors.Is(err, ErrUnauthenticated):
		return apierrors.NewUnauthorized(err.Error())
	case errors.Is(err, ErrImpersonation):
		return apierrors.NewBadRequest(err.Error())
	}
	return apierrors.NewServiceUnavailable(err.Error())
}

func (g *Gate) userOfToken(ctx context.Context, token string) (*User, error) {
	key := sha256.Sum256([]byte(token))
	u, known := g.tokens.lookUp(key, g.now())
	if !known {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		if err := g.client.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("review token: %w", err)
		}
		if review.Status.Authenticated {
			u = userOf(review.Status.User)
		}
		g.tokens.remember(key, u, g.now().Add(tokenTTL), g.now())
	}
	if u == nil {
		return nil, ErrUnauthenticated
	}
	return u, nil
}

func userOf(info authenticationv1.UserInfo) *User {
	u := &User{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: map[string][]string{}}
	for k, v := range info.Extra {
		u.Extra[k] = v
	}
	return u
}

// userOfCertificate takes name and groups from a certificate as the API server does.
func (g *Gate) userOfCertificate(ctx context.Context, chain []*x509.Certificate) (*User, error) {
	roots, err := g.clientCA(ctx)
	if err != nil {
		return nil, err
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err = chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: g.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil || chain[0].Subject.CommonName == "" {
		return nil, ErrUnauthenticated
	}
	return &User{Name: chain[0].Subject.CommonName, Groups: append(chain[0].Subject.Organization, "system:authenticated")}, nil
}

// The ConfigMap in which the API server says whose client certificates it takes.
const (
	caNamespace = "kube-system"
	caConfigMap = "extension-apiserver-authentication"
	caKey       = "client-ca-file"
)

func (g *Gate) clientCA(ctx context.Context) (*x509.CertPool, error) {
	if pool, known := g.ca.lookUp(caKey, g.now()); known {
		return pool, nil
	}
	var m corev1.ConfigMap
	if err := g.live.Get(ctx, client.ObjectKey{Namespace: caNamespace, Name: caConfigMap}, &m); err != nil {
		return nil, fmt.Errorf("read client CA: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(m.Data[caKey])) // none: no certificate counts
	g.ca.remember(caKey, pool, g.now().Add(caTTL), g.now())
	return pool, nil
}

// IsAllowed reports whether a user may do something to a resource.
func (g *Gate) IsAllowed(ctx context.Context, u *User, do authorizationv1.ResourceAttributes) (bool, error) {
	return g.reviewAccess(ctx, u, do.String(), authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &do})
}

// IsPathAllowed reports whether a user may do something at a path that is not a resource.
func (g *Gate) IsPathAllowed(ctx context.Context, u *User, do authorizationv1.NonResourceAttributes) (bool, error) {
	return g.reviewAccess(ctx, u, do.String(), authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &do})
}

func (g *Gate) reviewAccess(ctx context.Context, u *User, what string, ask authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	key := fmt.Sprintf("%q %q %q %q %q", u.Name, u.UID, u.Groups, u.Extra, what)
	if allowed, known := g.verdicts.lookUp(key, g.now()); known {
		return allowed, nil
	}
	ask.User, ask.UID, ask.Groups, ask.Extra = u.Name, u.UID, u.Groups, map[string]authorizationv1.ExtraValue{}
	for k, v := range u.Extra {
		ask.Extra[k] = v
	}
	review := &authorizationv1.SubjectAccessReview{Spec: ask}
	if err := g.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("review access of %s: %w", u.Name, err)
	}
	g.verdicts.remember(key, review.Status.Allowed, g.now().Add(accessTTL), g.now())
	return review.Status.Allowed, nil
}
