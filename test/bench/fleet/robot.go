package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	// heartbeatInterval and keepAlive are those of the agent.
	heartbeatInterval = 30 * time.Second
	keepAlive         = 60
	// connectTimeout bounds the time from the dial to the subscriptions, as in the agent.
	connectTimeout = 10 * time.Second
	writeTimeout   = 30 * time.Second
	// registerRetry is when a registration without a response is repeated.
	registerRetry = 10 * time.Second
	// taskDuration is how long a task runs.
	taskDuration = 100 * time.Millisecond
)

// robot is a simulated robot. It has one goroutine, so that one process holds tens of thousands.
type robot struct {
	id    string
	fleet *fleet
	dial  *net.Dialer // from the address of its site
	tls   *tls.Config

	mu           sync.Mutex
	conn         net.Conn // nil: disconnected
	connectionID string
	isRegistered bool // over this connection
	heartbeat    *time.Timer
	heartbeatSeq uint64
	packetID     uint16
	attempts     map[attemptKey]*attempt
	isFlapping   bool
}

type attemptKey struct {
	uid    string
	number int32
}

// attempt has the reports about one attempt that are not acknowledged.
type attempt struct {
	reports []wire.Status
	last    wire.Status
}

// busyError means that the broker accepts the robot after a time.
type busyError struct{ after time.Duration }

func (e busyError) Error() string { return fmt.Sprintf("the broker is busy for %s", e.after) }

// run keeps the robot connected until ctx ends, with the pauses of the agent.
func (r *robot) run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		err := r.serveConnection(ctx)
		if time.Since(began) > connectTimeout {
			failures = 0
		}
		pause := mathrand.N(min(100*time.Millisecond<<min(failures, 10), 10*time.Second)) + time.Millisecond
		var busy busyError
		if errors.As(err, &busy) {
			pause = busy.after + mathrand.N(time.Second)
			r.fleet.postponed.Add(1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// serveConnection connects, and serves the connection until it breaks.
func (r *robot) serveConnection(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, in, err := r.connect(ctx)
	if err != nil {
		r.fleet.recordError(err)
		return err
	}
	defer r.disconnect()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := r.register(); err != nil {
		return err
	}
	for {
		pk, err := packets.ReadPacket(in)
		if err != nil {
			return err
		}
		m, ok := pk.Content.(*packets.Publish)
		if !ok {
			continue
		}
		if err := r.handleMessage(m); err != nil {
			return err
		}
	}
}

// connect opens a connection and subscribes to the robot's topics.
func (r *robot) connect(ctx context.Context) (net.Conn, *bufio.Reader, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	tcp, err := r.dial.DialContext(ctx, "tcp", r.fleet.broker)
	if err != nil {
		return nil, nil, err
	}
	conn := tls.Client(tcp, r.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = tcp.Close()
		return nil, nil, err
	}
	if conn.ConnectionState().DidResume {
		r.fleet.resumed.Add(1)
	}
	_ = conn.SetDeadline(time.Now().Add(connectTimeout))
	in := bufio.NewReaderSize(conn, 1<<10)
	id := rand.Text()
	if err := r.openSession(conn, in, id); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn, r.connectionID, r.isRegistered = conn, id, false
	return conn, in, nil
}

// openSession sends CONNECT and SUBSCRIBE, and reads their responses.
func (r *robot) openSession(conn net.Conn, in *bufio.Reader, connectionID string) error {
	will, err := wire.Encode(wire.Presence{ConnectionID: connectionID})
	if err != nil {
		return err
	}
	window := uint16(16)
	connect := &packets.Connect{
		ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: r.id, CleanStart: true, KeepAlive: keepAlive, Properties: &packets.Properties{ReceiveMaximum: &window},
		WillFlag: true, WillTopic: wire.RobotTopic(r.id, wire.KindPresence), WillMessage: will, WillQOS: wire.QoS, WillProperties: &packets.Properties{},
	}
	subscribe := &packets.Subscribe{PacketID: 1, Properties: &packets.Properties{}}
	for _, topic := range wire.RobotSubscriptions(r.id) {
		subscribe.Subscriptions = append(subscribe.Subscriptions, packets.SubOptions{Topic: topic, QoS: wire.QoS})
	}
	if err := writePacket(conn, connect); err != nil {
		return err
	}
	pk, err := packets.ReadPacket(in)
	if err != nil {
		return err
	}
	if ack, ok := pk.Content.(*packets.Connack); !ok || ack.ReasonCode != 0 {
		return connectError(ack)
	}
	if err := writePacket(conn, subscribe); err != nil {
		return err
	}
	return awaitSuback(conn, in)
}

// connectError returns why the broker refused the robot.
func connectError(ack *packets.Connack) error {
	if ack == nil {
		return errors.New("no CONNACK")
	}
	for _, p := range ack.Properties.User {
		if p.Key == wire.PropertyRetryAfter {
			return busyError{wire.ParseRetryAfter(p.Value)}
		}
	}
	return fmt.Errorf("CONNACK with reason %#x", ack.ReasonCode)
}

// awaitSuback reads until the subscriptions are acknowledged. The task list may come before.
func awaitSuback(conn net.Conn, in *bufio.Reader) error {
	for {
		pk, err := packets.ReadPacket(in)
		if err != nil {
			return err
		}
		switch p := pk.Content.(type) {
		case *packets.Suback:
			if slices.Max(p.Reasons) >= 0x80 {
				return fmt.Errorf("SUBACK with reasons %x", p.Reasons)
			}
			return nil
		case *packets.Publish:
			if err := writePacket(conn, &packets.Puback{PacketID: p.PacketID, Properties: &packets.Properties{}}); err != nil {
				return err
			}
		}
	}
}

var packetBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// writePacket writes a packet at once: each write is a TLS record.
func writePacket(conn net.Conn, p packets.Packet) error {
	b := packetBuffers.Get().(*bytes.Buffer)
	defer packetBuffers.Put(b)
	b.Reset()
	if _, err := p.WriteTo(b); err != nil {
		return err
	}
	_, err := conn.Write(b.Bytes())
	return err
}

// disconnect closes the connection without DISCONNECT, so that the broker sends the last will.
func (r *robot) disconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return
	}
	_ = r.conn.Close()
	if r.isRegistered {
		r.fleet.registered.Add(-1)
	}
	r.conn, r.isRegistered = nil, false
	r.heartbeat.Stop()
}

