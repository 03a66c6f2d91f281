package broker

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mochi-mqtt/server/v2/packets"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// maxPacket bounds a packet of a client: the largest payload, with topic, properties and
// header.
const maxPacket = wire.MaxPayload + 16<<10

// maxConnect bounds the CONNECT packet of a client that is not authenticated yet: a
// short will and a password.
const maxConnect = 32 << 10

// Reasons for which the broker closes a connection.
var (
	codeShuttingDown      = packets.ErrServerShuttingDown
	codeTakenOver         = packets.ErrSessionTakenOver
	codeProtocolViolation = packets.ErrProtocolViolation
)

// decoders of the packets that clients may send. QoS 2 and extended authentication are
// not supported.
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

// readPacket reads one packet of at most the given size. The packet owns its memory. A
// packets.Code in the error is the client's fault.
func readPacket(in *bufio.Reader, version byte, largest int) (*packets.Packet, error) {
	first, err := in.ReadByte()
	if err != nil {
		return nil, err
	}
	pk := &packets.Packet{ProtocolVersion: version} // not before: an idle connection would hold it
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
		return pk, codeProtocolViolation
	}
	body := make([]byte, pk.FixedHeader.Remaining)
	if _, err := io.ReadFull(in, body); err != nil {
		return pk, err
	}
	if pk.FixedHeader.Type == packets.Disconnect && len(body) == 1 {
		pk.ReasonCode = body[0] // the codec requires properties
		return pk, nil
	}
	return pk, decodePacket(pk, decode, body)
}

// decodePacket turns a panic of the codec, which trusts some lengths, into an error.
func decodePacket(pk *packets.Packet, decode func(*packets.Packet, []byte) error, body []byte) (err error) {
	defer func() {
		if recover() != nil {
			err = packets.ErrMalformedPacket
		}
	}()
	return decode(pk, body)
}

// appendPacket writes a packet of this type to the end of b.
func appendPacket(b *bytes.Buffer, kind byte, pk *packets.Packet) error {
	pk.FixedHeader.Type = kind
	if err := encoders[kind](pk, b); err != nil {
		return fmt.Errorf("encode MQTT packet: %w", err)
	}
	return nil
}

// disconnectReason returns the reason code for an error. Success: nothing is sent.
func disconnectReason(err error) packets.Code {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return packets.ErrKeepAliveTimeout
	}
	code, _ := errors.AsType[packets.Code](err)
	return code
}
