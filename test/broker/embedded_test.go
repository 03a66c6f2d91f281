package broker_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/protocol/acl"
	"k8s4r.io/k8s4r/internal/testkit/testca"
)

// registry authenticates clients of the embedded broker: by certificate, or as a legacy agent without
// one.
type registry struct {
	mu          sync.Mutex
	revoked     map[string]bool
	generations map[string]string
	// allowsAnonymous accepts all clients without a certificate; r1 and r2 have one.
	allowsAnonymous bool
}

func (r *registry) Authenticate(p broker.Peer) (broker.Identity, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Certificate == nil {
		name, ok := strings.CutPrefix(p.ClientID, broker.LegacyPrefix)
		if r.allowsAnonymous {
			return broker.Identity{Name: p.ClientID, Role: acl.Anonymous, IsAuthenticated: func(id string) bool { return id == "r1" || id == "r2" }}, nil
		}
		if !ok || name != "l1" {
			return broker.Identity{}, errors.New("no certificate, and no legacy agent")
		}
		return broker.Identity{Name: name, Role: acl.LegacyAgent}, nil
	}
	name := p.Certificate.Subject.CommonName
	if r.revoked[name] {
		return broker.Identity{}, errors.New("revoked")
	}
	role := acl.Robot
	switch name {
	case "k8s4r-server":
		role = acl.Server
	case "k8s4r-console":
		role = acl.Console
	}
	return broker.Identity{Name: name, Role: role, Generation: r.generations[name]}, nil
}

// embedded is the embedded broker.
type embedded struct {
	*broker.Broker
	t        testing.TB
	ca       *testca.Authority
	registry *registry
}

func newEmbedded(t testing.TB) *embedded {
	t.Helper()
	e := &embedded{t: t, ca: testca.New(t), registry: &registry{revoked: map[string]bool{}, generations: map[string]string{}}}
	e.Broker = broker.New(broker.Config{
		Listen: "127.0.0.1:0", TLSListen: "127.0.0.1:0", Authenticator: e.registry,
		Limits: broker.Limits{ConnectRate: 1e6, ConnectBurst: 1e6, PacketRate: 1e6, PacketBurst: 1e6}, // the matrix connects thousands of times from one address
		TLS: &tls.Config{
			Certificates: []tls.Certificate{*e.ca.NewServerCertificate()}, ClientCAs: e.ca.CertPool(), ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12,
		},
	})
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (e *embedded) authority() *testca.Authority { return e.ca }

func (e *embedded) dialTLS(certificate *tls.Certificate) (net.Conn, error) {
	return dialTLS(e.t, strings.TrimPrefix(e.TLSURL(), "mqtts://"), e.ca, certificate)
}

func (e *embedded) dialPlain() (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(e.URL(), "mqtt://"), waitTimeout)
	if err == nil {
		e.t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

func (e *embedded) admit(string) {}

func (e *embedded) revoke(name string) {
	e.registry.mu.Lock()
	e.registry.revoked[name] = true
	e.registry.mu.Unlock()
	e.Disconnect(name)
}

// renew replaces the credential of a name.
func (e *embedded) renew(name, generation string) {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	e.registry.generations[name] = generation
}

func (e *embedded) refusesWillsAtOnce() bool { return true }
func (e *embedded) supportsLegacy() bool     { return true }
