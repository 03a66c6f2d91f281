package ca

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// ticketPeriod is how long a key encrypts TLS session tickets. Tickets of the period before are still
// accepted.
const ticketPeriod = 12 * time.Hour

var errUntrustedSession = errors.New("the certificate of the resumed session has expired, or its CA is no longer trusted")

// brokerTLS makes the TLS configurations of a broker. CAs and ticket keys change, so a connection gets
// that of its time; connections share it, because each would keep its own in memory.
type brokerTLS struct {
	authority *Authority
	base      *tls.Config

	mu     sync.Mutex
	made   tlsInputs
	tls13  *tls.Config
	legacy *tls.Config // for clients without TLS 1.3
}

// tlsInputs determine a configuration.
type tlsInputs struct {
	trust  []*x509.Certificate
	signer *tls.Certificate
	period int64 // of the ticket key
}

func (i tlsInputs) equal(o tlsInputs) bool {
	return i.signer != nil && o.signer != nil && i.period == o.period && i.signer.Leaf.Equal(o.signer.Leaf) && slices.EqualFunc(i.trust, o.trust, (*x509.Certificate).Equal)
}

// BrokerTLSConfig returns the configuration of a broker with these names, which requires client
// certificates. Clients of TLS 1.3 may resume sessions, also after a restart of the broker and at
// another server of the same CA. Whether the client of a certificate may connect is checked after
// CONNECT, in new and resumed sessions: the broker's answer then has a reason, while most clients
// would see a refused handshake only as a broken connection.
func (a *Authority) BrokerTLSConfig(hosts ...string) *tls.Config {
	b := &brokerTLS{authority: a, base: &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: a.ServingCertificate(hosts...), ClientAuth: tls.RequireAndVerifyClientCert, Time: a.now,
	}}
	b.base.VerifyConnection = b.verifyResumption
	c := b.base.Clone()
	c.GetConfigForClient = b.configFor
	return c
}

// configFor returns the configuration for a client that connects now.
func (b *brokerTLS) configFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := b.authority.tlsInputs(); !now.equal(b.made) {
		if err := b.makeConfigs(now); err != nil {
			return nil, err
		}
	}
	if slices.Contains(hello.SupportedVersions, tls.VersionTLS13) {
		return b.tls13, nil
	}
	return b.legacy, nil
}

// tlsInputs returns what determines the configuration of a connection now.
func (a *Authority) tlsInputs() tlsInputs {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reloadLocked()
	signer := a.signer
	return tlsInputs{trust: a.trust, signer: &signer, period: a.now().Unix() / int64(ticketPeriod.Seconds())}
}

func (b *brokerTLS) makeConfigs(from tlsInputs) error {
	current, err := ticketKey(from.signer, from.period)
	if err != nil {
		return err
	}
	previous, err := ticketKey(from.signer, from.period-1)
	if err != nil {
		return err
	}
	b.tls13 = b.base.Clone()
	b.tls13.ClientCAs = keyfile.NewPool(from.trust...)
	b.legacy = b.tls13.Clone()
	b.tls13.SetSessionTicketKeys([][32]byte{current, previous})
	b.legacy.SessionTicketsDisabled = true // a ticket key of TLS 1.2 decrypts recorded connections
	b.made = from
	return nil
}

// ticketKey derives the key of a period from the key of the CA, so that all servers of a CA have the
// same, also after a restart. An attacker with the key of the CA can forge a robot's certificate anyway.
func ticketKey(signer *tls.Certificate, period int64) (key [32]byte, err error) {
	secret, err := x509.MarshalPKCS8PrivateKey(signer.PrivateKey)
	if err != nil {
		return key, fmt.Errorf("key of session tickets: %w", err)
	}
	derived, err := hkdf.Key(sha256.New, secret, nil, fmt.Sprintf("k8s4r broker session tickets %d", period), len(key))
	if err != nil {
		return key, fmt.Errorf("key of session tickets: %w", err)
	}
	return [32]byte(derived), nil
}

// verifyResumption verifies the certificate of a resumed session as the handshake verified it when
// the session began. It does nothing for other connections.
func (b *brokerTLS) verifyResumption(s tls.ConnectionState) error {
	if !s.DidResume {
		return nil
	}
	inputs, now := b.authority.tlsInputs(), b.authority.now()
	isTrusted := func(chain []*x509.Certificate) bool { return isValidChain(chain, inputs.trust, now) }
	if !slices.ContainsFunc(s.VerifiedChains, isTrusted) {
		return errUntrustedSession
	}
	return nil
}

// isValidChain reports whether a chain that was verified before ends with a trusted CA, and all of its
// certificates are valid now.
func isValidChain(chain, trust []*x509.Certificate, now time.Time) bool {
	for _, c := range chain {
		if now.Before(c.NotBefore) || now.After(c.NotAfter) {
			return false
		}
	}
	return len(chain) > 0 && slices.ContainsFunc(trust, chain[len(chain)-1].Equal)
}
