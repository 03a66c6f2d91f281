package transport

import (
	"context"
	"log/slog"
	"net/url"
	"testing"

	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func startBroker(t *testing.T) (b *broker.Broker, at *url.URL) {
	t.Helper()
	b = broker.New(broker.Config{Listen: "127.0.0.1:0"})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	return b, at
}

// The next pause depends on it.
func TestSession_ReturnsWhetherTheRobotWasRegistered(t *testing.T) {
	for name, registers := range map[string]bool{"registered": true, "without a response of the server": false} {
		t.Run(name, func(t *testing.T) {
			b, at := startBroker(t)
			connected, heartbeat := make(chan bool, 2), make(chan uint64, 2)
			l := NewConnection(ConnectionConfig{
				RobotID: "r1", Broker: at, ReceiveMaximum: 8, Heartbeat: defaultRegisterRetry, Log: slog.New(slog.DiscardHandler),
				OnConnected: func(up bool) { connected <- up }, OnHeartbeat: func(seq uint64) { heartbeat <- seq },
				ReadDevice: func() wire.DeviceInfo { return wire.DeviceInfo{} }, ReadUsage: func(context.Context) []wire.TaskUsage { return nil },
				ReadDiskHealth: func() (bool, bool) { return false, false },
			})
			var registered bool
			ended := make(chan error)
			go func() {
				var err error
				registered, err = l.runSession(t.Context())
				ended <- err
			}()
			<-connected
			if registers {
				l.HandleResponse(wire.Response{Success: true})
				<-heartbeat
			}
			if err := b.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-ended; err == nil || registered != registers {
				t.Errorf("registered = %v, ended with %v; want %v and an error", registered, err, registers)
			}
			if up := <-connected; up || l.IsConnected() {
				t.Error("still connected after the session")
			}
		})
	}
}
