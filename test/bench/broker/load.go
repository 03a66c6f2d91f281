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
	// maxUnacknowledged is how many messages of one robot wait for the broker's answer.
	maxUnacknowledged = 16
	// steadyRate is the number of messages per second of all robots while latency is measured.
	steadyRate = 500
	// payloadSize is the approximate size of a heartbeat or a report.
	payloadSize = 256
)

// peer is one client.
type peer struct {
	conn      net.Conn
	connected *bufio.Reader

	mu  sync.Mutex // of writing
	out bytes.Buffer
}

// connectPeer connects a client and subscribes to these filters.
func (b *target) connectPeer(name string, filters ...string) (*peer, error) {
	conn, err := b.dial(name)
	if err != nil {
		return nil, err
	}
	p := &peer{conn: conn, connected: bufio.NewReader(conn)}
	_ = conn.SetDeadline(time.Now().Add(waitTimeout))
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

// send writes a packet at once: each write would be a TLS record.
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
		return fmt.Errorf("unexpected response %s", pk)
	}
	return nil
}

// readAnswer returns the next packet that is no message. A broker may deliver messages of a
// subscription before it acknowledges the subscription (MQTT 5, section 3.8.4).
func (p *peer) readAnswer() (*packets.ControlPacket, error) {
	for {
		pk, err := packets.ReadPacket(p.connected)
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

// acknowledge frees the slot of a message in the receive window.
func (p *peer) acknowledge(m *packets.Publish) error {
	if m.QoS == 0 {
		return nil
	}
	return p.send(&packets.Puback{PacketID: m.PacketID, Properties: &packets.Properties{}})
}

// listener is the server: it counts messages and records their latencies.
type listener struct {
	*peer
	count atomic.Int64

	mu        sync.Mutex
	latencies []time.Duration
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
		pk, err := packets.ReadPacket(l.connected)
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
		l.latencies = append(l.latencies, time.Since(sent))
		l.mu.Unlock()
		if l.acknowledge(m) != nil {
			return
		}
	}
}

// startPublisher sends messages of one robot until done is closed, one in each interval. If every is 0,
// as fast as they are acknowledged.
func (b *target) startPublisher(id string, every time.Duration, done <-chan struct{}, all *sync.WaitGroup) {
	p, err := b.connectPeer(id)
	if err != nil {
		b.t.Fatalf("%s: %s: %v", b.name, id, err)
	}
	slots := make(chan struct{}, maxUnacknowledged)
	go func() {
		for {
			if _, err := packets.ReadPacket(p.connected); err != nil {
				return
			}
			<-slots
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
				case <-done:
					return
				}
			}
			select {
			case slots <- struct{}{}:
			case <-done:
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

// measureRun lets all robots publish for a duration, and returns the rate and the latencies.
func (b *target) measureRun(every, duration time.Duration) (persecond float64, latencies []time.Duration) {
	l := b.startListener()
	defer l.conn.Close()
	done := make(chan struct{})
	var all sync.WaitGroup
	for _, id := range robotIDs(*robots) {
		b.startPublisher(id, every, done, &all)
	}
	first, began := l.count.Load(), time.Now()
	time.Sleep(duration)
	persecond = float64(l.count.Load()-first) / time.Since(began).Seconds()
	close(done)
	all.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.latencies) == 0 {
		b.t.Fatalf("%s: the server received no messages", b.name)
	}
	return persecond, slices.Clone(l.latencies)
}

// measureThroughput returns the number of messages per second.
func (b *target) measureThroughput(duration time.Duration) float64 {
	rate, _ := b.measureRun(0, duration)
	return rate
}

// measureLatency returns the 99th percentile of the time from robot to server under a steady load, in
// milliseconds.
func (b *target) measureLatency(duration time.Duration) float64 {
	_, latencies := b.measureRun(time.Second*time.Duration(*robots)/steadyRate, duration)
	slices.Sort(latencies)
	return float64(latencies[len(latencies)*99/100].Microseconds()) / 1000
}

// connectRobots connects n robots at once, with their subscriptions, and returns how long that took.
func (b *target) connectRobots(n int) (*sync.Map, time.Duration) {
	var connected sync.Map
	var all sync.WaitGroup
	began := time.Now()
	for _, id := range robotIDs(n) {
		all.Go(func() {
			p, err := b.connectPeer(id, wire.RobotSubscriptions(id)...)
			if err != nil {
				b.t.Errorf("%s: %s: %v", b.name, id, err)
				return
			}
			connected.Store(id, p)
		})
	}
	all.Wait()
	return &connected, time.Since(began)
}

func disconnectRobots(connected *sync.Map) {
	connected.Range(func(_, p any) bool {
		_ = p.(*peer).conn.Close()
		return true
	})
}

// measureReconnect returns how long it takes until n robots have reconnected and subscribed.
func (b *target) measureReconnect(n int) time.Duration {
	connected, took := b.connectRobots(n)
	disconnectRobots(connected)
	return took
}

// measureMemory returns the memory of the broker for each of n connected robots, in kB: right after
// they have connected, and after a garbage collection.
func (b *target) measureMemory(n int) (atFirst, held float64) {
	each := func(more int) float64 { return float64(more) / float64(n) / 1024 }
	b.collectGarbage()
	before := b.process.RSS()
	connected, _ := b.connectRobots(n)
	defer disconnectRobots(connected)
	atFirst = each(b.process.RSS() - before)
	b.collectGarbage()
	return atFirst, each(b.process.RSS() - before)
}
