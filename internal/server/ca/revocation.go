package ca

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

const blockRevocationList = "X509 CRL"

// ErrNoRevocationLists is the error of SignRevocationList if the CA's key usage does not include it.
var ErrNoRevocationLists = errors.New("the CA may not sign revocation lists: its key usage lacks crl sign; with cert-manager, add `crl sign` to usages of its Certificate")

// CanSignRevocationLists returns ErrNoRevocationLists unless the CA may sign revocation lists.
func (a *Authority) CanSignRevocationLists() error {
	if signer, _ := a.CAs(); signer.KeyUsage&x509.KeyUsageCRLSign == 0 {
		return ErrNoRevocationLists
	}
	return nil
}

// SignRevocationList returns a list in PEM that is valid until next, and from some minutes before at:
// a broker whose clock is behind would refuse all robots. Lists of other trusted
// CAs in earlier, which is PEM too, are kept while they are valid: brokers refuse certificates of a
// CA without a list.
func (a *Authority) SignRevocationList(revoked []x509.RevocationListEntry, at, next time.Time, earlier []byte) ([]byte, error) {
	if err := a.CanSignRevocationLists(); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	signed, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		RevokedCertificateEntries: revoked, Number: big.NewInt(at.UnixNano()), ThisUpdate: at.Add(-clockSkew), NextUpdate: next,
	}, a.signer.Leaf, a.signer.PrivateKey.(crypto.Signer))
	if err != nil {
		return nil, fmt.Errorf("sign revocation list: %w", err)
	}
	out := bytes.NewBuffer(pem.EncodeToMemory(&pem.Block{Type: blockRevocationList, Bytes: signed}))
	for _, list := range parseRevocationLists(earlier) {
		if a.isListOfOtherCALocked(list) && at.Before(list.NextUpdate) {
			_ = pem.Encode(out, &pem.Block{Type: blockRevocationList, Bytes: list.Raw}) // a buffer takes all
		}
	}
	return out.Bytes(), nil
}

// parseRevocationLists returns the lists in a PEM text that can be parsed.
func parseRevocationLists(text []byte) []*x509.RevocationList {
	var all []*x509.RevocationList
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if list, err := x509.ParseRevocationList(block.Bytes); block.Type == blockRevocationList && err == nil {
			all = append(all, list)
		}
	}
	return all
}

// isListOfOtherCALocked reports whether a trusted CA other than the signer has signed a list.
func (a *Authority) isListOfOtherCALocked(list *x509.RevocationList) bool {
	for _, c := range a.trust {
		if !bytes.Equal(c.RawSubjectPublicKeyInfo, a.signer.Leaf.RawSubjectPublicKeyInfo) && list.CheckSignatureFrom(c) == nil {
			return true
		}
	}
	return false
}
