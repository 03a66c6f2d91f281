// Package pki signs the certificates that the programs make for themselves.
package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
)

// serialBits keeps serial numbers within the 20 octets of RFC 5280.
const serialBits = 120

// SignCertificate gives the template a random serial number and signs it for a public key. If
// parent is nil, the certificate is self-signed.
func SignCertificate(template *x509.Certificate, public crypto.PublicKey, parent *x509.Certificate, signer crypto.PrivateKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	template.SerialNumber = serial
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

// AddHost adds an IP address or a DNS name to the names of a certificate.
func AddHost(template *x509.Certificate, host string) {
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
		return
	}
	template.DNSNames = append(template.DNSNames, host)
}
