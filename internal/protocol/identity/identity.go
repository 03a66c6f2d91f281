// Package identity is what robot and server agree on about identities: which
// name a certificate carries, how a key is told from another, and what is said
// when a robot joins or renews (docs/security.md).
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

	"k8s4r.io/k8s4r/internal/wire"
)

// Server is the name in the certificate by which the server speaks to the
// broker, Console that of the console, and Admin that of who tells an external
// broker its rules. No robot may have them.
const (
	Server  = "k8s4r-server"
	Console = "k8s4r-console"
	Admin   = "k8s4r-admin"
)

// Reserved tells whether a name is one of these.
func Reserved(name string) bool { return name == Server || name == Console || name == Admin }

// maxCSR bounds a certificate request. One for a P-256 key has some 250 bytes.
const maxCSR = 4 << 10

// ValidRobot refuses names that no robot can join by.
func ValidRobot(id string) error {
	if Reserved(id) {
		return fmt.Errorf("robot id %q is the server's own; choose another", id)
	}
	return wire.ValidRobotID(id)
}

// NameIn is who a certificate is for: its common name, which must also be its
// one alternative name, so that no two readers of it come to two answers.
func NameIn(c *x509.Certificate) (string, error) {
	name := c.Subject.CommonName
	if name == "" || len(c.DNSNames) != 1 || c.DNSNames[0] != name || len(c.IPAddresses)+len(c.URIs)+len(c.EmailAddresses) > 0 {
		return "", errors.New("the certificate does not name exactly one robot")
	}
	return name, nil
}

// Fingerprint tells a public key from all others. It stays the same when a
// certificate for the key is renewed.
func Fingerprint(publicKeyInfo []byte) string {
	sum := sha256.Sum256(publicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// FingerprintOf is the fingerprint of a certificate's key.
func FingerprintOf(c *x509.Certificate) string { return Fingerprint(c.RawSubjectPublicKeyInfo) }

// ValidFingerprint refuses what Fingerprint does not make.
func ValidFingerprint(s string) error {
	digits, ok := strings.CutPrefix(s, "sha256:")
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != sha256.Size || strings.ToLower(digits) != digits {
		return fmt.Errorf("%.80q must be sha256: and 64 hexadecimal digits", s)
	}
	return nil
}

// ReadRequest takes in a certificate request (PEM): it must be for a P-256 key,
// and signed by it. Nothing else in it counts: who it is for is said beside it.
func ReadRequest(text string) (*x509.CertificateRequest, error) {
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
