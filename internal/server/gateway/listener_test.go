package gateway

import (
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"k8s.io/apimachinery/pkg/util/uuid"

	"k8s4r.io/k8s4r/internal/protocol/trace"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// listener is an MQTT client that records all messages.
type listener struct {
	t      *testing.T
	client *paho.Client
	mu     sync.Mutex
	all    map[string][][]byte // by topic, in order
	traces []string            // the property traceparent of all messages
}

func (s *system) newListener(topics ...string) *listener {
	s.t.Helper()
	u, err := url.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	l := &listener{t: s.t, all: map[string][][]byte{}}
	l.client = paho.NewClient(paho.ClientConfig{Conn: conn, OnPublishReceived: []func(paho.PublishReceived) (bool, error){l.receive}})
	if _, err := l.client.Connect(s.t.Context(), &paho.Connect{ClientID: string(uuid.NewUUID()), KeepAlive: 60, CleanStart: true}); err != nil {
		s.t.Fatal(err)
	}
	for _, topic := range topics {
		if _, err := l.client.Subscribe(s.t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: topic, QoS: wire.QoS}}}); err != nil {
			s.t.Fatal(err)
		}
	}
	return l
}

func (l *listener) receive(p paho.PublishReceived) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[p.Packet.Topic] = append(l.all[p.Packet.Topic], p.Packet.Payload)
	l.traces = append(l.traces, p.Packet.Properties.User.Get(trace.Property))
	return true, nil
}

// lastPayload returns the last payload on a topic and the number of its messages.
func (l *listener) lastPayload(topic string) ([]byte, int) {
	all := l.payloads(topic)
	if len(all) == 0 {
		return nil, 0
	}
	return all[len(all)-1], len(all)
}

// traceparents returns the property of each message in order, or the empty string.
func (l *listener) traceparents() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.traces)
}

// payloads returns all payloads on a topic in order.
func (l *listener) payloads(topic string) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all[topic])
}

// allPayloads returns all payloads by topic.
func (l *listener) allPayloads() map[string][][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.all)
}

func (l *listener) publishPayload(topic string, payload []byte) {
	l.t.Helper()
	if _, err := l.client.Publish(l.t.Context(), &paho.Publish{Topic: topic, QoS: wire.QoS, Payload: payload}); err != nil {
		l.t.Fatal(err)
	}
}

// publishTooLarge sends a megabyte and waits until the broker closes the connection.
func (l *listener) publishTooLarge(topic string) {
	l.t.Helper()
	go func() {
		_, _ = l.client.Publish(l.t.Context(), &paho.Publish{Topic: topic, QoS: wire.QoS, Payload: make([]byte, 1<<20)})
	}()
	select {
	case <-l.client.Done():
	case <-time.After(waitTimeout):
		l.t.Errorf("%s: a megabyte was accepted", topic)
	}
}
