// Package publish publishes the console's events to an MQTT broker, for clients that prefer MQTT
// to the console's event stream.
package publish

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

	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	keepAlive      = 30 // seconds
	connectTimeout = 10 * time.Second
	publishTimeout = 10 * time.Second
	reconnectPause = time.Second
)

// Config is the configuration of a Publisher.
type Config struct {
	// URL of the broker, such as mqtts://host:8883. A plaintext connection is accepted only to
	// brokers on this machine.
	URL string
	// TLS authenticates the console as identity.ConsoleName. If nil, the broker must not require
	// a client certificate, and the system's CAs must trust its certificate.
	TLS *tls.Config
	// Store provides the events.
	Store *watch.Store
	Log   logr.Logger
}

// Publisher publishes the events of one ring reader. It waits for the acknowledgement of each
// event before it sends the next, so that events arrive in order and at least once. If it falls
// behind the ring, it publishes a resync.
type Publisher struct {
	url    *url.URL
	tls    *tls.Config
	store  *watch.Store
	log    logr.Logger
	silent atomic.Bool // the current outage is logged

	mu   sync.Mutex
	up   chan struct{}   // closed while connected
	life context.Context // ends with the current or last connection
	end  context.CancelFunc
}

// New creates a publisher. It returns an error if the URL is invalid or the connection would not
// be encrypted.
func New(c Config) (*Publisher, error) {
	u, err := wire.ParseBrokerURL(c.URL)
	if err != nil {
		return nil, err
	}
	if wire.IsPlaintext(u) {
		return nil, fmt.Errorf("the connection to the MQTT broker at %s would not be encrypted: use mqtts://", u.Redacted())
	}
	p := &Publisher{url: u, store: c.Store, log: c.Log, up: make(chan struct{})}
	if c.TLS != nil {
		p.tls = c.TLS.Clone()
		p.tls.ServerName = u.Hostname()
	}
	return p, nil
}

// Run publishes events from now on until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	select {
	case <-p.store.Synced():
	case <-ctx.Done():
		return nil
	}
	return p.publishFrom(ctx, p.store.Ring().Since(""))
}

// publishFrom publishes the events of reader.
func (p *Publisher) publishFrom(ctx context.Context, reader *watch.Reader) error {
	// The connection outlives ctx, so that the last message can be sent.
	life, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	m, err := autopaho.NewConnection(life, p.clientConfig())
	if err != nil {
		return fmt.Errorf("connect to the MQTT broker: %w", err)
	}
	p.publishWithRetry(ctx, m, newStreamMessage("started", ""))
	for {
		e, err := reader.Next(ctx)
		if err != nil {
			break
		}
		p.publishWithRetry(ctx, m, newMessage(e))
	}
	bye, cancel := context.WithTimeout(life, connectTimeout)
	defer cancel()
	_, _ = m.Publish(bye, newStreamMessage("stopped", "")) // best effort: the will reports a lost connection
	return m.Disconnect(bye)
}

func (p *Publisher) clientConfig() autopaho.ClientConfig {
	c := autopaho.ClientConfig{
		ServerUrls: []*url.URL{p.url}, TlsCfg: p.tls, KeepAlive: keepAlive, ConnectTimeout: connectTimeout,
		CleanStartOnInitialConnection: true,
		ReconnectBackoff:              autopaho.NewConstantBackoff(reconnectPause),
		OnConnectionUp: func(*autopaho.ConnectionManager, *paho.Connack) {
			p.silent.Store(false)
			p.markConnected()
			p.log.Info("Connected to the MQTT broker; publishing events", "broker", p.url.Redacted())
		},
		OnConnectionDown: func() bool {
			p.markDisconnected()
			return true
		},
		OnConnectError: func(err error) {
			if !p.silent.Swap(true) {
				p.log.Info("Cannot connect to the MQTT broker; events are held back", "broker", p.url.Redacted(), "reason", err.Error())
			}
		},
		ClientConfig: paho.ClientConfig{ClientID: identity.ConsoleName},
		WillMessage:  &paho.WillMessage{Topic: wire.TopicLifecycle, QoS: wire.QoS, Payload: newStreamMessage("lost", "").Payload},
	}
	if u := p.url.User; u != nil {
		c.ConnectUsername = u.Username()
		if password, ok := u.Password(); ok {
			c.ConnectPassword = []byte(password)
		}
	}
	return c
}

func (p *Publisher) markConnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life, p.end = context.WithCancel(context.Background())
	close(p.up)
}

func (p *Publisher) markDisconnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	p.up = make(chan struct{})
}

// awaitConnection blocks until the broker is connected and returns a context that ends with the
// connection. The client may report a connection before OnConnectionUp is called; a message sent
// with the context of the previous connection would fail and be sent twice.
func (p *Publisher) awaitConnection(ctx context.Context, m *autopaho.ConnectionManager) (context.Context, error) {
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

// publishWithRetry retries until the broker has acknowledged or refused the message, or ctx ends.
func (p *Publisher) publishWithRetry(ctx context.Context, m *autopaho.ConnectionManager, what *paho.Publish) {
	for ctx.Err() == nil {
		life, err := p.awaitConnection(ctx, m)
		if err != nil {
			return
		}
		// Without this context, Publish would keep waiting for an acknowledgement after the
		// connection ended.
		bounded, cancel := context.WithTimeout(life, publishTimeout)
		stop := context.AfterFunc(ctx, cancel)
		again := *what // the client may still use the message of a failed attempt
		answer, err := m.Publish(bounded, &again)
		stop()
		cancel()
		if err == nil {
			return
		}
		if answer != nil && answer.ReasonCode >= 0x80 { // the broker would refuse a retry, too
			p.log.Error(err, "The MQTT broker rejected an event; check that the console may publish to the topic", "topic", what.Topic)
			return
		}
	}
}

// newMessage returns the message for an event.
func newMessage(e *watch.Event) *paho.Publish {
	if e.Type == watch.Resync {
		return newStreamMessage(string(watch.Resync), e.Kind)
	}
	return &paho.Publish{Topic: Topic(e), QoS: wire.QoS, Payload: e.JSON}
}

// Topic returns the topic of an event. Objects of a job have topics below the job's topic.
func Topic(e *watch.Event) string {
	kind, name, ok := e.Row.Parent()
	switch {
	case e.Refresh > 0:
		return wire.EventTopic(e.Namespace, string(kind), name, string(e.Kind))
	case ok:
		return wire.EventTopic(e.Namespace, string(kind), name, string(e.Kind), e.Name)
	}
	return wire.EventTopic(e.Namespace, string(e.Kind), e.Name)
}

// newStreamMessage returns a message about the stream itself.
func newStreamMessage(what string, kind row.Kind) *paho.Publish {
	body, _ := json.Marshal(struct {
		Type string   `json:"type"`
		Kind row.Kind `json:"kind,omitempty"`
	}{what, kind}) // cannot fail for two strings
	return &paho.Publish{Topic: wire.TopicLifecycle, QoS: wire.QoS, Payload: body}
}
