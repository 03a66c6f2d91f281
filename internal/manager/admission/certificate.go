package admission

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/util/cert"
)

// The lives of certificates. An authority is renewed while it has twice the life of
// what it signs, so that the API server trusts the new one for weeks before anything
// is signed by it, and the old one for as long as anything is.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	servingLife   = 90 * 24 * time.Hour
	// skew is how far in the past a certificate becomes valid, for clocks that differ.
	skew = time.Hour
)

// The keys of the Secret.
const (
	keyBundle       = "ca.crt" // the newest authority first
	keyAuthorityKey = "ca.key" // of the newest authority
	keyCertificate  = "tls.crt"
	keyKey          = "tls.key"
)

// refresh is the Secret's data as it is to be at a time, and whether it differs from
// what it was. Data that cannot be read is made anew, for there is nothing to lose.
func refresh(now time.Time, data map[string][]byte, host string) (fresh map[string][]byte, changed bool, err error) {
	fresh = map[string][]byte{}
	for k, v := range data {
		fresh[k] = v
	}
	authority, ok := parse(data[keyBundle], data[keyAuthorityKey])
	switch {
	case !ok || left(authority.Leaf, now) < servingLife:
		return fresh, true, errors.Join(addAuthority(now, fresh), addServing(now, fresh, host))
	case left(authority.Leaf, now) < 2*servingLife:
		// The old authority signs once more, so that its heir does so only weeks from
		// now, when everybody has heard of it.
		return fresh, true, errors.Join(addServing(now, fresh, host), addAuthority(now, fresh))
	}
	serving, ok := parse(data[keyCertificate], data[keyKey])
	if ok && left(serving.Leaf, now) > servingLife/3 && serving.Leaf.VerifyHostname(host) == nil && trusted(serving.Leaf, data[keyBundle], now) {
		return fresh, false, nil
	}
	return fresh, true, addServing(now, fresh, host)
}

// parse reads a certificate, the first of several, and its key.
func parse(certificate, key []byte) (tls.Certificate, bool) {
	pair, err := tls.X509KeyPair(certificate, key) // they must belong together
	return pair, err == nil
}

// left is how long a certificate is good for.
func left(c *x509.Certificate, now time.Time) time.Duration { return c.NotAfter.Sub(now) }

// trusted tells whether who trusts the bundle trusts the certificate.
func trusted(c *x509.Certificate, bundle []byte, now time.Time) bool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now})
	return err == nil
}

// addAuthority puts a new authority before those that are still good.
func addAuthority(now time.Time, data map[string][]byte) error {
	certificate, key, err := issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "k8s4r-webhook-ca"}, NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLife),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}, nil)
	if err != nil {
		return err
	}
	bundle := bytes.NewBuffer(certificate)
	old, _ := cert.ParseCertsPEM(data[keyBundle]) // what cannot be read vouches for nothing
	for _, c := range old {
		if c.IsCA && left(c, now) > 0 {
			bundle.Write(pemOf("CERTIFICATE", c.Raw))
		}
	}
	data[keyBundle], data[keyAuthorityKey] = bundle.Bytes(), key
	return nil
}

// addServing puts a new certificate for the host in the place of the old one.
func addServing(now time.Time, data map[string][]byte, host string) error {
	authority, err := tls.X509KeyPair(data[keyBundle], data[keyAuthorityKey])
	if err != nil {
		return err
	}
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: "k8s4r-webhook"}, NotBefore: now.Add(-skew), NotAfter: now.Add(servingLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		c.IPAddresses = []net.IP{ip}
	} else {
		c.DNSNames = []string{host}
	}
	data[keyCertificate], data[keyKey], err = issue(c, &authority)
	return err
}

// issue signs a certificate for a new key, by itself without an authority. Both are
// PEM.
func issue(c *x509.Certificate, authority *tls.Certificate) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, err
	}
	parent, signer := c, any(private)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, private.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	return pemOf("CERTIFICATE", der), pemOf("PRIVATE KEY", raw), err
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
