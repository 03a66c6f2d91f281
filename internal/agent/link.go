package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"runtime/debug"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"k8s4r.io/k8s4r/internal/traceparent"
	"k8s4r.io/k8s4r/internal/wire"
)

const (
	// keepAlive is twice the usual heartbeat, so that PINGs vanish.
	keepAlive = 60 * time.Second
	// receiveMaximum bounds the messages that the broker may have on the way to
	// us: what the runner's inbox holds.
	receiveMaximum = inboxSize
	// maxPacket leaves room for the topic beside the largest payload.
	maxPacket = wire.MaxPayload + 4<<10
	// packetTimeout bounds the wait for the broker's answer to one packet.
	packetTimeout = 10 * time.Second
	// registerEvery is how long a registration waits for its answer, give or
	// take a tenth.
	registerEvery = 10 * time.Second
	// The bounds of the pause between two tries to connect.
	reconnectFirst = 100 * time.Millisecond
	reconnectLast  = 10 * time.Second
	// reconnectGood are the failures that count at the most after a good connection:
	// the next pause is below 0.8 s, in which a thousand robots come back evenly.
	reconnectGood = 3
)

// errDown refuses a message while there is no connection. It is not queued:
// what matters is repeated by who sent it.
var errDown = errors.New("no connection to the MQTT broker")

// errTakenOver is the end of a connection because another one has our client id.
var errTakenOver = errors.New("another agent with this robot id has connected")

// errRenewed is the end of a connection because the robot has a newer certificate:
// the broker ends connections with the certificate that they came with.
var errRenewed = errors.New("the robot has a new certificate, and connects with it")

// link holds the connection to the broker: it connects again when it breaks,
// subscribes, registers and sends heartbeats.
type link struct {
	robotID string
	broker  *url.URL
	// secure is how the robot proves itself, and a channel that is closed when
	// it has a newer proof. Nil: it connects without TLS.
	secure func() (*tls.Config, <-chan struct{})
	proven bool // by a certificate
	// refused is told that the broker does not take the proof. Nil: nobody is.
	refused   func(context.Context)
	heartbeat time.Duration
	retry     time.Duration // between registrations
	register  wire.Register // without DeviceInfo and Address
	device    func() wire.DeviceInfo
	receive   func(k wire.Kind, payload []byte, trace string) // dispatch, state, ack or response
	connected func(bool)
	beat      func(n uint64) // a heartbeat is about to be sent
	use       func(context.Context) []wire.TaskUse
	log       *slog.Logger

	responses chan wire.Response
	newer     <-chan struct{} // closed when there is a newer proof than that of this connection
	beats     uint64          // the number of the last heartbeat
	news      deviceNews

	mu         sync.Mutex
	client     *paho.Client // nil: down
	since      time.Time    // when that began
	registered bool         // over this connection
}

// run keeps the link up until ctx ends.
func (l *link) run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		registered, err := l.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errRenewed) {
			l.log.Info("connecting anew", "reason", err)
			failures = -1
			continue
		}
		failures = stillCount(failures, time.Since(began), registered, err)
		pause := backOff(failures, rand.N[time.Duration])
		l.log.Warn("no connection to the MQTT broker", "broker", l.broker.Redacted(), "error", err, "retryIn", pause.Round(time.Millisecond))
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// stillCount are the failures that still count after a connection, or a try, that lasted
// so long and ended for err. One over which the server knew the robot shows that there
// is a way: without it a broker that dies every few seconds was out of reach for ten
// after each. But not all count as gone, for a broker that comes back has thousands to
// take in. And two agents with one robot id, who throw each other out as soon as they
// are in, must slow down.
func stillCount(failures int, lasted time.Duration, registered bool, err error) int {
	switch {
	case lasted > reconnectLast:
		return 0
	case registered && !errors.Is(err, errTakenOver):
		return min(failures, reconnectGood)
	}
	return failures
}

// backOff is the pause after so many failures: exponential, and anywhere below
// that, so that a fleet does not come back in one wave.
func backOff(failures int, below func(time.Duration) time.Duration) time.Duration {
	limit := min(reconnectFirst<<min(failures, 10), reconnectLast)
	return below(limit) + time.Millisecond
}

// session is the life of one connection. It tells whether the server knew the robot
// over it, and why it ended.
func (l *link) session(ctx context.Context) (registered bool, err error) {
	l.dropAnswer()
	client, lost, err := l.connect(ctx)
	if err != nil {
		return false, err
	}
	defer l.hangUp(client)
	if err := l.subscribe(ctx, client); err != nil {
		return false, err
	}
	l.setClient(client)
	l.connected(true)
	defer func() {
		l.setClient(nil)
		l.connected(false)
	}()
	l.log.Info("connected to the MQTT broker", "broker", l.broker.Redacted())
	err = l.serve(ctx, lost)
	_, registered, _ = l.standing()
	return registered, err
}

