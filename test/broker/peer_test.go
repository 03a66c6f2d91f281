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

// waitTimeout bounds the time that a broker may take for anything.
const waitTimeout = 30 * time.Second

// peer sends and reads single MQTT 5 packets, for what client libraries do not support.
type peer struct {
	conn     net.Conn
	lastID   uint16
	received []*packets.Publish // since the last drainMessages
}

// errRefused: the broker rejected the connection.
var errRefused = errors.New("refused")

// connectPeer sends CONNECT and returns errRefused if the broker rejects it.
func connectPeer(conn net.Conn, id string, change ...func(*packets.Connect)) (*peer, *packets.Connack, error) {
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

func withSessionExpiry(c *packets.Connect) {
	seconds := uint32(3600)
	c.CleanStart, c.Properties.SessionExpiryInterval = false, &seconds
}

func withWill(topic, text string, retain bool) func(*packets.Connect) {
	return func(c *packets.Connect) {
		c.WillFlag, c.WillQOS, c.WillTopic, c.WillMessage, c.WillRetain = true, 1, topic, []byte(text), retain
		c.WillProperties = &packets.Properties{}
	}
}

func (p *peer) send(c packets.Packet) error {
	_ = p.conn.SetWriteDeadline(time.Now().Add(waitTimeout))
	_, err := c.WriteTo(p.conn)
	return err
}

func (p *peer) read() (*packets.ControlPacket, error) {
	_ = p.conn.SetReadDeadline(time.Now().Add(waitTimeout))
	return packets.ReadPacket(p.conn)
}

// await reads up to a packet of this type, and records the messages before it.
func (p *peer) await(kind byte) (*packets.ControlPacket, error) {
	for {
		pk, err := p.read()
		if err != nil {
			return nil, err
		}
		if m, ok := pk.Content.(*packets.Publish); ok {
			p.received = append(p.received, m)
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

// drainMessages returns all messages since the previous call, including those that the broker had queued
// before it read the ping.
func (p *peer) drainMessages() ([]*packets.Publish, error) {
	if err := p.send(&packets.Pingreq{}); err != nil {
		return nil, err
	}
	if _, err := p.await(packets.PINGRESP); err != nil {
		return nil, err
	}
	received := p.received
	p.received = nil
	return received, nil
}

func (p *peer) nextID() uint16 {
	p.lastID = max(1, p.lastID+1)
	return p.lastID
}

// publish returns the reason code of the response.
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

// subscribe returns the reason code of the response. If fresh is set, it requests no retained
// messages, as the server does.
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

// closeWithWill closes the connection so that its will is published, and waits until the broker has noticed.
func (p *peer) closeWithWill() {
	const disconnectWithWill = 4
	if p.send(&packets.Disconnect{ReasonCode: disconnectWithWill, Properties: &packets.Properties{}}) == nil {
		p.awaitClose()
	}
}

// awaitClose reads to the end of the connection and returns the broker's reason code, or 0 if it
// sent none.
func (p *peer) awaitClose() (reason byte) {
	for {
		pk, err := p.read()
		if err != nil {
			_ = p.conn.Close()
			return reason
		}
		if d, ok := pk.Content.(*packets.Disconnect); ok {
			reason = d.ReasonCode
		}
	}
}

func dialTLS(t testing.TB, address string, ca *testca.Authority, certificate *tls.Certificate) (net.Conn, error) {
	t.Helper()
	c := &tls.Config{RootCAs: ca.CertPool(), MinVersion: tls.VersionTLS13}
	if certificate != nil {
		// Independent of the CAs that the broker requests, so that one of a foreign CA is presented, too.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: waitTimeout}, "tcp", address, c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, nil
}
