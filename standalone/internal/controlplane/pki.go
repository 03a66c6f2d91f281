package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	platformpki "k8s4r.io/k8s4r/internal/platform/pki"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

const (
	caLifetime = 20 * 365 * 24 * time.Hour
	// DefaultLifetime is the lifetime of certificates, except that of the CA.
	DefaultLifetime = 365 * 24 * time.Hour
	// clockSkew is how long before its issue a certificate becomes valid, at most a tenth of its
	// lifetime, for machines whose clock is set after they have started.
	clockSkew = time.Hour
)

// pki is the directory of keys and certificates. Only the owner can read its files.
type pki struct {
	dir      string
	now      func() time.Time
	lifetime time.Duration // of certificates that it issues, except the CA
}

// pair is a key and its certificate, with the paths of their files.
type pair struct {
	certFile, keyFile string
	cert              *x509.Certificate
	key               crypto.Signer
	certPEM           []byte
}

func (p pair) toTLS() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.cert.Raw}, PrivateKey: p.key, Leaf: p.cert}
}

func (p pki) filePath(name string) string { return filepath.Join(p.dir, name) }

// loadCA returns the CA, and creates it if there is none. One that is not valid now is signed again
// with its key, so that kubeconfigs of other machines stay valid. A file that cannot be read is an
// error and stays: another CA would lock these out.
func (p pki) loadCA() (pair, error) {
	key, err := p.loadCAKey()
	if err != nil {
		return pair{}, fmt.Errorf("CA of the API server: %w", err)
	}
	ca, err := p.loadPair("ca")
	switch {
	case errors.Is(err, fs.ErrNotExist): // the first start, or it was killed
	case err != nil:
		return pair{}, fmt.Errorf("CA of the API server: %w; restore %s and %s from a backup", err, p.filePath("ca.crt"), p.filePath("ca.key"))
	case p.now().Before(ca.cert.NotAfter) && !p.now().Before(ca.cert.NotBefore):
		return ca, nil
	}
	return p.signCA(key)
}

// loadCAKey returns the key of the CA, and creates it unless there is a certificate for another one.
func (p pki) loadCAKey() (*ecdsa.PrivateKey, error) {
	path := p.filePath("ca.key")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(p.filePath("ca.crt")); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is missing, but ca.crt is there: restore it from a backup, or remove ca.crt, too, for a new CA, which no kubeconfig elsewhere knows", path)
		}
		key, text, err := newKey()
		if err != nil {
			return nil, err
		}
		return key, keyfile.WriteFile(path, text)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is damaged: restore it from a backup", path)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; restore it from a backup", path, err)
	}
	return key, nil
}

func (p pki) signCA(key *ecdsa.PrivateKey) (pair, error) {
	ca := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "k8s4r-ca"},
		NotAfter:              p.now().Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	signed, err := p.signCertificate(ca, key.Public(), nil, key)
	if err != nil {
		return pair{}, fmt.Errorf("CA of the API server: %w", err)
	}
	if err := keyfile.WriteFile(p.filePath("ca.crt"), pemBlock("CERTIFICATE", signed.Raw)); err != nil {
		return pair{}, err
	}
	return p.loadPair("ca")
}

// signCertificate signs a template, which becomes valid a little before now.
func (p pki) signCertificate(template *x509.Certificate, public crypto.PublicKey, parent *x509.Certificate, signer crypto.Signer) (*x509.Certificate, error) {
	template.NotBefore = p.now().Add(-min(clockSkew, template.NotAfter.Sub(p.now())/10))
	return platformpki.SignCertificate(template, public, parent, signer)
}

// loadServing returns the API server's certificate for these names and addresses.
func (p pki) loadServing(ca pair, names []string, addresses []net.IP) (pair, error) {
	return p.loadLeaf("apiserver", ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    names,
		IPAddresses: addresses,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// loadKubelet returns the certificate of the node's kubelet, which listens on the loopback address
// only.
func (p pki) loadKubelet(ca pair) (pair, error) {
	return p.loadLeaf("kubelet", ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kubelet"},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// loadClient returns a client certificate for user and groups.
func (p pki) loadClient(name string, ca pair, user string, groups ...string) (pair, error) {
	return p.loadLeaf(name, ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// loadLeaf returns the stored pair of this name if it satisfies want and a third of its lifetime
// remains, and otherwise a new one.
func (p pki) loadLeaf(name string, ca pair, want *x509.Certificate) (pair, error) {
	if have, err := p.loadPair(name); err == nil && p.isUsable(have.cert, ca.cert, want) {
		return have, nil
	}
	want.NotAfter = p.now().Add(p.lifetime)
	want.KeyUsage = x509.KeyUsageDigitalSignature
	return p.issuePair(name, want, ca)
}

func (p pki) isUsable(have, ca, want *x509.Certificate) bool {
	renewAt := have.NotAfter.Add(-have.NotAfter.Sub(have.NotBefore) / 3)
	if have.CheckSignatureFrom(ca) != nil || !p.now().Before(renewAt) || p.now().Before(have.NotBefore) {
		return false
	}
	for _, name := range want.DNSNames {
		if have.VerifyHostname(name) != nil {
			return false
		}
	}
	for _, ip := range want.IPAddresses {
		if have.VerifyHostname(ip.String()) != nil {
			return false
		}
	}
	return have.Subject.String() == want.Subject.String()
}

func (p pki) loadPair(name string) (pair, error) {
	out := pair{certFile: p.filePath(name + ".crt"), keyFile: p.filePath(name + ".key")}
	loaded, err := tls.LoadX509KeyPair(out.certFile, out.keyFile) // also checks that they belong together
	if err != nil {
		return pair{}, err
	}
	out.cert, out.key = loaded.Leaf, loaded.PrivateKey.(crypto.Signer)
	out.certPEM, err = os.ReadFile(out.certFile)
	return out, err
}

// issuePair writes a new key and its certificate, signed by ca. After a crash between the two files
// they do not match, and the next call replaces them.
func (p pki) issuePair(name string, template *x509.Certificate, ca pair) (pair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return pair{}, fmt.Errorf("key %s: %w", name, err)
	}
	signed, err := p.signCertificate(template, key.Public(), ca.cert, ca.key)
	if err != nil {
		return pair{}, fmt.Errorf("certificate %s: %w", name, err)
	}
	// Together, because programs read both again when one has changed.
	err = keyfile.WriteTogether(
		keyfile.File{Path: p.filePath(name + ".key"), Data: keyPEM},
		keyfile.File{Path: p.filePath(name + ".crt"), Data: pemBlock("CERTIFICATE", signed.Raw)},
	)
	if err != nil {
		return pair{}, err
	}
	return p.loadPair(name)
}

// serviceAccountKey returns the file of the key that signs service account tokens, and creates it
// if there is none. A damaged file stays and makes the API server fail: a new key would invalidate
// every token in the cluster.
func (p pki) serviceAccountKey() (string, error) {
	file := p.filePath("service-account.key")
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		return file, err
	}
	_, keyPEM, err := newKey()
	if err != nil {
		return "", fmt.Errorf("key of service accounts: %w", err)
	}
	return file, keyfile.WriteFile(file, keyPEM)
}

// newKey returns a new key, and its PEM.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return key, pemBlock("EC PRIVATE KEY", der), err
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
