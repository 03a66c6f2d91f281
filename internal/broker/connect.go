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

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// maxSessionExpiry bounds how long a session outlives its connection.
const maxSessionExpiry = 24 * time.Hour

// sessionExpiry returns the expiry that a client requests in seconds, within the bound.
func sessionExpiry(seconds uint32) time.Duration {
	return min(time.Duration(seconds)*time.Second, maxSessionExpiry)
}

// handleConnect reads the CONNECT packet and answers it.
func (c *conn) handleConnect() error {
	if err := c.setReadTimeout(connectTimeout); err != nil {
		return err
	}
	if err := c.completeHandshake(); err != nil {
		c.hub.refusals.record("handshake", Refusal{Action: "connect"})
		return fmt.Errorf("TLS handshake: %w", err)
	}
	if err := c.moveSlot(); err != nil {
		c.hub.refusals.record("address", Refusal{Action: "connect"})
		return err
	}
	pk, err := readPacket(c.in, 0, maxConnect)
	if err != nil {
		c.hub.refusals.record("malformed", Refusal{Action: "connect"})
		return fmt.Errorf("read connection: %w", err)
	}
	if pk.FixedHeader.Type != packets.Connect {
		return packets.ErrProtocolViolationRequireFirstConnect
	}
	c.version = pk.ProtocolVersion
	if code := c.validateConnect(pk); code != packets.CodeSuccess {
		c.hub.refusals.record("malformed", Refusal{Action: "connect"})
		return c.rejectClient(code)
	}
	c.readConnect(pk)
	window := int(pk.Properties.ReceiveMaximum)
	if window == 0 {
		window = math.MaxUint16
	}
	session, resumed, err := c.openSession(pk, window)
	if err != nil {
		return c.rejectSession(err)
	}
	c.session, c.limiter = session, c.hub.limiters.limiterOf(c.identity)
	if c.will != nil {
		c.will.from = session
	}
	if err := c.acceptClient(pk, resumed); err != nil {
		c.hub.detachSession(c, false)
		return err
	}
	return nil
}

// completeHandshake completes the TLS handshake before a packet is read.
func (c *conn) completeHandshake() error {
	t, ok := c.tcp.(*tls.Conn)
	if !ok {
		return nil
	}
	_ = t.SetWriteDeadline(time.Now().Add(connectTimeout)) // the read deadline is set already
	return t.Handshake()
}

// moveSlot moves the connection to the pool for clients with or without certificates.
func (c *conn) moveSlot() error {
	if c.peerCertificate() == nil {
		return c.hub.slots.moveSlot(c.slot, unauthenticated)
	}
	return c.hub.slots.moveSlot(c.slot, authenticated)
}

// peerCertificate returns the verified client certificate, or nil.
func (c *conn) peerCertificate() *x509.Certificate {
	t, ok := c.tcp.(*tls.Conn)
	if !ok {
		return nil
	}
	if chains := t.ConnectionState().VerifiedChains; len(chains) > 0 {
		return chains[0][0]
	}
	return nil
}

// openSession authenticates the client before it touches a session, so that a refused
// client cannot end the session of another.
func (c *conn) openSession(pk *packets.Packet, window int) (s *session, resumed bool, err error) {
	for {
		revocations := c.hub.revocationCount()
		if c.identity, err = c.authenticate(pk); err != nil {
			return nil, false, err
		}
		if id := c.identity.requiredClientID(); id != "" && id != c.id {
			c.hub.refusals.record("client-id", Refusal{Name: c.identity.Name, Action: "connect", Topic: c.id})
			return nil, false, packets.ErrClientIdentifierNotValid
		}
		if c.will != nil && !c.identity.mayPublish(c.will.topic, c.will.retain) {
			c.recordRefusal("will", c.will.topic, c.will.retain)
			return nil, false, packets.ErrNotAuthorized
		}
		if err := c.awaitAdmission(); err != nil {
			return nil, false, err
		}
		s, resumed, err = c.hub.attachSession(c, pk.Connect.Clean, window, revocations)
		if !errors.Is(err, errRetryAuthentication) {
			return s, resumed, err
		}
	}
}

// rejectSession answers a CONNECT for which openSession failed.
func (c *conn) rejectSession(err error) error {
	if code, ok := errors.AsType[packets.Code](err); ok {
		return c.rejectClient(code)
	}
	code := packets.ErrNotAuthorized
	if errors.Is(err, ErrNotReady) {
		code = packets.ErrServerUnavailable
	}
	return errors.Join(err, c.rejectClient(code))
}

// authenticate calls the Authenticator.
func (c *conn) authenticate(pk *packets.Packet) (Identity, error) {
	p := Peer{ClientID: c.id, Username: string(pk.Connect.Username), Password: pk.Connect.Password, Certificate: c.peerCertificate(), Address: c.remoteAddress()}
	id, err := c.hub.authenticator.Authenticate(p)
	if err == nil {
		err = id.validate()
	}
	if err != nil {
		c.hub.refusals.record("identity", Refusal{Action: "connect"})
		return Identity{}, fmt.Errorf("client %.80q is refused: %w", c.id, err)
	}
	if p.Certificate != nil && (id.Expires.IsZero() || p.Certificate.NotAfter.Before(id.Expires)) {
		id.Expires = p.Certificate.NotAfter
	}
	return id, nil
}

