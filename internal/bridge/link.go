package bridge

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

	"k8s4r.io/k8s4r/internal/traceparent"
	"k8s4r.io/k8s4r/internal/tracing"
	"k8s4r.io/k8s4r/internal/wire"
)

const (
	// senders is the number of messages that may wait for the broker's
	// acknowledgement at a time, and sendQueue how many wait behind each.
	senders   = 32
	sendQueue = 2048

	keepAlive      = 30 // seconds
	connectTimeout = 10 * time.Second
	publishTimeout = 10 * time.Second
	reconnectPause = time.Second
)

var errDown = errors.New("no connection to the MQTT broker")

// sessionExpiry is how long, in seconds, the broker keeps what robots say while
// no server is connected. Document agents say each thing once.
const sessionExpiry = 10 * 60

// link is the server's connection to the broker, whichever that is. It
// connects again for ever, and takes over the session of the server before it:
// what robots said meanwhile comes first. What it sends itself does not outlive
// a connection: that is repeated by whoever needs it.
//
// It sets no Receive Maximum: whatever comes goes into queues of the bridge's
// own at once.
type link struct {
	url      *url.URL
	clientID string
	tls      *tls.Config                                      // nil: as the system trusts
	receive  func(topic string, payload []byte, trace string) // must not block; trace as in traceparent.Property
	// After each connect: subscribed, told its number and whether there may be
	// a backlog, and then up, when ready says so.
	subscribed func(connection int64, backlog bool)
	up         func()
	log        logr.Logger

	tracer *tracing.Tracer // of what is published; nil: nobody traces

	silent atomic.Bool // the present outage has been logged
	queues [senders]chan message

	mu      sync.Mutex
	connect int64 // counts connections, and their ends
	isUp    bool
	life    context.Context // ends when the next is counted
	end     context.CancelFunc
}

type message struct {
	topic   string
	payload []byte
	retain  bool
	expiry  *uint32 // at the broker, in seconds; nil: never
	// connection that stood when it was decided on. On a later one it would come
	// before the lists, and before what robots have said meanwhile.
	connection int64
	// trace of the attempt that it dispatches, and when it was handed over. Zero: it is in none.
	trace  traceparent.Context
	handed time.Time
}

// properties are those of MQTT 5.
func (m message) properties() *paho.PublishProperties {
	p := &paho.PublishProperties{MessageExpiry: m.expiry}
	if m.trace.Sampled {
		p.User.Add(traceparent.Property, m.trace.String())
	}
	return p
}

func newLink(rawURL, clientID string, secure *tls.Config, log logr.Logger) (*link, error) {
	u, err := wire.Broker(rawURL)
	if err != nil {
		return nil, err
	}
	l := &link{url: u, clientID: clientID, tls: secure, log: log}
	l.life, l.end = context.WithCancel(context.Background())
	for i := range l.queues {
		l.queues[i] = make(chan message, sendQueue)
	}
	return l, nil
}

// run keeps the connection until ctx ends, then closes it in order.
func (l *link) run(ctx context.Context) error {
	// The connection outlives ctx by the time that it takes to say goodbye.
	life, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	manager, err := autopaho.NewConnection(life, l.config(ctx))
	if err != nil {
		return fmt.Errorf("connect to the MQTT broker: %w", err)
	}
	var wg sync.WaitGroup
	for _, q := range l.queues {
		wg.Go(func() { l.send(ctx, manager, q) })
	}
	<-ctx.Done()
	wg.Wait()
	l.connectionChanged()
	bye, cancel := context.WithTimeout(life, connectTimeout)
	defer cancel()
	return manager.Disconnect(bye)
}

