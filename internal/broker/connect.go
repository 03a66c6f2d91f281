package broker

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// maxExpiry bounds how long a session outlives its connection.
const maxExpiry = 24 * time.Hour

// lifetime of a session, from the seconds that a client asks for.
func lifetime(seconds uint32) time.Duration {
	return min(time.Duration(seconds)*time.Second, maxExpiry)
}

// connect takes in the CONNECT packet and answers it.
func (c *conn) connect() error {
	if err := c.await(connectWithin); err != nil {
		return err
	}
	if err := c.shakeHands(); err != nil {
		c.hub.refusals.add("handshake", Refusal{What: "connect"})
		return fmt.Errorf("TLS handshake: %w", err)
	}
	if err := c.takePlace(); err != nil {
		c.hub.refusals.add("address", Refusal{What: "connect"})
		return err
	}
	pk, err := readPacket(c.in, 0, maxConnect)
	if err != nil {
		c.hub.refusals.add("malformed", Refusal{What: "connect"})
		return fmt.Errorf("read connection: %w", err)
	}
	if pk.FixedHeader.Type != packets.Connect {
		return packets.ErrProtocolViolationRequireFirstConnect
	}
	c.version = pk.ProtocolVersion
	if code := c.validate(&pk); code != packets.CodeSuccess {
		c.hub.refusals.add("malformed", Refusal{What: "connect"})
		return c.refuse(code)
	}
	c.adopt(&pk)
	window := int(pk.Properties.ReceiveMaximum)
	if window == 0 {
		window = math.MaxUint16
	}
	session, resumed, err := c.enter(&pk, window)
	if code, ok := errors.AsType[packets.Code](err); ok {
		return c.refuse(code)
	}
	if err != nil {
		return errors.Join(err, c.refuse(packets.ErrNotAuthorized))
	}
	c.session, c.pace = session, c.hub.limits.pace(c.identity)
	if c.will != nil {
		c.will.from = session
	}
	if err := c.accept(&pk, resumed); err != nil {
		c.hub.disconnect(c, false)
		return err
	}
	return nil
}

// shakeHands makes sure of TLS, where there is TLS, before anything is read:
// whoever does not get that far has no part of the broker.
func (c *conn) shakeHands() error {
	t, ok := c.tcp.(*tls.Conn)
	if !ok {
		return nil
	}
	_ = t.SetWriteDeadline(time.Now().Add(connectWithin)) // that of reading is set
	return t.Handshake()
}

// takePlace goes where those are who have, or have not, shown a certificate.
func (c *conn) takePlace() error {
	if c.certificate() == nil {
		return c.hub.places.move(c.place, stranger)
	}
	return c.hub.places.move(c.place, proven)
}

// certificate that was verified. Nil: it has shown none.
func (c *conn) certificate() *x509.Certificate {
	t, ok := c.tcp.(*tls.Conn)
	if !ok {
		return nil
	}
	if chains := t.ConnectionState().VerifiedChains; len(chains) > 0 {
		return chains[0][0]
	}
	return nil
}

// enter finds out who the client is, and only then touches a session: one who
// is refused must not end that of another.
func (c *conn) enter(pk *packets.Packet, window int) (s *session, resumed bool, err error) {
	for {
		cuts := c.hub.cutsSoFar()
		if c.identity, err = c.identify(pk); err != nil {
			return nil, false, err
		}
		if id := c.identity.clientID(); id != "" && id != c.id {
			c.hub.refusals.add("client-id", Refusal{Name: c.identity.Name, What: "connect", Topic: c.id})
			return nil, false, packets.ErrClientIdentifierNotValid
		}
		if c.will != nil && !c.identity.mayPublish(c.will.topic, c.will.retain) {
			c.refused("will", c.will.topic, c.will.retain)
			return nil, false, packets.ErrNotAuthorized
		}
		s, resumed, err = c.hub.connect(c, pk.Connect.Clean, window, cuts)
		if !errors.Is(err, errAskAgain) {
			return s, resumed, err
		}
	}
}