// isReady reports whether the robot is registered, stays connected and has no task.
func (r *robot) isReady() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isRegistered && !r.isFlapping && len(r.attempts) == 0
}

// sendLocked sends a packet over the current connection. It does nothing without one.
func (r *robot) sendLocked(p packets.Packet) error {
	if r.conn == nil {
		return nil
	}
	_ = r.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	return writePacket(r.conn, p)
}

func (r *robot) publishLocked(topic string, v any) error {
	payload, err := wire.Encode(v)
	if err != nil {
		return err
	}
	r.packetID = max(1, r.packetID+1)
	return r.sendLocked(&packets.Publish{Topic: topic, QoS: wire.QoS, PacketID: r.packetID, Payload: payload, Properties: &packets.Properties{}})
}

// register sends a registration, and repeats it until it is answered.
func (r *robot) register() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heartbeat = time.AfterFunc(registerRetry+mathrand.N(time.Second), r.sendHeartbeat)
	return r.registerLocked()
}

func (r *robot) registerLocked() error {
	return r.publishLocked(wire.RobotTopic(r.id, wire.KindRegister), wire.Register{
		RobotID: r.id, ConnectionID: r.connectionID, AgentVersion: "bench", Address: "192.0.2.1", AnswersDispatches: true, DeviceInfo: newDevice(r.id),
	})
}

// sendHeartbeat sends a heartbeat, or the registration again, and sets the timer for the next.
func (r *robot) sendHeartbeat() {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.conn == nil:
		return
	case !r.isRegistered:
		r.heartbeat.Reset(registerRetry)
		_ = r.registerLocked() // a broken connection ends the reader
	default:
		r.heartbeat.Reset(heartbeatInterval)
		r.heartbeatSeq++
		_ = r.publishLocked(wire.RobotTopic(r.id, wire.KindHeartbeat), wire.Heartbeat{Seq: r.heartbeatSeq})
		r.repeatReportsLocked()
	}
}

