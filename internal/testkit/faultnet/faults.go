package faultnet

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// Faults injects faults into a share of the messages and counts them. It may be used by several
// proxies.
type Faults struct {
	// Share is the share of messages with a fault, from 0 to 1.
	Share float64
	// MaxDelay bounds the delay of a message.
	MaxDelay time.Duration
	// NeverCut excludes the fault that cuts a message and closes its connection.
	NeverCut bool

	mu    sync.Mutex
	rand  *rand.Rand
	count Count
}

// Count counts messages by fault.
type Count struct{ Messages, Doubled, Delayed, Reordered, CutOff int }

// NewFaults returns faults that are determined by a seed and the order of the messages.
func NewFaults(share float64, longest time.Duration, seed uint64) *Faults {
	return &Faults{Share: share, MaxDelay: longest, rand: rand.New(rand.NewPCG(seed, 0xfa17))}
}

// CurrentCount returns the counts so far.
func (f *Faults) CurrentCount() Count {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

type fault int

const (
	none fault = iota
	double
	delay
	reorder
	cutOff
)

// shares weights the faults. A cut closes a connection, and too many of them would leave no time
// for the others.
var shares = []fault{double, double, double, delay, delay, delay, reorder, reorder, reorder, cutOff}

// drawFault chooses the fault for a message.
func (f *Faults) drawFault(message []byte) (what fault, pause time.Duration, part int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count.Messages++
	if f.rand.Float64() >= f.Share {
		return none, 0, 0
	}
	if what = shares[f.rand.IntN(len(shares))]; what == cutOff && f.NeverCut {
		what = delay
	}
	*[...]*int{double: &f.count.Doubled, delay: &f.count.Delayed, reorder: &f.count.Reordered, cutOff: &f.count.CutOff}[what]++
	return what, time.Duration(f.rand.Int64N(int64(f.MaxDelay))), f.rand.IntN(len(message))
}

var errCut = errors.New("cut off")

// forwardPacket forwards a packet, with a fault if one is drawn for it.
func (f *Faults) forwardPacket(packet []byte, to *packetWriter) error {
	if !isMessage(packet) {
		return to.writePacket(packet)
	}
	what, pause, part := f.drawFault(packet)
	switch what {
	case double:
		to.writeLater(pause, duplicatePacket(packet))
	case delay:
		time.Sleep(pause)
	case reorder:
		to.writeLater(pause, packet) // the next packet overtakes it
		return nil
	case cutOff:
		return errors.Join(errCut, to.writePacket(packet[:part]))
	default:
	}
	return to.writePacket(packet)
}

// packetWriter writes whole packets to one direction of a connection.
type packetWriter struct {
	net.Conn
	mu sync.Mutex
}

func (l *packetWriter) writePacket(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.Write(b)
	return err
}

func (l *packetWriter) writeLater(pause time.Duration, b []byte) {
	time.AfterFunc(pause, func() { _ = l.writePacket(b) }) // an error means that the connection has ended
}

// isMessage reports whether a packet is a PUBLISH with QoS 1 or 2.
func isMessage(packet []byte) bool { return packet[0]>>4 == 3 && packet[0]&0x06 != 0 }

// duplicatePacket returns a copy of a PUBLISH with the DUP flag.
func duplicatePacket(packet []byte) []byte {
	const dup = 0x08
	duplicate := slices.Clone(packet)
	duplicate[0] |= dup
	return duplicate
}

// readPacket reads a whole MQTT packet: its kind, its length in seven bits a
// byte, and its body.
func readPacket(r *bufio.Reader) ([]byte, error) {
	kind, err := r.ReadByte()
	if err != nil {
		return nil, err
	}
	length, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	packet := bytes.NewBuffer(binary.AppendUvarint([]byte{kind}, length))
	_, err = io.CopyN(packet, r, int64(length))
	return packet.Bytes(), err
}
