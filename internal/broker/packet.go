package broker

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mochi-mqtt/server/v2/packets"

	"k8s4r.io/k8s4r/internal/wire"
)

// maxPacket bounds what a client may send: the largest payload, with topic,
// properties and header.
const maxPacket = wire.MaxPayload + 16<<10

// maxConnect bounds what somebody may send before it is known who that is: a
// short will and a password.
const maxConnect = 32 << 10

// The reasons for which the broker ends a connection, beside those of the codec.
var (
	codeShuttingDown = packets.ErrServerShuttingDown
	codeTakenOver    = packets.ErrSessionTakenOver
	codeViolation    = packets.ErrProtocolViolation
)

// decoders of the packets that a client may send. Those of QoS 2 and of an
// exchange of credentials are missing: neither is offered.
var decoders = map[byte]func(*packets.Packet, []byte) error{
	packets.Connect:     (*packets.Packet).ConnectDecode,
	packets.Publish:     (*packets.Packet).PublishDecode,
	packets.Puback:      (*packets.Packet).PubackDecode,
	packets.Subscribe:   (*packets.Packet).SubscribeDecode,
	packets.Unsubscribe: (*packets.Packet).UnsubscribeDecode,
	packets.Pingreq:     (*packets.Packet).PingreqDecode,
	packets.Disconnect:  (*packets.Packet).DisconnectDecode,
}

// encoders of the packets that the broker sends.
var encoders = map[byte]func(*packets.Packet, *bytes.Buffer) error{
	packets.Connack:    (*packets.Packet).ConnackEncode,
	packets.Publish:    (*packets.Packet).PublishEncode,
	packets.Puback:     (*packets.Packet).PubackEncode,
	packets.Suback:     (*packets.Packet).SubackEncode,
	packets.Unsuback:   (*packets.Packet).UnsubackEncode,
	packets.Pingresp:   (*packets.Packet).PingrespEncode,
	packets.Disconnect: (*packets.Packet).DisconnectEncode,
}

// readPacket reads one packet, of no more than so many bytes, of a client that
// speaks this version. The packet owns its memory. A packets.Code in the error is the client's fault.
func readPacket(in *bufio.Reader, version byte, largest int) (packets.Packet, error) {
	pk := packets.Packet{ProtocolVersion: version}
	first, err := in.ReadByte()
	if err != nil {
		return pk, err
	}
	if err := pk.FixedHeader.Decode(first); err != nil {
		return pk, err
	}
	if pk.FixedHeader.Remaining, _, err = packets.DecodeLength(in); err != nil {
		return pk, err
	}
	if pk.FixedHeader.Remaining > largest {
		return pk, packets.ErrPacketTooLarge
	}
	decode := decoders[pk.FixedHeader.Type]
	if decode == nil {
		return pk, codeViolation
	}
	body := make([]byte, pk.FixedHeader.Remaining)
	if _, err := io.ReadFull(in, body); err != nil {
		return pk, err
	}
	if pk.FixedHeader.Type == packets.Disconnect && len(body) == 1 {
		pk.ReasonCode = body[0] // the codec wants properties as well
		return pk, nil
	}
	return pk, decoded(&pk, decode, body)
}

// decoded takes a panic of the codec, which trusts some lengths, for the
// malformed packet that it comes from.
func decoded(pk *packets.Packet, decode func(*packets.Packet, []byte) error, body []byte) (err error) {
	defer func() {
		if recover() != nil {
			err = packets.ErrMalformedPacket
		}
	}()
	return decode(pk, body)
}

// appendPacket writes a packet of this type to the end of b.
func appendPacket(b *bytes.Buffer, kind byte, pk packets.Packet) error {
	pk.FixedHeader.Type = kind
	if err := encoders[kind](&pk, b); err != nil {
		return fmt.Errorf("encode MQTT packet: %w", err)
	}
	return nil
}

// codeOf is what a client is told about the end of its connection. Success: it
// need not be told.
func codeOf(err error) packets.Code {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return packets.ErrKeepAliveTimeout
	}
	code, _ := errors.AsType[packets.Code](err)
	return code
}
