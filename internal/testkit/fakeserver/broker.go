package fakeserver

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/testkit/testca"
)

// Broker is the project's broker in this process.
type Broker struct {
	// Addr is the address of the listener without TLS, for the test's server.
	Addr string
	// TLSAddr is the address of the listener for robots with a certificate of CA.
	TLSAddr string
	CA      *testca.Authority
}

// StartBroker starts a broker and stops it when the test ends.
func StartBroker(t testing.TB) *Broker {
	t.Helper()
	ca := testca.New(t)
	b := broker.New(broker.Config{Listen: "127.0.0.1:0", TLSListen: "127.0.0.1:0", TLS: &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.CertPool(),
		Certificates: []tls.Certificate{*ca.NewServerCertificate()},
	}})
	if err := b.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), packetTimeout)
		defer cancel()
		if err := b.Stop(ctx); err != nil {
			t.Errorf("%v", err)
		}
	})
	return &Broker{Addr: strings.TrimPrefix(b.URL(), "mqtt://"), TLSAddr: strings.TrimPrefix(b.TLSURL(), "mqtts://"), CA: ca}
}
