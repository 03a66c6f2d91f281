// Package fakeserver is the server's end of the wire without a server: it lets
// robots in, gives them what a test asks for, and believes what they say.
package fakeserver

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"k8s4r.io/k8s4r/internal/wire"
)

// patience bounds what a broker may take for one packet.
const patience = 10 * time.Second

// Conn is a connection to a broker that hears what robots say.
type Conn struct{ client *paho.Client }

// Connect connects as the server does. hear gets each message, in their order; none
// comes before Listen.
func Connect(addr string, hear func(topic string, payload []byte)) (*Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	take := func(p paho.PublishReceived) (bool, error) {
		hear(p.Packet.Topic, p.Packet.Payload)
		return true, nil
	}
	c := &Conn{paho.NewClient(paho.ClientConfig{Conn: conn, OnPublishReceived: []func(paho.PublishReceived) (bool, error){take}})}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := c.client.Connect(ctx, &paho.Connect{ClientID: "k8s4r-server", CleanStart: true, KeepAlive: 60}); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	return c, nil
}

// Listen subscribes to what robots say.
func (c *Conn) Listen() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	hears := &paho.Subscribe{}
	for _, filter := range wire.ServerSubscriptions() {
		hears.Subscriptions = append(hears.Subscriptions, paho.SubscribeOptions{Topic: filter, QoS: wire.QoS})
	}
	if _, err := c.client.Subscribe(ctx, hears); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return nil
}

// Send publishes without a wait for the broker: answers go out while the next
// message comes in. What does not get through is lost.
func (c *Conn) Send(topic string, payload []byte, retain bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	message := &paho.Publish{Topic: topic, QoS: wire.QoS, Retain: retain, Payload: payload}
	_, _ = c.client.PublishWithOptions(ctx, message, paho.PublishOptions{Method: paho.PublishMethod_AsyncSend})
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.client.Done() }

// Close ends the connection.
func (c *Conn) Close() { _ = c.client.Disconnect(&paho.Disconnect{}) }
