package logapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/platform/apiserve"
	"k8s4r.io/k8s4r/internal/platform/connlimit"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
)

// openCounts counts connections as the metrics do.
type openCounts struct {
	mu      sync.Mutex
	changed sync.Cond
	open    map[connlimit.State]int
	most    int // without identity
	refused int
}

func newOpenCounts() *openCounts {
	c := &openCounts{open: map[connlimit.State]int{}}
	c.changed.L = &c.mu
	return c
}

func (c *openCounts) countOpen(state connlimit.State, change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[state] += change
	c.most = max(c.most, c.open[connlimit.StateUnauthenticated])
	c.changed.Broadcast()
}

func (c *openCounts) countRefused(connlimit.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused++
	c.changed.Broadcast()
}

func (c *openCounts) waitUntil(holds func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !holds() {
		c.changed.Wait()
	}
}

func (c *openCounts) mostUnauthenticated() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most
}

// startService serves the logs of the bench with TLS and returns the CA of its certificate.
func (b *bench) startService(connections connlimit.Config) *x509.CertPool {
	b.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	h := &Handler{Gate: fakeGate{}, Tasks: b.tasks, Store: b.store, Notifier: b.notifier, Log: logr.Discard()}
	published := make(chan serveraddr.Address, 1)
	announce := func(_ context.Context, a serveraddr.Address) error { published <- a; return nil }
	s := apiserve.New(apiserve.Config{ServerName: "k8s4r-server.k8s4r-system.svc", Listener: l, Connections: connections}, h.Routes(), announce, logr.Discard())
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	b.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	})
	a := <-published
	b.url = a.URL
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.CA)
	return pool
}

// followLog opens a log from an address of this machine, on a connection of its own.
func (b *bench) followLog(from string, pool *x509.CertPool, user string) *http.Response {
	b.t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	b.t.Cleanup(transport.CloseIdleConnections)
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+"/v1/namespaces/default/tasks/t1/logs?follow=true", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	request.Header.Set("Authorization", user)
	answer, err := transport.RoundTrip(request)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// One client cannot use up the descriptors and the memory of the server, and a reader of a log
// keeps its connection.
func TestService_HoldsFewIdleConnectionsOfOneClient(t *testing.T) {
	const dialed, perAddress = 4000, 256
	b, counts := newBench(t), newOpenCounts()
	clock := clocktesting.NewFakeClock(time.Now())
	pool := b.startService(connlimit.Config{Clock: clock, CountOpen: counts.countOpen, CountRefused: counts.countRefused})
	b.setState(lifecycle.TaskRunning, 1)
	for range dialed {
		c, err := net.Dial("tcp", b.url[len("https://"):])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	counts.waitUntil(func() bool { return counts.refused >= dialed-perAddress })
	answer := b.followLog("127.0.0.2", pool, "alice")
	if answer.StatusCode != http.StatusOK || answer.ProtoMajor != 2 {
		t.Fatalf("another client gets %s by %s", answer.Status, answer.Proto)
	}
	if most := counts.mostUnauthenticated(); most > perAddress+1 { // and the other client
		t.Errorf("%d idle connections were held, want at most %d", most, perAddress)
	}
	clock.Step(time.Minute)
	counts.waitUntil(func() bool { return counts.open[connlimit.StateUnauthenticated] == 0 })
	counts.waitUntil(func() bool { return counts.open[connlimit.StateAuthenticated] == 1 })
}

func TestService_RefusesTooManyConnectionsOfOneUser(t *testing.T) {
	b, counts := newBench(t), newOpenCounts()
	pool := b.startService(connlimit.Config{PerIdentity: 1, CountOpen: counts.countOpen})
	b.setState(lifecycle.TaskRunning, 1)
	for _, step := range []struct {
		user string
		want int
	}{{"alice", http.StatusOK}, {"alice", http.StatusTooManyRequests}, {"bob", http.StatusOK}} {
		if got := b.followLog("127.0.0.1", pool, step.user).StatusCode; got != step.want {
			t.Errorf("%s gets %d, want %d", step.user, got, step.want)
		}
	}
}
