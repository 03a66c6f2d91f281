package keyfile

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFile_IsReadableByOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	key, text, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second replaces the first
		if err := WriteFile(path, text); err != nil {
			t.Fatal(err)
		}
	}
	read, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseKey(read); err != nil || !got.Equal(key) {
		t.Errorf("another key was read back: %v", err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("files are left over: %v", entries)
	}
}

func TestParse_RejectsInvalidFiles(t *testing.T) {
	for _, text := range []string{"", "text", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if _, err := ParseCertificates([]byte(text)); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
	if _, err := ParseKey([]byte("text")); err == nil {
		t.Error("text was accepted as a key")
	}
}

// A program that kept its first certificate would be disconnected when that expires, although it was
// renewed.
func TestClientCertificateFunc_ReloadsRenewedCertificate(t *testing.T) {
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if _, err := ClientCertificateFunc(certificate, key); err == nil {
		t.Error("missing files were accepted")
	}
	issue(t, certificate, key)
	pair, err := ClientCertificateFunc(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, which := range []string{"the first", "the renewed one"} {
		want := issue(t, certificate, key)
		if got, err := pair(&tls.CertificateRequestInfo{}); err != nil || !bytes.Equal(got.Certificate[0], want) {
			t.Errorf("%s is not the certificate in use: %v", which, err)
		}
	}
}

// issue writes a new pair and returns its certificate.
func issue(t *testing.T, certificate, key string) []byte {
	t.Helper()
	signer, text, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, signer.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	read, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(key, text); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(certificate, EncodeCertificates(read)); err != nil {
		t.Fatal(err)
	}
	return der
}
