package credential

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/server/ca"
)

// server responds as its fields are set.
type server struct {
	t    *testing.T
	auth *ca.Authority
	url  *url.URL

	mu        sync.Mutex
	answer    func(path string, joins identity.JoinRequest, has []*x509.Certificate) identity.CertificateResponse
	requested []string
}

func newServer(t *testing.T) *server {
	t.Helper()
	auth, err := ca.OpenManaged(t.TempDir(), ca.DefaultLifetime)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, auth: auth}
	s.answer = s.issue
	h := httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	ours := &tls.Config{ClientAuth: tls.RequestClientCert, GetCertificate: auth.ServingCertificate("127.0.0.1")}
	// The test server has a certificate of its own, which would come first.
	h.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return ours, nil }}
	h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	h.StartTLS()
	t.Cleanup(h.Close)
	s.url, _ = url.Parse(h.URL)
	return s
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requested = append(s.requested, r.URL.Path)
	in, err := identity.Decode[identity.JoinRequest](r.Body)
	if err != nil {
		s.t.Error(err)
	}
	_ = json.NewEncoder(w).Encode(s.answer(r.URL.Path, in, r.TLS.PeerCertificates))
}

func (s *server) issue(_ string, in identity.JoinRequest, _ []*x509.Certificate) identity.CertificateResponse {
	csr, err := identity.ParseCSR(in.CSR)
	if err != nil {
		s.t.Error(err)
		return identity.CertificateResponse{}
	}
	c, err := s.auth.SignRobot("r1", csr.PublicKey)
	if err != nil {
		s.t.Error(err)
		return identity.CertificateResponse{}
	}
	return identity.CertificateResponse{State: identity.StateIssued, Certificate: string(keyfile.EncodeCertificates(c)), CA: string(s.auth.TrustPEM()), MQTTURL: "mqtts://broker:8883"}
}

func (s *server) paths() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.requested, " ")
}

func (s *server) config(dir string) Config {
	return Config{Dir: dir, RobotID: "r1", Server: s.url, Token: "abcdef.0123456789abcdef", CAHash: s.auth.KeyFingerprint(), Log: slog.New(slog.DiscardHandler)}
}

