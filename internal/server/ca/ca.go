// Package ca is the certificate authority of robots: it signs the certificates of robots
// and of the server. Its files have the layout of a cert-manager Secret: tls.crt and
// tls.key sign, ca.crt has the trusted CAs.
package ca

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/platform/pki"
	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// The files.
const (
	fileCertificate = "tls.crt"
	fileKey         = "tls.key"
	fileTrust       = "ca.crt"
	// The next CA is trusted long before it signs.
	fileNextCertificate = "next.crt"
	fileNextKey         = "next.key"
	// The request to replace the CA before it expires.
	fileRotation = "rotation.json"
)

// The lifetimes of certificates.
const (
	// DefaultLifetime is the lifetime of a managed CA.
	DefaultLifetime = 10 * 365 * 24 * time.Hour
	serverLifetime  = 30 * 24 * time.Hour
	// DefaultRobotLifetime is short, so that a stolen certificate soon expires.
	DefaultRobotLifetime = 24 * time.Hour
	// clockSkew is how far in the past a certificate becomes valid, at most its
	// lifetime, and for a CA a tenth of it.
	clockSkew = 10 * time.Minute
	// reloadInterval is the longest time between two reads of the files.
	reloadInterval = time.Minute
)

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	dir       string
	isManaged bool          // we create and renew it
	lifetime  time.Duration // of a CA that is created
	now       func() time.Time
	startedAt time.Time
	disk      disk

	mu            sync.Mutex
	signer        tls.Certificate
	trust         []*x509.Certificate
	next          *x509.Certificate // the next CA; nil: none
	reloadAt      time.Time
	robotLifetime time.Duration
	cache         map[string]*tls.Certificate // by their names
}

// Open uses the CA in a directory that others maintain, such as a mounted Secret, and
// reloads it.
func Open(dir string) (*Authority, error) { return openAuthority(dir, false, 0, time.Now) }

// OpenManaged uses the CA in a directory of our own, which it creates and renews. lifetime is that
// of a CA that it creates.
func OpenManaged(dir string, lifetime time.Duration) (*Authority, error) {
	return openAuthority(dir, true, lifetime, time.Now)
}

func openAuthority(dir string, isManaged bool, lifetime time.Duration, now func() time.Time) (*Authority, error) {
	a := &Authority{
		dir: dir, isManaged: isManaged, lifetime: lifetime, now: now, startedAt: now(), disk: disk{keyfile.WriteFile, keyfile.Rename},
		robotLifetime: DefaultRobotLifetime, cache: map[string]*tls.Certificate{},
	}
	if err := a.Refresh(); err != nil {
		return nil, err
	}
	return a, nil
}

// Refresh renews managed files that are due, and reads all. If it fails, the CAs stay as they are.
func (a *Authority) Refresh() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.loadFilesLocked(); err != nil {
		return fmt.Errorf("robot CA in %s: %w", a.dir, err)
	}
	return nil
}

// RefreshInterval returns the time between two calls of Refresh.
func (a *Authority) RefreshInterval() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return reloadIntervalOf(a.signer.Leaf)
}

// reloadIntervalOf returns the time between two reads of the files of a CA.
func reloadIntervalOf(c *x509.Certificate) time.Duration {
	return min(reloadInterval, c.NotAfter.Sub(c.NotBefore)/100)
}

// CAs returns the CA that signs, and the next one if there is one.
func (a *Authority) CAs() (signer, next *x509.Certificate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.signer.Leaf, a.next
}

// SetRobotLifetime sets the lifetime of robot certificates. Default:
// DefaultRobotLifetime.
func (a *Authority) SetRobotLifetime(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.robotLifetime = d
}

// loadFilesLocked reads the files, after it has created or renewed managed ones.
func (a *Authority) loadFilesLocked() error {
	if a.isManaged {
		if err := a.renewFiles(); err != nil {
			return err
		}
	}
	signer, err := tls.LoadX509KeyPair(a.path(fileCertificate), a.path(fileKey))
	if err != nil {
		return err
	}
	if !signer.Leaf.IsCA {
		return fmt.Errorf("%s: not a CA certificate; a Certificate of cert-manager needs isCA: true", fileCertificate)
	}
	text, err := os.ReadFile(a.path(fileTrust))
	if err != nil {
		return err
	}
	trust, err := keyfile.ParseCertificates(text)
	if err != nil {
		return fmt.Errorf("%s: %w", fileTrust, err)
	}
	a.signer, a.trust, a.reloadAt = signer, trust, a.now().Add(reloadIntervalOf(signer.Leaf))
	a.next, err = a.readNextCA()
	return err
}

// readNextCA returns the next CA of managed files. If there is none, it returns nil.
func (a *Authority) readNextCA() (*x509.Certificate, error) {
	if !a.isManaged {
		return nil, nil
	}
	if _, err := os.Lstat(a.path(fileNextCertificate)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(a.path(fileNextCertificate), a.path(fileNextKey))
	if err != nil {
		return nil, fmt.Errorf("next CA: %w; restore its files from a backup", err)
	}
	return pair.Leaf, nil
}

func (a *Authority) path(name string) string { return filepath.Join(a.dir, name) }

// reloadLocked reads the files again after an interval. Errors are ignored, because the
// files may be half replaced.
func (a *Authority) reloadLocked() {
	if a.now().Before(a.reloadAt) {
		return
	}
	if err := a.loadFilesLocked(); err != nil {
		a.reloadAt = a.now().Add(reloadIntervalOf(a.signer.Leaf))
	}
}

// TrustPEM returns the CAs that robots should trust. The one that signs is the first: the command
// line of a join token names its key.
func (a *Authority) TrustPEM() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reloadLocked()
	isSigner := func(c *x509.Certificate) bool { return c.Equal(a.signer.Leaf) }
	if i := slices.IndexFunc(a.trust, isSigner); i > 0 {
		others := slices.DeleteFunc(slices.Clone(a.trust), isSigner)
		return keyfile.EncodeCertificates(append([]*x509.Certificate{a.trust[i]}, others...)...)
	}
	return keyfile.EncodeCertificates(a.trust...)
}

