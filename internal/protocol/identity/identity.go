// Package identity has the names in certificates, the fingerprints of keys, and the messages with
// which robots join and renew their certificates (docs/explanation/security.md).
package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// The names in the certificates of the server, of the console, and of the program that configures
// an external broker. No robot may use them.
const (
	ServerName  = wire.ServerName
	ConsoleName = wire.ConsoleName
	AdminName   = wire.AdminName
)

// maxCSR bounds a certificate request, in bytes. One for a P-256 key has about 250.
const maxCSR = 4 << 10

// CertificateName returns the name that a certificate is for. It must be both the common name and
// the only alternative name, so that all readers find the same name.
func CertificateName(c *x509.Certificate) (string, error) {
	name := c.Subject.CommonName
	if name == "" || len(c.DNSNames) != 1 || c.DNSNames[0] != name || len(c.IPAddresses)+len(c.URIs)+len(c.EmailAddresses) > 0 {
		return "", errors.New("the certificate does not name exactly one robot")
	}
	return name, nil
}

// KeyFingerprint returns the fingerprint of a public key. It does not change when a certificate
// for the key is renewed.
func KeyFingerprint(publicKeyInfo []byte) string {
	sum := sha256.Sum256(publicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// CertificateFingerprint returns the fingerprint of a certificate's key.
func CertificateFingerprint(c *x509.Certificate) string {
	return KeyFingerprint(c.RawSubjectPublicKeyInfo)
}

// ValidateFingerprint returns an error if s is not of the form of KeyFingerprint.
func ValidateFingerprint(s string) error {
	digits, ok := strings.CutPrefix(s, "sha256:")
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != sha256.Size || strings.ToLower(digits) != digits {
		return fmt.Errorf("fingerprint %.80q must be sha256: and 64 hexadecimal digits", s)
	}
	return nil
}

// ParseCSR parses a certificate request in PEM. It must be for a P-256 key and signed by it. The
// name in it is ignored: it is sent beside the request.
func ParseCSR(text string) (*x509.CertificateRequest, error) {
	if len(text) > maxCSR {
		return nil, fmt.Errorf("the certificate request has more than %d bytes", maxCSR)
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("the certificate request is not PEM")
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the certificate request cannot be read: %w", err)
	}
	key, ok := r.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("the certificate request must be for an ECDSA key on curve P-256")
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the certificate request is not signed by its key: %w", err)
	}
	return r, nil
}
