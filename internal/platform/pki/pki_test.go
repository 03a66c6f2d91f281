package pki_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/platform/pki"
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestSignCertificate_BySelfAndByParent(t *testing.T) {
	now := time.Now()
	caKey, key := newKey(t), newKey(t)
	ca, err := pki.SignCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}, caKey.Public(), nil, caKey)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	pki.AddHost(template, "10.0.0.7")
	pki.AddHost(template, "server.example")
	leaf, err := pki.SignCertificate(template, key.Public(), ca, caKey)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	for _, host := range []string{"10.0.0.7", "server.example"} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if leaf.SerialNumber.Cmp(ca.SerialNumber) == 0 {
		t.Error("two certificates have the same serial number")
	}
	if _, err := pki.SignCertificate(template, key.Public(), ca, key); err == nil {
		t.Error("signed with a key that is not the parent's")
	}
}
