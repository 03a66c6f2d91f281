package broker

import (
	"bufio"
	"bytes"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"golang.org/x/time/rate"
)

const (
	// connectWithin bounds the time from the connection to its CONNECT packet.
	connectWithin = 10 * time.Second
	// writeWithin bounds the time that a client may leave unread what it is
	// sent.
	writeWithin = 30 * time.Second
	// partWithin bounds the time that a client is given to hear that it is
	// over.
	partWithin = time.Second
	// batchBytes is how much is written at once, about.
	batchBytes = 32 << 10
	// maxAnswers bounds, in bytes, the answers that wait for a client. One that
	// does not read them is not read from.
	maxAnswers = 4 << 10
	// readBuffer is for the many small packets of a robot.
	readBuffer = 1 << 10
)

// conn is one connection of one client.
type conn struct {
	tcp net.Conn
	in  *bufio.Reader
	hub *hub
	// place that it takes up.
	place *place

	// From the CONNECT packet.
	version   byte
	id        string
	keepAlive time.Duration // zero: not asked for
	expiry    time.Duration // of the session after the connection
	largest   int           // packet that it takes; zero: any
	will      *message
	willDelay time.Duration
	identity  Identity      // as the authority says
	pace      *rate.Limiter // of its messages; nil: as it likes
	session   *session

	wake chan struct{} // there may be something to write
	room chan struct{} // answers were taken
	done chan struct{} // closed when it is over

	mu      sync.Mutex
	over    bool
	bye     packets.Code // why, for the client
	answers bytes.Buffer // encoded
}

