// Package credential holds the robot's identity: a private key that is created on the robot
// and never leaves it, and a certificate for it that the server signs and that is renewed
// before it expires.
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

	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// The files, in a directory that only the agent's user can read.
const (
	fileKey         = "key.pem"
	fileCertificate = "certificate.pem"
	fileCA          = "ca.pem"
	fileJoinRecord  = "home.json"
)

// Config configures a Credential.
type Config struct {
	// Dir keeps the key and the certificate.
	Dir     string
	RobotID string
	// Server is the URL of the server's API for robots.
	Server *url.URL
	// Token is the join token of a new robot. If empty, the robot must have joined before.
	Token string
	// CAHash is the fingerprint of the authority's key, as it is printed with the token. CA
	// holds the authority's certificates (PEM) instead. If both are empty, the system's
	// authorities are trusted.
	CAHash string
	CA     []byte
	Log    *slog.Logger
}

// joinRecord records where the robot has joined.
type joinRecord struct {
	RobotID string `json:"robotId"`
	Machine string `json:"machine"`
	MQTTURL string `json:"mqttURL"`
}

// Credential is the identity of one robot. Call Open, then Join.
type Credential struct {
	cfg     Config
	machine string
	write   func(path string, data []byte) error // atomic; tests fill the disk
	now     func() time.Time                     // tests set the clock

	mu      sync.Mutex
	key     *ecdsa.PrivateKey
	current *tls.Certificate // nil: the robot has not joined
	// sessions are the TLS sessions of current. A resumed one has the certificate that opened it.
	sessions tls.ClientSessionCache
	// authorities are trusted for the broker.
	authorities []*x509.Certificate
	joined      joinRecord
	changed     chan struct{} // closed when the certificate is replaced
}

// HasCertificate reports whether a directory has the certificate of a robot, which may have expired.
func HasCertificate(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, fileCertificate))
	return err == nil
}

// Open reads the key and the certificate, and creates a key if there is none.
func Open(c Config) (*Credential, error) { return openWith(c, keyfile.WriteFile) }

// openWith is Open with the function that writes files atomically.
func openWith(c Config, write func(path string, data []byte) error) (*Credential, error) {
	m := &Credential{cfg: c, machine: machineFingerprint(), write: write, now: time.Now, changed: make(chan struct{})}
	if err := keyfile.MakeDir(c.Dir); err != nil {
		return nil, fmt.Errorf("identity of the robot: %w", err)
	}
	err := m.loadKey()
	if err == nil {
		err = m.loadCertificate()
	}
	if err != nil {
		return nil, fmt.Errorf("identity of the robot in %s: %w", c.Dir, err)
	}
	return m, m.checkJoinRecord()
}

// machineFingerprint returns a hash of the machine id. It is empty if there is no id.
func machineFingerprint() string {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil || len(bytes.TrimSpace(id)) == 0 {
		return ""
	}
	sum := sha256.Sum256(append([]byte("k8s4r robot "), bytes.TrimSpace(id)...))
	return fmt.Sprintf("sha256:%x", sum)
}

func (m *Credential) filePath(name string) string { return filepath.Join(m.cfg.Dir, name) }

// loadKey reads the key, and creates it unless there is a certificate, which would be for another
// key.
func (m *Credential) loadKey() (err error) {
	if !m.hasFile(fileKey) && m.hasFile(fileCertificate) {
		return fmt.Errorf("%s is missing, but there is %s; remove that, and let the robot join again", fileKey, fileCertificate)
	}
	if m.key, err = keyfile.ReadOrCreateKey(m.filePath(fileKey), m.write); err != nil && m.hasFile(fileKey) {
		return fmt.Errorf("%w; to use a new key, remove %s and %s, and let the robot join again", err, fileKey, fileCertificate)
	}
	return err
}

// hasFile reports whether there is a file, even one that cannot be read.
func (m *Credential) hasFile(name string) bool {
	_, err := os.Lstat(m.filePath(name))
	return !errors.Is(err, fs.ErrNotExist)
}

// loadCertificate reads the certificate, if there is one.
func (m *Credential) loadCertificate() error {
	text, err := os.ReadFile(m.filePath(fileCertificate))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ca, caErr := os.ReadFile(m.filePath(fileCA))
	where, homeErr := os.ReadFile(m.filePath(fileJoinRecord))
	if err := errors.Join(err, caErr, homeErr); err != nil {
		return err
	}
	if err := json.Unmarshal(where, &m.joined); err != nil {
		return fmt.Errorf("%s: %w", fileJoinRecord, err)
	}
	return m.useCertificate(text, ca)
}

// useCertificate sets the certificate and the authorities.
func (m *Credential) useCertificate(certificate, ca []byte) error {
	chain, err := keyfile.ParseCertificates(certificate)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	trust, err := keyfile.ParseCertificates(ca)
	if err != nil {
		return fmt.Errorf("certificates of the server: %w", err)
	}
	if public, ok := chain[0].PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(m.key.Public()) {
		return errors.New("the certificate is not for the robot's key")
	}
	m.current = &tls.Certificate{Certificate: [][]byte{chain[0].Raw}, PrivateKey: m.key, Leaf: chain[0]}
	m.sessions, m.authorities = tls.NewLRUClientSessionCache(1), trust
	return nil
}

