package transport

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func TestReconnectPause(t *testing.T) {
	most := func(d time.Duration) time.Duration { return d }
	least := func(time.Duration) time.Duration { return 0 }
	tests := []struct {
		name     string
		failures int
		want     time.Duration
	}{
		{name: "the first pause is short", failures: 0, want: 100 * time.Millisecond},
		{name: "then it doubles", failures: 3, want: 800 * time.Millisecond},
		{name: "up to ten seconds", failures: 7, want: 10 * time.Second},
		{name: "and no further, however long it takes", failures: 1 << 40, want: 10 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := reconnectPause(test.failures, most) - time.Millisecond; got != test.want {
				t.Errorf("longest pause %v, want %v", got, test.want)
			}
			if got := reconnectPause(test.failures, least); got > time.Millisecond {
				t.Errorf("shortest pause %v, want next to none: the jitter is full", got)
			}
		})
	}
}

func TestCountFailures(t *testing.T) {
	broken := errors.New("connection reset")
	for _, c := range []struct {
		name       string
		failures   int
		lasted     time.Duration
		registered bool
		err        error
		want       int
	}{
		{"a try that failed: all of them", 6, time.Second, false, broken, 6},
		{"a connection over which no server responded: all of them", 6, 9 * time.Second, false, broken, 6},
		{"one that was good, however short: few", 6, time.Second, true, broken, 3},
		{"and not more than there were", 1, time.Second, true, broken, 1},
		{"one that another agent took over: all of them", 6, time.Second, true, errTakenOver, 6},
		{"one that lasted: none", 6, 11 * time.Second, true, errTakenOver, 0},
	} {
		if got := countFailures(c.failures, c.lasted, c.registered, c.err); got != c.want {
			t.Errorf("%s: %d count, want %d", c.name, got, c.want)
		}
	}
}

func TestConnectPacket_KeepsNoSession(t *testing.T) {
	c := NewConnection(ConnectionConfig{RobotID: "r1", Broker: &url.URL{Scheme: "mqtt", Host: "127.0.0.1:1883"}}).connectPacket("c1")
	if !c.CleanStart || *c.Properties.SessionExpiryInterval != 0 {
		t.Errorf("CONNECT %+v, want a clean start and no session after it", c)
	}
	if c.ClientID != "k8s4r-agent-r1" || c.KeepAlive != 60 {
		t.Errorf("client id %q, keep alive %d", c.ClientID, c.KeepAlive)
	}
	if w := c.WillMessage; w.Topic != "k8s4r/robots/r1/presence" || string(w.Payload) != `{"online":false,"connectionId":"c1"}` || w.Retain || w.QoS != 1 {
		t.Errorf("last will %+v", w)
	}
}

// session is one try to connect: how long it lasts, and how it ends.
type session struct {
	lasts      time.Duration
	registered bool
	err        error
}

// runSessions runs the sessions one after the other with the longest random pauses, and returns
// the pause after each of them.
func runSessions(t *testing.T, sessions []session) (pauses []time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := NewConnection(ConnectionConfig{Broker: &url.URL{Scheme: "mqtt", Host: "127.0.0.1:1883"}, Log: slog.New(slog.DiscardHandler)})
	l.randomBelow = func(limit time.Duration) time.Duration { return limit - time.Millisecond }
	var ended time.Time
	l.serve = func(context.Context) (bool, error) {
		if !ended.IsZero() {
			pauses = append(pauses, time.Since(ended))
		}
		if len(pauses) == len(sessions) {
			cancel()
			return false, ctx.Err()
		}
		s := sessions[len(pauses)]
		time.Sleep(s.lasts)
		ended = time.Now()
		return s.registered, s.err
	}
	l.keepConnected(ctx)
	return pauses
}

func TestConnection_ReconnectsSoonToBrokerThatRestartsOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sessions []session
		for range 12 {
			refused := session{err: errors.New("connection refused")}
			sessions = append(sessions, session{lasts: time.Second, registered: true, err: errors.New("EOF")}, refused, refused, refused)
		}
		pauses := runSessions(t, sessions)
		ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
		want := []time.Duration{ms(100), ms(200), ms(400), ms(800)}
		for range 11 { // the failures before the restart do not add up
			want = append(want, ms(800), ms(1600), ms(3200), ms(6400))
		}
		if !slices.Equal(pauses, want) {
			t.Errorf("pauses %v, want %v", pauses, want)
		}
	})
}

func TestConnection_ReconnectsAtOnceWithRenewedCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("EOF")
		pauses := runSessions(t, []session{{err: broken}, {err: broken}, {lasts: time.Hour, registered: true, err: errCertificateRenewed}, {err: broken}})
		want := []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 0, 100 * time.Millisecond}
		if !slices.Equal(pauses, want) {
			t.Errorf("pauses %v, want %v", pauses, want)
		}
	})
}

func TestConnection_ComesBackWhenTheBrokerAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pauses := runSessions(t, []session{{err: busyError{40 * time.Second}}, {err: busyError{2 * time.Second}}, {lasts: time.Hour, registered: true, err: errors.New("EOF")}})
		want := []time.Duration{41*time.Second - time.Millisecond, 3*time.Second - time.Millisecond, 100 * time.Millisecond}
		if !slices.Equal(pauses, want) {
			t.Errorf("pauses %v, want %v", pauses, want)
		}
	})
}

func TestConnectError_ReadsWhenToComeBack(t *testing.T) {
	refused := errors.New("server busy")
	ack := func(code byte, value string) *paho.Connack {
		return &paho.Connack{ReasonCode: code, Properties: &paho.ConnackProperties{User: paho.UserProperties{{Key: "retry-after", Value: value}}}}
	}
	for _, c := range []struct {
		name string
		ack  *paho.Connack
		want error
	}{
		{"busy until a time", ack(0x89, "40"), busyError{40 * time.Second}},
		{"for far too long", ack(0x89, "1000000"), busyError{wire.MaxRetryAfter}},
		{"busy until an unknown time", ack(0x89, ""), refused},
		{"without properties", &paho.Connack{ReasonCode: 0x89}, refused},
		{"refused for another reason", ack(0x87, "40"), refused},
		{"no response", nil, refused},
	} {
		if err := connectError(c.ack, refused); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// The agent may be busy when two responses arrive.
func TestHandleResponse_LaterReplacesEarlier(t *testing.T) {
	l := NewConnection(ConnectionConfig{Broker: &url.URL{Scheme: "mqtt", Host: "127.0.0.1:1883"}, Log: slog.New(slog.DiscardHandler)})
	l.HandleResponse(wire.Response{Success: true})
	l.HandleResponse(wire.Response{Message: "the Robot was deleted"})
	if r := <-l.responses; r.Success {
		t.Errorf("%+v, want the revocation", r)
	}
}

func TestConnection_RegistersAndThenSendsHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var sentAt []time.Duration // registrations and heartbeats: both read the device
		var heartbeats []uint64
		l := NewConnection(ConnectionConfig{
			Broker: &url.URL{Scheme: "mqtt", Host: "127.0.0.1:1883"}, Heartbeat: 30 * time.Second, FirstHeartbeat: 7, Log: slog.New(slog.DiscardHandler),
			ReadDevice:     func() wire.DeviceInfo { sentAt = append(sentAt, time.Since(began)); return wire.DeviceInfo{} },
			ReadUsage:      func(context.Context) []wire.TaskUsage { return nil },
			ReadDiskHealth: func() (bool, bool) { return false, false },
			OnHeartbeat:    func(seq uint64) { heartbeats = append(heartbeats, seq) },
		})
		l.randomBelow = func(limit time.Duration) time.Duration { return limit / 2 }
		lost := make(chan error, 1)
		ended := make(chan error, 1)
		go func() { ended <- l.serveSession(t.Context(), lost) }()
		expect := func(what string, after time.Duration, want []time.Duration, wantHeartbeats int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if !slices.Equal(sentAt, want) || len(heartbeats) != wantHeartbeats {
				t.Errorf("%s: sent at %v, of which %d heartbeats; want %v, %d", what, sentAt, len(heartbeats), want, wantHeartbeats)
			}
			sentAt, began = nil, time.Now()
		}
		expect("no response", 25*time.Second, seconds(0, 10, 20), 0)
		l.HandleResponse(wire.Response{Message: "wait for approval"})
		expect("refused", 15*time.Second, seconds(10), 0)
		l.HandleResponse(wire.Response{Success: true})
		expect("accepted", 70*time.Second, seconds(0, 30, 60), 3)
		l.HandleResponse(wire.Response{Success: true})
		expect("accepted again", 25*time.Second, seconds(20), 4)
		l.HandleResponse(wire.Response{Message: "the Robot was deleted"})
		expect("revoked", 15*time.Second, seconds(10), 4)
		if !slices.Equal(heartbeats, []uint64{8, 9, 10, 11}) {
			t.Errorf("heartbeats %v", heartbeats)
		}
		lost <- errTakenOver
		if err := <-ended; !errors.Is(err, errTakenOver) {
			t.Errorf("ended with %v", err)
		}
	})
}
