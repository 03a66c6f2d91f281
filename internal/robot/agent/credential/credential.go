// Package credential is how a robot proves who it is: a key that is made here
// and never leaves, and a certificate for it that the server signs and that is
// renewed before it ends.
package credential

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/identity"
	"k8s4r.io/k8s4r/internal/keyfile"
)

// The files, in a directory that only the agent's user can read.
const (
	fileKey         = "key.pem"
	fileCertificate = "certificate.pem"
	fileCA          = "ca.pem"
	fileHome        = "home.json"
)

// Config says where a robot belongs.
type Config struct {
	// Dir keeps the key and the certificate.
	Dir     string
	RobotID string
	// Server is the URL of the server's API for robots.
	Server *url.URL
	// Token lets a new robot in. Empty: it has joined.
	Token string
	// CAHash is the fingerprint of the authority's key, as it is printed with the
	// token. CA are certificates, in PEM, that vouch for the server instead.
	// Neither: those that this system trusts do.
	CAHash string
	CA     []byte
	Log    *slog.Logger
}

// home is what a robot remembers of where it has joined.
type home struct {
	RobotID string `json:"robotId"`
	Machine string `json:"machine"`
	MQTTURL string `json:"mqttURL"`
}

// Credential of one robot. Make it with Open, then Join.
type Credential struct {
	cfg     Config
	machine string

	mu      sync.Mutex
	key     *ecdsa.PrivateKey
	current *tls.Certificate // nil: none yet
	// authorities vouch for the broker.
	authorities []*x509.Certificate
	home        home
	changed     chan struct{} // closed when there is another certificate
}

// Open reads what there is, and makes a key when there is none.
func Open(c Config) (*Credential, error) {
	m := &Credential{cfg: c, machine: machine(), changed: make(chan struct{})}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("identity of the robot: %w", err)
	}
	err := m.loadKey()
	if err == nil {
		err = m.load()
	}
	if err != nil {
		return nil, fmt.Errorf("identity of the robot in %s: %w", c.Dir, err)
	}
	return m, m.ownHome()
}

// machine tells this machine from others without telling its id.
func machine() string {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil || len(bytes.TrimSpace(id)) == 0 {
		return ""
	}
	sum := sha256.Sum256(append([]byte("k8s4r robot "), bytes.TrimSpace(id)...))
	return fmt.Sprintf("sha256:%x", sum)
}

func (m *Credential) file(name string) string { return filepath.Join(m.cfg.Dir, name) }

func (m *Credential) loadKey() error {
	text, err := os.ReadFile(m.file(fileKey))
	if errors.Is(err, fs.ErrNotExist) {
		var fresh []byte
		if m.key, fresh, err = keyfile.NewKey(); err != nil {
			return err
		}
		return keyfile.Write(m.file(fileKey), fresh)
	}
	if err == nil {
		m.key, err = keyfile.ReadKey(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w; remove it, and let the robot join again", fileKey, err)
	}
	return nil
}

// load takes in the certificate, if there is one for the key. One that is not is
// what a crash has left, and is asked for again.
func (m *Credential) load() error {
	text, err := os.ReadFile(m.file(fileCertificate))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ca, caErr := os.ReadFile(m.file(fileCA))
	where, homeErr := os.ReadFile(m.file(fileHome))
	if err := errors.Join(err, caErr, homeErr); err != nil {
		return err
	}
	if err := json.Unmarshal(where, &m.home); err != nil {
		return fmt.Errorf("%s: %w", fileHome, err)
	}
	return m.take(text, ca)
}

// take puts a certificate and who vouches for the server into use.
func (m *Credential) take(certificate, ca []byte) error {
	chain, err := keyfile.Certificates(certificate)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	trust, err := keyfile.Certificates(ca)
	if err != nil {
		return fmt.Errorf("certificates of the server: %w", err)
	}
	if public, ok := chain[0].PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(m.key.Public()) {
		return errors.New("the certificate is not for the robot's key")
	}
	m.current = &tls.Certificate{Certificate: [][]byte{chain[0].Raw}, PrivateKey: m.key, Leaf: chain[0]}
	m.authorities = trust
	return nil
}

// ownHome refuses a directory that was made for another robot, or on another
// machine: two robots with one key would throw each other out for ever.
func (m *Credential) ownHome() error {
	switch h := m.home; {
	case m.current == nil:
		return nil
	case h.RobotID != m.cfg.RobotID:
		return fmt.Errorf("%s holds the identity of robot %s, not of %s; use another --state-dir, or remove that directory", m.cfg.Dir, h.RobotID, m.cfg.RobotID)
	case h.Machine != "" && m.machine != "" && h.Machine != m.machine:
		return fmt.Errorf("%s was copied from another machine; remove that directory, and let this machine join as a robot of its own", m.cfg.Dir)
	}
	return nil
}

// MQTTURL is where the server says that the broker is. Empty: it does not say.
func (m *Credential) MQTTURL() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.home.MQTTURL
}

