// Package authority is the certificate authority of robots: it signs what
// proves a robot, and what proves the server to robots. Its files are laid out
// as those of a Secret of cert-manager: tls.crt and tls.key sign, ca.crt
// vouches.
package authority

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/identity"
	"k8s4r.io/k8s4r/internal/keyfile"
)

// The files.
const (
	fileCertificate = "tls.crt"
	fileKey         = "tls.key"
	fileTrust       = "ca.crt"
	// The heir is trusted long before it signs anything.
	fileHeir    = "next.crt"
	fileHeirKey = "next.key"
)

// The lives of certificates.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	// handover is how long before the end of an authority its heir signs in its
	// place. It is trusted for as long before that, and robots hear whom to trust
	// each time that they renew.
	handover   = 90 * 24 * time.Hour
	serverLife = 30 * 24 * time.Hour
	// DefaultRobotLife is short, because a certificate that has been stolen and
	// that nobody knows of ends by itself.
	DefaultRobotLife = 24 * time.Hour
	// skew is how far in the past a certificate becomes valid, for clocks that
	// differ. It is no more than its life: two thirds of that would be over at once.
	skew = 10 * time.Minute
	// lookEvery is how often files that somebody else keeps are read again.
	lookEvery = time.Minute
)

// Authority signs. Its methods may be called from any goroutine.
type Authority struct {
	dir  string
	ours bool // we made it, and renew it
	now  func() time.Time

	mu      sync.Mutex
	signer  tls.Certificate
	trust   []*x509.Certificate
	lookAt  time.Time
	robots  time.Duration
	servers map[string]*tls.Certificate // by their names
}

// Open uses the authority of a directory that somebody else keeps, such as a
// mounted Secret, and reads it again when it changes.
func Open(dir string) (*Authority, error) { return open(dir, false, time.Now) }

// Make uses the authority of a directory of our own: it is made when there is
// none, and renewed.
func Make(dir string) (*Authority, error) { return open(dir, true, time.Now) }

func open(dir string, ours bool, now func() time.Time) (*Authority, error) {
	a := &Authority{dir: dir, ours: ours, now: now, robots: DefaultRobotLife, servers: map[string]*tls.Certificate{}}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.load(); err != nil {
		return nil, fmt.Errorf("certificate authority of robots in %s: %w", dir, err)
	}
	return a, nil
}

// SetRobotLife says how long the certificates of robots are good for, if not
// DefaultRobotLife.
func (a *Authority) SetRobotLife(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.robots = d
}

// load takes in the files, after they have been made or renewed if they are ours.
func (a *Authority) load() error {
	if a.ours {
		if err := a.keep(); err != nil {
			return err
		}
	}
	signer, err := tls.LoadX509KeyPair(a.file(fileCertificate), a.file(fileKey))
	if err != nil {
		return err
	}
	if !signer.Leaf.IsCA {
		return fmt.Errorf("%s is not the certificate of an authority; a Certificate of cert-manager needs isCA: true", fileCertificate)
	}
	text, err := os.ReadFile(a.file(fileTrust))
	if err != nil {
		return err
	}
	trust, err := keyfile.Certificates(text)
	if err != nil {
		return fmt.Errorf("%s: %w", fileTrust, err)
	}
	a.signer, a.trust, a.lookAt = signer, trust, a.now().Add(lookEvery)
	return nil
}

func (a *Authority) file(name string) string { return filepath.Join(a.dir, name) }

// fresh reads the files again now and then. Files that are half changed, or
// gone for a moment, are no reason to stop.
func (a *Authority) fresh() {
	if a.now().Before(a.lookAt) {
		return
	}
	if err := a.load(); err != nil {
		a.lookAt = a.now().Add(lookEvery)
	}
}

// keep makes and renews files of our own.
func (a *Authority) keep() error {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	current, err := tls.LoadX509KeyPair(a.file(fileCertificate), a.file(fileKey))
	if err != nil && a.exists(fileHeir) && !a.exists(fileHeirKey) { // a crash in the middle of succeed
		return os.Rename(a.file(fileHeir), a.file(fileCertificate))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return a.make(fileCertificate, fileKey)
	}
	if err != nil {
		return err // made anew it would lock all robots out: that is for a person
	}
	left := current.Leaf.NotAfter.Sub(a.now())
	switch {
	case left < handover && a.exists(fileHeir):
		return a.succeed()
	case left < 2*handover && !a.exists(fileHeir):
		return a.make(fileHeir, fileHeirKey)
	}
	return nil
}

// succeed puts the heir in its place.
func (a *Authority) succeed() error {
	if err := os.Rename(a.file(fileHeirKey), a.file(fileKey)); err != nil {
		return err
	}
	return os.Rename(a.file(fileHeir), a.file(fileCertificate))
}

func (a *Authority) exists(name string) bool {
	_, err := os.Stat(a.file(name))
	return err == nil
}

// make writes a new authority, and has it trusted beside those that are still
// good.
func (a *Authority) make(certificate, key string) error {
	private, text, err := keyfile.NewKey()
	if err != nil {
		return err
	}
	now := a.now()
	c, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "k8s4r-robots-ca"}, NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLife),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}, private.Public(), nil, private)
	if err != nil {
		return err
	}
	trust := []*x509.Certificate{c}
	old, _ := os.ReadFile(a.file(fileTrust)) // none: nobody is trusted yet
	others, _ := keyfile.Certificates(old)
	for _, o := range others {
		if now.Before(o.NotAfter) {
			trust = append(trust, o)
		}
	}
	// The certificate comes last: without it a crash leaves nothing that counts.
	return errors.Join(
		keyfile.Write(a.file(key), text),
		keyfile.Write(a.file(fileTrust), keyfile.PEM(trust...)),
		keyfile.Write(a.file(certificate), keyfile.PEM(c)),
	)
}

