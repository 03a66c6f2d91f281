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
	// time, sendQueue how many are queued behind each. After a restart of the broker all task
	// lists are sent before the first dispatch.
	senderCount = 128
	sendQueue   = 512

	keepAlive      = 30 // seconds
	connectTimeout = 10 * time.Second
	publishTimeout = 10 * time.Second
	reconnectPause = time.Second
)

var errDisconnected = errors.New("no connection to the MQTT broker")

// sessionExpiry is how long, in seconds, the broker queues messages of robots while no
// server is connected. Legacy agents send each message once.
const sessionExpiry = 10 * 60

// mqttClient is the connection to the broker. It reconnects forever and resumes the
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

	publishTimeout time.Duration // how long a publication waits for the broker's acknowledgement

	outageLogged atomic.Bool                // the current outage has been logged
	receivesRuns atomic.Bool                // the broker has accepted the subscription to runs
	queues       [senderCount]chan *message // pointers: an empty queue of messages takes 0.3 MB

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
	c := &mqttClient{url: u, clientID: clientID, tls: secure, publishTimeout: publishTimeout, log: log}
	c.connectionCtx, c.endConnection = context.WithCancel(context.Background())
	for i := range c.queues {
		c.queues[i] = make(chan *message, sendQueue)
	}
	return c, nil
}

// run keeps the connection until ctx ends, and then disconnects.
func (c *mqttClient) run(ctx context.Context) error {
	// The connection outlives ctx until it has sent DISCONNECT.
	connectionCtx, closeConnection := context.WithCancel(context.WithoutCancel(ctx))
	defer closeConnection()
	manager, err := autopaho.NewConnection(connectionCtx, c.clientConfig(ctx))
	if err != nil {
		return fmt.Errorf("connect to the MQTT broker: %w", err)
	}
	var wg sync.WaitGroup
	for _, q := range c.queues {
		wg.Go(func() { c.sendQueued(ctx, manager, q) })
	}
	<-ctx.Done()
	wg.Wait()
	c.nextConnection()
	disconnectCtx, cancel := context.WithTimeout(connectionCtx, connectTimeout)
	defer cancel()
	return manager.Disconnect(disconnectCtx)
}

func (c *mqttClient) clientConfig(ctx context.Context) autopaho.ClientConfig {
	config := autopaho.ClientConfig{
		ServerUrls:            []*url.URL{c.url},
		TlsCfg:                c.tlsConfigFor(c.url),
		KeepAlive:             keepAlive,
		ConnectTimeout:        connectTimeout,
		ReconnectBackoff:      autopaho.NewConstantBackoff(reconnectPause),
		SessionExpiryInterval: sessionExpiry,
		OnConnectionUp: func(m *autopaho.ConnectionManager, connack *paho.Connack) {
			c.outageLogged.Store(false)
			go c.subscribeAll(ctx, m, c.nextConnection(), connack.SessionPresent)
		},
		OnConnectionDown: func() bool {
			c.nextConnection()
			c.log.Info("lost the connection to the MQTT broker", "broker", c.url.Redacted())
			return true
		},
		OnConnectError: func(err error) {
			if !c.outageLogged.Swap(true) {
				c.log.Info("cannot reach the MQTT broker; retrying", "broker", c.url.Redacted(), "reason", err.Error())
			}
		},
		ClientConfig: paho.ClientConfig{
			ClientID: c.clientID,
			Session:  freshSession{state.NewInMemory()},
			OnPublishReceived: []func(paho.PublishReceived) (bool, error){
				func(p paho.PublishReceived) (bool, error) {
					c.receive(p.Packet.Topic, p.Packet.Payload, p.Packet.Properties.User.Get(traceparent.Property))
					return true, nil
				},
			},
		},
	}
	if u := c.url.User; u != nil {
		config.ConnectUsername = u.Username()
		if password, ok := u.Password(); ok {
			config.ConnectPassword = []byte(password)
		}
	}
	return config
}

// tlsConfigFor returns the TLS configuration with the host that the certificate must
// name.
func (c *mqttClient) tlsConfigFor(u *url.URL) *tls.Config {
	if c.tls == nil {
		return nil
	}
	config := c.tls.Clone()
	config.ServerName = u.Hostname()
	return config
}

