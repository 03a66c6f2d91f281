// Package mqtt tells at an MQTT broker what happens, for those who would rather subscribe to
// topics than follow a stream of the console.
package mqtt

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"
	"github.com/go-logr/logr"

	"k8s4r.io/k8s4r/internal/events"
	"k8s4r.io/k8s4r/internal/events/row"
	"k8s4r.io/k8s4r/internal/identity"
	"k8s4r.io/k8s4r/internal/wire"
)

const (
	keepAlive      = 30 // seconds
	connectTimeout = 10 * time.Second
	publishTimeout = 10 * time.Second
	reconnectPause = time.Second
)

// Config of a Publisher.
type Config struct {
	// URL of the broker: mqtts://host:8883. Plaintext is for brokers on this machine only: what
	// runs where is nobody's business on the way.
	URL string
	// TLS proves the console to the broker, as identity.Console. Nil: a broker without TLS, or
	// one that asks for no certificate and that this system trusts.
	TLS *tls.Config
	// World whose events are published.
	World *events.World
	Log   logr.Logger
}

// Publisher is one reader of the ring, which waits for the broker to have each event before it
// sends the next: they come in order, at least once. One that falls off the ring says resync.
type Publisher struct {
	url    *url.URL
	tls    *tls.Config
	world  *events.World
	log    logr.Logger
	silent atomic.Bool // the present outage was logged

	mu   sync.Mutex
	up   chan struct{}   // closed while there is a connection
	life context.Context // of the present connection, or of the last one
	end  context.CancelFunc
}

// New is a publisher that has yet to Run. The error is about the URL.
func New(c Config) (*Publisher, error) {
	u, err := wire.Broker(c.URL)
	if err != nil {
		return nil, err
	}
	if wire.Plaintext(u) {
		return nil, fmt.Errorf("the MQTT broker at %s is reached without TLS: whoever is on the way there can read and forge what is told; name it by mqtts://", u.Redacted())
	}
	p := &Publisher{url: u, world: c.World, log: c.Log, up: make(chan struct{})}
	if c.TLS != nil {
		p.tls = c.TLS.Clone()
		p.tls.ServerName = u.Hostname()
	}
	return p, nil
}

// Run publishes what happens from now on, until the context ends.
func (p *Publisher) Run(ctx context.Context) error {
	select {
	case <-p.world.Synced():
	case <-ctx.Done():
		return nil
	}
	return p.follow(ctx, p.world.Ring().Since(""))
}

// follow publishes what a reader is told.
func (p *Publisher) follow(ctx context.Context, reader *events.Reader) error {
	// The connection outlives ctx by the time that it takes to say goodbye.
	life, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	m, err := autopaho.NewConnection(life, p.config())
	if err != nil {
		return fmt.Errorf("connect to the MQTT broker: %w", err)
	}
	p.send(ctx, m, lifecycle("started", ""))
	for {
		e, err := reader.Next(ctx)
		if err != nil {
			break
		}
		p.send(ctx, m, message(e))
	}
	bye, cancel := context.WithTimeout(life, connectTimeout)
	defer cancel()
	_, _ = m.Publish(bye, lifecycle("stopped", "")) // nobody to tell that nobody was told
	return m.Disconnect(bye)
}

func (p *Publisher) config() autopaho.ClientConfig {
	c := autopaho.ClientConfig{
		ServerUrls: []*url.URL{p.url}, TlsCfg: p.tls, KeepAlive: keepAlive, ConnectTimeout: connectTimeout,
		CleanStartOnInitialConnection: true,
		ReconnectBackoff:              autopaho.NewConstantBackoff(reconnectPause),
		OnConnectionUp: func(*autopaho.ConnectionManager, *paho.Connack) {
			p.silent.Store(false)
			p.connected()
			p.log.Info("Events go to the MQTT broker", "broker", p.url.Redacted())
		},
		OnConnectionDown: func() bool {
			p.disconnected()
			return true
		},
		OnConnectError: func(err error) {
			if !p.silent.Swap(true) {
				p.log.Info("Cannot reach the MQTT broker; events wait", "broker", p.url.Redacted(), "reason", err.Error())
			}
		},
		ClientConfig: paho.ClientConfig{ClientID: identity.Console},
		WillMessage:  &paho.WillMessage{Topic: wire.TopicLifecycle, QoS: wire.QoS, Payload: lifecycle("lost", "").Payload},
	}
	if u := p.url.User; u != nil {
		c.ConnectUsername = u.Username()
		if password, ok := u.Password(); ok {
			c.ConnectPassword = []byte(password)
		}
	}
	return c
}

func (p *Publisher) connected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life, p.end = context.WithCancel(context.Background())
	close(p.up)
}

func (p *Publisher) disconnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	p.up = make(chan struct{})
}

// connection waits for one, and ends with it. The client has one a moment before it says so
// here, and what is sent with the life of the last one is sent, fails, and is sent again.
func (p *Publisher) connection(ctx context.Context, m *autopaho.ConnectionManager) (context.Context, error) {
	if err := m.AwaitConnection(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	up := p.up
	p.mu.Unlock()
	select {
	case <-up:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life, nil
}

// send tries until the broker has the message, or ctx ends.
func (p *Publisher) send(ctx context.Context, m *autopaho.ConnectionManager, what *paho.Publish) {
	for ctx.Err() == nil {
		life, err := p.connection(ctx, m)
		if err != nil {
			return
		}
		// The client would go on waiting for what it sent on a connection that has ended.
		bounded, cancel := context.WithTimeout(life, publishTimeout)
		stop := context.AfterFunc(ctx, cancel)
		again := *what // the client may still hold the one that it could not send
		answer, err := m.Publish(bounded, &again)
		stop()
		cancel()
		if err == nil {
			return
		}
		if answer != nil && answer.ReasonCode >= 0x80 { // asking again brings the same answer
			p.log.Error(err, "The MQTT broker refuses events; has the console the right to publish them?", "topic", what.Topic)
			return
		}
	}
}

// message of an event.
func message(e *events.Event) *paho.Publish {
	if e.Type == events.Resync {
		return lifecycle(string(events.Resync), e.Kind)
	}
	return &paho.Publish{Topic: Topic(e), QoS: wire.QoS, Payload: e.JSON}
}

// Topic of a change: what belongs to a job is below it.
func Topic(e *events.Event) string {
	kind, name, ok := e.Row.Parent()
	switch {
	case e.Refresh > 0:
		return wire.EventTopic(e.Namespace, string(kind), name, string(e.Kind))
	case ok:
		return wire.EventTopic(e.Namespace, string(kind), name, string(e.Kind), e.Name)
	}
	return wire.EventTopic(e.Namespace, string(e.Kind), e.Name)
}

// lifecycle says something about the stream itself.
func lifecycle(what string, kind row.Kind) *paho.Publish {
	body, _ := json.Marshal(struct {
		Type string   `json:"type"`
		Kind row.Kind `json:"kind,omitempty"`
	}{what, kind}) // two strings
	return &paho.Publish{Topic: wire.TopicLifecycle, QoS: wire.QoS, Payload: body}
}
