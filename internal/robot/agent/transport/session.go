package transport

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/eclipse/paho.golang/paho"

	traceparent "k8s4r.io/k8s4r/internal/protocol/trace"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	// keepAlive is twice the usual heartbeat, so that no PINGREQ is sent.
	keepAlive = 60 * time.Second
	// maxPacket leaves room for the topic beside the largest payload.
	maxPacket = wire.MaxPayload + 4<<10
	// packetTimeout bounds the wait for the broker's answer to one packet.
	packetTimeout = 10 * time.Second
)

// runSession connects, and serves the connection until it breaks. It reports whether the
// server registered the robot over it, and why it ended.
func (l *Connection) runSession(ctx context.Context) (registered bool, err error) {
	l.dropResponse() // one of the connection before would pass for the answer to the next registration
	client, lost, err := l.connectClient(ctx)
	if err != nil {
		return false, err
	}
	defer disconnectClient(client)
	if err := l.subscribeTopics(ctx, client); err != nil {
		return false, err
	}
	l.setClient(client)
	l.config.OnConnected(true)
	defer func() {
		l.setClient(nil)
		l.config.OnConnected(false)
	}()
	l.log.Info("connected to the MQTT broker", "broker", l.Broker())
	err = l.serveSession(ctx, lost)
	_, registered, _ = l.State()
	return registered, err
}

// disconnectClient ends a connection without the last will, and blocks until its
// goroutines have ended.
func disconnectClient(client *paho.Client) {
	_ = client.Disconnect(&paho.Disconnect{})
	<-client.Done()
}

// connectClient opens a connection. The reason why it breaks later is sent on lost.
func (l *Connection) connectClient(ctx context.Context) (*paho.Client, <-chan error, error) {
	ctx, cancel := context.WithTimeout(ctx, packetTimeout)
	defer cancel()
	conn, err := l.dialBroker(ctx)
	if err != nil {
		return nil, nil, err
	}
	if host, _, err := net.SplitHostPort(conn.LocalAddr().String()); err == nil {
		l.address = host
	}
	lost := make(chan error, 1)
	client := paho.NewClient(paho.ClientConfig{
		Conn:               conn,
		PacketTimeout:      packetTimeout,
		OnPublishReceived:  []func(paho.PublishReceived) (bool, error){l.routeMessage},
		OnClientError:      func(err error) { reportLoss(lost, err) },
		OnServerDisconnect: func(d *paho.Disconnect) { reportLoss(lost, disconnectError(d)) },
	})
	if ack, err := client.Connect(ctx, l.connectPacket(l.newConnectionID())); err != nil {
		l.renewIfRefused(ctx, ack, err)
		return nil, nil, connectError(ack, err)
	}
	return client, lost, nil
}

// busyError means that the broker will accept the robot after a time.
type busyError struct{ after time.Duration }

func (e busyError) Error() string {
	return fmt.Sprintf("many robots connect to the broker; it accepts this one in %s", e.after)
}

// connectError returns why the broker refused a connection.
func connectError(ack *paho.Connack, err error) error {
	const serverBusy = 0x89
	if ack != nil && ack.ReasonCode == serverBusy && ack.Properties != nil {
		if after := wire.ParseRetryAfter(ack.Properties.User.Get(wire.PropertyRetryAfter)); after > 0 {
			return busyError{after}
		}
	}
	return fmt.Errorf("MQTT connect: %w", err)
}

// disconnectError returns why the broker ended a connection (MQTT 5, 3.14.2.1).
func disconnectError(d *paho.Disconnect) error {
	const sessionTakenOver = 0x8e
	if d.ReasonCode == sessionTakenOver {
		return errTakenOver
	}
	return fmt.Errorf("the broker ended the connection with reason %#x", d.ReasonCode)
}

func reportLoss(lost chan<- error, err error) {
	select {
	case lost <- err:
	default:
	}
}

// mqttClientID returns the robot's id itself only for a robot with a certificate.
func (l *Connection) mqttClientID() string {
	if l.config.Credential != nil {
		return l.config.RobotID
	}
	return "k8s4r-agent-" + l.config.RobotID
}

