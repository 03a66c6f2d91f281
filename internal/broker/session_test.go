package broker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	mochi "github.com/mochi-mqtt/server/v2/packets"

	"k8s4r.io/k8s4r/internal/protocol/acl"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// peer sends and reads single MQTT 5 packets, for what client libraries do not support.
type peer struct {
	t    *testing.T
	conn net.Conn
}

func newPeer(t *testing.T, b *Broker, id string, change ...func(*packets.Connect)) (*peer, *packets.Connack) {
	t.Helper()
	p := &peer{t: t, conn: dial(t, b)}
	c := &packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: id, KeepAlive: 60, Properties: &packets.Properties{}}
	for _, f := range change {
		f(c)
	}
	p.sendPacket(c)
	return p, p.readPacket().Content.(*packets.Connack)
}

func withSessionExpiry(c *packets.Connect) { c.Properties.SessionExpiryInterval = ptr(uint32(60)) }

func withReceiveMaximum(n uint16) func(*packets.Connect) {
	return func(c *packets.Connect) { c.Properties.ReceiveMaximum = ptr(n) }
}

func ptr[T any](v T) *T { return &v }

func (p *peer) sendPacket(c packets.Packet) {
	p.t.Helper()
	if _, err := c.WriteTo(p.conn); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) readPacket() *packets.ControlPacket {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(waitTimeout))
	pk, err := packets.ReadPacket(p.conn)
	if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	return pk
}

// readPublish reads the next packet, which must be a PUBLISH.
func (p *peer) readPublish() *packets.Publish {
	p.t.Helper()
	pk := p.readPacket()
	m, ok := pk.Content.(*packets.Publish)
	if !ok {
		p.t.Fatalf("got %s", pk.PacketType())
	}
	return m
}

func (p *peer) sendAck(m *packets.Publish) {
	p.t.Helper()
	p.sendPacket(&packets.Puback{PacketID: m.PacketID, Properties: &packets.Properties{}})
}

// expectNothing checks that only the response to a ping arrives.
func (p *peer) expectNothing() {
	p.t.Helper()
	p.sendPacket(&packets.Pingreq{})
	if pk := p.readPacket(); pk.Type != packets.PINGRESP {
		p.t.Fatalf("got %s %v", pk.PacketType(), pk.Content)
	}
}

func (p *peer) subscribe(filters ...packets.SubOptions) []byte {
	p.t.Helper()
	p.sendPacket(&packets.Subscribe{PacketID: 1, Subscriptions: filters, Properties: &packets.Properties{}})
	for {
		if s, ok := p.readPacket().Content.(*packets.Suback); ok {
			return s.Reasons
		}
	}
}

func qos1(filter string) packets.SubOptions { return packets.SubOptions{Topic: filter, QoS: 1} }

// awaitDisconnect waits for the end of the connection and returns the broker's reason code.
func (p *peer) awaitDisconnect() byte {
	p.t.Helper()
	pk := p.readPacket()
	d, ok := pk.Content.(*packets.Disconnect)
	if !ok {
		p.t.Fatalf("got %s", pk.PacketType())
	}
	if _, err := p.conn.Read(make([]byte, 1)); err == nil {
		p.t.Error("still connected")
	}
	return d.ReasonCode
}

func publishText(t *testing.T, c *paho.Client, topic, text string) {
	t.Helper()
	if _, err := c.Publish(t.Context(), &paho.Publish{Topic: topic, QoS: wire.QoS, Payload: []byte(text)}); err != nil {
		t.Fatal(err)
	}
}

// A client with a small receive maximum gets all messages of a burst in order.
func TestSession_RespectsReceiveMaximum(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	slow, _ := newPeer(t, b, "slow", withReceiveMaximum(2))
	slow.subscribe(qos1("topic"))
	publisher, _ := connect5(t, b, "publisher")
	const burst = 500
	for i := range burst {
		publishText(t, publisher, "topic", fmt.Sprint(i))
	}
	first, second := slow.readPublish(), slow.readPublish()
	slow.expectNothing()
	slow.sendAck(first)
	slow.sendAck(second)
	for i := 2; i < burst; i++ {
		m := slow.readPublish()
		if string(m.Payload) != fmt.Sprint(i) {
			t.Fatalf("message %d is %s", i, m.Payload)
		}
		slow.sendAck(m)
	}
	slow.expectNothing()
}