// KeyFingerprint returns the fingerprint of the signing key, which join tokens contain.
func (a *Authority) KeyFingerprint() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return identity.CertificateFingerprint(a.signer.Leaf)
}

// TrustPool returns the CAs for client certificates.
func (a *Authority) TrustPool() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reloadLocked()
	return keyfile.NewPool(a.trust...)
}

// SignRobot signs the certificate of a robot.
func (a *Authority) SignRobot(id string, public crypto.PublicKey) (*x509.Certificate, error) {
	if err := wire.ValidateRobotID(id); err != nil {
		return nil, fmt.Errorf("sign for a robot: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reloadLocked()
	return a.signClient(id, public, a.robotLifetime)
}

func (a *Authority) signClient(name string, public crypto.PublicKey, lifetime time.Duration) (*x509.Certificate, error) {
	now := a.now()
	return pki.SignCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: now.Add(-min(clockSkew, lifetime)), NotAfter: a.capExpiry(now.Add(lifetime)),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}, public, a.signer.Leaf, a.signer.PrivateKey)
}

// capExpiry keeps a certificate from outliving its CA.
func (a *Authority) capExpiry(end time.Time) time.Time {
	if a.signer.Leaf.NotAfter.Before(end) {
		return a.signer.Leaf.NotAfter
	}
	return end
}

// ServerClientCertificate returns the server's client certificate for the broker.
func (a *Authority) ServerClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return a.cachedCertificateFor("client", func(public crypto.PublicKey) (*x509.Certificate, error) {
		return a.signClient(identity.ServerName, public, serverLifetime)
	})
}

// ConsoleClientCertificate returns the console's client certificate for the broker.
func (a *Authority) ConsoleClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return a.cachedCertificateFor("console", func(public crypto.PublicKey) (*x509.Certificate, error) {
		return a.signClient(identity.ConsoleName, public, serverLifetime)
	})
}

// ServerTLSConfig returns the server's client configuration for a broker with a
// certificate of this CA.
func (a *Authority) ServerTLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, GetClientCertificate: a.ServerClientCertificate,
		InsecureSkipVerify: true, // VerifyConnection verifies with the current CAs
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots: a.TrustPool(), Intermediates: keyfile.NewPool(s.PeerCertificates[1:]...), DNSName: s.ServerName, CurrentTime: a.now(),
			})
			return err
		},
	}
}

// ServingCertificate returns certificates for these names and addresses, which are
// renewed after two thirds of their lifetime. They contain the CA, for robots that know
// only its fingerprint.
func (a *Authority) ServingCertificate(hosts ...string) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	key := fmt.Sprintf("serve %q", hosts)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return a.cachedCertificateFor(key, func(public crypto.PublicKey) (*x509.Certificate, error) { return a.signServer(hosts, public) })
	}
}

func (a *Authority) signServer(hosts []string, public crypto.PublicKey) (*x509.Certificate, error) {
	now := a.now()
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: identity.ServerName}, NotBefore: now.Add(-clockSkew), NotAfter: a.capExpiry(now.Add(serverLifetime)),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, host)
		}
	}
	return pki.SignCertificate(c, public, a.signer.Leaf, a.signer.PrivateKey)
}

// cachedCertificateFor returns a cached certificate until it is due for renewal or the
// CA has changed.
func (a *Authority) cachedCertificateFor(key string, issue func(crypto.PublicKey) (*x509.Certificate, error)) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reloadLocked()
	if cached := a.cache[key]; cached != nil && a.isUsableLocked(cached.Leaf) {
		return cached, nil
	}
	private, _, err := keyfile.NewKey()
	if err != nil {
		return nil, err
	}
	c, err := issue(private.Public())
	if err != nil {
		return nil, err
	}
	issued := &tls.Certificate{Certificate: [][]byte{c.Raw, a.signer.Leaf.Raw}, PrivateKey: private, Leaf: c}
	a.cache[key] = issued
	return issued, nil
}

// isUsableLocked reports whether a certificate is valid, not due for renewal, and signed by the
// current CA. One that is not valid yet was issued before the clock was set back.
func (a *Authority) isUsableLocked(c *x509.Certificate) bool {
	now := a.now()
	return !now.Before(c.NotBefore) && now.Before(RenewalTime(c)) && slices.Equal(c.AuthorityKeyId, a.signer.Leaf.SubjectKeyId)
}

// RenewalTime returns when two thirds of a certificate's lifetime are over.
func RenewalTime(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3)
}

// VerifyClient returns an error unless a trusted CA has signed a client certificate, whatever the
// dates of both are. IsValid reports whether those of the certificate include the present.
func (a *Authority) VerifyClient(c *x509.Certificate) (isValid bool, err error) {
	if !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) || len(c.UnhandledCriticalExtensions) > 0 {
		return false, errors.New("not a client certificate")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reloadLocked()
	isSigner := func(authority *x509.Certificate) bool { return c.CheckSignatureFrom(authority) == nil }
	if !slices.ContainsFunc(a.trust, isSigner) {
		return false, errors.New("not signed by a trusted CA")
	}
	now := a.now()
	return !now.Before(c.NotBefore) && !now.After(c.NotAfter), nil
}