func (r *robot) handleMessage(m *packets.Publish) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.sendLocked(&packets.Puback{PacketID: m.PacketID, Properties: &packets.Properties{}}); err != nil {
		return err
	}
	switch m.Topic {
	case wire.RobotTopic(r.id, wire.KindResponse):
		withDecoded(m.Payload, r.handleResponseLocked)
	case wire.RobotTopic(r.id, wire.KindAck):
		withDecoded(m.Payload, r.handleAckLocked)
	case wire.RobotTopic(r.id, wire.KindDispatch):
		withDecoded(m.Payload, r.handleDispatchLocked)
	}
	return nil
}

func withDecoded[T any](payload []byte, then func(T)) {
	if v, err := wire.Decode[T](payload); err == nil {
		then(v)
	}
}

// handleResponseLocked starts the heartbeats at a random time of the interval, as after a slow start of
// a fleet.
func (r *robot) handleResponseLocked(a wire.Response) {
	if !a.Success || r.isRegistered {
		return
	}
	r.isRegistered = true
	r.fleet.registered.Add(1)
	r.heartbeat.Reset(mathrand.N(heartbeatInterval))
	r.repeatReportsLocked()
}

func (r *robot) handleAckLocked(a wire.Ack) {
	for _, t := range a.Tasks {
		k := attemptKey{t.UID, t.Attempt}
		it := r.attempts[k]
		if it == nil {
			continue
		}
		for len(it.reports) > 0 && it.reports[0].Seq <= t.Seq {
			it.reports = it.reports[1:]
		}
		if len(it.reports) == 0 && it.last.IsTerminal() {
			delete(r.attempts, k)
		}
	}
}

// handleDispatchLocked starts an attempt, or repeats its last report.
func (r *robot) handleDispatchLocked(d wire.Dispatch) {
	k := attemptKey{d.Task.Metadata.UID, max(d.Attempt, 1)}
	it := r.attempts[k]
	switch {
	case it != nil:
		_ = r.publishLocked(wire.TaskTopic(r.id, k.uid, wire.KindStatus), it.last)
	case d.Action == wire.ActionDelete:
		r.reportLocked(k, wire.Status{State: wire.ReportFailed, Event: wire.ReasonStopped, Reason: wire.ReasonStopped})
	default:
		r.fleet.recordStart(d.Task.Metadata.Name, time.Now())
		r.reportLocked(k, wire.Status{State: wire.ReportPending, Event: "Accepted"})
		r.reportLocked(k, wire.Status{State: wire.ReportRunning, Event: "Started"})
		if strings.HasPrefix(d.Task.Metadata.Name, systemJobName+"-") {
			return // it runs until it is stopped
		}
		time.AfterFunc(taskDuration, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reportLocked(k, wire.Status{State: wire.ReportCompleted, Event: "Completed"})
		})
	}
}

// reportLocked sends a report about an attempt, and keeps it until it is acknowledged.
func (r *robot) reportLocked(k attemptKey, s wire.Status) {
	if r.attempts == nil {
		r.attempts = map[attemptKey]*attempt{}
	}
	it := r.attempts[k]
	if it == nil {
		it = &attempt{}
		r.attempts[k] = it
	}
	s.TaskUID, s.RobotName, s.Attempt, s.Seq, s.UpdatedAt = k.uid, r.id, k.number, it.last.Seq+1, time.Now()
	it.last, it.reports = s, append(it.reports, s)
	_ = r.publishLocked(wire.TaskTopic(r.id, k.uid, wire.KindStatus), s)
}

// repeatReportsLocked repeats the last report of each attempt that is not acknowledged.
func (r *robot) repeatReportsLocked() {
	for k, it := range r.attempts {
		if len(it.reports) > 0 && time.Since(it.last.UpdatedAt) > wire.MaxRepeatInterval/3 {
			_ = r.publishLocked(wire.TaskTopic(r.id, k.uid, wire.KindStatus), it.last)
		}
	}
}
