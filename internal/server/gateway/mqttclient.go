package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/session/state"
	"github.com/go-logr/logr"

	"k8s4r.io/k8s4r/internal/platform/tracing"
	traceparent "k8s4r.io/k8s4r/internal/protocol/trace"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	// senderCount is how many messages may wait for the broker's acknowledgement at a
	// time, sendQueue how many are queued behind each.
	senderCount = 32
	sendQueue   = 2048

	keepAlive      = 30 // seconds
	connectTimeout = 10 * time.Second
	publishTimeout = 10 * time.Second
	reconnectPause = time.Second
)

var errDisconnected = errors.New("no connection to the MQTT broker")

// sessionExpiry is how long, in seconds, the broker queues messages of robots while no
// server is connected. Legacy agents send each message once.
const sessionExpiry = 10 * 60

// mqttClient is the connection to the broker. It reconnects for ever and resumes the
// session of the previous server, whose queued messages come first. It sets no Receive
// Maximum, because messages go into queues of the gateway at once.
type mqttClient struct {
	url      *url.URL
	clientID string
	tls      *tls.Config                                      // nil: the system's CAs
	receive  func(topic string, payload []byte, trace string) // must not block; trace as in traceparent.Property
	// Called after each connect: onSubscribed with the connection's number and whether
	// there may be queued messages, then onUp once checkUp returns nil.
	onSubscribed func(connection int64, backlog bool)
	onUp         func()
	log          logr.Logger

	tracer *tracing.Tracer // of published messages; nil: no traces

	outageLogged atomic.Bool // the current outage has been logged
	queues       [senderCount]chan message

	mu            sync.Mutex
	connection    int64 // counts connections, and their ends
	isUp          bool
	connectionCtx context.Context // canceled when the connection changes
	endConnection context.CancelFunc
}

type message struct {
	topic   string
	payload []byte
	retain  bool
	expiry  *uint32 // at the broker, in seconds; nil: never
	// connection for which it was created. On a later one it would precede the task
	// lists and the queued messages of robots.
	connection int64
	// trace of the attempt, and when the message was queued. Zero: no trace.
	trace      traceparent.Context
	enqueuedAt time.Time
}

// publishProperties returns the properties of MQTT 5.
func (m message) publishProperties() *paho.PublishProperties {
	p := &paho.PublishProperties{MessageExpiry: m.expiry}
	if m.trace.Sampled {
		p.User.Add(traceparent.Property, m.trace.String())
	}
	return p
}

func newMQTTClient(rawURL, clientID string, secure *tls.Config, log logr.Logger) (*mqttClient, error) {
	u, err := wire.ParseBrokerURL(rawURL)
	if err != nil {
		return nil, err
	}
	l := &mqttClient{url: u, clientID: clientID, tls: secure, log: log}
	l.connectionCtx, l.endConnection = context.WithCancel(context.Background())
	for i := range l.queues {
		l.queues[i] = make(chan message, sendQueue)
	}
	return l, nil
}

// run keeps the connection until ctx ends, and then disconnects.
func (l *mqttClient) run(ctx context.Context) error {
	// The connection outlives ctx until it has sent DISCONNECT.
	life, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	manager, err := autopaho.NewConnection(life, l.clientConfig(ctx))
	if err != nil {
		return fmt.Errorf("connect to the MQTT broker: %w", err)
	}
	var wg sync.WaitGroup
	for _, q := range l.queues {
		wg.Go(func() { l.sendQueued(ctx, manager, q) })
	}
	<-ctx.Done()
	wg.Wait()
	l.nextConnection()
	bye, cancel := context.WithTimeout(life, connectTimeout)
	defer cancel()
	return manager.Disconnect(bye)
}

func (l *mqttClient) clientConfig(ctx context.Context) autopaho.ClientConfig {
	c := autopaho.ClientConfig{
		ServerUrls:            []*url.URL{l.url},
		TlsCfg:                l.tlsConfigFor(l.url),
		KeepAlive:             keepAlive,
		ConnectTimeout:        connectTimeout,
		ReconnectBackoff:      autopaho.NewConstantBackoff(reconnectPause),
		SessionExpiryInterval: sessionExpiry,
		OnConnectionUp: func(m *autopaho.ConnectionManager, c *paho.Connack) {
			l.outageLogged.Store(false)
			go l.subscribeAll(ctx, m, l.nextConnection(), c.SessionPresent)
		},
		OnConnectionDown: func() bool {
			l.nextConnection()
			l.log.Info("lost the connection to the MQTT broker", "broker", l.url.Redacted())
			return true
		},
		OnConnectError: func(err error) {
			if !l.outageLogged.Swap(true) {
				l.log.Info("cannot reach the MQTT broker; retrying", "broker", l.url.Redacted(), "reason", err.Error())
			}
		},
		ClientConfig: paho.ClientConfig{
			ClientID: l.clientID,
			Session:  freshSession{state.NewInMemory()},
			OnPublishReceived: []func(paho.PublishReceived) (bool, error){
				func(p paho.PublishReceived) (bool, error) {
					l.receive(p.Packet.Topic, p.Packet.Payload, p.Packet.Properties.User.Get(traceparent.Property))
					return true, nil
				},
			},
		},
	}
	if u := l.url.User; u != nil {
		c.ConnectUsername = u.Username()
		if password, ok := u.Password(); ok {
			c.ConnectPassword = []byte(password)
		}
	}
	return c
}