// connectPacket returns the CONNECT packet.
//
// Every connection starts clean, and its session expires with it: a dispatch that the
// broker kept would start a task that was moved to another robot in the meantime
// (docs/explanation/adr/0008-the-agents-session.md).
func (l *Connection) connectPacket(connectionID string) *paho.Connect {
	will, err := wire.Encode(wire.Presence{ConnectionID: connectionID})
	if err != nil {
		panic(err) // it has no field that cannot be encoded
	}
	c := &paho.Connect{
		ClientID:   l.mqttClientID(),
		CleanStart: true,
		KeepAlive:  uint16(keepAlive / time.Second),
		Properties: &paho.ConnectProperties{
			// Explicit although it is the default: no message may outlive the connection.
			SessionExpiryInterval: paho.Uint32(0),
			ReceiveMaximum:        paho.Uint16(l.config.ReceiveMaximum),
			MaximumPacketSize:     paho.Uint32(maxPacket),
			RequestProblemInfo:    true,
		},
		WillMessage: &paho.WillMessage{Topic: wire.RobotTopic(l.config.RobotID, wire.KindPresence), Payload: will, QoS: wire.QoS},
	}
	if u := l.broker.Load().User; u != nil {
		c.Username, c.UsernameFlag = u.Username(), true
		if password, ok := u.Password(); ok {
			c.Password, c.PasswordFlag = []byte(password), true
		}
	}
	return c
}

// subscribeTopics subscribes to all topics of this robot in one packet.
func (l *Connection) subscribeTopics(ctx context.Context, client *paho.Client) error {
	s := &paho.Subscribe{}
	for _, topic := range wire.RobotSubscriptions(l.config.RobotID) {
		s.Subscriptions = append(s.Subscriptions, paho.SubscribeOptions{Topic: topic, QoS: wire.QoS})
	}
	if _, err := client.Subscribe(ctx, s); err != nil {
		return fmt.Errorf("MQTT subscribe: %w", err)
	}
	return nil
}

// routeMessage passes a message on by its topic.
func (l *Connection) routeMessage(p paho.PublishReceived) (bool, error) {
	for _, k := range []wire.Kind{wire.KindResponse, wire.KindAck, wire.KindDispatch, wire.KindState} {
		if p.Packet.Topic == wire.RobotTopic(l.config.RobotID, k) {
			l.config.Receive(k, p.Packet.Payload, p.Packet.Properties.User.Get(traceparent.Property))
			return true, nil
		}
	}
	return false, nil
}

// serveSession registers the robot and then sends heartbeats, until the connection ends.
func (l *Connection) serveSession(ctx context.Context, lost <-chan error) error {
	registered := false
	var sent *wire.DeviceInfo // with the first registration that is not answered
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-lost:
			return err
		case <-l.renewed:
			return errCertificateRenewed
		case <-l.outdated:
			registered = false
			timer.Reset(0)
		case r := <-l.responses:
			if r.Success && registered {
				continue
			}
			if registered = r.Success; registered && sent != nil {
				l.deviceChanges.recordRegistration(*sent)
			}
			l.setRegistered(registered)
			sent = nil
			timer.Reset(l.nextSendDelay(r))
		case <-timer.C:
			device := l.config.ReadDevice()
			policy := l.config.ReadPolicy()
			if !registered {
				retry := l.config.RegisterRetry
				timer.Reset(retry*9/10 + l.randomBelow(retry/5))
				l.publishRegistration(ctx, device, policy)
				if sent == nil {
					sent = &device
				}
			} else {
				timer.Reset(l.config.Heartbeat)
				l.publishHeartbeat(ctx, device)
			}
		}
	}
}

// nextSendDelay returns when to send the next message: the first heartbeat at once, or the
// registration again.
func (l *Connection) nextSendDelay(r wire.Response) time.Duration {
	if r.Success {
		l.log.Info("registered", "message", r.Message)
		releaseStartMemory()
		return 0
	}
	l.log.Warn("registration refused, will retry", "message", r.Message)
	return l.config.RegisterRetry
}
