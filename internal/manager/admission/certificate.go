package admission

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"time"

	"k8s.io/client-go/util/cert"

	"k8s4r.io/k8s4r/internal/platform/pki"
)

// Lifetimes of certificates. A CA is replaced when it has less than twice the lifetime of a serving
// certificate left. The API server then trusts the new CA for weeks before it signs, and the old
// one for as long as its certificates are valid.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	servingLife   = 90 * 24 * time.Hour
	// skew is how long before its issue a certificate becomes valid, to tolerate clock skew.
	skew = time.Hour
)

// The keys of the Secret.
const (
	keyBundle       = "ca.crt" // the newest CA first
	keyAuthorityKey = "ca.key" // of the newest CA
	keyCertificate  = "tls.crt"
	keyKey          = "tls.key"
)

// refreshSecret returns the data that the Secret should have at now, and whether it differs from
// data. Invalid data is replaced.
func refreshSecret(now time.Time, data map[string][]byte, host string) (fresh map[string][]byte, changed bool, err error) {
	fresh = map[string][]byte{}
	for k, v := range data {
		fresh[k] = v
	}
	authority, ok := parsePair(data[keyBundle], data[keyAuthorityKey])
	switch {
	case !ok || remainingLifetime(authority.Leaf, now) < servingLife || now.Before(authority.Leaf.NotBefore):
		return fresh, true, errors.Join(addAuthority(now, fresh), addServing(now, fresh, host))
	case remainingLifetime(authority.Leaf, now) < 2*servingLife:
		// The old CA signs once more: replicas and the API server have weeks to read the new bundle
		// before the next CA signs.
		return fresh, true, errors.Join(addServing(now, fresh, host), addAuthority(now, fresh))
	}
	serving, ok := parsePair(data[keyCertificate], data[keyKey])
	if ok && remainingLifetime(serving.Leaf, now) > servingLife/3 && serving.Leaf.VerifyHostname(host) == nil && isTrusted(serving.Leaf, data[keyBundle], now) {
		return fresh, false, nil
	}
	return fresh, true, addServing(now, fresh, host)
}

// parsePair parses a key and its certificate, the first one in the PEM data. It reports whether
// they are valid and belong together.
func parsePair(certificate, key []byte) (tls.Certificate, bool) {
	pair, err := tls.X509KeyPair(certificate, key) // also checks that they belong together
	return pair, err == nil
}

// remainingLifetime returns the time until the certificate expires. It is negative afterwards.
func remainingLifetime(c *x509.Certificate, now time.Time) time.Duration { return c.NotAfter.Sub(now) }

// isTrusted reports whether the bundle verifies the certificate.
func isTrusted(c *x509.Certificate, bundle []byte, now time.Time) bool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now})
	return err == nil
}

// addAuthority issues a new CA and puts it before the CAs that have not expired.
func addAuthority(now time.Time, data map[string][]byte) error {
	certificate, key, err := issueCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: "k8s4r-webhook-ca"}, NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLife),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}, nil)
	if err != nil {
		return err
	}
	bundle := bytes.NewBuffer(certificate)
	old, _ := cert.ParseCertsPEM(data[keyBundle]) // an invalid bundle is dropped
	for _, c := range old {
		if c.IsCA && remainingLifetime(c, now) > 0 {
			bundle.Write(pemOf("CERTIFICATE", c.Raw))
		}
	}
	data[keyBundle], data[keyAuthorityKey] = bundle.Bytes(), key
	return nil
}

// addServing replaces the serving certificate by a new one for the host.
func addServing(now time.Time, data map[string][]byte, host string) error {
	authority, err := tls.X509KeyPair(data[keyBundle], data[keyAuthorityKey])
	if err != nil {
		return err
	}
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: "k8s4r-webhook"}, NotBefore: now.Add(-skew), NotAfter: now.Add(servingLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	pki.AddHost(c, host)
	data[keyCertificate], data[keyKey], err = issueCertificate(c, &authority)
	return err
}

// issueCertificate returns a new key and its certificate as PEM, signed by authority. If authority
// is nil, the certificate is self-signed.
func issueCertificate(c *x509.Certificate, authority *tls.Certificate) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	var parent *x509.Certificate // nil: self-signed
	signer := crypto.PrivateKey(private)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	signed, err := pki.SignCertificate(c, private.Public(), parent, signer)
	if err != nil {
		return nil, nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	return pemOf("CERTIFICATE", signed.Raw), pemOf("PRIVATE KEY", raw), err
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