// checkHome rejects a directory of another robot or machine: two robots with one key would
// take over each other's connection again and again.
func (m *Credential) checkJoinRecord() error {
	switch h := m.joined; {
	case m.current == nil:
		return nil
	case h.RobotID != m.cfg.RobotID:
		return fmt.Errorf("%s holds the identity of robot %s, not of %s; use another --state-dir, or remove that directory", m.cfg.Dir, h.RobotID, m.cfg.RobotID)
	case h.Machine != "" && m.machine != "" && h.Machine != m.machine:
		return fmt.Errorf("%s was copied from another machine; remove that directory, and let this machine join as a robot of its own", m.cfg.Dir)
	}
	return nil
}

// MQTTURL returns the broker that the server names. If empty, it names none.
func (m *Credential) MQTTURL() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.joined.MQTTURL
}

// TLS returns the configuration for the broker with the current certificate, or nil if there
// is none. Its connections resume the last TLS session, which is cheaper for the broker. The channel
// is closed once there is a newer certificate.
func (m *Credential) TLS() (*tls.Config, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return nil, m.changed
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: keyfile.NewPool(m.authorities...), Certificates: []tls.Certificate{*m.current},
		ClientSessionCache: m.sessions,
	}, m.changed
}

// notAfter returns when the certificate expires. It is zero if there is none.
func (m *Credential) notAfter() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return time.Time{}
	}
	return m.current.Leaf.NotAfter
}

// isValidAt reports whether there is a certificate that is valid now.
func (m *Credential) isValidAt(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current != nil && !now.Before(m.current.Leaf.NotBefore) && now.Before(m.current.Leaf.NotAfter)
}

// isRenewalDue reports whether there is no certificate, two thirds of its lifetime are over, or it is
// not valid yet: it was issued before the server's clock was set back, and the broker refuses it.
func (m *Credential) isRenewalDue(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return true
	}
	c := m.current.Leaf
	return now.Before(c.NotBefore) || !now.Before(c.NotBefore.Add(lifetimeOf(c)*2/3))
}

// checkInterval returns the time between two checks whether a renewal is due. The clock may be set
// meanwhile, so it is short. It is also the time between two renewals while the robot's clock is
// wrong, with which they are always due.
func (m *Credential) checkInterval() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return minRetryPause
	}
	return min(lifetimeOf(m.current.Leaf)/10, maxRetryPause)
}

func lifetimeOf(c *x509.Certificate) time.Duration { return c.NotAfter.Sub(c.NotBefore) }

// The bounds of the pause between two requests.
const (
	minRetryPause = 250 * time.Millisecond
	maxRetryPause = time.Minute
)

// Join blocks until the robot has a valid certificate or ctx ends. It retries errors, so that
// a robot can be started before its server.
func (m *Credential) Join(ctx context.Context) error {
	if m.isValidAt(m.now()) {
		return nil
	}
	return m.obtainCertificate(ctx)
}

// Run renews the certificate until ctx ends.
func (m *Credential) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(m.checkInterval()):
		}
		if m.isRenewalDue(m.now()) {
			_ = m.obtainCertificate(ctx) // ends only with ctx or a certificate
		}
	}
}

// obtainCertificate sends requests until there is a certificate or ctx ends.
func (m *Credential) obtainCertificate(ctx context.Context) error {
	logged := ""
	for pause := minRetryPause; ; pause = min(2*pause, maxRetryPause) {
		answer, err := m.requestOnce(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if logged != err.Error() { // not for each retry
			logged = err.Error()
			m.cfg.Log.Warn("no certificate yet, will retry", "server", m.cfg.Server.Redacted(), "key", m.keyFingerprint(), "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(pause, answer.RetryDelay())):
		}
	}
}

// Renew requests a certificate now, because the broker refuses the current one.
func (m *Credential) Renew(ctx context.Context) error {
	_, err := m.requestOnce(ctx)
	return err
}

// requestOnce sends one request: with the certificate if there is one, else with the token.
func (m *Credential) requestOnce(ctx context.Context) (identity.CertificateResponse, error) {
	request, err := m.newRequest()
	if err != nil {
		return identity.CertificateResponse{}, err
	}
	if m.notAfter().IsZero() {
		return m.joinServer(ctx, request)
	}
	answer, err := m.postRequest(ctx, identity.RenewPath, request)
	if rejoin := answer.Reason == identity.ReasonUnknown || answer.Reason == identity.ReasonUnauthorized; err != nil && rejoin && m.cfg.Token != "" {
		return m.joinServer(ctx, request)
	}
	return answer, err
}

var errNoToken = errors.New("the robot has no certificate, and no --token to join with; create one with `k8s4r token create`")

func (m *Credential) joinServer(ctx context.Context, request identity.CertificateRequest) (identity.CertificateResponse, error) {
	if m.cfg.Token == "" {
		return identity.CertificateResponse{}, errNoToken
	}
	return m.postRequest(ctx, identity.JoinPath, identity.JoinRequest{RobotID: m.cfg.RobotID, Token: m.cfg.Token, CertificateRequest: request})
}

// newRequest returns a request that the key signs, which shows that the robot has it.
func (m *Credential) newRequest() (identity.CertificateRequest, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, m.key)
	if err != nil {
		return identity.CertificateRequest{}, fmt.Errorf("create a certificate request: %w", err)
	}
	host, _ := os.Hostname() // for display
	return identity.CertificateRequest{
		CSR: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), Machine: m.machine, Hostname: host[:min(len(host), 200)],
	}, nil
}