// Unacknowledged messages are sent again first on the next connection, as duplicates, followed by
// later messages in order.
func TestSession_ResumesAfterReconnect(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	p, ack := newPeer(t, b, "c1", withSessionExpiry, withReceiveMaximum(2))
	if ack.SessionPresent {
		t.Error("a session is present before the first connection")
	}
	p.subscribe(qos1("topic"))
	publisher, _ := connect5(t, b, "publisher")
	for i := range 4 {
		publishText(t, publisher, "topic", fmt.Sprint(i))
	}
	had := p.readPublish()
	p.sendAck(had)
	lost := p.readPublish()
	s := sessionOf(b, "c1")
	eventually(t, "the broker has processed the acknowledgement", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !slices.ContainsFunc(s.sent, func(d delivery) bool { return d.id == had.PacketID })
	})
	p.conn.Close()
	for i := 4; i < 6; i++ {
		publishText(t, publisher, "topic", fmt.Sprint(i))
	}
	p, ack = newPeer(t, b, "c1", withSessionExpiry)
	if !ack.SessionPresent {
		t.Fatal("the session was not resumed")
	}
	again := p.readPublish()
	if again.PacketID != lost.PacketID || !again.Duplicate || string(again.Payload) != "1" {
		t.Errorf("first message %d %v %s", again.PacketID, again.Duplicate, again.Payload)
	}
	for i := 2; i < 6; i++ {
		m := p.readPublish()
		// Message 2 may have been in flight when the connection broke.
		if string(m.Payload) != fmt.Sprint(i) || m.Duplicate && i > 2 {
			t.Errorf("next message %v %s, want %d", m.Duplicate, m.Payload, i)
		}
	}
	p.expectNothing()
}

func TestSession_CleanStartDiscardsSession(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	p, _ := newPeer(t, b, "c", withSessionExpiry)
	p.subscribe(qos1("topic"))
	p.conn.Close()
	publisher, _ := connect5(t, b, "publisher")
	publishText(t, publisher, "topic", "old")
	p, ack := newPeer(t, b, "c", func(c *packets.Connect) { c.CleanStart = true })
	if ack.SessionPresent {
		t.Error("a session is present")
	}
	publishText(t, publisher, "topic", "new")
	p.expectNothing()
}

func TestSession_Expires(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	h := b.hub
	p, _ := newPeer(t, b, "c", func(c *packets.Connect) { c.Properties.SessionExpiryInterval = ptr(uint32(1)) })
	p.subscribe(qos1("topic"))
	p.conn.Close()
	eventually(t, "the session and its filters are removed", func() bool {
		h.mu.RLock()
		defer h.mu.RUnlock()
		return len(h.sessions)+len(h.filters.children) == 0
	})
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(waitTimeout); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

// A client that takes over a session ends the earlier connection and gets its unacknowledged
// messages.
func TestSession_LaterConnectionTakesOver(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	first, _ := newPeer(t, b, "c", withSessionExpiry)
	first.subscribe(qos1("topic"))
	publisher, _ := connect5(t, b, "publisher")
	publishText(t, publisher, "topic", "x")
	first.readPublish()
	second, ack := newPeer(t, b, "c", withSessionExpiry)
	if got := first.awaitDisconnect(); got != packets.DisconnectSessionTakenOver {
		t.Errorf("the first connection ended with %#x", got)
	}
	if !ack.SessionPresent || string(second.readPublish().Payload) != "x" {
		t.Error("the second connection did not resume the session")
	}
}

func TestWill_IsPublishedUnlessDisconnectedNormally(t *testing.T) {
	will := func(delay uint32) func(*packets.Connect) {
		return func(c *packets.Connect) {
			c.WillFlag, c.WillQOS, c.WillTopic, c.WillMessage = true, 1, "wills", []byte("gone")
			c.WillProperties = &packets.Properties{WillDelayInterval: ptr(delay)}
		}
	}
	for _, c := range []struct {
		name      string
		delay     uint32
		leave     func(*testing.T, *Broker, *peer)
		published bool
	}{
		{"a connection that breaks", 0, func(_ *testing.T, _ *Broker, p *peer) { p.conn.Close() }, true},
		{"a normal disconnect", 0, func(_ *testing.T, _ *Broker, p *peer) {
			p.sendPacket(&packets.Disconnect{Properties: &packets.Properties{}})
		}, false},
		{"a disconnect that requests the will", 0, func(_ *testing.T, _ *Broker, p *peer) {
			p.sendPacket(&packets.Disconnect{ReasonCode: packets.DisconnectDisconnectWithWillMessage, Properties: &packets.Properties{}})
		}, true},
		{"a disconnect with another reason", 0, func(_ *testing.T, _ *Broker, p *peer) {
			_, _ = p.conn.Write([]byte{0xe0, 1, packets.DisconnectImplementationSpecificError})
		}, true},
		{"a protocol error", 0, func(_ *testing.T, _ *Broker, p *peer) {
			p.sendPacket(&packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5})
		}, true},
		{"reconnected within the will delay", 60, func(t *testing.T, b *Broker, p *peer) {
			p.conn.Close()
			newPeer(t, b, "c", withSessionExpiry)
		}, false},
		{"reconnected with a clean start within the will delay", 60, func(t *testing.T, b *Broker, p *peer) {
			p.conn.Close()
			newPeer(t, b, "c", func(c *packets.Connect) { c.CleanStart = true })
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := start(t, "127.0.0.1:0")
			listener, _ := newPeer(t, b, "listener")
			listener.subscribe(qos1("wills"))
			p, _ := newPeer(t, b, "c", withSessionExpiry, will(c.delay))
			c.leave(t, b, p)
			_, _ = p.conn.Read(make([]byte, 64))
			if c.published {
				if m := listener.readPublish(); string(m.Payload) != "gone" {
					t.Errorf("received %s", m.Payload)
				}
				return
			}
			listener.expectNothing()
		})
	}
}

