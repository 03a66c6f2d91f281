// Package transport connects the agent to the MQTT broker. It registers the robot and sends
// heartbeats (Connection), repeats reports until they are acknowledged (Outbox), and records
// when the robot was last in contact (LastSeen). It knows nothing of tasks: the agent routes
// messages to the package runner.
package transport

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"k8s4r.io/k8s4r/internal/protocol/policy"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	// defaultRegisterRetry is the time between registrations, give or take a tenth.
	defaultRegisterRetry = 10 * time.Second
	// The bounds of the pause between two attempts to connect.
	minReconnectPause = 100 * time.Millisecond
	maxReconnectPause = 10 * time.Second
	// failuresAfterSuccess is the most failures that still count after a connection that
	// worked: the next pause is below 0.8 s, which spreads a thousand robots evenly.
	failuresAfterSuccess = 3
	// turnJitter spreads the robots that the broker asks to come back in the same second.
	turnJitter = time.Second
)

// ErrDisconnected reports that there is no connection. Messages are not queued: the
// sender repeats those that matter.
var ErrDisconnected = errors.New("no connection to the MQTT broker")

var (
	// errTakenOver ends a connection because another one uses the same client id.
	errTakenOver = errors.New("another agent with this robot id has connected")
	// errCertificateRenewed ends a connection because the robot has a newer certificate:
	// the broker closes connections when the certificate that opened them expires.
	errCertificateRenewed = errors.New("the robot's certificate was renewed")
)

// ConnectionConfig configures a Connection.
type ConnectionConfig struct {
	RobotID string
	// Broker is the URL of the broker: mqtt, tcp or mqtts, with a port.
	Broker *url.URL
	// KeepBroker ignores the broker's address that the server names.
	KeepBroker bool
	// CA holds the authorities (PEM) that are trusted for the broker if there is no
	// Credential. If empty, the system's are used.
	CA []byte
	// Credential authenticates the robot. If nil, the robot presents no certificate.
	Credential Credential
	// Heartbeat is the time between two heartbeats.
	Heartbeat time.Duration
	// FirstHeartbeat is the number before that of the first heartbeat. It must be larger
	// than every number that this robot has sent before.
	FirstHeartbeat uint64
	// RegisterRetry is the time between registrations. If zero, 10 s.
	RegisterRetry time.Duration
	// ReceiveMaximum bounds the messages that the broker sends ahead of the agent's
	// acknowledgments.
	ReceiveMaximum uint16
	// Registration is sent with the device and the address filled in.
	Registration wire.Register
	ReadDevice   func() wire.DeviceInfo
	// ReadPolicy returns the robot's policy, or nil if it has none. It is called before each
	// registration and heartbeat, and may call RegisterAgain. If nil, the robot has none.
	ReadPolicy func() *policy.Policy
	// ReadLocal returns what people at the robot have decided. It is called before each registration. If
	// nil, they have decided nothing.
	ReadLocal func() *wire.LocalState
	// ReadPrefetch returns the reports about prefetch orders, for each registration. If nil, there are none.
	ReadPrefetch func() []wire.PrefetchReport
	// ReadUpdate reports whether the agent updates itself, and returns its report about the last order for that, for
	// each registration. If nil, it does not.
	ReadUpdate func() (updatesItself bool, report *wire.AgentUpdate)
	ReadUsage  func(context.Context) []wire.TaskUsage
	// ReadDiskHealth returns the fields of a heartbeat about the disk.
	ReadDiskHealth func() (diskPressure, journalReadOnly bool)
	// Receive gets each dispatch, task list, acknowledgment and response, and the trace
	// that it came in. It is called by one goroutine.
	Receive func(k wire.Kind, payload []byte, trace string)
	// OnConnected is called after each change of the connection.
	OnConnected func(connected bool)
	// OnHeartbeat is called right before a heartbeat is sent.
	OnHeartbeat func(seq uint64)
	Log         *slog.Logger
}

// Connection holds the connection to the broker: it reconnects, subscribes, registers
// the robot and sends heartbeats.
type Connection struct {
	config    ConnectionConfig
	broker    atomic.Pointer[url.URL]
	log       *slog.Logger
	responses chan wire.Response
	outdated  chan struct{} // requests another registration; holds at most one
	// randomBelow returns a random duration below a limit. Tests replace it.
	randomBelow func(limit time.Duration) time.Duration
	// serve is runSession. Tests of reconnecting replace it.
	serve func(context.Context) (registered bool, err error)

	// Used by Run alone.
	renewed      <-chan struct{} // closed when the certificate of this session is outdated
	address      string          // the robot's own, as of the last dial
	heartbeatSeq uint64

	deviceChanges deviceChanges

	mu           sync.Mutex // guards the fields below
	client       *paho.Client
	stateSince   time.Time // when client was set; client is nil while disconnected
	registered   bool      // over this connection
	connectionID string    // of the last connection that was opened
}