func (l *link) config(ctx context.Context) autopaho.ClientConfig {
	c := autopaho.ClientConfig{
		ServerUrls:            []*url.URL{l.url},
		TlsCfg:                l.tlsOf(l.url),
		KeepAlive:             keepAlive,
		ConnectTimeout:        connectTimeout,
		ReconnectBackoff:      autopaho.NewConstantBackoff(reconnectPause),
		SessionExpiryInterval: sessionExpiry,
		OnConnectionUp: func(m *autopaho.ConnectionManager, c *paho.Connack) {
			l.silent.Store(false)
			go l.subscribe(ctx, m, l.connectionChanged(), c.SessionPresent)
		},
		OnConnectionDown: func() bool {
			l.connectionChanged()
			l.log.Info("lost the MQTT broker", "broker", l.url.Redacted())
			return true
		},
		OnConnectError: func(err error) {
			if !l.silent.Swap(true) {
				l.log.Info("cannot reach the MQTT broker; trying on", "broker", l.url.Redacted(), "reason", err.Error())
			}
		},
		ClientConfig: paho.ClientConfig{
			ClientID: l.clientID,
			Session:  forgetful{state.NewInMemory()},
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

// tlsOf names the host that a certificate must be for.
func (l *link) tlsOf(u *url.URL) *tls.Config {
	if l.tls == nil {
		return nil
	}
	c := l.tls.Clone()
	c.ServerName = u.Hostname()
	return c
}

// subscribe listens on all topics, and tries again for as long as this
// connection is the one that stands.
func (l *link) subscribe(ctx context.Context, m *autopaho.ConnectionManager, connection int64, backlog bool) {
	s := &paho.Subscribe{}
	for _, filter := range wire.ServerSubscriptions() {
		// No retained messages: only the server retains any, and on no topic that it
		// hears. What a robot had retained at a broker that lets it would come again
		// with each connection, even after the robot was revoked.
		s.Subscriptions = append(s.Subscriptions, paho.SubscribeOptions{Topic: filter, QoS: wire.QoS, RetainHandling: 2})
	}
	for ctx.Err() == nil && l.stands(connection) {
		_, err := m.Subscribe(ctx, s)
		if err == nil {
			l.log.Info("connected to the MQTT broker", "broker", l.url.Redacted())
			l.subscribed(connection, backlog)
			if l.setUp(connection) {
				l.up()
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

// connectionChanged takes in that a connection has begun or ended, and returns
// the number of what follows. Nothing is up until it is subscribed.
func (l *link) connectionChanged() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connect++
	l.isUp = false
	l.end()
	l.life, l.end = context.WithCancel(context.Background())
	return l.connect
}

func (l *link) stands(connection int64) bool { return l.lifeOf(connection) != nil }

// lifeOf ends with the connection. Nil: it is not the present one.
func (l *link) lifeOf(connection int64) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connect != connection {
		return nil
	}
	return l.life
}

// setUp makes the link ready, unless the connection has ended while it was
// being subscribed: a server that calls itself ready then says nothing to
// anybody until it is connected again, and nobody knows.
func (l *link) setUp(connection int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isUp = l.connect == connection
	return l.isUp
}

// ready returns nil while the link stands.
func (l *link) ready() error {
	if l.upAs() == 0 {
		return errDown
	}
	return nil
}

// upAs is the number of the connection that is up. Zero: none is.
func (l *link) upAs() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isUp {
		return 0
	}
	return l.connect
}

// current is the number of the present connection, up or not.
func (l *link) current() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connect
}

// forgetful is our side of a session: there is none. A dispatch that was sent
// again by the client's own memory after a reconnect would reach a document
// agent that has run the task and forgotten it meanwhile.
type forgetful struct{ *state.State }

// ConAckReceived begins a connection without anything of the one before.
func (f forgetful) ConAckReceived(conn io.Writer, c *packets.Connect, a *packets.Connack) error {
	fresh := *a
	fresh.SessionPresent = false
	return f.State.ConAckReceived(conn, c, &fresh)
}

// publish hands a message over for its connection, and tells whether there was
// room for it. Messages of one robot keep their order.
func (l *link) publish(robotID string, m message) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(robotID))
	select {
	case l.queues[h.Sum32()%senders] <- m:
		return true
	default:
		return false
	}
}

func (l *link) send(ctx context.Context, m *autopaho.ConnectionManager, queue <-chan message) {
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-queue:
			l.sendOne(ctx, m, msg)
		}
	}
}

// sendOne gives one message to the broker. A failure needs no care here: all
// that the server sends is repeated, or is asked for again.
func (l *link) sendOne(ctx context.Context, m *autopaho.ConnectionManager, msg message) {
	life := l.lifeOf(msg.connection)
	if life == nil {
		return
	}
	// The client would go on waiting for what it sent on a connection that has ended,
	// and nobody will acknowledge: each break held up for as long what came after it.
	onIt, cancel := context.WithTimeout(life, publishTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	_, err := m.Publish(onIt, &paho.Publish{
		Topic: msg.topic, QoS: wire.QoS, Retain: msg.retain, Payload: msg.payload,
		Properties: msg.properties(),
	})
	if msg.trace.Sampled {
		l.tracer.Record(tracing.Published(msg.trace, msg.topic, msg.handed, time.Now(), err))
	}
	if err != nil {
		l.log.V(1).Info("message was not sent", "topic", msg.topic, "reason", err.Error())
	}
}