// keyFingerprint returns the fingerprint of the robot's key, which an operator compares before
// approving the robot.
func (m *Credential) keyFingerprint() string {
	der, err := x509.MarshalPKIXPublicKey(m.key.Public())
	if err != nil {
		return ""
	}
	return identity.KeyFingerprint(der)
}

// requestTimeout limits one request.
const requestTimeout = 30 * time.Second

// postRequest sends a request and saves the certificate of the response.
func (m *Credential) postRequest(ctx context.Context, path string, request any) (identity.CertificateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return identity.CertificateResponse{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.cfg.Server.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return identity.CertificateResponse{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: m.serverTLS(), Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	if err != nil {
		return identity.CertificateResponse{}, err
	}
	defer response.Body.Close()
	answer, err := identity.Decode[identity.CertificateResponse](response.Body)
	if err != nil {
		return answer, fmt.Errorf("%s responded with %s and is not a K8s4r server", m.cfg.Server.Redacted(), response.Status)
	}
	if answer.State != identity.StateIssued {
		return answer, errors.New(answer.Message)
	}
	return answer, m.saveCertificate(answer)
}

// saveCertificate writes a certificate and uses it. Its file is written last, because the
// other files are read only if it exists.
func (m *Credential) saveCertificate(a identity.CertificateResponse) error {
	where := joinRecord{RobotID: m.cfg.RobotID, Machine: m.machine, MQTTURL: a.MQTTURL}
	text, err := json.Marshal(where)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.useCertificate([]byte(a.Certificate), []byte(a.CA)); err != nil {
		return fmt.Errorf("the server's response: %w", err)
	}
	m.joined = where
	close(m.changed)
	m.changed = make(chan struct{})
	m.cfg.Log.Info("the robot has a certificate", "until", m.current.Leaf.NotAfter, "key", m.keyFingerprint())
	return keyfile.WriteAll(m.write,
		keyfile.File{Path: m.filePath(fileCA), Data: []byte(a.CA)},
		keyfile.File{Path: m.filePath(fileJoinRecord), Data: text},
		keyfile.File{Path: m.filePath(fileCertificate), Data: []byte(a.Certificate)},
	)
}

// serverTLS returns the configuration for the server: it trusts --ca-file and the authorities of
// the last response, and without both --ca-hash.
func (m *Credential) serverTLS() *tls.Config {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if m.current != nil {
		c.Certificates = []tls.Certificate{*m.current}
	}
	switch {
	case len(m.cfg.CA) > 0:
		// The CA of the file may have been replaced since it was read.
		c.RootCAs = keyfile.NewPool(m.authorities...)
		c.RootCAs.AppendCertsFromPEM(m.cfg.CA)
	case m.cfg.CAHash != "" && m.current == nil:
		pinAuthority(c, m.cfg.CAHash)
	case m.current != nil:
		c.RootCAs = m.systemAndOwnPool()
	}
	return c
}

// systemAndOwnPool returns the authorities for the server's API: the system's and those of
// the last response.
func (m *Credential) systemAndOwnPool() *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	for _, c := range m.authorities {
		pool.AddCert(c)
	}
	return pool
}

// pinAuthority trusts the authority with this fingerprint of its key.
func pinAuthority(c *tls.Config, hash string) {
	c.InsecureSkipVerify = true // VerifyConnection does it
	c.VerifyConnection = func(s tls.ConnectionState) error {
		for _, ca := range s.PeerCertificates {
			if ca.IsCA && identity.CertificateFingerprint(ca) == hash {
				return verifyChain(s, keyfile.NewPool(ca))
			}
		}
		return errors.New("the server is not the one that the token is for: --ca-hash does not match its authority")
	}
}

// verifyChain verifies the server's certificate as crypto/tls does without VerifyConnection.
func verifyChain(s tls.ConnectionState, roots *x509.CertPool) error {
	between := keyfile.NewPool(s.PeerCertificates[1:]...)
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: s.ServerName})
	return err
}

// ParseServerURL parses the URL of a server's API.
func ParseServerURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("%.200q must be https://host:port", text)
	}
	return u, nil
}
