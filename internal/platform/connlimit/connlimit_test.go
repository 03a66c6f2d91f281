package connlimit

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// bench is a server that authenticates clients by a header, and then keeps their request open.
type bench struct {
	t     *testing.T
	clock *clocktesting.FakeClock
	url   string

	mu      sync.Mutex
	changed *sync.Cond
	open    map[State]int
	most    map[State]int
	refused map[Reason]int
}

const identityHeader = "Identity"

func newBench(t *testing.T, c Config) *bench {
	t.Helper()
	b := &bench{t: t, clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), open: map[State]int{}, most: map[State]int{}, refused: map[Reason]int{}}
	b.changed = sync.NewCond(&b.mu)
	c.Clock, c.CountOpen, c.CountRefused = b.clock, b.countOpen, b.countRefused
	l := New(c)
	s := httptest.NewUnstartedServer(http.HandlerFunc(serve))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.Listener, s.Config.ConnContext = l.Listen(s.Listener), l.WithConn
	s.StartTLS()
	t.Cleanup(s.CloseClientConnections)
	b.url = s.URL
	return b
}

// serve answers 401 or 429, or 200 and then nothing until the client closes the connection.
func serve(w http.ResponseWriter, r *http.Request) {
	who := r.Header.Get(identityHeader)
	switch {
	case who == "":
		w.WriteHeader(http.StatusUnauthorized)
	case errors.Is(Authenticate(r.Context(), who), ErrTooMany):
		w.WriteHeader(http.StatusTooManyRequests)
	default:
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

func (b *bench) countOpen(state State, change int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[state] += change
	b.most[state] = max(b.most[state], b.open[state])
	b.changed.Broadcast()
}

func (b *bench) countRefused(reason Reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused[reason]++
	b.changed.Broadcast()
}

// waitUntil blocks until a condition on the counts holds.
func (b *bench) waitUntil(holds func() bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !holds() {
		b.changed.Wait()
	}
}

// expectCounts fails unless a condition on the counts holds now.
func (b *bench) expectCounts(holds func() bool) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !holds() {
		b.t.Fatalf("open: %v, most: %v, refused: %v", b.open, b.most, b.refused)
	}
}

// dial opens a connection from an address of this machine, and sends nothing.
func (b *bench) dial(from string) net.Conn {
	b.t.Helper()
	c, err := dialerFrom(from).Dial("tcp", b.url[len("https://"):])
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

func dialerFrom(address string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
}

// request sends a request on a connection of its own, and returns the status of the response,
// which is zero if the connection was refused.
func (b *bench) request(from, who string) (status int, body io.ReadCloser) {
	b.t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig.InsecureSkipVerify = true //nolint:gosec // the test server's certificate is not known
	transport.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		return dialerFrom(from).DialContext(ctx, network, to)
	}
	b.t.Cleanup(transport.CloseIdleConnections)
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set(identityHeader, who)
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return 0, nil
	}
	b.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer.StatusCode, answer.Body
}

func (b *bench) expectStatus(from, who string, want int) io.ReadCloser {
	b.t.Helper()
	got, body := b.request(from, who)
	if got != want {
		b.t.Errorf("%q from %s gets %d, want %d", who, from, got, want)
	}
	return body
}

// An attacker with one address cannot use up the connections of others.
func TestLimiter_HoldsFewIdleConnectionsOfOneAddress(t *testing.T) {
	const dialed, perAddress = 4000, 256
	b := newBench(t, Config{})
	for range dialed {
		b.dial("127.0.0.1")
	}
	b.waitUntil(func() bool { return b.refused[ReasonAddress] >= dialed-perAddress })
	b.expectStatus("127.0.0.2", "r1", http.StatusOK)
	b.expectCounts(func() bool { return b.most[StateUnauthenticated] <= perAddress+1 }) // and the other client
	b.clock.Step(30 * time.Second)
	b.waitUntil(func() bool { return b.open[StateUnauthenticated] == 0 })
	b.expectStatus("127.0.0.1", "r2", http.StatusOK)
}

func TestLimiter_BoundsUnauthenticatedConnectionsInAll(t *testing.T) {
	b := newBench(t, Config{Unauthenticated: 2, PerAddress: 1})
	b.dial("127.0.0.1")
	b.dial("127.0.0.2")
	b.waitUntil(func() bool { return b.open[StateUnauthenticated] == 2 })
	b.expectStatus("127.0.0.3", "r1", 0)
	b.expectCounts(func() bool { return b.refused[ReasonTotal] == 1 })
}

// A response without an identity does not make a connection last.
func TestLimiter_ClosesConnectionsThatDoNotAuthenticate(t *testing.T) {
	b := newBench(t, Config{AuthenticateWithin: time.Minute})
	b.expectStatus("127.0.0.1", "", http.StatusUnauthorized)
	b.clock.Step(time.Minute - 1)
	b.expectCounts(func() bool { return b.open[StateUnauthenticated] == 1 })
	b.clock.Step(1)
	b.waitUntil(func() bool { return b.open[StateUnauthenticated] == 0 && b.refused[ReasonTimeout] == 1 })
}

// All robots of a site may have one address.
func TestLimiter_CountsAuthenticatedClientsByIdentity(t *testing.T) {
	b := newBench(t, Config{PerAddress: 1, PerIdentity: 2, Authenticated: 5})
	var open []io.ReadCloser
	for _, who := range []string{"r1", "r1", "r2", "r2"} {
		open = append(open, b.expectStatus("127.0.0.1", who, http.StatusOK))
	}
	b.clock.Step(24 * time.Hour)
	b.expectCounts(func() bool { return b.open[StateAuthenticated] == 4 && b.refused[ReasonTimeout] == 0 })
	b.expectStatus("127.0.0.1", "r1", http.StatusTooManyRequests)
	b.clock.Step(time.Minute) // the refused connection holds the slot of the address until then
	b.waitUntil(func() bool { return b.open[StateUnauthenticated] == 0 })
	b.expectStatus("127.0.0.1", "r3", http.StatusOK)
	b.expectStatus("127.0.0.1", "r4", http.StatusTooManyRequests)
	b.expectCounts(func() bool { return b.refused[ReasonIdentity] == 1 && b.refused[ReasonTotal] == 1 })
	_ = open[0].Close()
	b.waitUntil(func() bool { return b.open[StateAuthenticated] == 4 })
}

func TestAuthenticate_WithoutLimiterAllowsAll(t *testing.T) {
	if err := Authenticate(t.Context(), "r1"); err != nil {
		t.Error(err)
	}
}
