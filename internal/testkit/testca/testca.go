// Package testca signs certificates for tests: valid and expired ones, for robots and brokers.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs the certificates of one test.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// lifetime of the authority and of brokers' certificates is longer than any test.
const lifetime = 24 * time.Hour

// New creates an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	a.cert = a.signCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
	}, a.key)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *Authority) signCertificate(c *x509.Certificate, of *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	var err error
	if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		a.t.Fatal(err)
	}
	parent := a.cert
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &of.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return signed
}

// NewClientCertificate returns a client certificate that is valid for the given time. If it is
// negative, the certificate has expired.
func (a *Authority) NewClientCertificate(name string, lasts time.Duration) *tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	c := a.signCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: time.Now().Add(min(0, lasts) - time.Hour), NotAfter: time.Now().Add(lasts),
	}, key)
	return &tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}
}

// NewServerCertificate returns the certificate of a broker on 127.0.0.1.
func (a *Authority) NewServerCertificate() *tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	c := a.signCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: "broker"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
	}, key)
	return &tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}
}

// CertPool returns a pool with only this authority.
func (a *Authority) CertPool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// WriteServerFiles writes ca.crt, tls.crt and tls.key for a broker to dir.
func (a *Authority) WriteServerFiles(dir string) {
	a.t.Helper()
	own := a.NewServerCertificate()
	a.writeFiles(dir, map[string][]byte{
		"ca.crt": encodeCertificate(a.cert), "tls.crt": encodeCertificate(own.Leaf), "tls.key": a.encodeKey(own.PrivateKey),
	})
}

// WriteCAFiles writes the directory of a server that signs the certificates of robots with this
// authority (--robot-ca-dir).
func (a *Authority) WriteCAFiles(dir string) {
	a.t.Helper()
	a.writeFiles(dir, map[string][]byte{
		"ca.crt": encodeCertificate(a.cert), "tls.crt": encodeCertificate(a.cert), "tls.key": a.encodeKey(a.key),
	})
}

// WriteIdentity writes the state directory of an agent whose robot has joined, for tests without a
// server that signs certificates.
func (a *Authority) WriteIdentity(stateDir, robotID string) {
	a.t.Helper()
	own, dir := a.NewClientCertificate(robotID, lifetime), filepath.Join(stateDir, "identity")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		a.t.Fatal(err)
	}
	a.writeFiles(dir, map[string][]byte{
		"ca.pem": encodeCertificate(a.cert), "certificate.pem": encodeCertificate(own.Leaf), "key.pem": a.encodeKey(own.PrivateKey),
		"home.json": fmt.Appendf(nil, `{"robotId":%q}`, robotID),
	})
}

func encodeCertificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func (a *Authority) encodeKey(key any) []byte {
	a.t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func (a *Authority) writeFiles(dir string, files map[string][]byte) {
	a.t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// ReadCertPool returns a pool with the certificates of a file.
func ReadCertPool(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s contains no certificate", file)
	}
	return p, nil
}
