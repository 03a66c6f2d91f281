package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.cert = issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, a.key, a.key)
	return a
}

func issue(t *testing.T, c, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	c.SerialNumber, c.NotBefore = big.NewInt(1), time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (a *authority) client(t *testing.T, c *x509.Certificate) *x509.Certificate {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	c.Subject = pkix.Name{CommonName: "alice", Organization: []string{"operators"}}
	if c.ExtKeyUsage == nil {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	return issue(t, c, a.cert, key, a.key)
}

// cluster answers reviews: the token "good" is bob's, and bob may get.
type cluster struct {
	client.Client
	asked int
	away  bool
}

func newCluster(a *authority) *cluster {
	c := &cluster{}
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: caNamespace, Name: caConfigMap}, Data: map[string]string{
		caKey: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})),
	}}
	c.Client = fakeapi.NewBuilder(clientgoscheme.Scheme).WithObjects(ca).WithInterceptorFuncs(interceptor.Funcs{Create: c.create}).Build()
	return c
}

func (c *cluster) create(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
	c.asked++
	if c.away {
		return errors.New("the API server is away")
	}
	switch o := o.(type) {
	case *authenticationv1.TokenReview:
		if o.Spec.Token == "good" {
			o.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "bob", Groups: []string{"viewers"}}}
		}
	case *authorizationv1.SubjectAccessReview:
		o.Status.Allowed = o.Spec.User == "bob" && slices.Contains(o.Spec.Groups, "viewers") && o.Spec.ResourceAttributes.Verb == "get"
	}
	return nil
}

func request(header string, certs ...*x509.Certificate) *http.Request {
	r, _ := http.NewRequest(http.MethodGet, "/", nil)
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	r.TLS = &tls.ConnectionState{PeerCertificates: certs}
	return r
}

func TestAuthenticate(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	c := newCluster(ours)
	g := New(c, c)
	impersonating := request("Bearer good")
	impersonating.Header.Set("Impersonate-User", "root")
	for _, row := range []struct {
		name string
		r    *http.Request
		want string
		err  error
	}{
		{"a good token", request("Bearer good"), "bob", nil},
		{"a bad token", request("Bearer bad"), "", ErrUnauthenticated},
		{"a bad token beside a good certificate", request("Bearer bad", ours.client(t, &x509.Certificate{})), "", ErrUnauthenticated},
		{"nothing", request(""), "", ErrUnauthenticated},
		{"a password", request("Basic Ym9iOmJvYg=="), "", ErrUnauthenticated},
		{"a certificate", request("", ours.client(t, &x509.Certificate{})), "alice", nil},
		{"a certificate of another CA", request("", theirs.client(t, &x509.Certificate{})), "", ErrUnauthenticated},
		{"a certificate that is too old", request("", ours.client(t, &x509.Certificate{NotAfter: time.Now().Add(-time.Minute)})), "", ErrUnauthenticated},
		{"a certificate of a server", request("", ours.client(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})), "", ErrUnauthenticated},
		{"one who acts for another", impersonating, "", ErrImpersonation},
	} {
		t.Run(row.name, func(t *testing.T) {
			u, err := g.Authenticate(row.r)
			if !errors.Is(err, row.err) || row.err == nil && err != nil {
				t.Fatalf("%v, not %v", err, row.err)
			}
			if err == nil && u.Name != row.want {
				t.Errorf("it is %s", u.Name)
			}
		})
	}
	if u, err := g.Authenticate(request("", ours.client(t, &x509.Certificate{}))); err != nil || !slices.Contains(u.Groups, "operators") || !slices.Contains(u.Groups, "system:authenticated") {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestGate_CachesAnswersForSeconds(t *testing.T) {
	c := newCluster(newAuthority(t))
	g := New(c, c)
	now := time.Now()
	g.now = func() time.Time { return now }
	ask := func() error {
		u, err := g.Authenticate(request("Bearer good"))
		if err != nil {
			return err
		}
		allowed, err := g.IsAllowed(t.Context(), u, authorizationv1.ResourceAttributes{Verb: "get"})
		if err == nil && !allowed {
			t.Error("bob may not get")
		}
		if allowed, err := g.IsAllowed(t.Context(), u, authorizationv1.ResourceAttributes{Verb: "delete"}); err == nil && allowed {
			t.Error("bob may delete")
		}
		return err
	}
	for range 3 {
		if err := ask(); err != nil || c.asked != 3 {
			t.Fatalf("asked %d times, %v", c.asked, err)
		}
	}
	c.away = true
	if now = now.Add(tokenTTL + time.Second); ask() == nil {
		t.Error("an old answer still counts")
	}
	c.away = false
	if err := ask(); err != nil {
		t.Errorf("a failure is remembered: %v", err)
	}
}

func TestGate_BoundsTheCacheOfInvalidTokens(t *testing.T) {
	var m answerCache[string, bool]
	now := time.Now()
	for i := range 3 * maxCachedAnswers {
		m.remember(strconv.Itoa(i), true, now.Add(time.Minute), now)
	}
	if len(m.entries) > maxCachedAnswers {
		t.Errorf("%d entries", len(m.entries))
	}
}