// subscribeAll subscribes to all topics, and retries while this connection is the
// current one.
func (c *mqttClient) subscribeAll(ctx context.Context, m *autopaho.ConnectionManager, connection int64, backlog bool) {
	s := &paho.Subscribe{}
	for _, filter := range wire.ServerSubscriptions() {
		// No retained messages: a broker that lets robots retain theirs would send them
		// again with each connection, even after the robot was revoked.
		s.Subscriptions = append(s.Subscriptions, paho.SubscribeOptions{Topic: filter, QoS: wire.QoS, RetainHandling: 2})
	}
	for ctx.Err() == nil && c.isCurrent(connection) {
		suback, err := m.Subscribe(ctx, s)
		c.receivesRuns.Store(err == nil)
		if err != nil && isOnlyRefusedRuns(s, suback) {
			c.log.Info("the broker does not permit the topic of runs, so robots keep their records; permit it as docs/how-to/connect-a-broker.md shows", "topic", runsFilter)
			err = nil
		}
		if err == nil {
			c.log.Info("connected to the MQTT broker", "broker", c.url.Redacted())
			c.onSubscribed(connection, backlog)
			if c.markUp(connection) {
				c.onUp()
			}
			return
		}
		c.log.Error(err, "subscribe at the MQTT broker")
		select {
		case <-ctx.Done():
		case <-time.After(reconnectPause):
		}
	}
}

// runsFilter is the filter of the records of runs. The permissions that an earlier version wrote for an
// external broker lack it.
var runsFilter = wire.TaskTopic("+", "+", wire.KindRuns)

// isOnlyRefusedRuns reports whether the broker has accepted all subscriptions but that to runs.
func isOnlyRefusedRuns(s *paho.Subscribe, answer *paho.Suback) bool {
	if answer == nil || len(answer.Reasons) != len(s.Subscriptions) {
		return false
	}
	const firstError = 0x80
	for i, reason := range answer.Reasons {
		if reason >= firstError && s.Subscriptions[i].Topic != runsFilter {
			return false
		}
	}
	return true
}

// nextConnection records that a connection has begun or ended, and returns the number of
// the next one, which is not up until it is subscribed.
func (c *mqttClient) nextConnection() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connection++
	c.isUp = false
	c.endConnection()
	c.connectionCtx, c.endConnection = context.WithCancel(context.Background())
	return c.connection
}

func (c *mqttClient) isCurrent(connection int64) bool { return c.connectionContext(connection) != nil }

// connectionContext returns a context that ends with the connection, or nil if it is not
// the current one.
func (c *mqttClient) connectionContext(connection int64) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connection != connection {
		return nil
	}
	return c.connectionCtx
}

// markUp marks the connection as up, unless it has ended while it was subscribed: the
// server would then report ready without a connection.
func (c *mqttClient) markUp(connection int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isUp = c.connection == connection
	return c.isUp
}

// checkUp returns an error unless the client is connected and subscribed.
func (c *mqttClient) checkUp() error {
	if c.upConnection() == 0 {
		return errDisconnected
	}
	return nil
}

// upConnection returns the number of the connection that is up, or zero.
func (c *mqttClient) upConnection() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isUp {
		return 0
	}
	return c.connection
}

// currentConnection returns the number of the current connection, up or not.
func (c *mqttClient) currentConnection() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connection
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
func (c *mqttClient) enqueueMessage(robotID string, m message) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(robotID))
	select {
	case c.queues[h.Sum32()%senderCount] <- &m:
		return true
	default:
		return false
	}
}

func (c *mqttClient) sendQueued(ctx context.Context, m *autopaho.ConnectionManager, queue <-chan *message) {
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-queue:
			c.sendOne(ctx, m, msg)
		}
	}
}

// sendOne publishes a message. Errors are only logged: the server repeats everything, or
// is asked for it again.
func (c *mqttClient) sendOne(ctx context.Context, m *autopaho.ConnectionManager, msg *message) {
	connectionCtx := c.connectionContext(msg.connection)
	if connectionCtx == nil {
		return
	}
	// Without the connection's context, Publish would wait for an acknowledgement that
	// cannot come any more, and delay later messages after each reconnect.
	publishCtx, cancel := context.WithTimeout(connectionCtx, c.publishTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	_, err := m.Publish(publishCtx, &paho.Publish{
		Topic: msg.topic, QoS: wire.QoS, Retain: msg.retain, Payload: msg.payload,
		Properties: msg.publishProperties(),
	})
	if msg.trace.Sampled {
		c.tracer.Record(tracing.PublishSpan(msg.trace, msg.topic, msg.enqueuedAt, time.Now(), err))
	}
	if err != nil {
		c.log.V(1).Info("message was not sent", "topic", msg.topic, "reason", err.Error())
	}
}
