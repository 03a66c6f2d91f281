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

	"k8s4r.io/k8s4r/internal/protocol/acl"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	// connectTimeout bounds the time until the CONNECT packet.
	connectTimeout = 10 * time.Second
	// writeTimeout bounds a write to a client that does not read.
	writeTimeout = 30 * time.Second
	// disconnectTimeout bounds the write of the DISCONNECT packet.
	disconnectTimeout = time.Second
	// batchBytes is the approximate size of one write.
	batchBytes = 32 << 10
	// maxResponses bounds, in bytes, the queued responses to a client. A client that
	// does not read them is not read from.
	maxResponses = 4 << 10
	// readBuffer suits the many small packets of a robot.
	readBuffer = 1 << 10
)

// conn is a client's connection.
type conn struct {
	tcp  net.Conn
	in   *bufio.Reader
	hub  *hub
	slot *connSlot

	// From the CONNECT packet.
	version   byte
	id        string
	keepAlive time.Duration // zero: not asked for
	expiry    time.Duration // of the session after the connection
	maxPacket int           // packet that the client accepts; zero: any
	will      *message
	willDelay time.Duration
	identity  Identity       // as authenticated
	limiter   *clientLimiter // nil: unlimited
	session   *session

	isAdmitted bool          // it has taken a turn
	retryAfter time.Duration // until its turn, if it must come back

	wake         chan struct{} // there may be something to write
	responseRoom chan struct{} // responses were written
	closing      chan struct{} // closed when the connection ends

	mu          sync.Mutex
	isClosing   bool
	closeReason packets.Code // sent to the client
	responses   bytes.Buffer // encoded
}

func newConn(tcp net.Conn, h *hub) *conn {
	return &conn{
		tcp: tcp, in: bufio.NewReaderSize(tcp, readBuffer), hub: h,
		wake: make(chan struct{}, 1), responseRoom: make(chan struct{}, 1), closing: make(chan struct{}),
	}
}

func (c *conn) remoteAddress() string { return c.tcp.RemoteAddr().String() }

// serveClient serves a client that is connected until it disconnects, and returns why.
func (c *conn) serveClient() error {
	var writer sync.WaitGroup
	writer.Go(c.writeLoop)
	defer c.closeOnExpiry().Stop()
	c.wakeUp() // for messages queued since the last connection
	disconnectedNormally := false
	defer func() {
		c.closeWith(packets.CodeDisconnect) // if nothing has closed it yet
		c.hub.detachSession(c, disconnectedNormally)
		writer.Wait()
	}()
	err := c.readLoop()
	disconnectedNormally = err == nil
	c.closeWith(disconnectReason(err))
	return err
}

// closeOnExpiry closes the connection when the identity expires.
func (c *conn) closeOnExpiry() *time.Timer {
	left := time.Duration(math.MaxInt64)
	if at := c.identity.Expires; !at.IsZero() {
		left = at.Sub(c.hub.now())
	}
	return time.AfterFunc(left, func() { c.closeWith(packets.ErrNotAuthorized) })
}

// closeWith starts to close the connection. The first reason is sent.
func (c *conn) closeWith(reason packets.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosing {
		return
	}
	c.isClosing, c.closeReason = true, reason
	close(c.closing)
	// Ends blocked reads and writes.
	_ = c.tcp.SetReadDeadline(time.Now())
	_ = c.tcp.SetWriteDeadline(time.Now().Add(disconnectTimeout))
}

// readLoop handles packets until the client disconnects, which is no error.
func (c *conn) readLoop() error {
	for {
		if err := c.setReadTimeout(c.keepAlive * 3 / 2); err != nil {
			return err
		}
		pk, err := readPacket(c.in, c.version, maxPacket)
		if err != nil {
			return err
		}
		if pk.FixedHeader.Type == packets.Disconnect {
			return c.handleDisconnect(pk)
		}
		if err := c.handlePacket(pk); err != nil {
			return err
		}
	}
}

// setReadTimeout bounds the time until the next packet. Zero: no bound.
func (c *conn) setReadTimeout(within time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosing {
		return net.ErrClosed // keep the deadline that closeWith has set
	}
	var until time.Time
	if within > 0 {
		until = time.Now().Add(within)
	}
	return c.tcp.SetReadDeadline(until)
}

