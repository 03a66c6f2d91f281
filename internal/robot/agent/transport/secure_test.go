package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
)

// joinedRobot is the Credential of a robot that has its certificate already.
type joinedRobot struct{ config *tls.Config }

func (j joinedRobot) Join(context.Context) error  { return nil }
func (j joinedRobot) Run(context.Context)         {}
func (j joinedRobot) Renew(context.Context) error { return nil }
func (j joinedRobot) MQTTURL() string             { return "" }

func (j joinedRobot) TLS() (*tls.Config, <-chan struct{}) { return j.config, nil }

// runTLSSession connects r1 with a certificate. The context ends with the session, and its cause
// is the error of the session.
func runTLSSession(t *testing.T, b *fakeserver.Broker) (*Connection, context.Context) {
	t.Helper()
	connected := make(chan bool, 2)
	l := NewConnection(ConnectionConfig{
		RobotID: "r1", Broker: &url.URL{Scheme: "mqtts", Host: b.TLSAddr}, ReceiveMaximum: 8, Heartbeat: time.Hour, Log: slog.New(slog.DiscardHandler),
		Credential: joinedRobot{&tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: b.CA.CertPool(), Certificates: []tls.Certificate{*b.CA.NewClientCertificate("r1", time.Hour)},
		}},
		OnConnected: func(up bool) { connected <- up }, ReadDevice: func() wire.DeviceInfo { return wire.DeviceInfo{} },
		Receive: func(wire.Kind, []byte, string) {},
	})
	ctx, end := context.WithCancelCause(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := l.runSession(ctx)
		end(err)
	}()
	t.Cleanup(func() { end(nil); <-ended })
	select {
	case <-connected:
	case <-ctx.Done():
		t.Fatalf("not connected: %v", context.Cause(ctx))
	}
	return l, ctx
}

// receivedLogs checks the messages that arrive.
type receivedLogs struct {
	mu       sync.Mutex
	missing  map[string][]byte // what was sent, by UID and number
	mixed    []string          // topics of messages that were not sent like this
	complete chan struct{}     // closed once none is missing
}

// newReceivedLogs expects so many messages about each of so many tasks, small and large ones.
func newReceivedLogs(tasks, each int) *receivedLogs {
	r := &receivedLogs{missing: map[string][]byte{}, complete: make(chan struct{})}
	for task := range tasks {
		for n := range each {
			name := logName(fmt.Sprintf("task-%d", task), uint64(n))
			r.missing[name] = bytes.Repeat([]byte(name), []int{1, 10, 500, 6000}[(task+n)%4])
		}
	}
	return r
}

func logName(uid string, seq uint64) string { return fmt.Sprintf("%s/%d", uid, seq) }

func (r *receivedLogs) record(topic string, payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	address, topicErr := wire.ParseTopic(topic)
	if topicErr == nil && address.Kind != wire.KindLogs {
		return
	}
	m, err := wire.Decode[wire.Logs](payload)
	name := logName(address.TaskUID, m.Seq)
	if sent, ok := r.missing[name]; topicErr != nil || err != nil || !ok || !bytes.Equal(m.Data, sent) {
		r.mixed = append(r.mixed, topic)
		return
	}
	if delete(r.missing, name); len(r.missing) == 0 {
		close(r.complete)
	}
}

// publishAll publishes the expected messages, with one goroutine for each task.
func (r *receivedLogs) publishAll(ctx context.Context, t *testing.T, l *Connection, tasks, each int) {
	toSend := maps.Clone(r.missing)
	var all sync.WaitGroup
	for task := range tasks {
		uid := fmt.Sprintf("task-%d", task)
		all.Go(func() {
			for seq := range uint64(each) {
				if err := l.PublishLogs(ctx, uid, wire.KindLogs, wire.Logs{Attempt: 1, Seq: seq, Data: toSend[logName(uid, seq)]}); err != nil {
					t.Errorf("publish: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
}

// The broker must get every message whole. It ends a connection with reason 0x81 if the packets of
// several goroutines are mixed up.
func TestConnection_PublishesConcurrentlyOverTLS(t *testing.T) {
	const tasks, each = 24, 40
	b := fakeserver.StartBroker(t)
	received := newReceivedLogs(tasks, each)
	server, err := fakeserver.Connect(b.Addr, received.record)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := server.SubscribeReports(); err != nil {
		t.Fatal(err)
	}
	l, ctx := runTLSSession(t, b)
	received.publishAll(ctx, t, l, tasks, each)
	select {
	case <-received.complete:
	case <-ctx.Done():
	case <-time.After(time.Minute):
	}
	received.mu.Lock()
	defer received.mu.Unlock()
	if len(received.missing)+len(received.mixed) > 0 || ctx.Err() != nil {
		t.Errorf("%d messages are missing; mixed up: %v; the session ended: %v", len(received.missing), received.mixed, context.Cause(ctx))
	}
}