// hangUp ends a connection without the last will, and waits until nothing of
// it runs any more.
func (l *link) hangUp(client *paho.Client) {
	_ = client.Disconnect(&paho.Disconnect{})
	<-client.Done()
}

func (l *link) setClient(c *paho.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client, l.since, l.registered = c, time.Now(), false
}

// setRegistered takes in what the server answered.
func (l *link) setRegistered(yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.registered = yes
}

// standing tells whether there is a connection, since when that is so, and whether
// the server knows the robot over it.
func (l *link) standing() (up, registered bool, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client != nil, l.registered, l.since
}

// connect opens a connection. What ends it later is sent on lost.
func (l *link) connect(ctx context.Context) (*paho.Client, <-chan error, error) {
	ctx, cancel := context.WithTimeout(ctx, packetTimeout)
	defer cancel()
	conn, err := l.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	if host, _, err := net.SplitHostPort(conn.LocalAddr().String()); err == nil {
		l.register.Address = host
	}
	lost := make(chan error, 1)
	client := paho.NewClient(paho.ClientConfig{
		Conn:               conn,
		PacketTimeout:      packetTimeout,
		OnPublishReceived:  []func(paho.PublishReceived) (bool, error){l.incoming},
		OnClientError:      func(err error) { tell(lost, err) },
		OnServerDisconnect: func(d *paho.Disconnect) { tell(lost, dismissal(d)) },
	})
	if ack, err := client.Connect(ctx, l.hello()); err != nil {
		l.notTaken(ctx, ack)
		return nil, nil, fmt.Errorf("MQTT connect: %w", err)
	}
	return client, lost, nil
}

// dial opens the connection that MQTT is spoken on.
func (l *link) dial(ctx context.Context) (net.Conn, error) {
	if l.secure == nil {
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.broker.Host)
	}
	config, newer := l.secure()
	l.newer = newer
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", l.broker.Host)
}

// notTaken has the proof looked at when the broker refuses it: the robot may have
// been deleted, and may join again.
func (l *link) notTaken(ctx context.Context, ack *paho.Connack) {
	const notAuthorized = 0x87
	if ack != nil && ack.ReasonCode == notAuthorized && l.refused != nil {
		l.refused(ctx)
	}
}

// dismissal is why the broker ended a connection (MQTT 5, 3.14.2.1).
func dismissal(d *paho.Disconnect) error {
	const sessionTakenOver = 0x8e
	if d.ReasonCode == sessionTakenOver {
		return errTakenOver
	}
	return fmt.Errorf("the broker ended the connection with reason %#x", d.ReasonCode)
}

func tell(lost chan<- error, err error) {
	select {
	case lost <- err:
	default:
	}
}

// clientID is the robot's id itself only for one that proves it.
func (l *link) clientID() string {
	if l.proven {
		return l.robotID
	}
	return "k8s4r-agent-" + l.robotID
}

// hello is the CONNECT packet.
//
// Every connection starts clean, and its session expires with it: a dispatch
// that waited at the broker would start a task that has gone to another robot
// meanwhile (docs/adr/0008-the-agents-session.md).
func (l *link) hello() *paho.Connect {
	will, err := wire.Encode(wire.Presence{})
	if err != nil {
		panic(err) // a constant
	}
	c := &paho.Connect{
		ClientID:   l.clientID(),
		CleanStart: true,
		KeepAlive:  uint16(keepAlive / time.Second),
		Properties: &paho.ConnectProperties{
			// Said although it is the default: it is what fences the robot.
			SessionExpiryInterval: paho.Uint32(0),
			ReceiveMaximum:        paho.Uint16(receiveMaximum),
			MaximumPacketSize:     paho.Uint32(maxPacket),
			RequestProblemInfo:    true,
		},
		WillMessage: &paho.WillMessage{Topic: wire.RobotTopic(l.robotID, wire.KindPresence), Payload: will, QoS: wire.QoS},
	}
	if u := l.broker.User; u != nil {
		c.Username, c.UsernameFlag = u.Username(), true
		if password, ok := u.Password(); ok {
			c.Password, c.PasswordFlag = []byte(password), true
		}
	}
	return c
}

// subscribe asks for all topics of this robot at once.
func (l *link) subscribe(ctx context.Context, client *paho.Client) error {
	s := &paho.Subscribe{}
	for _, topic := range wire.RobotSubscriptions(l.robotID) {
		s.Subscriptions = append(s.Subscriptions, paho.SubscribeOptions{Topic: topic, QoS: wire.QoS})
	}
	if _, err := client.Subscribe(ctx, s); err != nil {
		return fmt.Errorf("MQTT subscribe: %w", err)
	}
	return nil
}

// incoming sorts a message by its topic.
func (l *link) incoming(p paho.PublishReceived) (bool, error) {
	for _, k := range []wire.Kind{wire.KindResponse, wire.KindAck, wire.KindDispatch, wire.KindState} {
		if p.Packet.Topic == wire.RobotTopic(l.robotID, k) {
			l.receive(k, p.Packet.Payload, p.Packet.Properties.User.Get(traceparent.Property))
			return true, nil
		}
	}
	return false, nil
}

