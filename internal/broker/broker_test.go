package broker

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	mqtt3 "github.com/eclipse/paho.mqtt.golang"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const waitTimeout = 10 * time.Second

func start(t *testing.T, listen string) *Broker {
	t.Helper()
	return startConfig(t, Config{Listen: listen})
}

func startConfig(t *testing.T, c Config) *Broker {
	t.Helper()
	b := New(c)
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, b) })
	return b
}

func stop(t *testing.T, b *Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if err := b.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func listenAddress(t *testing.T, b *Broker) string {
	t.Helper()
	u, err := url.Parse(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func dial(t *testing.T, b *Broker) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", listenAddress(t, b))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// connect5 connects as the agent does. The returned channel receives the messages.
func connect5(t *testing.T, b *Broker, id string) (*paho.Client, <-chan *paho.Publish) {
	t.Helper()
	received := make(chan *paho.Publish, 16)
	c := paho.NewClient(paho.ClientConfig{
		ClientID: id,
		Conn:     dial(t, b),
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			received <- p.Packet
			return true, nil
		}},
	})
	if _, err := c.Connect(t.Context(), &paho.Connect{ClientID: id, KeepAlive: 30, CleanStart: true}); err != nil {
		t.Fatal(err)
	}
	return c, received
}

func connect3(t *testing.T, b *Broker, id string) mqtt3.Client {
	t.Helper()
	c := mqtt3.NewClient(mqtt3.NewClientOptions().AddBroker("tcp://" + listenAddress(t, b)).SetClientID(id).SetCleanSession(true).SetAutoReconnect(false))
	awaitToken(t, c.Connect())
	t.Cleanup(func() { c.Disconnect(0) })
	return c
}

func awaitToken(t *testing.T, token mqtt3.Token) {
	t.Helper()
	if !token.WaitTimeout(waitTimeout) {
		t.Fatal("the broker did not answer")
	}
	if err := token.Error(); err != nil {
		t.Fatal(err)
	}
}

func subscribe(t *testing.T, c *paho.Client, filter string) {
	t.Helper()
	if _, err := c.Subscribe(t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: filter, QoS: wire.QoS}}}); err != nil {
		t.Fatal(err)
	}
}

func receiveMessage(t *testing.T, from <-chan *paho.Publish) *paho.Publish {
	t.Helper()
	select {
	case p := <-from:
		return p
	case <-time.After(waitTimeout):
		t.Fatal("no message was received")
		return nil
	}
}

func TestBroker_ConnectsBothProtocolVersions(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	five, received := connect5(t, b, "five")
	subscribe(t, five, "k8s4r/#")
	awaitToken(t, connect3(t, b, "three").Publish("k8s4r/register", wire.QoS, false, "hello"))
	if got := string(receiveMessage(t, received).Payload); got != "hello" {
		t.Errorf("received %q", got)
	}
}

func TestBroker_LimitsMessageSize(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	five, received := connect5(t, b, "five")
	subscribe(t, five, "k8s4r/#")

	gone := make(chan struct{})
	rude := mqtt3.NewClient(mqtt3.NewClientOptions().AddBroker("tcp://" + listenAddress(t, b)).SetClientID("rude").SetAutoReconnect(false).
		SetConnectionLostHandler(func(mqtt3.Client, error) { close(gone) }))
	awaitToken(t, rude.Connect())
	rude.Publish("k8s4r/robots/rude/register", wire.QoS, false, bytes.Repeat([]byte("x"), 1<<20))
	select {
	case <-gone:
	case <-time.After(waitTimeout):
		t.Fatal("the broker accepted a megabyte")
	}

	largest := bytes.Repeat([]byte("y"), wire.MaxPayload)
	awaitToken(t, connect3(t, b, "polite").Publish("k8s4r/robots/polite/register", wire.QoS, false, largest))
	if got := receiveMessage(t, received); !bytes.Equal(got.Payload, largest) {
		t.Errorf("received %d bytes on %s", len(got.Payload), got.Topic)
	}
}

func TestBroker_GarbageDoesNotAffectOthers(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	for _, garbage := range []string{"GET / HTTP/1.1\r\n\r\n", "\x10\xff\xff\xff\xff\x7f", "\x10\x00", strings.Repeat("\x00", 4096)} {
		conn := dial(t, b)
		if _, err := conn.Write([]byte(garbage)); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(connectTimeout + waitTimeout))
		_, _ = conn.Read(make([]byte, 1))
	}
	connect3(t, b, "polite")
}

func TestBroker_StopDoesNotWaitForIdleConnection(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	conn := dial(t, b)
	connect3(t, b, "polite")
	stop(t, b)
	_ = conn.SetReadDeadline(time.Now().Add(waitTimeout))
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	if b.Ready(t.Context()) == nil {
		t.Error("ready after Stop")
	}
}

func TestBroker_RestartsOnSamePort(t *testing.T) {
	first := start(t, "127.0.0.1:0")
	at := listenAddress(t, first)
	if second := New(Config{Listen: at}); second.Start(t.Context()) == nil {
		t.Error("two brokers share a port")
	}
	stop(t, first)
	stop(t, first)
	connect3(t, start(t, at), "polite")
}

func TestDialableAddress_ReplacesUnspecifiedAddress(t *testing.T) {
	if got := dialableAddress("[::]:1883"); got != "localhost:1883" {
		t.Errorf("got %s", got)
	}
	if got := dialableAddress("192.0.2.1:1883"); got != "192.0.2.1:1883" {
		t.Errorf("got %s", got)
	}
}

// The broker removes a client by its id after its connection has ended. A client that has
// reconnected meanwhile must not be removed with it.
func TestBroker_DeliversAfterImmediateReconnect(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	publisher, _ := connect5(t, b, "publisher")
	for i := range 300 {
		first := connect3(t, b, "flickers")
		go first.Disconnect(0)
		second := connect3(t, b, "flickers")
		received := make(chan struct{}, 1)
		token := second.Subscribe("topic", wire.QoS, func(mqtt3.Client, mqtt3.Message) {
			select {
			case received <- struct{}{}:
			default:
			}
		})
		if !token.WaitTimeout(waitTimeout) || token.Error() != nil {
			t.Fatalf("subscribe: %v", token.Error())
		}
		if _, err := publisher.Publish(t.Context(), &paho.Publish{Topic: "topic", QoS: wire.QoS, Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-received:
		case <-time.After(waitTimeout):
			t.Fatalf("no message after reconnect %d", i+1)
		}
		second.Disconnect(0)
	}
}
