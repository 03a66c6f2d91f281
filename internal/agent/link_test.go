package agent

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/wire"
)

func TestBackOff(t *testing.T) {
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
			if got := backOff(test.failures, most) - time.Millisecond; got != test.want {
				t.Errorf("longest pause %v, want %v", got, test.want)
			}
			if got := backOff(test.failures, least); got > time.Millisecond {
				t.Errorf("shortest pause %v, want next to none: the jitter is full", got)
			}
		})
	}
}

func TestWhichFailuresCount(t *testing.T) {
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
		{"a connection over which nobody answered: all of them", 6, 9 * time.Second, false, broken, 6},
		{"one that was good, however short: few", 6, time.Second, true, broken, 3},
		{"and not more than there were", 1, time.Second, true, broken, 1},
		{"one that another agent took over: all of them", 6, time.Second, true, errTakenOver, 6},
		{"one that lasted: none", 6, 11 * time.Second, true, errTakenOver, 0},
	} {
		if got := stillCount(c.failures, c.lasted, c.registered, c.err); got != c.want {
			t.Errorf("%s: %d count, want %d", c.name, got, c.want)
		}
	}
}

// retries notes, of what a link logs, how long it waits after each connection over
// which it was registered.
type retries struct {
	slog.Handler
	mu         sync.Mutex
	registered bool
	pauses     []time.Duration
}

func (*retries) Enabled(context.Context, slog.Level) bool { return true }
func (r *retries) WithAttrs([]slog.Attr) slog.Handler     { return r }

func (r *retries) Handle(_ context.Context, record slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "retryIn" && r.registered {
			r.pauses, r.registered = append(r.pauses, a.Value.Duration()), false
		}
		return true
	})
	r.registered = r.registered || record.Message == "registered"
	return nil
}

func (r *retries) after(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.registered && len(r.pauses) == n
}

func TestABrokerThatDiesAgainAndAgainIsNeverFarAway(t *testing.T) {
	const deaths = 12
	s := newFakeServer(t)
	l := &link{
		robotID: robot, broker: s.config("").Broker, heartbeat: time.Minute, retry: registerEvery,
		device: func() wire.DeviceInfo { return wire.DeviceInfo{} }, connected: func(bool) {}, beat: func(uint64) {},
		use: func(context.Context) []wire.TaskUse { return nil }, responses: make(chan wire.Response, 1),
	}
	l.receive = func(k wire.Kind, payload []byte, _ string) {
		if k == wire.KindResponse {
			_ = decode(payload, l.answer)
		}
	}
	said := &retries{}
	l.log = slog.New(said)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.run(ctx) }()
	defer func() { cancel(); <-ended }()
	for n := range deaths {
		eventually(t, "to be registered again", func() bool { return said.after(n) })
		s.stop()
		s.start()
	}
	eventually(t, "the last pause", func() bool { said.mu.Lock(); defer said.mu.Unlock(); return len(said.pauses) == deaths })
	if longest := slices.Max(said.pauses); longest > 810*time.Millisecond {
		t.Errorf("it waited %v after good connections, want less than 0.8 s: %v", longest, said.pauses)
	}
}

func TestHelloKeepsNothingAtTheBroker(t *testing.T) {
	s := newFakeServer(t)
	l := &link{robotID: robot, broker: s.config("").Broker}
	c := l.hello()
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

// Its task may have gone to another robot since, or have been called off.
func TestADispatchThatIsSentWhileTheAgentIsAwayIsNotKeptForIt(t *testing.T) {
	s, dir, ran := newFakeServer(t), t.TempDir(), filepath.Join(t.TempDir(), "ran")
	first := startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	first.stop()
	s.dispatch(shell("waited", "echo waited >> "+ran), 1)

	startAgent(t, s.config(dir))
	s.awaitRegistered(2)
	s.dispatch(shell("fresh", "echo fresh >> "+ran), 1)
	s.awaitEnd("fresh", 1)
	if got := lines(ran); !slices.Equal(got, []string{"fresh"}) {
		t.Errorf("ran %v", got)
	}
}

func TestARefusedRegistrationIsTriedAgain(t *testing.T) {
	s := newFakeServer(t)
	s.set(func() { s.answer = false })
	startAgent(t, s.config(t.TempDir()), func(a *Agent) { a.link.retry = 50 * time.Millisecond })
	registered := func() (n, beats int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.registers), len(s.heartbeats)
	}
	eventually(t, "a registration", func() bool { n, _ := registered(); return n > 0 })
	if _, beats := registered(); beats > 0 {
		t.Errorf("%d heartbeats before the registration was accepted", beats)
	}
	s.set(func() { s.answer = true })
	eventually(t, "a heartbeat after a second registration", func() bool { n, beats := registered(); return n >= 2 && beats > 0 })
	before, _ := registered()
	// The server may take it back, as when its Robot was deleted.
	s.publish(wire.KindResponse, wire.Response{Message: "who are you?", RobotID: robot}, false)
	eventually(t, "a registration after that", func() bool { n, _ := registered(); return n > before })
}

func TestTheBrokerTellsOfADeadRobot(t *testing.T) {
	s := newFakeServer(t)
	agent := agentProcess(t, s, t.TempDir())
	must(t, agent.Start())
	s.awaitRegistered(1)
	must(t, agent.Process.Kill())
	eventually(t, "the last will", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.presences) == 1 && s.presences[0] == wire.Presence{}
	})
}