func newConn(tcp net.Conn, h *hub) *conn {
	return &conn{
		tcp: tcp, in: bufio.NewReaderSize(tcp, readBuffer), hub: h,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

func (c *conn) remote() string { return c.tcp.RemoteAddr().String() }

// serve speaks with the client to the end, and tells what ended it.
func (c *conn) serve() error {
	defer func() { _ = c.tcp.Close() }()
	if err := c.connect(); err != nil {
		return err
	}
	var writer sync.WaitGroup
	writer.Go(c.write)
	defer c.untilExpired().Stop()
	c.wakeUp() // for what waits since the connection before
	goodbye := false
	defer func() {
		c.end(packets.CodeDisconnect) // whatever has brought us here
		c.hub.disconnect(c, goodbye)
		writer.Wait()
	}()
	err := c.read()
	goodbye = err == nil
	c.end(codeOf(err))
	return err
}

// untilExpired ends the connection when the identity does.
func (c *conn) untilExpired() *time.Timer {
	left := time.Duration(math.MaxInt64)
	if at := c.identity.Expires; !at.IsZero() {
		left = at.Sub(c.hub.now())
	}
	return time.AfterFunc(left, func() { c.end(packets.ErrNotAuthorized) })
}

// end asks for the end of the connection. The first reason counts.
func (c *conn) end(why packets.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over, c.bye = true, why
	close(c.done)
	// Whatever reads or writes there ends soon.
	_ = c.tcp.SetReadDeadline(time.Now())
	_ = c.tcp.SetWriteDeadline(time.Now().Add(partWithin))
}

// read takes in packets until the client says goodbye, which is no error.
func (c *conn) read() error {
	for {
		if err := c.await(c.keepAlive * 3 / 2); err != nil {
			return err
		}
		pk, err := readPacket(c.in, c.version, maxPacket)
		if err != nil {
			return err
		}
		if pk.FixedHeader.Type == packets.Disconnect {
			return c.goodbye(&pk)
		}
		if err := c.handle(&pk); err != nil {
			return err
		}
	}
}

// await bounds the time until the next packet. Zero: no bound.
func (c *conn) await(within time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return net.ErrClosed // else this would undo the deadline that end has set
	}
	var until time.Time
	if within > 0 {
		until = time.Now().Add(within)
	}
	return c.tcp.SetReadDeadline(until)
}

// goodbye ends the connection in order. Only a plain goodbye calls the will off
// (MQTT 5, 3.14.4), and a client of version 5 may change how long its session
// lasts.
func (c *conn) goodbye(pk *packets.Packet) error {
	if pk.Properties.SessionExpiryIntervalFlag {
		if c.expiry == 0 && pk.Properties.SessionExpiryInterval > 0 {
			return packets.ErrProtocolViolationZeroNonZeroExpiry
		}
		c.expiry = lifetime(pk.Properties.SessionExpiryInterval)
	}
	if pk.ReasonCode != packets.CodeDisconnect.Code {
		return packets.CodeDisconnectWillMessage
	}
	return nil
}

func (c *conn) handle(pk *packets.Packet) error {
	if err := c.awaitTurn(costOf(pk)); err != nil {
		return err
	}
	switch pk.FixedHeader.Type {
	case packets.Publish:
		return c.publish(pk)
	case packets.Puback:
		c.session.acked(c, pk.PacketID)
		return nil
	case packets.Subscribe:
		return c.subscribe(pk)
	case packets.Unsubscribe:
		return c.unsubscribe(pk)
	case packets.Pingreq:
		return c.answer(packets.Pingresp, packets.Packet{})
	}
	return codeViolation // a second CONNECT
}

// costOf is what a packet counts of what its sender may send: each filter makes as
// much work as a message. What it acknowledges it has been sent.
func costOf(pk *packets.Packet) int {
	switch pk.FixedHeader.Type {
	case packets.Puback:
		return 0
	case packets.Subscribe, packets.Unsubscribe:
		return max(1, len(pk.Filters))
	}
	return 1
}

func (c *conn) publish(pk *packets.Packet) error {
	if code := pk.PublishValidate(0); code != packets.CodeSuccess {
		return code
	}
	switch {
	case pk.FixedHeader.Qos > 1:
		return packets.ErrQosNotSupported
	case !validTopic(pk.TopicName):
		return packets.ErrTopicNameInvalid
	}
	if err := c.awaitServer(); err != nil {
		return err
	}
	code := packets.CodeSuccess
	switch {
	case !c.identity.mayPublish(pk.TopicName, pk.FixedHeader.Retain):
		code = packets.ErrNotAuthorized
		c.refused("publish", pk.TopicName, pk.FixedHeader.Retain)
	case !strings.HasPrefix(pk.TopicName, "$"): // what brokers say of themselves is not for clients to say
		c.hub.publish(newMessage(pk, c.session))
	}
	if pk.FixedHeader.Qos == 0 {
		return nil
	}
	// Version 3.1.1 has no word for a refusal, but to hang up.
	return c.answer(packets.Puback, packets.Packet{PacketID: pk.PacketID, ReasonCode: code.Code})
}

// refused counts and reports what the client may not do.
func (c *conn) refused(what, topic string, retain bool) {
	reason := "topic"
	if retain && c.identity.mayPublish(topic, false) {
		reason = "retained"
	}
	c.hub.refusals.add(reason, Refusal{Name: c.identity.Name, What: what, Topic: strings.Clone(topic)})
}

func (c *conn) subscribe(pk *packets.Packet) error {
	if code := pk.SubscribeValidate(); code != packets.CodeSuccess {
		return code
	}
	if len(pk.Properties.SubscriptionIdentifier) > 0 {
		return packets.ErrSubscriptionIdentifiersNotSupported
	}
	codes := make([]byte, len(pk.Filters))
	for i, asked := range pk.Filters {
		codes[i] = c.subscribeOne(asked).Code
		if c.version < 5 && codes[i] > packets.ErrUnspecifiedError.Code {
			codes[i] = packets.ErrUnspecifiedError.Code // the only failure that it knows
		}
	}
	return c.answer(packets.Suback, packets.Packet{PacketID: pk.PacketID, ReasonCodes: codes})
}

func (c *conn) subscribeOne(asked packets.Subscription) packets.Code {
	switch {
	case !validFilter(asked.Filter):
		return packets.ErrTopicFilterInvalid
	case strings.HasPrefix(asked.Filter, "$share/"):
		return packets.ErrSharedSubscriptionsNotSupported
	case !c.identity.maySubscribe(asked.Filter):
		c.refused("subscribe", asked.Filter, false)
		return packets.ErrNotAuthorized
	}
	return c.hub.subscribe(c.session, asked)
}

func (c *conn) unsubscribe(pk *packets.Packet) error {
	if code := pk.UnsubscribeValidate(); code != packets.CodeSuccess {
		return code
	}
	codes := make([]byte, len(pk.Filters))
	for i, asked := range pk.Filters {
		if !c.hub.unsubscribe(c.session, asked.Filter) {
			codes[i] = packets.CodeNoSubscriptionExisted.Code
		}
	}
	return c.answer(packets.Unsuback, packets.Packet{PacketID: pk.PacketID, ReasonCodes: codes})
}

// answer queues an answer to the client, as soon as there is room.
func (c *conn) answer(kind byte, pk packets.Packet) error {
	pk.ProtocolVersion = c.version
	for {
		c.mu.Lock()
		if c.answers.Len() < maxAnswers {
			defer c.mu.Unlock()
			defer c.wakeUp()
			return appendPacket(&c.answers, kind, pk)
		}
		c.mu.Unlock()
		select {
		case <-c.room:
		case <-c.done:
			return net.ErrClosed
		}
	}
}

// takeAnswers moves the answers to the end of b.
func (c *conn) takeAnswers(b *bytes.Buffer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.answers.WriteTo(b)
	if c.answers.Cap() > maxAnswers/4 {
		c.answers = bytes.Buffer{} // it was a burst
	}
	select {
	case c.room <- struct{}{}:
	default:
	}
}

func (c *conn) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// batches lends the writers their buffers: a connection that is quiet holds
// none.
var batches = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// write sends what there is until the connection is over, and then says so.
func (c *conn) write() {
	defer func() { _ = c.tcp.Close() }()
	for {
		select {
		case <-c.done:
			c.sayGoodbye()
			return
		case <-c.wake:
			if err := c.writeAll(); err != nil {
				c.end(packets.CodeDisconnect)
				return
			}
		}
	}
}

func (c *conn) writeAll() error {
	b := batches.Get().(*bytes.Buffer)
	defer batches.Put(b)
	for {
		b.Reset()
		if err := c.fill(b); err != nil || b.Len() == 0 {
			return err
		}
		if err := c.send(b.Bytes()); err != nil {
			return err
		}
	}
}

// fill encodes the next messages, and then all answers: what was there for a
// client before it subscribed comes before the word that it has.
func (c *conn) fill(b *bytes.Buffer) error {
	now := c.hub.now()
	for b.Len() < batchBytes {
		d, ok := c.session.next(c, now)
		if !ok {
			break
		}
		before := b.Len()
		if err := appendPacket(b, packets.Publish, d.packet(c.version, now)); err != nil {
			return err
		}
		if c.largest > 0 && b.Len()-before > c.largest {
			b.Truncate(before) // it said that it would not take this
			c.session.acked(c, d.id)
		}
	}
	c.takeAnswers(b)
	return nil
}

func (c *conn) send(batch []byte) error {
	c.mu.Lock()
	if !c.over {
		_ = c.tcp.SetWriteDeadline(time.Now().Add(writeWithin))
	}
	c.mu.Unlock()
	_, err := c.tcp.Write(batch)
	return err
}

// sayGoodbye tells a client of version 5 why the connection is over, if that is
// not the client's own wish.
func (c *conn) sayGoodbye() {
	if c.version < 5 || c.bye.Code < packets.ErrUnspecifiedError.Code {
		return
	}
	var b bytes.Buffer
	if appendPacket(&b, packets.Disconnect, packets.Packet{ProtocolVersion: c.version, ReasonCode: c.bye.Code}) == nil {
		_ = c.send(b.Bytes())
	}
}
