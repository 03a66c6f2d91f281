package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/broker/mosquitto"
	"k8s4r.io/k8s4r/internal/protocol/acl"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/testca"
)

const waitTimeout = time.Minute

// setup has what all brokers share: the CA, and the certificates of all robots.
type setup struct {
	t     testing.TB
	ca    *testca.Authority
	dir   string // ca.crt, tls.crt, tls.key
	certs map[string]*tls.Certificate
	bare  string // address that only completes handshakes
}

func newSetup(t testing.TB) *setup {
	w := &setup{t: t, ca: testca.New(t), dir: t.TempDir(), certs: map[string]*tls.Certificate{}}
	w.ca.WriteServerFiles(w.dir)
	for _, name := range append(robotIDs(max(*robots, *idle)), mosquitto.ServerName) {
		w.certs[name] = w.ca.NewClientCertificate(name, time.Hour)
	}
	return w
}

func robotIDs(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("r%d", i))
	}
	return ids
}

// clientTLS returns the configuration of a client with a certificate. Sessions are not resumed: every
// handshake is complete.
func (w *setup) clientTLS(name string) *tls.Config {
	return &tls.Config{RootCAs: w.ca.CertPool(), Certificates: []tls.Certificate{*w.certs[name]}, MinVersion: tls.VersionTLS13}
}

// target is one broker in one mode.
type target struct {
	*setup
	name    string
	secure  bool
	address string
	process *testkit.Process
	// collects garbage on request.
	collects bool
}

func (b *target) dial(name string) (net.Conn, error) {
	d := &net.Dialer{Timeout: waitTimeout}
	if !b.secure {
		return d.Dial("tcp", b.address)
	}
	return tls.DialWithDialer(d, "tcp", b.address, b.clientTLS(name))
}

// embeddedTarget starts the embedded broker in a process of its own.
func embeddedTarget(w *setup, secure bool) *target {
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	b := &target{setup: w, name: "embedded", secure: secure, collects: true, process: testkit.NewProcess(w.t, self, "-serve", w.dir)}
	b.process.Start()
	var plain, tls string
	testkit.Eventually(w.t, waitTimeout, "the embedded broker says where it is", func() bool {
		n, _ := fmt.Sscan(string(b.process.ReadLog()), &plain, &tls, &w.bare)
		return n == 3
	})
	b.address = plain
	if secure {
		b.address = tls
		b.name += ", certificates and rules"
	}
	return b
}

// collectGarbage makes a broker that can do so collect garbage now.
func (b *target) collectGarbage() {
	if !b.collects {
		return
	}
	before := len(b.process.ReadLog())
	b.process.Signal(syscall.SIGUSR1)
	testkit.Eventually(b.t, waitTimeout, "garbage is collected", func() bool { return len(b.process.ReadLog()) > before })
}

// identities takes the identity of a client from its certificate.
type identities struct{}

// Authenticate implements broker.Authenticator.
func (identities) Authenticate(p broker.Peer) (broker.Identity, error) {
	if p.Certificate == nil {
		return broker.Identity{}, errors.New("no certificate")
	}
	name := p.Certificate.Subject.CommonName
	if name == mosquitto.ServerName {
		return broker.Identity{Name: name, Role: acl.Server}, nil
	}
	return broker.Identity{Name: name, Role: acl.Robot}, nil
}

// serveEmbedded runs the embedded brokers: one without access control, one with certificates and
// permissions, and a listener that completes a TLS handshake and closes the connection.
func serveEmbedded(t testing.TB, dir string) {
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool, err := testca.ReadCertPool(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	plain := broker.New(broker.Config{Listen: "127.0.0.1:0"})
	// The benchmark exceeds the rate limits of robots.
	secure := broker.New(broker.Config{TLSListen: "127.0.0.1:0", TLS: c, Authenticator: identities{}, Limits: broker.Limits{PacketRate: 1e9, PacketBurst: 1e9, ConnectRate: 1e9, ConnectBurst: 1e9, AdmitRate: 1e9, AdmitBurst: 1e9}})
	if err := errors.Join(plain.Start(context.Background()), secure.Start(context.Background())); err != nil {
		t.Fatal(err)
	}
	bare, err := tls.Listen("tcp", "127.0.0.1:0", c)
	if err != nil {
		t.Fatal(err)
	}
	go shakeHands(bare)
	collect := make(chan os.Signal, 1)
	signal.Notify(collect, syscall.SIGUSR1)
	fmt.Println(strings.TrimPrefix(plain.URL(), "mqtt://"), strings.TrimPrefix(secure.TLSURL(), "mqtts://"), bare.Addr())
	for range collect { // until another signal ends the program
		debug.FreeOSMemory()
		fmt.Println("collected")
	}
}

func shakeHands(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = conn.Write([]byte{1})
			_, _ = conn.Read(make([]byte, 1))
		}()
	}
}

// measureHandshakes returns how long n concurrent handshakes take.
func (w *setup) measureHandshakes(n int) time.Duration {
	began := time.Now()
	var all sync.WaitGroup
	for _, id := range robotIDs(n) {
		all.Go(func() {
			conn, err := tls.DialWithDialer(&net.Dialer{Timeout: waitTimeout}, "tcp", w.bare, w.clientTLS(id))
			if err != nil {
				w.t.Errorf("handshake: %v", err)
				return
			}
			defer conn.Close()
			_ = conn.SetReadDeadline(time.Now().Add(waitTimeout))
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				w.t.Errorf("handshake: %v", err)
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// mosquittoTarget starts Debian's broker.
func mosquittoTarget(w *setup, secure bool) *target {
	b := &target{setup: w, name: "Mosquitto", secure: secure, address: testkit.FreeAddr(w.t)}
	dir := w.t.TempDir()
	_, port, _ := net.SplitHostPort(b.address)
	files := map[string][]byte{mosquitto.ConfFile: fmt.Appendf(nil, "listener %s 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 65535\n", port)}
	if secure {
		b.name += ", certificates and rules"
		var err error
		at := func(file string) string { return filepath.Join(w.dir, file) }
		files, err = mosquitto.Config{
			Listen: b.address, Dir: dir, CAFile: at("ca.crt"), CertFile: at("tls.crt"), KeyFile: at("tls.key"), Plugin: testkit.FindMosquittoPlugin(w.t), Robots: robotIDs(max(*robots, *idle)),
		}.Files()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	b.process = testkit.NewConfiguredMosquitto(w.t, dir, files)
	b.process.Start()
	testkit.Eventually(w.t, waitTimeout, "mosquitto listens", func() bool {
		conn, err := b.dial(mosquitto.ServerName)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
	return b
}