// answer hands over the server's answer to a registration.
func (l *link) answer(r wire.Response) {
	select {
	case l.responses <- r:
	default: // one is waiting already, and a registration is repeated
	}
}

// dropAnswer forgets an answer that the connection before has left. It would pass for
// one to a registration that was never sent.
func (l *link) dropAnswer() {
	select {
	case <-l.responses:
	default:
	}
}

// serve registers and then sends heartbeats, until the connection ends.
func (l *link) serve(ctx context.Context, lost <-chan error) error {
	registered := false
	var said *wire.DeviceInfo // with the first registration that is not answered
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-lost:
			return err
		case <-l.newer:
			return errRenewed
		case r := <-l.responses:
			if r.Success && registered {
				continue
			}
			if registered = r.Success; registered && said != nil {
				l.news.registered(*said)
			}
			l.setRegistered(registered)
			said = nil
			timer.Reset(l.afterResponse(r))
		case <-timer.C:
			device := l.device()
			if !registered {
				timer.Reset(l.retry*9/10 + rand.N(l.retry/5))
				l.sendRegister(ctx, device)
				if said == nil {
					said = &device
				}
			} else {
				timer.Reset(l.heartbeat)
				l.sendHeartbeat(ctx, device)
			}
		}
	}
}

// afterResponse is when to speak next: a first heartbeat at once, or the
// registration again.
func (l *link) afterResponse(r wire.Response) time.Duration {
	if r.Success {
		l.log.Info("registered", "message", r.Message)
		debug.FreeOSMemory() // to start and to join takes more than to be idle, for years
		return 0
	}
	l.log.Warn("not registered, will try again", "message", r.Message)
	return l.retry
}

func (l *link) sendRegister(ctx context.Context, device wire.DeviceInfo) {
	r := l.register
	r.DeviceInfo = &device
	l.logFailed(l.publish(ctx, wire.KindRegister, r))
}

// sendHeartbeat carries the device only when more of it changed than what
// always does.
func (l *link) sendHeartbeat(ctx context.Context, device wire.DeviceInfo) {
	l.beats++
	l.beat(l.beats)
	h := wire.Heartbeat{N: l.beats, Use: l.use(ctx)}
	if l.news.rides(l.beats, device) {
		h.DeviceInfo = &device
	}
	l.logFailed(l.publish(ctx, wire.KindHeartbeat, h))
}

func (l *link) logFailed(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		l.log.Warn("message not sent", "error", err)
	}
}

// report sends a status.
func (l *link) report(ctx context.Context, s wire.Status) error {
	topic := wire.TaskTopic(l.robotID, s.TaskUID, wire.KindStatus)
	return l.sendIn(ctx, s.Traceparent, wire.KindStatus, topic, s, paho.PublishMethod_AsyncSend)
}

// logs sends a piece of a task's log.
func (l *link) logs(ctx context.Context, uid string, m wire.Logs) error {
	return l.send(ctx, wire.KindLogs, wire.TaskTopic(l.robotID, uid, wire.KindLogs), m, paho.PublishMethod_AsyncSend)
}

// publish sends what is about the robot, and returns once it is on its way.
func (l *link) publish(ctx context.Context, k wire.Kind, v any) error {
	return l.send(ctx, k, wire.RobotTopic(l.robotID, k), v, paho.PublishMethod_AsyncSend)
}

// goodbye tells the server that the agent leaves on purpose, and waits until
// the broker has it.
func (l *link) goodbye(ctx context.Context) error {
	topic := wire.RobotTopic(l.robotID, wire.KindPresence)
	return l.send(ctx, wire.KindPresence, topic, wire.Presence{Graceful: true}, paho.PublishMethod_Blocking)
}

func (l *link) send(ctx context.Context, k wire.Kind, topic string, v any, how paho.PublishMethod) error {
	return l.sendIn(ctx, "", k, topic, v, how)
}

// sendIn sends a message in a trace. Empty: it is in none.
func (l *link) sendIn(ctx context.Context, trace string, k wire.Kind, topic string, v any, how paho.PublishMethod) error {
	l.mu.Lock()
	client := l.client
	l.mu.Unlock()
	if client == nil {
		return errDown
	}
	payload, err := wire.Encode(v)
	if err != nil {
		return err
	}
	message := &paho.Publish{
		Topic: topic, QoS: wire.QoS, Payload: payload,
		Properties: &paho.PublishProperties{MessageExpiry: k.MessageExpiry()},
	}
	if trace != "" {
		message.Properties.User.Add(traceparent.Property, trace)
	}
	if _, err := client.PublishWithOptions(ctx, message, paho.PublishOptions{Method: how}); err != nil {
		return fmt.Errorf("MQTT publish: %w", err)
	}
	return nil
}

// isUp tells whether there is a connection.
func (l *link) isUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client != nil
}