// handleDisconnect handles DISCONNECT. Only reason 0x00 discards the will (MQTT 5,
// 3.14.4), and a client of version 5 may change its session expiry.
func (c *conn) handleDisconnect(pk *packets.Packet) error {
	if pk.Properties.SessionExpiryIntervalFlag {
		if c.expiry == 0 && pk.Properties.SessionExpiryInterval > 0 {
			return packets.ErrProtocolViolationZeroNonZeroExpiry
		}
		c.expiry = sessionExpiry(pk.Properties.SessionExpiryInterval)
	}
	if pk.ReasonCode != packets.CodeDisconnect.Code {
		return packets.CodeDisconnectWillMessage
	}
	return nil
}

func (c *conn) handlePacket(pk *packets.Packet) error {
	if err := c.awaitTurn(pk); err != nil {
		return err
	}
	switch pk.FixedHeader.Type {
	case packets.Publish:
		return c.handlePublish(pk)
	case packets.Puback:
		c.session.recordAck(c, pk.PacketID)
		return nil
	case packets.Subscribe:
		return c.handleSubscribe(pk)
	case packets.Unsubscribe:
		return c.handleUnsubscribe(pk)
	case packets.Pingreq:
		return c.queueResponse(packets.Pingresp, &packets.Packet{})
	}
	return codeProtocolViolation // a second CONNECT
}

// packetCost returns what a packet counts for the rate limit: a filter counts as a
// message, an acknowledgement as nothing.
func packetCost(pk *packets.Packet) int {
	switch pk.FixedHeader.Type {
	case packets.Puback:
		return 0
	case packets.Subscribe, packets.Unsubscribe:
		return max(1, len(pk.Filters))
	}
	return 1
}

func (c *conn) handlePublish(pk *packets.Packet) error {
	if code := pk.PublishValidate(0); code != packets.CodeSuccess {
		return code
	}
	switch {
	case pk.FixedHeader.Qos > 1:
		return packets.ErrQosNotSupported
	case !isValidTopic(pk.TopicName):
		return packets.ErrTopicNameInvalid
	}
	if err := c.awaitServer(); err != nil {
		return err
	}
	code := packets.CodeSuccess
	switch {
	case !c.identity.mayPublish(pk.TopicName, pk.FixedHeader.Retain):
		code = packets.ErrNotAuthorized
		c.recordRefusal("publish", pk.TopicName, pk.FixedHeader.Retain)
	case !strings.HasPrefix(pk.TopicName, "$"): // clients may not publish the broker's own topics
		c.hub.publishMessage(newMessage(pk, c.session))
	}
	if pk.FixedHeader.Qos == 0 {
		return nil
	}
	// In version 3.1.1 a PUBACK cannot report a refusal.
	return c.queueResponse(packets.Puback, &packets.Packet{PacketID: pk.PacketID, ReasonCode: code.Code})
}

// recordRefusal counts and reports a denied action.
func (c *conn) recordRefusal(what, topic string, retain bool) {
	reason := "topic"
	if retain && c.identity.mayPublish(topic, false) {
		reason = "retained"
	}
	refusal := Refusal{Name: c.identity.Name, Action: what, Topic: strings.Clone(topic)}
	if c.isOwnTaskList(topic) {
		refusal.Name = "" // counted, but not reported
	}
	c.hub.refusals.record(reason, refusal)
}

// isOwnTaskList reports whether a legacy agent publishes to its own task list, which some of them
// clear when they start. That is refused, but no impersonation.
func (c *conn) isOwnTaskList(topic string) bool {
	return c.identity.Role == acl.LegacyAgent && topic == wire.RobotTopic(c.identity.Name, wire.KindState)
}

func (c *conn) handleSubscribe(pk *packets.Packet) error {
	if code := pk.SubscribeValidate(); code != packets.CodeSuccess {
		return code
	}
	if len(pk.Properties.SubscriptionIdentifier) > 0 {
		return packets.ErrSubscriptionIdentifiersNotSupported
	}
	codes := make([]byte, len(pk.Filters))
	for i, requested := range pk.Filters {
		codes[i] = c.subscribeFilter(requested).Code
		if c.version < 5 && codes[i] > packets.ErrUnspecifiedError.Code {
			codes[i] = packets.ErrUnspecifiedError.Code // the only failure code of version 3.1.1
		}
	}
	return c.queueResponse(packets.Suback, &packets.Packet{PacketID: pk.PacketID, ReasonCodes: codes})
}

