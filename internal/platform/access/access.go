// Package access tells who calls an API of ours and what they may do. It decides
// nothing by itself: the API server says whose token it is (TokenReview), whose
// certificates count (its own client CA) and what somebody may do
// (SubjectAccessReview), so that RBAC stays the one place of rights.
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
	// ErrUnauthenticated means that nobody knows who calls.
	ErrUnauthenticated = errors.New("no valid bearer token or client certificate")
	// ErrImpersonation refuses what only the API server can do.
	ErrImpersonation = errors.New("this server does not act for other users: leave --as away")
)

// User is who calls.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

const (
	// tokenFor and verdictFor are how long an answer of the API server counts.
	tokenFor   = 30 * time.Second
	verdictFor = 10 * time.Second
	caFor      = time.Minute
)

// Gate asks the API server, and remembers its answers for a moment.
type Gate struct {
	client   client.Client
	live     client.Reader
	now      func() time.Time
	tokens   memory[[sha256.Size]byte, *User] // nil: not valid
	verdicts memory[string, bool]
	ca       memory[string, *x509.CertPool]
}

// New prepares a gate. live reads past the cache: nobody watches all ConfigMaps
// for one.
func New(c client.Client, live client.Reader) *Gate {
	return &Gate{client: c, live: live, now: time.Now}
}

// User finds out who sends a request. It fails with ErrUnauthenticated,
// ErrImpersonation, or because the API server cannot be asked.
func (g *Gate) User(r *http.Request) (*User, error) {
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

// Refusal is what User has failed with, as the API server would answer it.
func Refusal(err error) error {
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
	u, known := g.tokens.get(key, g.now())
	if !known {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		if err := g.client.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("ask whose token this is: %w", err)
		}
		if review.Status.Authenticated {
			u = userOf(review.Status.User)
		}
		g.tokens.put(key, u, g.now().Add(tokenFor), g.now())
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

// userOfCertificate takes name and groups from a certificate as the API server
// does.
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
	if pool, known := g.ca.get(caKey, g.now()); known {
		return pool, nil
	}
	var m corev1.ConfigMap
	if err := g.live.Get(ctx, client.ObjectKey{Namespace: caNamespace, Name: caConfigMap}, &m); err != nil {
		return nil, fmt.Errorf("ask whose certificates count: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(m.Data[caKey])) // none: no certificate counts
	g.ca.put(caKey, pool, g.now().Add(caFor), g.now())
	return pool, nil
}

// Allowed tells whether somebody may do something to a resource.
func (g *Gate) Allowed(ctx context.Context, u *User, do authorizationv1.ResourceAttributes) (bool, error) {
	return g.verdict(ctx, u, do.String(), authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &do})
}

// AllowedPath tells whether somebody may do something at a path that is no resource.
func (g *Gate) AllowedPath(ctx context.Context, u *User, do authorizationv1.NonResourceAttributes) (bool, error) {
	return g.verdict(ctx, u, do.String(), authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &do})
}

func (g *Gate) verdict(ctx context.Context, u *User, what string, ask authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	key := fmt.Sprintf("%q %q %q %q %q", u.Name, u.UID, u.Groups, u.Extra, what)
	if allowed, known := g.verdicts.get(key, g.now()); known {
		return allowed, nil
	}
	ask.User, ask.UID, ask.Groups, ask.Extra = u.Name, u.UID, u.Groups, map[string]authorizationv1.ExtraValue{}
	for k, v := range u.Extra {
		ask.Extra[k] = v
	}
	review := &authorizationv1.SubjectAccessReview{Spec: ask}
	if err := g.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask what %s may do: %w", u.Name, err)
	}
	g.verdicts.put(key, review.Status.Allowed, g.now().Add(verdictFor), g.now())
	return review.Status.Allowed, nil
}