// NewConnection returns a Connection. Run opens it.
func NewConnection(c ConnectionConfig) *Connection {
	if c.RegisterRetry == 0 {
		c.RegisterRetry = defaultRegisterRetry
	}
	if c.Credential != nil {
		c.Registration.Token = "" // the server's join endpoint gets it; the broker must not
	}
	l := &Connection{
		config: c, log: c.Log, responses: make(chan wire.Response, 1), outdated: make(chan struct{}, 1), randomBelow: rand.N[time.Duration], heartbeatSeq: c.FirstHeartbeat,
	}
	if c.ReadLocal == nil {
		l.config.ReadLocal = func() *wire.LocalState { return nil }
	}
	if c.ReadPrefetch == nil {
		l.config.ReadPrefetch = func() []wire.PrefetchReport { return nil }
	}
	if c.ReadUpdate == nil {
		l.config.ReadUpdate = func() (bool, *wire.AgentUpdate) { return false, nil }
	}
	if c.ReadPolicy == nil {
		l.config.ReadPolicy = func() *policy.Policy { return nil }
	}
	l.serve = l.runSession
	l.broker.Store(c.Broker)
	return l
}

// Run keeps the robot connected until ctx ends. A robot with a credential gets its
// certificate first.
func (l *Connection) Run(ctx context.Context) {
	if c := l.config.Credential; c != nil {
		if err := c.Join(ctx); err != nil {
			return // ctx has ended
		}
		l.followServersBroker()
		go c.Run(ctx)
	}
	l.keepConnected(ctx)
}

// keepConnected opens a session after the other until ctx ends.
func (l *Connection) keepConnected(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		registered, err := l.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errCertificateRenewed) {
			l.log.Info("reconnecting", "reason", err)
			failures = -1
			continue
		}
		failures = countFailures(failures, time.Since(began), registered, err)
		pause := reconnectPause(failures, l.randomBelow)
		if busy, ok := errors.AsType[busyError](err); ok {
			pause = busy.after + l.randomBelow(turnJitter)
		}
		l.log.Warn("no connection to the MQTT broker", "broker", l.Broker(), "error", err, "retryIn", pause.Round(time.Millisecond))
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// countFailures returns how many failures still count after a session that lasted so long
// and ended with err. A session that registered the robot resets most of them, so that
// robots return soon to a broker that restarts often. Two agents with the same robot id,
// which take over each other's session, must slow down nevertheless.
func countFailures(failures int, lasted time.Duration, registered bool, err error) int {
	switch {
	case lasted > maxReconnectPause:
		return 0
	case registered && !errors.Is(err, errTakenOver):
		return min(failures, failuresAfterSuccess)
	}
	return failures
}

// reconnectPause returns the pause after so many failures: a random time below a limit
// that grows exponentially, so that a fleet does not reconnect all at once.
func reconnectPause(failures int, below func(time.Duration) time.Duration) time.Duration {
	limit := min(minReconnectPause<<min(failures, 10), maxReconnectPause)
	return below(limit) + time.Millisecond
}

func (l *Connection) setClient(c *paho.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client, l.stateSince, l.registered = c, time.Now(), false
}

// newConnectionID returns the id of a connection that is about to be opened.
func (l *Connection) newConnectionID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connectionID = cryptorand.Text()
	return l.connectionID
}

// currentConnectionID returns the id of the connection that was opened last.
func (l *Connection) currentConnectionID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connectionID
}

func (l *Connection) setRegistered(registered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.registered = registered
}

// State reports whether the robot is connected, and registered over this connection, and
// since when it is connected or disconnected.
func (l *Connection) State() (connected, registered bool, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client != nil, l.registered, l.stateSince
}

// IsConnected reports whether there is a connection to the broker.
func (l *Connection) IsConnected() bool {
	connected, _, _ := l.State()
	return connected
}

// Broker returns the URL of the broker without its password.
func (l *Connection) Broker() string { return l.broker.Load().Redacted() }

// HandleResponse takes the server's response to a registration. It replaces one that waits: the later
// one may revoke the registration.
func (l *Connection) HandleResponse(r wire.Response) {
	l.dropResponse()
	select {
	case l.responses <- r:
	default: // another goroutine was faster
	}
}

// RegisterAgain registers the robot again over the present connection, because what it registered
// has changed. Without a connection it does nothing more than the next one does anyway.
func (l *Connection) RegisterAgain() {
	select {
	case l.outdated <- struct{}{}:
	default: // one is requested already
	}
}

// HandleHeartbeatAck records that the server has received the heartbeat with this number.
func (l *Connection) HandleHeartbeatAck(seq uint64, devicePending bool) {
	l.deviceChanges.recordAck(seq, devicePending)
}

// dropResponse drops a response that waits.
func (l *Connection) dropResponse() {
	select {
	case <-l.responses:
	default:
	}
}
