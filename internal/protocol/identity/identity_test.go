package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net/url"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func TestCertificateName(t *testing.T) {
	cert := func(cn string, change func(*x509.Certificate)) *x509.Certificate {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: cn}, DNSNames: []string{cn}}
		if change != nil {
			change(c)
		}
		return c
	}
	for _, row := range []struct {
		name string
		in   *x509.Certificate
		want string
	}{
		{"one name", cert("r1", nil), "r1"},
		{"no name", cert("", nil), ""},
		{"another alternative name", cert("r1", func(c *x509.Certificate) { c.DNSNames = []string{"r2"} }), ""},
		{"a second alternative name", cert("r1", func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "r2") }), ""},
		{"no alternative name", cert("r1", func(c *x509.Certificate) { c.DNSNames = nil }), ""},
		{"a URI beside it", cert("r1", func(c *x509.Certificate) { c.URIs = []*url.URL{{Host: "r2"}} }), ""},
	} {
		if got, err := CertificateName(row.in); got != row.want || (err == nil) != (row.want != "") {
			t.Errorf("%s: %q, %v", row.name, got, err)
		}
	}
}

func request(t *testing.T, key crypto.Signer) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func TestParseCSR_RejectsOtherKeys(t *testing.T) {
	p256, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
	good := request(t, p256)
	if _, err := ParseCSR(good); err != nil {
		t.Error(err)
	}
	block, _ := pem.Decode([]byte(good))
	block.Bytes[len(block.Bytes)-1] ^= 1
	for name, text := range map[string]string{
		"P-384": request(t, p384), "RSA": request(t, rsaKey), "nothing": "", "long": strings.Repeat("a", maxCSR+1),
		"another's signature": string(pem.EncodeToMemory(block)),
	} {
		if _, err := ParseCSR(text); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestDecode_RequiresOneObject(t *testing.T) {
	for text, want := range map[string]bool{
		`{"robotId":"r1"}`: true, `{"robotId":"r1"} {}`: false, `[]`: false, ``: false,
		`{"hostname":"` + strings.Repeat("a", MaxBody) + `"}`: false,
	} {
		if _, err := Decode[JoinRequest](strings.NewReader(text)); (err == nil) != want {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

func FuzzJoinRequest(f *testing.F) {
	f.Add(`{"robotId":"r1","token":"abcdef.0123456789abcdef","csr":"x","machine":"sha256:00"}`)
	f.Add(`{"csr":"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----"}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Decode[JoinRequest](strings.NewReader(text))
		if err != nil {
			return
		}
		_ = r.Validate()
		_ = wire.ValidateRobotID(r.RobotID)
		if c, err := ParseCSR(r.CSR); err == nil && ValidateFingerprint(KeyFingerprint(c.RawSubjectPublicKeyInfo)) != nil {
			t.Error("a key has no fingerprint")
		}
	})
}