// tlsConfigFor returns the TLS configuration with the host that the certificate must
// name.
func (l *mqttClient) tlsConfigFor(u *url.URL) *tls.Config {
	if l.tls == nil {
		return nil
	}
	c := l.tls.Clone()
	c.ServerName = u.Hostname()
	return c
}

// subscribeAll subscribes to all topics, and retries while this connection is the
// current one.
func (l *mqttClient) subscribeAll(ctx context.Context, m *autopaho.ConnectionManager, connection int64, backlog bool) {
	s := &paho.Subscribe{}
	for _, filter := range wire.ServerSubscriptions() {
		// No retained messages: a broker that lets robots retain theirs would send them
		// again with each connection, even after the robot was revoked.
		s.Subscriptions = append(s.Subscriptions, paho.SubscribeOptions{Topic: filter, QoS: wire.QoS, RetainHandling: 2})
	}
	for ctx.Err() == nil && l.isCurrent(connection) {
		_, err := m.Subscribe(ctx, s)
		if err == nil {
			l.log.Info("connected to the MQTT broker", "broker", l.url.Redacted())
			l.onSubscribed(connection, backlog)
			if l.markUp(connection) {
				l.onUp()
			}
			return
		}
		l.log.Error(err, "subscribe at the MQTT broker")
		select {
		case <-ctx.Done():
		case <-time.After(reconnectPause):
		}
	}
}

// nextConnection records that a connection has begun or ended, and returns the number of
// the next one, which is not up until it is subscribed.
func (l *mqttClient) nextConnection() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connection++
	l.isUp = false
	l.endConnection()
	l.connectionCtx, l.endConnection = context.WithCancel(context.Background())
	return l.connection
}

func (l *mqttClient) isCurrent(connection int64) bool { return l.connectionContext(connection) != nil }

// connectionContext returns a context that ends with the connection, or nil if it is not
// the current one.
func (l *mqttClient) connectionContext(connection int64) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connection != connection {
		return nil
	}
	return l.connectionCtx
}

// markUp marks the connection as up, unless it has ended while it was subscribed: the
// server would then report ready without a connection.
func (l *mqttClient) markUp(connection int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isUp = l.connection == connection
	return l.isUp
}

// checkUp returns an error unless the client is connected and subscribed.
func (l *mqttClient) checkUp() error {
	if l.upConnection() == 0 {
		return errDisconnected
	}
	return nil
}

// upConnection returns the number of the connection that is up, or zero.
func (l *mqttClient) upConnection() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isUp {
		return 0
	}
	return l.connection
}

// currentConnection returns the number of the current connection, up or not.
func (l *mqttClient) currentConnection() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connection
}

// freshSession discards the client's side of a session with each connection. A dispatch
// that the client resends by itself could reach a legacy agent that has run the task and
// forgotten it.
type freshSession struct{ *state.State }

// ConAckReceived starts a connection without state of the previous one.
func (f freshSession) ConAckReceived(conn io.Writer, c *packets.Connect, a *packets.Connack) error {
	fresh := *a
	fresh.SessionPresent = false
	return f.State.ConAckReceived(conn, c, &fresh)
}

// enqueueMessage queues a message for its connection, and reports whether there was
// room. Messages of one robot keep their order.
func (l *mqttClient) enqueueMessage(robotID string, m message) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(robotID))
	select {
	case l.queues[h.Sum32()%senderCount] <- m:
		return true
	default:
		return false
	}
}

func (l *mqttClient) sendQueued(ctx context.Context, m *autopaho.ConnectionManager, queue <-chan message) {
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-queue:
			l.sendOne(ctx, m, msg)
		}
	}
}

// sendOne publishes a message. Errors are only logged: the server repeats everything, or
// is asked for it again.
func (l *mqttClient) sendOne(ctx context.Context, m *autopaho.ConnectionManager, msg message) {
	life := l.connectionContext(msg.connection)
	if life == nil {
		return
	}
	// Without the connection's context, Publish would wait for an acknowledgement that
	// cannot come any more, and delay later messages after each reconnect.
	onIt, cancel := context.WithTimeout(life, publishTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	_, err := m.Publish(onIt, &paho.Publish{
		Topic: msg.topic, QoS: wire.QoS, Retain: msg.retain, Payload: msg.payload,
		Properties: msg.publishProperties(),
	})
	if msg.trace.Sampled {
		l.tracer.Record(tracing.PublishSpan(msg.trace, msg.topic, msg.enqueuedAt, time.Now(), err))
	}
	if err != nil {
		l.log.V(1).Info("message was not sent", "topic", msg.topic, "reason", err.Error())
	}
}
