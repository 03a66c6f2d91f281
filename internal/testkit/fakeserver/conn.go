// Package fakeserver implements the server's side of the protocol without Kubernetes: it accepts
// all robots, sends them the dispatches of a test, and passes their reports to the test.
package fakeserver

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// packetTimeout bounds the exchange of one packet with the broker.
const packetTimeout = 10 * time.Second

// Conn is the connection of a server to a broker.
type Conn struct{ client *paho.Client }

// Connect connects as the server does. It calls onMessage for each message in order, after
// SubscribeReports.
func Connect(addr string, onMessage func(topic string, payload []byte)) (*Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, packetTimeout)
	if err != nil {
		return nil, err
	}
	take := func(p paho.PublishReceived) (bool, error) {
		onMessage(p.Packet.Topic, p.Packet.Payload)
		return true, nil
	}
	c := &Conn{paho.NewClient(paho.ClientConfig{Conn: conn, OnPublishReceived: []func(paho.PublishReceived) (bool, error){take}})}
	ctx, cancel := context.WithTimeout(context.Background(), packetTimeout)
	defer cancel()
	if _, err := c.client.Connect(ctx, &paho.Connect{ClientID: "k8s4r-server", CleanStart: true, KeepAlive: 60}); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	return c, nil
}

// SubscribeReports subscribes to the messages of robots.
func (c *Conn) SubscribeReports() error {
	ctx, cancel := context.WithTimeout(context.Background(), packetTimeout)
	defer cancel()
	subscription := &paho.Subscribe{}
	for _, filter := range wire.ServerSubscriptions() {
		subscription.Subscriptions = append(subscription.Subscriptions, paho.SubscribeOptions{Topic: filter, QoS: wire.QoS})
	}
	if _, err := c.client.Subscribe(ctx, subscription); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return nil
}

// Send publishes without waiting for the broker, so that it can be called from onMessage. It
// drops the message if that fails.
func (c *Conn) Send(topic string, payload []byte, retain bool) {
	ctx, cancel := context.WithTimeout(context.Background(), packetTimeout)
	defer cancel()
	message := &paho.Publish{Topic: topic, QoS: wire.QoS, Retain: retain, Payload: payload}
	_, _ = c.client.PublishWithOptions(ctx, message, paho.PublishOptions{Method: paho.PublishMethod_AsyncSend})
}

// Done returns a channel that is closed when the connection ends.
func (c *Conn) Done() <-chan struct{} { return c.client.Done() }

// Close ends the connection.
func (c *Conn) Close() { _ = c.client.Disconnect(&paho.Disconnect{}) }
