package transport

import (
	"errors"
	"net/url"
	"testing"
	"time"
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
	c := NewConnection(ConnectionConfig{RobotID: "r1", Broker: &url.URL{Scheme: "mqtt", Host: "127.0.0.1:1883"}}).connectPacket()
	if !c.CleanStart || *c.Properties.SessionExpiryInterval != 0 {
		t.Errorf("CONNECT %+v, want a clean start and no session after it", c)
	}
	if c.ClientID != "k8s4r-agent-r1" || c.KeepAlive != 60 {
		t.Errorf("client id %q, keep alive %d", c.ClientID, c.KeepAlive)
	}
	if w := c.WillMessage; w.Topic != "k8s4r/robots/r1/presence" || string(w.Payload) != `{"online":false}` || w.Retain || w.QoS != 1 {
		t.Errorf("last will %+v", w)
	}
}
