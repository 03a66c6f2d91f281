package ca

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"k8s4r.io/k8s4r/internal/platform/pki"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// disk changes files atomically and durably. Tests fill it up.
type disk struct {
	write  func(path string, data []byte) error
	rename func(from, to string) error
}

// renewFiles creates and renews managed files. It replaces no file that cannot be read: a new CA
// would lock out all robots, so an operator has to decide.
func (a *Authority) renewFiles() error {
	if err := keyfile.MakeDir(a.dir); err != nil {
		return err
	}
	found, err := a.findFiles()
	if err != nil {
		return err
	}
	if !found[fileCertificate] {
		return a.createFirstCA(found)
	}
	if !found[fileTrust] {
		return fmt.Errorf("%s is missing, but %s is there: restore it from a backup", fileTrust, fileCertificate)
	}
	current, err := tls.LoadX509KeyPair(a.path(fileCertificate), a.path(fileKey))
	if err != nil && a.isPromotionUnfinished(found) {
		return a.disk.rename(a.path(fileNextCertificate), a.path(fileCertificate))
	}
	if err != nil {
		return fmt.Errorf("%w; restore the files of the CA from a backup", err)
	}
	if a.now().Before(current.Leaf.NotBefore) {
		return a.createCA(fileCertificate, fileKey) // it was issued before the clock was set back
	}
	return a.rotate(current.Leaf)
}

// findFiles returns which of the files exist. A file that cannot be examined is an error.
func (a *Authority) findFiles() (map[string]bool, error) {
	found := map[string]bool{}
	for _, name := range []string{fileCertificate, fileKey, fileTrust, fileNextCertificate, fileNextKey} {
		_, err := os.Lstat(a.path(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		found[name] = err == nil
	}
	return found, nil
}

// createFirstCA creates the CA, or completes it if the disk was full or the program crashed after
// some of the files.
func (a *Authority) createFirstCA(found map[string]bool) error {
	// The key is written first, so without it the other files are of a CA that robots may trust.
	if found[fileNextCertificate] || found[fileNextKey] || found[fileTrust] && !found[fileKey] {
		return fmt.Errorf("%s is missing, but other files of the CA are there: restore it from a backup", fileCertificate)
	}
	return a.createCA(fileCertificate, fileKey)
}

// isPromotionUnfinished reports whether promoteNextCA was interrupted between its renames.
func (a *Authority) isPromotionUnfinished(found map[string]bool) bool {
	if found[fileNextKey] || !found[fileNextCertificate] {
		return false
	}
	_, err := tls.LoadX509KeyPair(a.path(fileNextCertificate), a.path(fileKey))
	return err == nil
}

// promoteNextCA replaces the CA by the next one, whose files have been read.
func (a *Authority) promoteNextCA() error {
	if err := a.disk.rename(a.path(fileNextKey), a.path(fileKey)); err != nil {
		return err
	}
	return a.disk.rename(a.path(fileNextCertificate), a.path(fileCertificate))
}

// createCA writes a new CA, and adds it to the trusted ones that have not expired. It uses a key
// that is there: an interrupted call has left it, or its certificate is not valid yet.
func (a *Authority) createCA(certificate, key string) error {
	trust, err := a.readTrust()
	if err != nil {
		return err
	}
	private, err := keyfile.ReadOrCreateKey(a.path(key), a.disk.write)
	if err != nil {
		return err
	}
	c, err := a.signCA(private)
	if err != nil {
		return err
	}
	trust = slices.DeleteFunc(trust, func(o *x509.Certificate) bool { return private.PublicKey.Equal(o.PublicKey) })
	// The certificate is written last: without it the other files are not used.
	return keyfile.WriteAll(a.disk.write,
		keyfile.File{Path: a.path(fileTrust), Data: keyfile.EncodeCertificates(append([]*x509.Certificate{c}, trust...)...)},
		keyfile.File{Path: a.path(certificate), Data: keyfile.EncodeCertificates(c)},
	)
}

func (a *Authority) signCA(private *ecdsa.PrivateKey) (*x509.Certificate, error) {
	now := a.now()
	return pki.SignCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: "k8s4r-robots-ca"}, NotBefore: now.Add(-min(clockSkew, a.lifetime/10)), NotAfter: now.Add(a.lifetime),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}, private.Public(), nil, private)
}

// readTrust returns the trusted CAs that are not obsolete. Without the file there are none.
func (a *Authority) readTrust() ([]*x509.Certificate, error) {
	all, err := a.readTrustFile()
	return slices.DeleteFunc(all, a.isObsolete), err
}

// readTrustFile returns the trusted CAs. Without the file there are none.
func (a *Authority) readTrustFile() ([]*x509.Certificate, error) {
	text, err := os.ReadFile(a.path(fileTrust))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := keyfile.ParseCertificates(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; restore the file from a backup", fileTrust, err)
	}
	return all, nil
}