// sign makes a certificate. Nil parent: it signs itself.
func sign(c *x509.Certificate, public crypto.PublicKey, parent *x509.Certificate, by any) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	c.SerialNumber = serial
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, public, by)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return x509.ParseCertificate(der)
}

// Trust are the certificates, in PEM, by which robots know the server.
func (a *Authority) Trust() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fresh()
	return keyfile.PEM(a.trust...)
}

// Hash is the fingerprint of the key that signs now. Robots that know nothing
// yet are told it with their token.
func (a *Authority) Hash() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return identity.FingerprintOf(a.signer.Leaf)
}

// Pool vouches for clients.
func (a *Authority) Pool() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fresh()
	return keyfile.Pool(a.trust...)
}

// SignRobot makes the certificate of a robot.
func (a *Authority) SignRobot(id string, public crypto.PublicKey) (*x509.Certificate, error) {
	if err := identity.ValidRobot(id); err != nil {
		return nil, fmt.Errorf("sign for a robot: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fresh()
	return a.signClient(id, public, a.robots)
}

func (a *Authority) signClient(name string, public crypto.PublicKey, life time.Duration) (*x509.Certificate, error) {
	now := a.now()
	return sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: now.Add(-min(skew, life)), NotAfter: a.within(now.Add(life)),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}, public, a.signer.Leaf, a.signer.PrivateKey)
}

// within keeps a certificate from outliving who vouches for it.
func (a *Authority) within(end time.Time) time.Time {
	if a.signer.Leaf.NotAfter.Before(end) {
		return a.signer.Leaf.NotAfter
	}
	return end
}

// ServerClient proves the server to the broker, as a client, whenever it
// connects.
func (a *Authority) ServerClient(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return a.pair("client", func(public crypto.PublicKey) (*x509.Certificate, error) {
		return a.signClient(identity.Server, public, serverLife)
	})
}

// ConsoleClient proves the console to the broker in the same way.
func (a *Authority) ConsoleClient(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return a.pair("console", func(public crypto.PublicKey) (*x509.Certificate, error) {
		return a.signClient(identity.Console, public, serverLife)
	})
}

// ServerTLS is the server's side of a connection to a broker that MQTT secures.
func (a *Authority) ServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, GetClientCertificate: a.ServerClient,
		InsecureSkipVerify: true, // VerifyConnection does it, by those who are trusted at that moment
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots: a.Pool(), Intermediates: keyfile.Pool(s.PeerCertificates[1:]...), DNSName: s.ServerName, CurrentTime: a.now(),
			})
			return err
		},
	}
}

// Serving proves a server of these names and addresses, with a certificate that
// is made anew when two thirds of its life are over. The authority comes with
// it, for robots that know it only by its Hash.
func (a *Authority) Serving(hosts ...string) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	key := fmt.Sprintf("serve %q", hosts)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return a.pair(key, func(public crypto.PublicKey) (*x509.Certificate, error) { return a.signServer(hosts, public) })
	}
}

func (a *Authority) signServer(hosts []string, public crypto.PublicKey) (*x509.Certificate, error) {
	now := a.now()
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: identity.Server}, NotBefore: now.Add(-skew), NotAfter: a.within(now.Add(serverLife)),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, host)
		}
	}
	return sign(c, public, a.signer.Leaf, a.signer.PrivateKey)
}

// pair remembers what issue makes, until it is old or somebody else signs.
func (a *Authority) pair(key string, issue func(crypto.PublicKey) (*x509.Certificate, error)) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fresh()
	if have := a.servers[key]; have != nil && a.now().Before(RenewAt(have.Leaf)) && slices.Equal(have.Leaf.AuthorityKeyId, a.signer.Leaf.SubjectKeyId) {
		return have, nil
	}
	private, _, err := keyfile.NewKey()
	if err != nil {
		return nil, err
	}
	c, err := issue(private.Public())
	if err != nil {
		return nil, err
	}
	made := &tls.Certificate{Certificate: [][]byte{c.Raw, a.signer.Leaf.Raw}, PrivateKey: private, Leaf: c}
	a.servers[key] = made
	return made, nil
}

// RenewAt is when two thirds of a certificate's life are over.
func RenewAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3)
}

// VerifyClient tells whether we vouch for a client's certificate. It may have
// ended for no longer than late: that is for one that wants to renew.
func (a *Authority) VerifyClient(c *x509.Certificate, late time.Duration) error {
	at := a.now()
	if at.After(c.NotAfter) && at.Sub(c.NotAfter) <= late {
		at = c.NotAfter
	}
	_, err := c.Verify(x509.VerifyOptions{Roots: a.Pool(), CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

// MQTT is how a broker proves itself to robots of these hosts, and has them
// prove themselves.
func (a *Authority) MQTT(hosts ...string) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: a.Serving(hosts...), ClientAuth: tls.RequireAndVerifyClientCert}
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.Clone()
		now.GetConfigForClient, now.ClientCAs = nil, a.Pool() // who is trusted changes
		return now, nil
	}
	return c
}
