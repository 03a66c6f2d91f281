package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"k8s4r.io/k8s4r/internal/broker/mosquitto"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	// onTheWay is how many messages of one robot wait for the broker's answer.
	onTheWay = 16
	// steadyRate is what all robots send together, in a second, while latency is
	// measured.
	steadyRate = 500
	// payloadSize is about that of a heartbeat or a report.
	payloadSize = 256
)

// peer is one client.
type peer struct {
	conn net.Conn
	in   *bufio.Reader

	mu  sync.Mutex // of writing
	out bytes.Buffer
}

// connectPeer connects one who listens to these filters.
func (b *target) connectPeer(name string, filters ...string) (*peer, error) {
	conn, err := b.dial(name)
	if err != nil {
		return nil, err
	}
	p := &peer{conn: conn, in: bufio.NewReader(conn)}
	_ = conn.SetDeadline(time.Now().Add(patience))
	window := uint16(1000)
	c := &packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: name, CleanStart: true, Properties: &packets.Properties{ReceiveMaximum: &window}}
	if err := p.request(c, packets.CONNACK); err != nil {
		return nil, err
	}
	if len(filters) > 0 {
		s := &packets.Subscribe{PacketID: 1, Properties: &packets.Properties{}}
		for _, f := range filters {
			s.Subscriptions = append(s.Subscriptions, packets.SubOptions{Topic: f, QoS: 1})
		}
		if err := p.request(s, packets.SUBACK); err != nil {
			return nil, err
		}
	}
	return p, conn.SetDeadline(time.Time{})
}

// send writes a packet at once: in pieces it would be as many TLS records.
func (p *peer) send(c packets.Packet) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Reset()
	if _, err := c.WriteTo(&p.out); err != nil {
		return err
	}
	_, err := p.conn.Write(p.out.Bytes())
	return err
}

// request sends a packet and blocks until the broker answers it.
func (p *peer) request(c packets.Packet, answer byte) error {
	if err := p.send(c); err != nil {
		return err
	}
	pk, err := p.readAnswer()
	if err != nil {
		return err
	}
	ok := pk.Type == answer
	switch a := pk.Content.(type) {
	case *packets.Connack:
		ok = ok && a.ReasonCode == 0
	case *packets.Suback:
		ok = ok && slices.Max(a.Reasons) < 0x80
	}
	if !ok {
		return fmt.Errorf("answered with %s", pk)
	}
	return nil
}

// readAnswer returns the next packet that is no message. A broker may deliver messages of a
// subscription before it acknowledges the subscription (MQTT 5, section 3.8.4).
func (p *peer) readAnswer() (*packets.ControlPacket, error) {
	for {
		pk, err := packets.ReadPacket(p.in)
		if err != nil {
			return nil, err
		}
		m, ok := pk.Content.(*packets.Publish)
		if !ok {
			return pk, nil
		}
		if err := p.acknowledge(m); err != nil {
			return nil, err
		}
	}
}

// acknowledge frees the place of a message in the receive window.
func (p *peer) acknowledge(m *packets.Publish) error {
	if m.QoS == 0 {
		return nil
	}
	return p.send(&packets.Puback{PacketID: m.PacketID, Properties: &packets.Properties{}})
}

// listener is the server: it counts what arrives, and how late.
type listener struct {
	*peer
	count atomic.Int64

	mu   sync.Mutex
	late []time.Duration
}

func (b *target) startListener() *listener {
	p, err := b.connectPeer(mosquitto.ServerName, wire.RobotTopic("+", wire.KindHeartbeat))
	if err != nil {
		b.t.Fatalf("%s: the server: %v", b.name, err)
	}
	l := &listener{peer: p}
	go l.readMessages()
	return l
}

func (l *listener) readMessages() {
	for {
		pk, err := packets.ReadPacket(l.in)
		if err != nil {
			return
		}
		m, ok := pk.Content.(*packets.Publish)
		if !ok {
			continue
		}
		l.count.Add(1)
		sent := time.Unix(0, int64(binary.BigEndian.Uint64(m.Payload)))
		l.mu.Lock()
		l.late = append(l.late, time.Since(sent))
		l.mu.Unlock()
		if l.acknowledge(m) != nil {
			return
		}
	}
}