func TestRetained_LastMessageIsSentToNewSubscriptions(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	publisher, _ := connect5(t, b, "publisher")
	retain := func(topic, text string) {
		t.Helper()
		m := &paho.Publish{Topic: topic, QoS: wire.QoS, Retain: true, Payload: []byte(text)}
		if _, err := publisher.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	early, _ := newPeer(t, b, "early")
	early.subscribe(qos1("robots/+/state"))
	retain("robots/r1/state", "old")
	retain("robots/r1/state", "new")
	retain("robots/r2/state", "x")
	retain("robots/r2/state", "")
	for _, want := range []string{"old", "new", "x", ""} {
		if m := early.readPublish(); string(m.Payload) != want || m.Retain {
			t.Errorf("the early subscriber received %q, retained %v, want %q", m.Payload, m.Retain, want)
		}
	}
	for _, filter := range []string{"robots/r1/state", "robots/#"} {
		late, _ := newPeer(t, b, "late"+filter)
		late.sendPacket(&packets.Subscribe{PacketID: 1, Subscriptions: []packets.SubOptions{qos1(filter)}, Properties: &packets.Properties{}})
		received := 0
		for range 2 { // the message and the SUBACK, in any order
			if m, ok := late.readPacket().Content.(*packets.Publish); ok {
				received++
				if string(m.Payload) != "new" || !m.Retain {
					t.Errorf("%s: %q, retained %v", filter, m.Payload, m.Retain)
				}
			}
		}
		late.expectNothing()
		if received != 1 {
			t.Errorf("%s: %d messages", filter, received)
		}
	}
	never, _ := newPeer(t, b, "never")
	never.subscribe(packets.SubOptions{Topic: "#", QoS: 1, RetainHandling: 2})
	never.expectNothing()
}

func TestSession_DropsExpiredMessages(t *testing.T) {
	b := New(Config{Listen: "127.0.0.1:0"})
	var ahead atomic.Int64
	b.now = func() time.Time { return time.Unix(1e9, 0).Add(time.Duration(ahead.Load())) }
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, b) })
	p, _ := newPeer(t, b, "c1", withSessionExpiry)
	p.subscribe(qos1("topic"))
	p.conn.Close()
	publisher, _ := connect5(t, b, "publisher")
	for _, seconds := range []uint32{10, 100} {
		m := &paho.Publish{Topic: "topic", QoS: wire.QoS, Payload: []byte{byte(seconds)}, Properties: &paho.PublishProperties{MessageExpiry: ptr(seconds)}}
		if _, err := publisher.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	ahead.Store(int64(30 * time.Second))
	p, _ = newPeer(t, b, "c1", withSessionExpiry)
	if m := p.readPublish(); m.Payload[0] != 100 || *m.Properties.MessageExpiry != 70 {
		t.Errorf("got %d with %d s left", m.Payload[0], *m.Properties.MessageExpiry)
	}
	p.expectNothing()
}