// TLS is how the robot proves itself to the broker now, and knows it. The
// channel is closed once there is a newer certificate. Nil: it has none.
func (m *Credential) TLS() (*tls.Config, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return nil, m.changed
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: keyfile.Pool(m.authorities...), Certificates: []tls.Certificate{*m.current}}, m.changed
}

// NotAfter is when the certificate ends. Zero: there is none.
func (m *Credential) NotAfter() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return time.Time{}
	}
	return m.current.Leaf.NotAfter
}

// renewIn is how long it takes until two thirds of the certificate's life are over.
// By a clock that is wrong they are over for ever: so it is never too soon.
func (m *Credential) renewIn() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return firstPause
	}
	c := m.current.Leaf
	life := c.NotAfter.Sub(c.NotBefore)
	return max(min(life/10, lastPause), time.Until(c.NotBefore.Add(life*2/3)))
}

// The pauses between two tries.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = time.Minute
)

// Join returns once the robot has a certificate that counts. It tries for as
// long as ctx lets it: a robot that was switched on before its server waits.
func (m *Credential) Join(ctx context.Context) error {
	if time.Now().Before(m.NotAfter()) {
		return nil
	}
	return m.obtain(ctx)
}

// Run keeps the certificate fresh until ctx ends.
func (m *Credential) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(m.renewIn()):
		}
		_ = m.obtain(ctx) // ends only with ctx or a certificate
	}
}

// obtain asks until there is a certificate.
func (m *Credential) obtain(ctx context.Context) error {
	said := ""
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		answer, err := m.ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if said != err.Error() { // once, and not with every try
			said = err.Error()
			m.cfg.Log.Warn("no certificate yet, will try on", "server", m.cfg.Server.Redacted(), "key", m.fingerprint(), "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(pause, answer.RetryIn())):
		}
	}
}

// Renew asks now, because the one that we have is not taken.
func (m *Credential) Renew(ctx context.Context) error {
	_, err := m.ask(ctx)
	return err
}

// ask asks once: by the certificate if there is one, else by the token.
func (m *Credential) ask(ctx context.Context) (identity.Answer, error) {
	request, err := m.request()
	if err != nil {
		return identity.Answer{}, err
	}
	if m.NotAfter().IsZero() {
		return m.join(ctx, request)
	}
	answer, err := m.exchange(ctx, identity.RenewPath, request)
	if again := answer.Reason == identity.ReasonUnknown || answer.Reason == identity.ReasonUnauthorized; err != nil && again && m.cfg.Token != "" {
		return m.join(ctx, request)
	}
	return answer, err
}

var errNoToken = errors.New("the robot has no certificate, and no --token to join with; make one by `k8s4r token create`")

func (m *Credential) join(ctx context.Context, request identity.Request) (identity.Answer, error) {
	if m.cfg.Token == "" {
		return identity.Answer{}, errNoToken
	}
	return m.exchange(ctx, identity.JoinPath, identity.JoinRequest{RobotID: m.cfg.RobotID, Token: m.cfg.Token, Request: request})
}