func open(t *testing.T, c Config) *Credential {
	t.Helper()
	m, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestJoin_OnceAndKeepsTheKey(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	m := open(t, s.config(dir))
	if config, _ := m.TLS(); config != nil {
		t.Error("it has a certificate before it has joined")
	}
	if err := m.Join(within(t)); err != nil {
		t.Fatal(err)
	}
	again := open(t, s.config(dir))
	if err := again.Join(within(t)); err != nil {
		t.Fatal(err)
	}
	if s.paths() != "/v1/join" || again.MQTTURL() != "mqtts://broker:8883" || !again.key.Equal(m.key) {
		t.Errorf("requested %s, broker %s", s.paths(), again.MQTTURL())
	}
	for _, name := range []string{fileKey, fileCertificate, fileCA, fileJoinRecord} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestRun_RenewsWithTheSameKey(t *testing.T) {
	s := newServer(t)
	m := open(t, s.config(t.TempDir()))
	s.auth.SetRobotLifetime(time.Second) // and the ten minutes before it: two thirds are over
	if err := m.Join(within(t)); err != nil {
		t.Fatal(err)
	}
	s.auth.SetRobotLifetime(time.Hour)
	before, changed := m.TLS()
	s.mu.Lock()
	s.answer = func(path string, in identity.JoinRequest, has []*x509.Certificate) identity.CertificateResponse {
		if len(has) == 0 || has[0].Subject.CommonName != "r1" {
			t.Error("it renews without its certificate")
		}
		return s.issue(path, in, has)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	go m.Run(ctx)
	select {
	case <-changed:
	case <-ctx.Done():
		t.Fatal("it is not renewed")
	}
	after, _ := m.TLS()
	if after.Certificates[0].Leaf.Equal(before.Certificates[0].Leaf) || after.Certificates[0].PrivateKey != before.Certificates[0].PrivateKey {
		t.Error("the certificate is the same, or the key is not")
	}
	if s.paths() != "/v1/join /v1/renew" {
		t.Errorf("requested %s", s.paths())
	}
}

func TestIsRenewalDue(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		name          string
		lifetime, age time.Duration
		isDue         bool
		interval      time.Duration
	}{
		{"before two thirds of the lifetime", 24 * time.Hour, 16*time.Hour - 1, false, time.Minute},
		{"after two thirds of it", 24 * time.Hour, 16 * time.Hour, true, time.Minute},
		{"after a short lifetime", time.Minute, time.Hour, true, 6 * time.Second},
		{"not valid yet", 24 * time.Hour, -1, true, time.Minute},
	} {
		c := &x509.Certificate{NotBefore: start, NotAfter: start.Add(test.lifetime)}
		m := &Credential{current: &tls.Certificate{Leaf: c}}
		if due, interval := m.isRenewalDue(start.Add(test.age)), m.checkInterval(); due != test.isDue || interval != test.interval {
			t.Errorf("%s: %v, next check after %v", test.name, due, interval)
		}
	}
}

// A certificate that was issued while the clock was ahead is refused by the broker once the clock is
// right.
func TestRun_ReplacesCertificateThatIsNotValidYet(t *testing.T) {
	s := newServer(t)
	s.auth.SetRobotLifetime(time.Second) // it is checked ten times meanwhile
	m := open(t, s.config(t.TempDir()))
	if err := m.Join(within(t)); err != nil {
		t.Fatal(err)
	}
	_, changed := m.TLS()
	m.now = func() time.Time { return time.Now().Add(-24 * time.Hour) }
	if m.isValidAt(m.now()) {
		t.Error("the certificate counts as valid before it is")
	}
	ctx, cancel := context.WithCancel(within(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done }) // it writes to the directory of the test
	select {
	case <-changed:
	case <-ctx.Done():
		t.Fatal("it is not replaced")
	}
	if !strings.HasPrefix(s.paths(), "/v1/join /v1/renew") {
		t.Errorf("requested %s", s.paths())
	}
}

func TestRenew_JoinsAgainIfTheRobotIsUnknown(t *testing.T) {
	s := newServer(t)
	m := open(t, s.config(t.TempDir()))
	if err := m.Join(within(t)); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.answer = func(path string, in identity.JoinRequest, has []*x509.Certificate) identity.CertificateResponse {
		if path == identity.RenewPath {
			return identity.CertificateResponse{State: identity.StateRefused, Reason: identity.ReasonUnknown, Message: "not known"}
		}
		return s.issue(path, in, has)
	}
	s.mu.Unlock()
	if err := m.Renew(within(t)); err != nil || s.paths() != "/v1/join /v1/renew /v1/join" {
		t.Errorf("%v, requested %s", err, s.paths())
	}
}

func TestJoin_RetriesWhilePending(t *testing.T) {
	s := newServer(t)
	pending := 2
	s.answer = func(path string, in identity.JoinRequest, has []*x509.Certificate) identity.CertificateResponse {
		if pending--; pending >= 0 {
			return identity.CertificateResponse{State: identity.StatePending, Message: "waits"}
		}
		return s.issue(path, in, has)
	}
	if err := open(t, s.config(t.TempDir())).Join(within(t)); err != nil || s.paths() != "/v1/join /v1/join /v1/join" {
		t.Errorf("%v, requested %s", err, s.paths())
	}
}

func TestJoin_RejectsUntrustedServer(t *testing.T) {
	s := newServer(t)
	for name, change := range map[string]func(*Config){
		"another authority":             func(c *Config) { c.CAHash = identity.KeyFingerprint(nil) },
		"the authorities of the system": func(c *Config) { c.CAHash = "" },
		"others that are trusted":       func(c *Config) { c.CAHash, c.CA = "", newServer(t).auth.TrustPEM() },
	} {
		c := s.config(t.TempDir())
		change(&c)
		if err := open(t, c).Renew(within(t)); err == nil {
			t.Errorf("%s: it has joined", name)
		}
	}
	if s.paths() != "" {
		t.Errorf("requested %s", s.paths())
	}
	c := s.config(t.TempDir())
	c.CAHash, c.CA = "", s.auth.TrustPEM()
	if err := open(t, c).Renew(within(t)); err != nil {
		t.Error(err)
	}
}

func TestOpen_RejectsForeignIdentity(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	m := open(t, s.config(dir))
	m.machine = identity.KeyFingerprint([]byte("another machine"))
	if err := m.Join(within(t)); err != nil {
		t.Fatal(err)
	}
	other := s.config(dir)
	other.RobotID = "r2"
	if _, err := Open(other); err == nil || !strings.Contains(err.Error(), "the identity of robot r1, not of r2") {
		t.Error(err)
	}
	if machineFingerprint() == "" {
		return // this machine has no id
	}
	if _, err := Open(s.config(dir)); err == nil || !strings.Contains(err.Error(), "copied from another machine") {
		t.Error(err)
	}
}

func TestJoin_FailsWithoutToken(t *testing.T) {
	s := newServer(t)
	c := s.config(t.TempDir())
	c.Token = ""
	if err := open(t, c).Renew(within(t)); !errors.Is(err, errNoToken) {
		t.Error(err)
	}
}

func TestJoin_RejectsCertificateForAnotherKey(t *testing.T) {
	s := newServer(t)
	other, _, err := keyfile.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	s.answer = func(string, identity.JoinRequest, []*x509.Certificate) identity.CertificateResponse {
		c, err := s.auth.SignRobot("r1", other.Public())
		if err != nil {
			t.Error(err)
		}
		return identity.CertificateResponse{State: identity.StateIssued, Certificate: string(keyfile.EncodeCertificates(c)), CA: string(s.auth.TrustPEM())}
	}
	m := open(t, s.config(t.TempDir()))
	if err := m.Renew(within(t)); err == nil || !m.notAfter().IsZero() {
		t.Errorf("%v", err)
	}
}

// The file of --ca-file is read once, so the CA that replaces it comes with a renewal.
func TestServerTLS_TrustsNextCAsBesideCAFile(t *testing.T) {
	s := newServer(t)
	next, err := ca.OpenManaged(t.TempDir(), ca.DefaultLifetime)
	if err != nil {
		t.Fatal(err)
	}
	s.answer = func(path string, in identity.JoinRequest, has []*x509.Certificate) identity.CertificateResponse {
		a := s.issue(path, in, has)
		a.CA += string(next.TrustPEM())
		return a
	}
	c := s.config(t.TempDir())
	c.CA, c.CAHash = s.auth.TrustPEM(), ""
	m := open(t, c)
	if err := m.Join(within(t)); err != nil {
		t.Fatal(err)
	}
	for name, authority := range map[string]*ca.Authority{"the CA of the file": s.auth, "the next CA": next} {
		serving, err := authority.ServingCertificate("localhost")(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := serving.Leaf.Verify(x509.VerifyOptions{Roots: m.serverTLS().RootCAs, DNSName: "localhost"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A resumed session has the certificate that opened it, so a new certificate starts without one.
func TestTLS_KeepsSessionsOfOneCertificate(t *testing.T) {
	s := newServer(t)
	m := open(t, s.config(t.TempDir()))
	if err := m.Join(within(t)); err != nil {
		t.Fatal(err)
	}
	first, _ := m.TLS()
	again, _ := m.TLS()
	if first.ClientSessionCache == nil || first.ClientSessionCache != again.ClientSessionCache {
		t.Error("two connections with one certificate share no sessions")
	}
	if err := m.Renew(within(t)); err != nil {
		t.Fatal(err)
	}
	if renewed, _ := m.TLS(); renewed.ClientSessionCache == first.ClientSessionCache {
		t.Error("a new certificate uses the sessions of the old one")
	}
}