// The expiry of a will starts when it is published.
func TestWill_ExpiryStartsAtDisconnect(t *testing.T) {
	now := time.Unix(1e9, 0)
	h := newHub(New(Config{}).cfg, func() time.Time { return now })
	listener, client := newConn(nil, h), newConn(nil, h)
	listener.id, client.id = "listener", "client"
	session, _, _ := h.attachSession(listener, true, 1, 0)
	h.addSubscription(session, mochi.Subscription{Filter: "wills", Qos: 1})
	client.will = &message{topic: "wills", qos: 1, expiry: 10 * time.Second}
	client.identity = Identity{Role: acl.Unrestricted}
	client.session, _, _ = h.attachSession(client, true, 1, 0)
	now = now.Add(time.Minute)
	h.detachSession(client, false)
	if d, ok := session.takeNext(listener, now); !ok || !d.expires.Equal(now.Add(10*time.Second)) {
		t.Errorf("received %v, expires at %s", ok, d.expires)
	}
}

// A will without a payload clears the retained message.
func TestWill_MayHaveEmptyPayload(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	listener, _ := newPeer(t, b, "listener")
	listener.subscribe(qos1("wills"))
	p, ack := newPeer(t, b, "c", func(c *packets.Connect) {
		c.WillFlag, c.WillQOS, c.WillTopic, c.WillRetain, c.WillProperties = true, 1, "wills", true, &packets.Properties{}
	})
	if ack.ReasonCode != 0 {
		t.Fatalf("refused with %#x", ack.ReasonCode)
	}
	p.conn.Close()
	if m := listener.readPublish(); len(m.Payload) != 0 {
		t.Errorf("received %q", m.Payload)
	}
}

// A packet that makes the codec panic closes the sender's connection and leaves no state behind.
func TestBroker_DisconnectsAfterTruncatedPacket(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	p, _ := newPeer(t, b, "c")
	_, _ = p.conn.Write([]byte("\x82\x06\x00\x01\x00\x00\x01a"))
	if code := p.awaitDisconnect(); code != packets.DisconnectMalformedPacket {
		t.Errorf("disconnected with %#x", code)
	}
	eventually(t, "the connection is removed", func() bool {
		b.plain.mu.Lock()
		defer b.plain.mu.Unlock()
		return len(b.plain.conns) == 0
	})
}

func TestHub_RejectsSubscriptionOfEndedSession(t *testing.T) {
	h := newHub(New(Config{}).cfg, time.Now)
	old := newConn(nil, h)
	old.id = "c"
	s, _, _ := h.attachSession(old, true, 1, 0)
	h.mu.Lock()
	h.dropLocked(s)
	h.mu.Unlock()
	if code := h.addSubscription(s, mochi.Subscription{Filter: "topic"}); code.Code < mochi.ErrUnspecifiedError.Code {
		t.Errorf("reason code %#x", code.Code)
	}
	if len(h.filters.children) != 0 {
		t.Error("the filter was not removed")
	}
}

func TestBroker_RefusesUnsupportedFeatures(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	p, ack := newPeer(t, b, "")
	if *ack.Properties.MaximumQOS != 1 || *ack.Properties.SharedSubAvailable != 0 || *ack.Properties.SubIDAvailable != 0 || ack.Properties.AssignedClientID == "" {
		t.Errorf("properties %+v", ack.Properties)
	}
	got := p.subscribe(packets.SubOptions{Topic: "a", QoS: 2}, qos1("$share/g/a"), qos1("a/#/b"))
	if want := []byte{1, packets.SubackSharedSubscriptionnotsupported, packets.SubackTopicFilterinvalid}; string(got) != string(want) {
		t.Errorf("subscriptions: reason codes %#x, want %#x", got, want)
	}
	p.sendPacket(&packets.Publish{Topic: "a", QoS: 2, PacketID: 7, Properties: &packets.Properties{}})
	if code := p.awaitDisconnect(); code != packets.DisconnectQoSNotSupported {
		t.Errorf("QoS 2: disconnected with %#x", code)
	}
	p, _ = newPeer(t, b, "x")
	p.sendPacket(&packets.Publish{Topic: "a/+", QoS: 1, PacketID: 7, Properties: &packets.Properties{}})
	if code := p.awaitDisconnect(); code != packets.DisconnectProtocolError {
		t.Errorf("a wildcard in a topic: disconnected with %#x", code)
	}
}

