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
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s4r.io/k8s4r/standalone/internal/datadir"
)

const (
	caLife   = 20 * 365 * 24 * time.Hour
	leafLife = 365 * 24 * time.Hour
	// clockSkew is how far in the past a certificate becomes valid, for
	// machines whose clock is set after they have started.
	clockSkew = time.Hour
)

// pki is the directory of keys and certificates. Every file is readable by its
// owner only.
type pki struct {
	dir string
	now func() time.Time
}

// pair is a key and its certificate, and where they are.
type pair struct {
	certFile, keyFile string
	cert              *x509.Certificate
	key               crypto.Signer
	certPEM, keyPEM   []byte
}

func (p pair) tls() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{p.cert.Raw}, PrivateKey: p.key, Leaf: p.cert}
}

func (p pki) file(name string) string { return filepath.Join(p.dir, name) }

// authority returns the certificate authority, made when there is none. All
// leaves made under an earlier one are renewed by leaf.
func (p pki) authority() (pair, error) {
	ca, err := p.load("ca")
	if err == nil && ca.cert.IsCA && p.now().Before(ca.cert.NotAfter) {
		return ca, nil
	}
	return p.issue("ca", &x509.Certificate{
		Subject:               pkix.Name{CommonName: "k8s4r-ca"},
		NotAfter:              p.now().Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}, nil)
}

// serving returns the API server's certificate for these names and addresses.
func (p pki) serving(ca pair, names []string, addresses []net.IP) (pair, error) {
	return p.leaf("apiserver", ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    names,
		IPAddresses: addresses,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// kubelet returns the certificate of the kubelet of this machine's node, which
// listens to this machine alone.
func (p pki) kubelet(ca pair) (pair, error) {
	return p.leaf("kubelet", ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kubelet"},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// client returns a certificate that the API server takes for user in group.
func (p pki) client(name string, ca pair, user string, groups ...string) (pair, error) {
	return p.leaf(name, ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// leaf returns the stored pair of this name while it does what want asks and
// has a third of its life left, else a new one.
func (p pki) leaf(name string, ca pair, want *x509.Certificate) (pair, error) {
	if have, err := p.load(name); err == nil && p.fits(have.cert, ca.cert, want) {
		return have, nil
	}
	want.NotAfter = p.now().Add(leafLife)
	want.KeyUsage = x509.KeyUsageDigitalSignature
	return p.issue(name, want, &ca)
}

func (p pki) fits(have, ca, want *x509.Certificate) bool {
	renewAt := have.NotAfter.Add(-have.NotAfter.Sub(have.NotBefore) / 3)
	if have.CheckSignatureFrom(ca) != nil || !p.now().Before(renewAt) {
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

func (p pki) load(name string) (pair, error) {
	out := pair{certFile: p.file(name + ".crt"), keyFile: p.file(name + ".key")}
	loaded, err := tls.LoadX509KeyPair(out.certFile, out.keyFile) // also checks that they belong together
	if err != nil {
		return pair{}, err
	}
	out.cert, out.key = loaded.Leaf, loaded.PrivateKey.(crypto.Signer)
	out.certPEM, err = os.ReadFile(out.certFile)
	if err != nil {
		return pair{}, err
	}
	out.keyPEM, err = os.ReadFile(out.keyFile)
	return out, err
}

// issue makes a key and a certificate for it, signed by ca; nil: by itself. The
// key is written first, so a crash between the two files leaves a pair that
// does not match, which the next start replaces.
func (p pki) issue(name string, template *x509.Certificate, ca *pair) (pair, error) {
	key, err := p.newKey(name + ".key")
	if err != nil {
		return pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return pair{}, fmt.Errorf("certificate %s: %w", name, err)
	}
	template.SerialNumber, template.NotBefore = serial, p.now().Add(-clockSkew)
	parent, signer := template, crypto.Signer(key)
	if ca != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return pair{}, fmt.Errorf("certificate %s: %w", name, err)
	}
	if err := datadir.WriteFile(p.file(name+".crt"), pemBlock("CERTIFICATE", der)); err != nil {
		return pair{}, err
	}
	return p.load(name)
}

// serviceAccountKey returns the file of the key that signs service account
// tokens, made when there is none. A damaged one stays, for the API server to
// complain about: replacing it would make every token in the cluster void.
func (p pki) serviceAccountKey() (string, error) {
	file := p.file("service-account.key")
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		return file, err
	}
	_, err := p.newKey("service-account.key")
	return file, err
}

func (p pki) newKey(file string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", file, err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", file, err)
	}
	return key, datadir.WriteFile(p.file(file), pemBlock("EC PRIVATE KEY", der))
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
