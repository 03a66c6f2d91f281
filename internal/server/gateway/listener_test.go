package bridge

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

	"k8s4r.io/k8s4r/internal/traceparent"
	"k8s4r.io/k8s4r/internal/wire"
)

// listener is a bare MQTT client that keeps what it hears.
type listener struct {
	t      *testing.T
	client *paho.Client
	mu     sync.Mutex
	all    map[string][][]byte // by topic, in order
	traces []string            // what came as traceparent, of all topics
}

func (s *system) listener(topics ...string) *listener {
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
	l.traces = append(l.traces, p.Packet.Properties.User.Get(traceparent.Property))
	return true, nil
}

// heard is the last payload on a topic, and how many there were.
func (l *listener) heard(topic string) ([]byte, int) {
	all := l.payloads(topic)
	if len(all) == 0 {
		return nil, 0
	}
	return all[len(all)-1], len(all)
}

// inTraces are the traces that messages came in, in order. Empty: in none.
func (l *listener) inTraces() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.traces)
}

// payloads are all that came on a topic, in order.
func (l *listener) payloads(topic string) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all[topic])
}

// everything is all that came, by topic.
func (l *listener) everything() map[string][][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.all)
}

func (l *listener) say(topic string, payload []byte) {
	l.t.Helper()
	if _, err := l.client.Publish(l.t.Context(), &paho.Publish{Topic: topic, QoS: wire.QoS, Payload: payload}); err != nil {
		l.t.Fatal(err)
	}
}

// shout sends a megabyte, and waits until the broker has hung up.
func (l *listener) shout(topic string) {
	l.t.Helper()
	go func() {
		_, _ = l.client.Publish(l.t.Context(), &paho.Publish{Topic: topic, QoS: wire.QoS, Payload: make([]byte, 1<<20)})
	}()
	select {
	case <-l.client.Done():
	case <-time.After(patience):
		l.t.Errorf("%s: a megabyte was taken", topic)
	}
}