// identify asks the authority.
func (c *conn) identify(pk *packets.Packet) (Identity, error) {
	p := Peer{ClientID: c.id, Username: string(pk.Connect.Username), Password: pk.Connect.Password, Certificate: c.certificate(), Address: c.remote()}
	id, err := c.hub.authority.Identify(p)
	if err == nil {
		err = id.valid()
	}
	if err != nil {
		c.hub.refusals.add("identity", Refusal{What: "connect"})
		return Identity{}, fmt.Errorf("client %.80q is refused: %w", c.id, err)
	}
	if p.Certificate != nil && (id.Expires.IsZero() || p.Certificate.NotAfter.Before(id.Expires)) {
		id.Expires = p.Certificate.NotAfter
	}
	return id, nil
}

// validate judges a CONNECT packet itself: the codec refuses wills without a
// payload, which are how a client clears a retained message, and passwords that
// are empty.
func (c *conn) validate(pk *packets.Packet) packets.Code {
	connect := &pk.Connect
	switch {
	case versions[string(connect.ProtocolName)] == nil:
		return packets.ErrProtocolViolationProtocolName
	case !slices.Contains(versions[string(connect.ProtocolName)], c.version):
		return packets.ErrUnsupportedProtocolVersion
	case pk.ReservedBit != 0:
		return packets.ErrProtocolViolationReservedBit
	case connect.ClientIdentifier == "" && c.version < 5 && !connect.Clean:
		return packets.ErrClientIdentifierNotValid
	case !connect.WillFlag && (connect.WillRetain || connect.WillQos > 0):
		return packets.ErrProtocolViolationWillFlagSurplusRetain
	case connect.WillFlag && connect.WillQos > 1:
		return packets.ErrQosNotSupported
	case connect.WillFlag && !validTopic(connect.WillTopic):
		return packets.ErrTopicNameInvalid
	case pk.Properties.AuthenticationMethod != "":
		return packets.ErrBadAuthenticationMethod
	}
	return packets.CodeSuccess
}

// versions by the name of the protocol.
var versions = map[string][]byte{"MQTT": {4, 5}, "MQIsdp": {3}}

// adopt takes over what the client says of itself.
func (c *conn) adopt(pk *packets.Packet) {
	c.id = strings.Clone(pk.Connect.ClientIdentifier) // not with all of the packet
	if c.id == "" {
		c.id = "anonymous-" + rand.Text()
	}
	c.keepAlive = time.Duration(pk.Connect.Keepalive) * time.Second
	c.largest = int(pk.Properties.MaximumPacketSize)
	c.expiry = lifetime(pk.Properties.SessionExpiryInterval)
	if c.version < 5 && !pk.Connect.Clean {
		c.expiry = maxExpiry
	}
	if pk.Connect.WillFlag {
		c.will = &message{
			topic: pk.Connect.WillTopic, payload: pk.Connect.WillPayload, qos: pk.Connect.WillQos, retain: pk.Connect.WillRetain,
			size: pk.FixedHeader.Remaining,
		}
		c.will.keep(&pk.Connect.WillProperties)
		c.willDelay = lifetime(pk.Connect.WillProperties.WillDelayInterval)
	}
}

// accept answers a client that is let in.
func (c *conn) accept(asked *packets.Packet, resumed bool) error {
	pk := packets.Packet{SessionPresent: resumed}
	p := &pk.Properties
	p.MaximumQos, p.MaximumQosFlag = 1, true
	p.MaximumPacketSize = maxPacket
	p.SubIDAvailableFlag, p.SharedSubAvailableFlag = true, true // and 0: not there
	if asked.Connect.ClientIdentifier == "" {
		p.AssignedClientID = c.id
	}
	if time.Duration(asked.Properties.SessionExpiryInterval)*time.Second > c.expiry {
		p.SessionExpiryInterval, p.SessionExpiryIntervalFlag = uint32(c.expiry/time.Second), true
	}
	return c.connack(pk)
}

// refuse answers a client that is not let in. The error is why.
func (c *conn) refuse(code packets.Code) error {
	why := code
	if c.version != 5 {
		known, ok := packets.V5CodesToV3[code]
		if code == packets.ErrNotAuthorized {
			known, ok = packets.Err3NotAuthorized, true // the codec's table lacks it
		}
		if !ok {
			return why // version 3.1.1 has no word for it, and hangs up
		}
		code = known
	}
	if err := c.connack(packets.Packet{ReasonCode: code.Code}); err != nil {
		return err
	}
	return why
}

func (c *conn) connack(pk packets.Packet) error {
	pk.ProtocolVersion = c.version
	var b bytes.Buffer
	if err := appendPacket(&b, packets.Connack, pk); err != nil {
		return err
	}
	return c.send(b.Bytes())
}