// A client that does not read delays neither publishers nor other subscribers, and its queue is
// limited.
func TestBroker_SlowReaderDoesNotDelayOthers(t *testing.T) {
	const queue = 16 << 20
	b := startConfig(t, Config{Listen: "127.0.0.1:0", Limits: Limits{QueuedBytes: queue}})
	stuck, _ := newPeer(t, b, "stuck")
	stuck.subscribe(qos1("topic"))
	s := sessionOf(b, "stuck")
	well, received := connect5(t, b, "well")
	subscribe(t, well, "topic")
	publisher, _ := connect5(t, b, "publisher")
	large := make([]byte, wire.MaxPayload)
	const messages = queue/wire.MaxPayload + 64
	full, most := false, 0
	for range messages {
		if _, err := publisher.Publish(t.Context(), &paho.Publish{Topic: "topic", QoS: wire.QoS, Payload: large}); err != nil {
			t.Fatal(err)
		}
		receiveMessage(t, received)
		s.mu.Lock()
		full, most = full || s.dropLogged, max(most, s.bytes)
		s.mu.Unlock()
	}
	if most > queue || !full {
		t.Errorf("%d bytes were queued, full %v", most, full)
	}
}

// Many clients connect, publish and disconnect concurrently with few client IDs: none blocks.
func TestBroker_ConcurrentClientsDoNotDeadlock(t *testing.T) {
	b := start(t, "127.0.0.1:0")
	publisher, _ := connect5(t, b, "publisher")
	var clients sync.WaitGroup
	for n := range 8 {
		clients.Go(func() {
			for i := range 100 {
				conn := dial(t, b)
				_ = conn.SetDeadline(time.Now().Add(waitTimeout))
				_, _ = fmt.Fprintf(conn, "\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01%d", n%4)
				_, _ = conn.Write([]byte("\x82\x0a\x00\x01\x00\x05topic\x01" + "\x32\x0a\x00\x05topic\x00\x02x"))
				_, err := conn.Read(make([]byte, 4))
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("no response")
				}
				if i%2 == 0 {
					_ = conn.Close() // otherwise the next client takes over
				}
			}
		})
	}
	gone := make(chan struct{})
	go func() { clients.Wait(); close(gone) }()
	for {
		select {
		case <-gone:
			return
		default:
			publishText(t, publisher, "topic", "y")
		}
	}
}

func FuzzPackets(f *testing.F) {
	connect := "\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x03abc"
	f.Add([]byte(connect + "\x82\x08\x00\x01\x00\x00\x02a/\x01"))
	f.Add([]byte(connect + "\x32\x07\x00\x01a\x00\x01\x00x\xe0\x00"))
	f.Add([]byte("\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03abc\x82\x06\x00\x01\x00\x01#\x01"))
	f.Add([]byte(connect + "\x82\x03\x00\x01\x00"))
	f.Add([]byte(connect + "\x82\x06\x00\x01\x00\x00\x01a"))
	l := New(Config{Listen: "127.0.0.1:0"})
	if err := l.Start(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, packets []byte) {
		ours, theirs := net.Pipe()
		c := newConn(theirs, newHub(l.cfg, time.Now))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.plain.serveConn(c)
		}()
		_ = ours.SetDeadline(time.Now().Add(time.Second))
		go func() { _, _ = ours.Write(packets); _ = ours.Close() }()
		for b := make([]byte, 512); ; {
			if _, err := ours.Read(b); err != nil {
				break
			}
		}
		select {
		case <-ended:
		case <-time.After(waitTimeout):
			t.Fatal("the goroutine of the closed connection has not ended")
		}
	})
}

// sessionOf returns the session of a client.
func sessionOf(b *Broker, client string) *session {
	b.hub.mu.RLock()
	defer b.hub.mu.RUnlock()
	return b.hub.sessions[client]
}
