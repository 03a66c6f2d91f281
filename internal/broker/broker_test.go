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

	"k8s4r.io/k8s4r/internal/wire"
)

const patience = 10 * time.Second

func start(t *testing.T, listen string) *Broker {
	t.Helper()
	b := New(Config{Listen: listen})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, b) })
	return b
}

func stop(t *testing.T, b *Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func address(t *testing.T, b *Broker) string {
	t.Helper()
	u, err := url.Parse(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func dial(t *testing.T, b *Broker) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address(t, b))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// connect5 connects as our agents do. Closed tells when the broker hung up.
func connect5(t *testing.T, b *Broker, id string) (*paho.Client, <-chan *paho.Publish) {
	t.Helper()
	heard := make(chan *paho.Publish, 16)
	c := paho.NewClient(paho.ClientConfig{
		ClientID: id,
		Conn:     dial(t, b),
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			heard <- p.Packet
			return true, nil
		}},
	})
	if _, err := c.Connect(t.Context(), &paho.Connect{ClientID: id, KeepAlive: 30, CleanStart: true}); err != nil {
		t.Fatal(err)
	}
	return c, heard
}

func connect3(t *testing.T, b *Broker, id string) mqtt3.Client {
	t.Helper()
	c := mqtt3.NewClient(mqtt3.NewClientOptions().AddBroker("tcp://" + address(t, b)).SetClientID(id).SetCleanSession(true).SetAutoReconnect(false))
	await(t, c.Connect())
	t.Cleanup(func() { c.Disconnect(0) })
	return c
}

func await(t *testing.T, token mqtt3.Token) {
	t.Helper()
	if !token.WaitTimeout(patience) {
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

func hear(t *testing.T, from <-chan *paho.Publish) *paho.Publish {
	t.Helper()
	select {
	case p := <-from:
		return p
	case <-time.After(patience):
		t.Fatal("nothing arrived")
		return nil
	}
}

func TestBothProtocolVersionsSpeakToEachOther(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	five, heard := connect5(t, b, "five")
	subscribe(t, five, "k8s4r/#")
	await(t, connect3(t, b, "three").Publish("k8s4r/register", wire.QoS, false, "hello"))
	if got := string(hear(t, heard).Payload); got != "hello" {
		t.Errorf("heard %q", got)
	}
}

func TestTheLargestMessagePassesAndALargerOneEndsOnlyItsSender(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	five, heard := connect5(t, b, "five")
	subscribe(t, five, "k8s4r/#")

	gone := make(chan struct{})
	rude := mqtt3.NewClient(mqtt3.NewClientOptions().AddBroker("tcp://" + address(t, b)).SetClientID("rude").SetAutoReconnect(false).
		SetConnectionLostHandler(func(mqtt3.Client, error) { close(gone) }))
	await(t, rude.Connect())
	rude.Publish("k8s4r/robots/rude/register", wire.QoS, false, bytes.Repeat([]byte("x"), 1<<20))
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("the broker took a megabyte")
	}

	largest := bytes.Repeat([]byte("y"), wire.MaxPayload)
	await(t, connect3(t, b, "polite").Publish("k8s4r/robots/polite/register", wire.QoS, false, largest))
	if got := hear(t, heard); !bytes.Equal(got.Payload, largest) {
		t.Errorf("heard %d bytes on %s", len(got.Payload), got.Topic)
	}
}

func TestGarbageEndsOnlyItsSender(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	for _, garbage := range []string{"GET / HTTP/1.1\r\n\r\n", "\x10\xff\xff\xff\xff\x7f", "\x10\x00", strings.Repeat("\x00", 4096)} {
		conn := dial(t, b)
		if _, err := conn.Write([]byte(garbage)); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(connectWithin + patience))
		_, _ = conn.Read(make([]byte, 1))
	}
	connect3(t, b, "polite")
}

func TestStopDoesNotWaitForAClientThatNeverSpoke(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	conn := dial(t, b)
	connect3(t, b, "polite")
	stop(t, b)
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	if b.Ready(t.Context()) == nil {
		t.Error("ready although stopped")
	}
}

func TestABrokerStartsAgainOnTheSamePort(t *testing.T) {
	first := start(t, "127.0.0.1:0")
	at := address(t, first)
	if second := New(Config{Listen: at}); second.Start(t.Context()) == nil {
		t.Error("two brokers share a port")
	}
	stop(t, first)
	stop(t, first)
	connect3(t, start(t, at), "polite")
}

func TestURLOfEveryInterfaceCanBeDialled(t *testing.T) {
	if got := reachable("[::]:1883"); got != "localhost:1883" {
		t.Errorf("got %s", got)
	}
	if got := reachable("192.0.2.1:1883"); got != "192.0.2.1:1883" {
		t.Errorf("got %s", got)
	}
}

// The broker forgets a client by its id, after its connection has ended; one
// that is back in that moment must not be forgotten with it.
func TestAClientThatIsBackAtOnceStillHears(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	speaker, _ := connect5(t, b, "speaker")
	for i := range 300 {
		first := connect3(t, b, "flickers")
		go first.Disconnect(0)
		second := connect3(t, b, "flickers")
		heard := make(chan struct{}, 1)
		token := second.Subscribe("news", wire.QoS, func(mqtt3.Client, mqtt3.Message) {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
		if !token.WaitTimeout(patience) || token.Error() != nil {
			t.Fatalf("subscribe: %v", token.Error())
		}
		if _, err := speaker.Publish(t.Context(), &paho.Publish{Topic: "news", QoS: wire.QoS, Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-heard:
		case <-time.After(patience):
			t.Fatalf("deaf after reconnect %d", i+1)
		}
		second.Disconnect(0)
	}
}
