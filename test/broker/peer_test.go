package broker_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"k8s4r.io/k8s4r/internal/testkit/testca"
)

// patience is how long a broker may take for what it must do.
const patience = 30 * time.Second

// peer speaks MQTT 5 packet by packet, for what no client library would do.
type peer struct {
	conn   net.Conn
	lastID uint16
	heard  []*packets.Publish // since the last fence
}

// errRefused: the broker rejected the connection.
var errRefused = errors.New("refused")

// hello says CONNECT, and fails with errRefused if it is not welcome.
func hello(conn net.Conn, id string, change ...func(*packets.Connect)) (*peer, *packets.Connack, error) {
	p := &peer{conn: conn}
	c := &packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: id, CleanStart: true, KeepAlive: 600, Properties: &packets.Properties{}}
	for _, f := range change {
		f(c)
	}
	if err := p.send(c); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	pk, err := p.read()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	ack, ok := pk.Content.(*packets.Connack)
	if !ok {
		return nil, nil, fmt.Errorf("got %s for CONNECT", pk.PacketType())
	}
	if ack.ReasonCode != 0 {
		_ = conn.Close()
		return nil, ack, fmt.Errorf("%w with %#x", errRefused, ack.ReasonCode)
	}
	return p, ack, nil
}

func lasting(c *packets.Connect) {
	seconds := uint32(3600)
	c.CleanStart, c.Properties.SessionExpiryInterval = false, &seconds
}

func leaves(topic, text string, retain bool) func(*packets.Connect) {
	return func(c *packets.Connect) {
		c.WillFlag, c.WillQOS, c.WillTopic, c.WillMessage, c.WillRetain = true, 1, topic, []byte(text), retain
		c.WillProperties = &packets.Properties{}
	}
}

func (p *peer) send(c packets.Packet) error {
	_ = p.conn.SetWriteDeadline(time.Now().Add(patience))
	_, err := c.WriteTo(p.conn)
	return err
}

func (p *peer) read() (*packets.ControlPacket, error) {
	_ = p.conn.SetReadDeadline(time.Now().Add(patience))
	return packets.ReadPacket(p.conn)
}

// await reads up to a packet of this type, and takes in the messages before it.
func (p *peer) await(kind byte) (*packets.ControlPacket, error) {
	for {
		pk, err := p.read()
		if err != nil {
			return nil, err
		}
		if m, ok := pk.Content.(*packets.Publish); ok {
			p.heard = append(p.heard, m)
			if m.QoS > 0 {
				if err := p.send(&packets.Puback{PacketID: m.PacketID, Properties: &packets.Properties{}}); err != nil {
					return nil, err
				}
			}
			continue
		}
		if pk.Type == kind {
			return pk, nil
		}
		return nil, fmt.Errorf("got %s", pk.PacketType())
	}
}

// fence returns all messages since the previous fence, including those that the broker had queued
// before it read the ping.
func (p *peer) fence() ([]*packets.Publish, error) {
	if err := p.send(&packets.Pingreq{}); err != nil {
		return nil, err
	}
	if _, err := p.await(packets.PINGRESP); err != nil {
		return nil, err
	}
	heard := p.heard
	p.heard = nil
	return heard, nil
}

func (p *peer) nextID() uint16 {
	p.lastID = max(1, p.lastID+1)
	return p.lastID
}

// publish returns the reason code of the answer.
func (p *peer) publish(topic, text string, retain bool) (byte, error) {
	err := p.send(&packets.Publish{Topic: topic, QoS: 1, Retain: retain, PacketID: p.nextID(), Payload: []byte(text), Properties: &packets.Properties{}})
	if err != nil {
		return 0, err
	}
	pk, err := p.await(packets.PUBACK)
	if err != nil {
		return 0, err
	}
	return pk.Content.(*packets.Puback).ReasonCode, nil
}

// subscribe returns the reason code of the answer. As the server does, it asks
// for no retained messages if fresh.
func (p *peer) subscribe(filter string, fresh bool) (byte, error) {
	o := packets.SubOptions{Topic: filter, QoS: 1}
	if fresh {
		o.RetainHandling = 2
	}
	if err := p.send(&packets.Subscribe{PacketID: p.nextID(), Subscriptions: []packets.SubOptions{o}, Properties: &packets.Properties{}}); err != nil {
		return 0, err
	}
	pk, err := p.await(packets.SUBACK)
	if err != nil {
		return 0, err
	}
	return pk.Content.(*packets.Suback).Reasons[0], nil
}

// die closes the connection so that its will is published, and waits until the broker has noticed.
func (p *peer) die() {
	const withWill = 4
	if p.send(&packets.Disconnect{ReasonCode: withWill, Properties: &packets.Properties{}}) == nil {
		p.untilGone()
	}
}

// untilGone reads to the end of the connection and returns the broker's reason code, or 0 if it
// sent none.
func (p *peer) untilGone() (why byte) {
	for {
		pk, err := p.read()
		if err != nil {
			_ = p.conn.Close()
			return why
		}
		if d, ok := pk.Content.(*packets.Disconnect); ok {
			why = d.ReasonCode
		}
	}
}

func dialTLS(t testing.TB, address string, ca *testca.Authority, shown *tls.Certificate) (net.Conn, error) {
	t.Helper()
	c := &tls.Config{RootCAs: ca.CertPool(), MinVersion: tls.VersionTLS13}
	if shown != nil {
		// Whatever the broker asks for, so that one of a foreign authority is shown too.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shown, nil }
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", address, c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, nil
}
