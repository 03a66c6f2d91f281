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

// Faults strike the share of the messages, and keep count. They are safe for
// the use of several proxies.
type Faults struct {
	// Share of the messages that are struck, from 0 to 1.
	Share float64
	// Longest is how long a message is held up at the most.
	Longest time.Duration
	// Whole: no message is cut off, and with it its connection.
	Whole bool

	mu    sync.Mutex
	rand  *rand.Rand
	count Count
}

// Count is how many messages met what.
type Count struct{ Messages, Doubled, Delayed, Reordered, CutOff int }

// NewFaults returns faults that follow from a seed, as far as the order of the
// messages does.
func NewFaults(share float64, longest time.Duration, seed uint64) *Faults {
	return &Faults{Share: share, Longest: longest, rand: rand.New(rand.NewPCG(seed, 0xfa17))}
}

// Count tells what has struck so far.
func (f *Faults) Count() Count {
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

// shares of the faults among each other. What is cut off costs a connection, and
// with too many of those nothing else is ever tried.
var shares = []fault{double, double, double, delay, delay, delay, reorder, reorder, reorder, cutOff}

// draw says what becomes of a message.
func (f *Faults) draw(message []byte) (what fault, pause time.Duration, part int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count.Messages++
	if f.rand.Float64() >= f.Share {
		return none, 0, 0
	}
	if what = shares[f.rand.IntN(len(shares))]; what == cutOff && f.Whole {
		what = delay
	}
	*[...]*int{double: &f.count.Doubled, delay: &f.count.Delayed, reorder: &f.count.Reordered, cutOff: &f.count.CutOff}[what]++
	return what, time.Duration(f.rand.Int64N(int64(f.Longest))), f.rand.IntN(len(message))
}

var errCut = errors.New("cut off")

// strike hands a packet on, or does to it what is drawn.
func (f *Faults) strike(packet []byte, to *line) error {
	if f == nil || !isMessage(packet) {
		return to.write(packet)
	}
	what, pause, part := f.draw(packet)
	switch what {
	case double:
		to.later(pause, again(packet))
	case delay:
		time.Sleep(pause)
	case reorder:
		to.later(pause, packet) // what comes next overtakes it
		return nil
	case cutOff:
		return errors.Join(errCut, to.write(packet[:part]))
	default:
	}
	return to.write(packet)
}

// line is one direction of a connection.
type line struct {
	net.Conn
	mu sync.Mutex
}

func (l *line) write(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.Write(b)
	return err
}

func (l *line) later(pause time.Duration, b []byte) {
	time.AfterFunc(pause, func() { _ = l.write(b) }) // an error: the connection has ended
}

// isMessage tells whether a packet is a PUBLISH that its receiver acknowledges.
func isMessage(packet []byte) bool { return packet[0]>>4 == 3 && packet[0]&0x06 != 0 }

// again is a message as it is sent for the second time.
func again(packet []byte) []byte {
	const dup = 0x08
	twin := slices.Clone(packet)
	twin[0] |= dup
	return twin
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