// startTalker sends messages of one robot until the time is over, one each so often.
// Zero: as fast as they are acknowledged.
func (b *target) startTalker(id string, every time.Duration, over <-chan struct{}, all *sync.WaitGroup) {
	p, err := b.connectPeer(id)
	if err != nil {
		b.t.Fatalf("%s: %s: %v", b.name, id, err)
	}
	places := make(chan struct{}, onTheWay)
	go func() {
		for {
			if _, err := packets.ReadPacket(p.in); err != nil {
				return
			}
			<-places
		}
	}()
	all.Go(func() {
		defer p.conn.Close()
		payload := make([]byte, payloadSize)
		var tick <-chan time.Time
		if every > 0 {
			t := time.NewTicker(every)
			defer t.Stop()
			tick = t.C
		}
		for n := uint16(1); ; n = max(1, n+1) {
			if tick != nil {
				select {
				case <-tick:
				case <-over:
					return
				}
			}
			select {
			case places <- struct{}{}:
			case <-over:
				return
			}
			binary.BigEndian.PutUint64(payload, uint64(time.Now().UnixNano()))
			m := &packets.Publish{Topic: wire.RobotTopic(id, wire.KindHeartbeat), QoS: 1, PacketID: n, Payload: payload, Properties: &packets.Properties{}}
			if p.send(m) != nil {
				return
			}
		}
	})
}

// measureRun lets all robots talk for so long, and returns what the server has heard.
func (b *target) measureRun(every, long time.Duration) (persecond float64, late []time.Duration) {
	l := b.startListener()
	defer l.conn.Close()
	over := make(chan struct{})
	var all sync.WaitGroup
	for _, id := range robotIDs(*robots) {
		b.startTalker(id, every, over, &all)
	}
	first, began := l.count.Load(), time.Now()
	time.Sleep(long)
	persecond = float64(l.count.Load()-first) / time.Since(began).Seconds()
	close(over)
	all.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.late) == 0 {
		b.t.Fatalf("%s: the server hears nothing", b.name)
	}
	return persecond, slices.Clone(l.late)
}

// measureThroughput is how many messages a second get through.
func (b *target) measureThroughput(long time.Duration) float64 {
	rate, _ := b.measureRun(0, long)
	return rate
}

// measureLatency is the 99th percentile of the time from robot to server under a load
// that the broker can bear, in milliseconds.
func (b *target) measureLatency(long time.Duration) float64 {
	_, late := b.measureRun(time.Second*time.Duration(*robots)/steadyRate, long)
	slices.Sort(late)
	return float64(late[len(late)*99/100].Microseconds()) / 1000
}

// connectRobots connects so many robots at once, each listening to all that is its own,
// and tells how long that took.
func (b *target) connectRobots(n int) (*sync.Map, time.Duration) {
	var in sync.Map
	var all sync.WaitGroup
	began := time.Now()
	for _, id := range robotIDs(n) {
		all.Go(func() {
			p, err := b.connectPeer(id, wire.RobotSubscriptions(id)...)
			if err != nil {
				b.t.Errorf("%s: %s: %v", b.name, id, err)
				return
			}
			in.Store(id, p)
		})
	}
	all.Wait()
	return &in, time.Since(began)
}

func disconnectRobots(in *sync.Map) {
	in.Range(func(_, p any) bool {
		_ = p.(*peer).conn.Close()
		return true
	})
}

// measureReconnect is how long it takes until so many robots are back and listen.
func (b *target) measureReconnect(n int) time.Duration {
	in, took := b.connectRobots(n)
	disconnectRobots(in)
	return took
}

// measureMemory is what the broker has for each of so many robots that stay connected,
// in kB: right after they have come, and without the garbage of that.
func (b *target) measureMemory(n int) (atFirst, held float64) {
	each := func(more int) float64 { return float64(more) / float64(n) / 1024 }
	b.collectGarbage()
	before := b.process.RSS()
	in, _ := b.connectRobots(n)
	defer disconnectRobots(in)
	atFirst = each(b.process.RSS() - before)
	b.collectGarbage()
	return atFirst, each(b.process.RSS() - before)
}
