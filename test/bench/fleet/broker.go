package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof" // for -serve
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/broker/mosquitto"
	"k8s4r.io/k8s4r/internal/protocol/acl"
	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/internal/testkit"
)

const brokerHost = "127.0.0.1"

// startBroker starts the broker of -broker in a process of its own, at an address that does not change
// when it restarts. The directory has the files of the robots' CA.
func startBroker(t testing.TB, caDir string, robots int) (*testkit.Process, string) {
	t.Helper()
	address := testkit.FreeAddr(t)
	var p *testkit.Process
	if *useMosquitto {
		p = newMosquitto(t, caDir, address, robots)
	} else {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		p = testkit.NewProcess(t, self, "-serve", address, "-ca-dir", caDir)
	}
	p.Start()
	awaitListening(t, address)
	return p, address
}

func awaitListening(t testing.TB, address string) {
	t.Helper()
	testkit.EventuallyNoError(t, 10*time.Second, "the broker listens", func() error {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
}

// identities takes the identity of a client from its certificate. The registry of `k8s4r up` does the
// same with a look at the Robot, which that process has in memory anyway.
type identities struct{}

// Authenticate implements broker.Authenticator.
func (identities) Authenticate(p broker.Peer) (broker.Identity, error) {
	if p.Certificate == nil {
		return broker.Identity{}, errors.New("no certificate")
	}
	name, err := identity.CertificateName(p.Certificate)
	if err != nil {
		return broker.Identity{}, err
	}
	if name == identity.ServerName {
		return broker.Identity{Name: name, Role: acl.Server}, nil
	}
	return broker.Identity{Name: name, Role: acl.Robot, Generation: identity.CertificateFingerprint(p.Certificate)}, nil
}

// serveBroker runs the embedded broker with its default limits until the process is killed. It writes
// the address of its profiles.
func serveBroker(t testing.TB, address, caDir string) {
	auth, err := ca.Open(caDir)
	if err != nil {
		t.Fatal(err)
	}
	b := broker.New(broker.Config{TLSListen: address, TLS: auth.BrokerTLSConfig(brokerHost), Authenticator: identities{}})
	if err := b.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	profiles, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("http://%s/debug/pprof/\n", profiles.Addr())
	t.Fatal(http.Serve(profiles, nil))
}

// newMosquitto configures Debian's broker with the permissions of all robots.
func newMosquitto(t testing.TB, caDir, address string, robots int) *testkit.Process {
	var ids []string
	for i := range robots {
		ids = append(ids, robotID(i))
	}
	dir := t.TempDir()
	writeServingCertificate(t, caDir, dir)
	files, err := mosquitto.Config{
		Listen: address, Dir: dir, CAFile: filepath.Join(caDir, "ca.crt"), CertFile: "broker.crt", KeyFile: "broker.key", Plugin: testkit.FindMosquittoPlugin(t), Robots: ids,
	}.Files()
	if err != nil {
		t.Fatal(err)
	}
	return testkit.NewConfiguredMosquitto(t, dir, files)
}

// writeServingCertificate writes broker.crt and broker.key.
func writeServingCertificate(t testing.TB, caDir, dir string) {
	auth, err := ca.Open(caDir)
	if err != nil {
		t.Fatal(err)
	}
	own, err := auth.ServingCertificate(brokerHost)(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := writePair(own, filepath.Join(dir, "broker.crt"), filepath.Join(dir, "broker.key")); err != nil {
		t.Fatal(err)
	}
}