func (c *conn) subscribeFilter(requested packets.Subscription) packets.Code {
	switch {
	case !isValidFilter(requested.Filter):
		return packets.ErrTopicFilterInvalid
	case strings.HasPrefix(requested.Filter, "$share/"):
		return packets.ErrSharedSubscriptionsNotSupported
	case !c.identity.maySubscribe(requested.Filter):
		c.recordRefusal("subscribe", requested.Filter, false)
		return packets.ErrNotAuthorized
	}
	return c.hub.addSubscription(c.session, requested)
}

func (c *conn) handleUnsubscribe(pk *packets.Packet) error {
	if code := pk.UnsubscribeValidate(); code != packets.CodeSuccess {
		return code
	}
	codes := make([]byte, len(pk.Filters))
	for i, requested := range pk.Filters {
		if !c.hub.removeSubscription(c.session, requested.Filter) {
			codes[i] = packets.CodeNoSubscriptionExisted.Code
		}
	}
	return c.queueResponse(packets.Unsuback, &packets.Packet{PacketID: pk.PacketID, ReasonCodes: codes})
}

// queueResponse queues a response, and blocks while there is no room.
func (c *conn) queueResponse(kind byte, pk *packets.Packet) error {
	pk.ProtocolVersion = c.version
	for {
		c.mu.Lock()
		if c.responses.Len() < maxResponses {
			defer c.mu.Unlock()
			defer c.wakeUp()
			return appendPacket(&c.responses, kind, pk)
		}
		c.mu.Unlock()
		select {
		case <-c.responseRoom:
		case <-c.closing:
			return net.ErrClosed
		}
	}
}

// takeResponses moves the queued responses to b.
func (c *conn) takeResponses(b *bytes.Buffer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.responses.WriteTo(b)
	if c.responses.Cap() > maxResponses/4 {
		c.responses = bytes.Buffer{} // release the memory of a burst
	}
	select {
	case c.responseRoom <- struct{}{}:
	default:
	}
}

func (c *conn) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// batchBuffers lends buffers to writers, so that idle connections hold none.
var batchBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// writeLoop writes messages until the connection ends, and then DISCONNECT.
func (c *conn) writeLoop() {
	defer func() { _ = c.tcp.Close() }()
	for {
		select {
		case <-c.closing:
			c.sendDisconnect()
			return
		case <-c.wake:
			if err := c.writeAll(); err != nil {
				c.closeWith(packets.CodeDisconnect)
				return
			}
		}
	}
}

func (c *conn) writeAll() error {
	b := batchBuffers.Get().(*bytes.Buffer)
	defer batchBuffers.Put(b)
	for {
		b.Reset()
		if err := c.fillBatch(b); err != nil || b.Len() == 0 {
			return err
		}
		if err := c.writeBatch(b.Bytes()); err != nil {
			return err
		}
	}
}

// fillBatch encodes the next messages, and then all responses: messages from before a
// subscription precede its SUBACK.
func (c *conn) fillBatch(b *bytes.Buffer) error {
	now := c.hub.now()
	for b.Len() < batchBytes {
		d, ok := c.session.takeNext(c, now)
		if !ok {
			break
		}
		before := b.Len()
		if err := appendPacket(b, packets.Publish, d.toPacket(c.version, now)); err != nil {
			return err
		}
		if c.maxPacket > 0 && b.Len()-before > c.maxPacket {
			b.Truncate(before) // exceeds the client's Maximum Packet Size
			c.session.recordAck(c, d.id)
		}
	}
	c.takeResponses(b)
	return nil
}

func (c *conn) writeBatch(batch []byte) error {
	c.mu.Lock()
	if !c.isClosing {
		_ = c.tcp.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	c.mu.Unlock()
	_, err := c.tcp.Write(batch)
	return err
}

// sendDisconnect sends a client of version 5 the reason, unless the client closed the
// connection.
func (c *conn) sendDisconnect() {
	if c.version < 5 || c.closeReason.Code < packets.ErrUnspecifiedError.Code {
		return
	}
	var b bytes.Buffer
	if appendPacket(&b, packets.Disconnect, &packets.Packet{ProtocolVersion: c.version, ReasonCode: c.closeReason.Code}) == nil {
		_ = c.writeBatch(b.Bytes())
	}
}
