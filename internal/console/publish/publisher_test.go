package publish

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"
	"github.com/go-logr/logr"

	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
)

const patience = 30 * time.Second

// listen subscribes to all events and returns their topics and payloads.
func listen(t *testing.T, addr string) <-chan [2]string {
	t.Helper()
	received, ready := make(chan [2]string, 4096), make(chan struct{})
	m, err := autopaho.NewConnection(t.Context(), autopaho.ClientConfig{
		ServerUrls: []*url.URL{{Scheme: "mqtt", Host: addr}}, KeepAlive: 30,
		OnConnectionUp: func(m *autopaho.ConnectionManager, _ *paho.Connack) {
			if _, err := m.Subscribe(t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "k8s4r/events/#", QoS: 1}}}); err == nil {
				close(ready)
			}
		},
		ClientConfig: paho.ClientConfig{ClientID: "subscriber", OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			received <- [2]string{p.Packet.Topic, string(p.Packet.Payload)}
			return true, nil
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Disconnect(context.Background()) })
	select {
	case <-ready:
	case <-time.After(patience):
		t.Fatal("not subscribed in time")
	}
	return received
}

func next(t *testing.T, received <-chan [2]string) [2]string {
	t.Helper()
	select {
	case m := <-received:
		return m
	case <-time.After(patience):
		t.Fatal("no message received")
		return [2]string{}
	}
}

func change(kind row.Kind, name, job string, seq int) watch.Event {
	return watch.Event{Type: watch.Changed, Kind: kind, Namespace: "n", Name: name, Seq: uint64(seq), Row: &row.Row{Kind: kind, Name: name, Job: job}}
}

func refresh(job string, seq int) watch.Event {
	e := change(row.Tasks, "", job, seq)
	e.Refresh = 7
	return e
}

// All events must arrive in order on their topics, even if the connection breaks, and a slow
// publisher must send a resync.
func TestPublisher_DeliversInOrderAcrossDisconnects(t *testing.T) {
	addr := fakeserver.StartBroker(t).Addr
	received := listen(t, addr)
	way := faultnet.New(t, addr)
	p, err := New(Config{URL: "mqtt://" + way.Addr(), Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	const held = 2000
	ring := watch.NewRing("a", watch.Limits{Events: held})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.publishFrom(ctx, ring.Since("")) }()
	if m := next(t, received); m != [2]string{"k8s4r/events/lifecycle", `{"type":"started"}`} {
		t.Fatalf("the first message is %v", m)
	}
	for i, c := range []struct {
		e     watch.Event
		topic string
	}{
		{change(row.Jobs, "j", "j", 1), "k8s4r/events/n/jobs/j"},
		{change(row.Tasks, "j-t", "j", 2), "k8s4r/events/n/jobs/j/tasks/j-t"},
		{change(row.Tasks, "by-hand", "", 3), "k8s4r/events/n/tasks/by-hand"},
		{change(row.Pods, "v-0", "v", 4), "k8s4r/events/n/vcjobs/v/pods/v-0"},
		{change(row.Robots, "r", "", 5), "k8s4r/events/n/robots/r"},
		{refresh("j", 6), "k8s4r/events/n/jobs/j/tasks"},
	} {
		if err := ring.Publish(c.e); err != nil {
			t.Fatal(err)
		}
		if m := next(t, received); m[0] != c.topic || !strings.Contains(m[1], fmt.Sprintf(`"seq":"%d"`, i+1)) {
			t.Errorf("event of %s %s: message %v, want topic %s", c.e.Kind, c.e.Name, m, c.topic)
		}
	}
	for i := range 300 {
		if err := ring.Publish(change(row.Jobs, "j", "j", 100+i)); err != nil {
			t.Fatal(err)
		}
		if i == 100 {
			way.CutConnections()
		}
	}
	awaitAll(t, received, 6, 100, 400)
	for i := range 3 { // these messages are lost with the connection
		way.DropPackets()
		if err := ring.Publish(change(row.Jobs, "j", "j", 400+i)); err != nil {
			t.Fatal(err)
		}
		way.RestoreNetwork()
		awaitAll(t, received, 399+i, 400+i, 401+i)
	}
	way.RefuseConnections()
	for i := range 2 * held {
		if err := ring.Publish(change(row.Jobs, "j", "j", 1000+i)); err != nil {
			t.Fatal(err)
		}
	}
	way.RestoreNetwork()
	for m := next(t, received); m[1] != `{"type":"resync"}`; m = next(t, received) {
		if strings.Contains(m[1], fmt.Sprintf(`"seq":"%d"`, 999+2*held)) {
			t.Fatal("received the last event without a resync before it")
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for m := next(t, received); m[1] != `{"type":"stopped"}`; m = next(t, received) {
		continue
	}
}

func TestNew_RejectsInvalidURLs(t *testing.T) {
	for _, address := range []string{"", "broker", "mqtt://broker.example.com:1883", "ws://192.0.2.1", "::"} {
		if _, err := New(Config{URL: address}); err == nil {
			t.Errorf("%q is accepted", address)
		}
	}
	for _, address := range []string{"mqtts://broker.example.com:8883", "mqtt://localhost:1883", "mqtt://127.0.0.1:1883"} {
		if _, err := New(Config{URL: address}); err != nil {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// awaitAll receives the events with the numbers from want on, in order. The event last may be
// repeated.
func awaitAll(t *testing.T, received <-chan [2]string, last, want, end int) {
	t.Helper()
	for want < end {
		m := next(t, received)
		switch {
		case strings.Contains(m[1], fmt.Sprintf(`"seq":"%d"`, want)):
			want, last = want+1, want
		case strings.Contains(m[1], fmt.Sprintf(`"seq":"%d"`, last)), strings.Contains(m[1], `"lost"`): // a repeated event, and the will
		default:
			t.Fatalf("received %v, want %d", m, want)
		}
	}
}

// The client may be connected before OnConnectionUp is called. A message that is sent in between
// must be sent once.
func TestPublisher_WaitsForOnConnectionUp(t *testing.T) {
	addr := fakeserver.StartBroker(t).Addr
	received := listen(t, addr)
	p, err := New(Config{URL: "mqtt://" + addr, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	c, said := p.clientConfig(), make(chan struct{})
	up := c.OnConnectionUp
	c.OnConnectionUp = func(m *autopaho.ConnectionManager, a *paho.Connack) {
		<-said
		up(m, a)
	}
	m, err := autopaho.NewConnection(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.AwaitConnection(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		p.publishWithRetry(t.Context(), m, newStreamMessage("started", ""))
	}()
	// A publisher that does not wait would send repeatedly during these round trips to the
	// broker.
	for range 20 {
		if _, err := m.Publish(t.Context(), newStreamMessage("lost", "")); err != nil {
			t.Fatal(err)
		}
	}
	close(said)
	<-sent
	if _, err := m.Publish(t.Context(), newStreamMessage("stopped", "")); err != nil {
		t.Fatal(err)
	}
	started := 0
	for last := ""; last != `{"type":"stopped"}`; {
		last = next(t, received)[1]
		if last == `{"type":"started"}` {
			started++
		}
	}
	if started != 1 {
		t.Errorf("it is sent %d times", started)
	}
}