// validateConnect checks a CONNECT packet. The codec's check refuses wills without a
// payload, which clear a retained message, and empty passwords.
func (c *conn) validateConnect(pk *packets.Packet) packets.Code {
	connect := &pk.Connect
	switch {
	case protocolVersions[string(connect.ProtocolName)] == nil:
		return packets.ErrProtocolViolationProtocolName
	case !slices.Contains(protocolVersions[string(connect.ProtocolName)], c.version):
		return packets.ErrUnsupportedProtocolVersion
	case pk.ReservedBit != 0:
		return packets.ErrProtocolViolationReservedBit
	case connect.ClientIdentifier == "" && c.version < 5 && !connect.Clean:
		return packets.ErrClientIdentifierNotValid
	case !connect.WillFlag && (connect.WillRetain || connect.WillQos > 0):
		return packets.ErrProtocolViolationWillFlagSurplusRetain
	case connect.WillFlag && connect.WillQos > 1:
		return packets.ErrQosNotSupported
	case connect.WillFlag && !isValidTopic(connect.WillTopic):
		return packets.ErrTopicNameInvalid
	case pk.Properties.AuthenticationMethod != "":
		return packets.ErrBadAuthenticationMethod
	}
	return packets.CodeSuccess
}

// protocolVersions are the supported levels by protocol name.
var protocolVersions = map[string][]byte{"MQTT": {4, 5}, "MQIsdp": {3}}

// readConnect copies the client's parameters from CONNECT.
func (c *conn) readConnect(pk *packets.Packet) {
	c.id = strings.Clone(pk.Connect.ClientIdentifier) // without retaining the packet
	if c.id == "" {
		c.id = "anonymous-" + rand.Text()
	}
	c.keepAlive = time.Duration(pk.Connect.Keepalive) * time.Second
	c.maxPacket = int(pk.Properties.MaximumPacketSize)
	c.expiry = sessionExpiry(pk.Properties.SessionExpiryInterval)
	if c.version < 5 && !pk.Connect.Clean {
		c.expiry = maxSessionExpiry
	}
	if pk.Connect.WillFlag {
		c.will = &message{
			topic: pk.Connect.WillTopic, payload: pk.Connect.WillPayload, qos: pk.Connect.WillQos, retain: pk.Connect.WillRetain,
			size: pk.FixedHeader.Remaining,
		}
		c.will.copyProperties(&pk.Connect.WillProperties)
		c.willDelay = sessionExpiry(pk.Connect.WillProperties.WillDelayInterval)
	}
}

// acceptClient sends CONNACK.
func (c *conn) acceptClient(requested *packets.Packet, resumed bool) error {
	pk := &packets.Packet{SessionPresent: resumed}
	p := &pk.Properties
	p.MaximumQos, p.MaximumQosFlag = 1, true
	p.MaximumPacketSize = maxPacket
	p.SubIDAvailableFlag, p.SharedSubAvailableFlag = true, true // with value 0: not supported
	if requested.Connect.ClientIdentifier == "" {
		p.AssignedClientID = c.id
	}
	if time.Duration(requested.Properties.SessionExpiryInterval)*time.Second > c.expiry {
		p.SessionExpiryInterval, p.SessionExpiryIntervalFlag = uint32(c.expiry/time.Second), true
	}
	return c.sendConnack(pk)
}

// codesMissingInV3 are codes of version 5 for which the codec knows none of version 3.1.1.
var codesMissingInV3 = map[packets.Code]packets.Code{
	packets.ErrNotAuthorized: packets.Err3NotAuthorized,
	packets.ErrServerBusy:    packets.Err3ServerUnavailable,
}

// rejectClient sends CONNACK with the reason, and returns it as an error.
func (c *conn) rejectClient(code packets.Code) error {
	reason := code
	if c.version != 5 {
		known, ok := packets.V5CodesToV3[code]
		if missing, ok3 := codesMissingInV3[code]; ok3 { // in the codec's table
			known, ok = missing, true
		}
		if !ok {
			return reason // version 3.1.1 has no code for it; just close
		}
		code = known
	}
	pk := &packets.Packet{ReasonCode: code.Code}
	if c.retryAfter > 0 {
		pk.Properties.User = []packets.UserProperty{{Key: wire.PropertyRetryAfter, Val: wire.FormatRetryAfter(c.retryAfter)}}
	}
	if err := c.sendConnack(pk); err != nil {
		return err
	}
	return reason
}

func (c *conn) sendConnack(pk *packets.Packet) error {
	pk.ProtocolVersion = c.version
	var b bytes.Buffer
	if err := appendPacket(&b, packets.Connack, pk); err != nil {
		return err
	}
	return c.writeBatch(b.Bytes())
}
