package console

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"k8s4r.io/k8s4r/internal/platform/connlimit"
)

// One client cannot use up the descriptors and the memory of the console, which are those of all of
// k8s4r up.
func TestConsole_HoldsFewIdleConnectionsOfOneClient(t *testing.T) {
	const dialed = 4000
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	c, err := New(&rest.Config{Host: "http://127.0.0.1:1"}, Config{Listener: l, Metrics: metrics}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	for n := 0; countRefused(t, metrics) == 0; n++ {
		if n == dialed {
			t.Fatalf("none of %d connections is refused", dialed)
		}
		connection, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
	}
	other := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}
	t.Cleanup(other.CloseIdleConnections)
	response, err := (&http.Client{Transport: other}).Get("http://" + l.Addr().String() + "/api/v1/me")
	if err != nil {
		t.Fatalf("another client: %v", err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("another client gets %s", response.Status)
	}
}

// countRefused returns how many connections were refused because of their address.
func countRefused(t *testing.T, metrics prometheus.Gatherer) (n float64) {
	t.Helper()
	all, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		if family.GetName() == "k8s4r_console_refused_connections_total" {
			n += family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return n
}

// The event streams of one user leave room for other users.
func TestConsole_BoundsConnectionsOfOneUser(t *testing.T) {
	gate := &fakeGate{}
	s, _ := newTestServer(gate)
	gate.users["other"] = "bob"
	connections := connlimit.New(connlimit.Config{PerIdentity: 1})
	server := httptest.NewUnstartedServer(s.Handler())
	server.Listener, server.Config.ConnContext = connections.Listen(server.Listener), connections.WithConn
	server.Start()
	t.Cleanup(server.Close)
	for _, step := range []struct {
		token string
		want  int
	}{{"secret", http.StatusOK}, {"secret", http.StatusTooManyRequests}, {"other", http.StatusOK}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/events", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(sessionHeader, sessionOf(t, s, step.token, noon.Add(time.Hour)))
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		if response.StatusCode != step.want {
			t.Errorf("%s gets %s, want %d", step.token, response.Status, step.want)
		}
	}
}