// request is signed by the key: that is the proof that we have it.
func (m *Credential) request() (identity.Request, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, m.key)
	if err != nil {
		return identity.Request{}, fmt.Errorf("make a certificate request: %w", err)
	}
	host, _ := os.Hostname() // for people
	return identity.Request{
		CSR: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), Machine: m.machine, Hostname: host[:min(len(host), 200)],
	}, nil
}

// fingerprint of our key, by which an operator who approves it tells it from that
// of somebody else.
func (m *Credential) fingerprint() string {
	der, err := x509.MarshalPKIXPublicKey(m.key.Public())
	if err != nil {
		return ""
	}
	return identity.Fingerprint(der)
}

// exchangeWithin bounds one request.
const exchangeWithin = 30 * time.Second

// exchange sends a request and keeps the certificate that is the answer.
func (m *Credential) exchange(ctx context.Context, path string, request any) (identity.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeWithin)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return identity.Answer{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.cfg.Server.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return identity.Answer{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: m.serverTLS(), Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	if err != nil {
		return identity.Answer{}, err
	}
	defer response.Body.Close()
	answer, err := identity.Decode[identity.Answer](response.Body)
	if err != nil {
		return answer, fmt.Errorf("%s answered %s, and not as a server of K8s4r", m.cfg.Server.Redacted(), response.Status)
	}
	if answer.State != identity.StateIssued {
		return answer, errors.New(answer.Message)
	}
	return answer, m.keep(answer)
}

// keep writes a certificate down and uses it. The certificate comes last: with
// it the rest counts.
func (m *Credential) keep(a identity.Answer) error {
	where := home{RobotID: m.cfg.RobotID, Machine: m.machine, MQTTURL: a.MQTTURL}
	text, err := json.Marshal(where)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.take([]byte(a.Certificate), []byte(a.CA)); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	m.home = where
	close(m.changed)
	m.changed = make(chan struct{})
	m.cfg.Log.Info("the robot has a certificate", "until", m.current.Leaf.NotAfter, "key", m.fingerprint())
	return errors.Join(
		keyfile.Write(m.file(fileCA), []byte(a.CA)),
		keyfile.Write(m.file(fileHome), text),
		keyfile.Write(m.file(fileCertificate), []byte(a.Certificate)),
	)
}

// serverTLS is how the server is known: by what it told us itself, else by what
// came with the token.
func (m *Credential) serverTLS() *tls.Config {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if m.current != nil {
		c.Certificates = []tls.Certificate{*m.current}
	}
	switch {
	case len(m.cfg.CA) > 0:
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM(m.cfg.CA)
	case m.cfg.CAHash != "" && m.current == nil:
		pin(c, m.cfg.CAHash)
	case m.current != nil:
		c.RootCAs = m.trustWithSystem()
	}
	return c
}

// trustWithSystem are those who vouch for the server's API: our authority, or one
// that everybody trusts.
func (m *Credential) trustWithSystem() *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	for _, c := range m.authorities {
		pool.AddCert(c)
	}
	return pool
}

// pin knows the server by the hash of its authority's key.
func pin(c *tls.Config, hash string) {
	c.InsecureSkipVerify = true // VerifyConnection does it
	c.VerifyConnection = func(s tls.ConnectionState) error {
		for _, ca := range s.PeerCertificates {
			if ca.IsCA && identity.FingerprintOf(ca) == hash {
				return verify(s, keyfile.Pool(ca))
			}
		}
		return errors.New("the server is not the one that the token is for: --ca-hash does not fit its authority")
	}
}

// verify does what the TLS library does by itself.
func verify(s tls.ConnectionState, roots *x509.CertPool) error {
	between := keyfile.Pool(s.PeerCertificates[1:]...)
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: s.ServerName})
	return err
}

// ParseServer reads the URL of a server's API.
func ParseServer(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("%.200q must be https://host:port", text)
	}
	return u, nil
}
