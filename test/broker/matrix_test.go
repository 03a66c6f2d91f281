package broker_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/testca"
)

// backend is a broker under test.
type backend interface {
	authority() *testca.Authority
	dialTLS(certificate *tls.Certificate) (net.Conn, error) // nil: none
	dialPlain() (net.Conn, error)
	admit(robot string)
	revoke(name string)
	// refusesWillsAtOnce reports whether a will is checked at CONNECT, or else when it is published.
	refusesWillsAtOnce() bool
	supportsLegacy() bool
}

const (
	ownOdd  = "k8s4r/robots/r1/tasks/../status"
	control = "$CONTROL/dynamic-security/v1"
)

const uid = "0a1b2c3d-0000-4000-8000-00000000000a"

// publishTopics and subscribeTopics are all topics between a robot and the server.
func publishTopics(robot string) []string {
	at := "k8s4r/robots/" + robot
	return []string{at + "/register", at + "/heartbeat", at + "/presence", at + "/tasks/" + uid + "/status", at + "/tasks/" + uid + "/logs"}
}

func subscribeTopics(robot string) []string {
	at := "k8s4r/robots/" + robot
	return []string{at + "/ack", at + "/response", at + "/tasks/dispatch", at + "/tasks/state"}
}

// events are topics of the console, which only clients with a permission of their own may read.
var events = []string{"k8s4r/events/lifecycle", "k8s4r/events/ns/jobs/j", "k8s4r/events/ns/jobs/j/tasks", "k8s4r/events/ns/jobs/j/tasks/t"}

var (
	shared = []string{"k8s4r/register", "k8s4r/heartbeat"}
	robots = []string{"r1", "r2", "l1"}
	odd    = []string{
		"k8s4r", "other", "k8s4r/robots/r1", "k8s4r/robots//register", "k8s4r/robots/R1/register", "/k8s4r/robots/r1/register",
		"k8s4r/robots/r1/register/", "k8s4r/robots/r1/tasks/dispatch/x", "k8s4r/robots/r1/tasks/" + uid, ownOdd,
		"k8s4r/robots/unknown/tasks/dispatch", "k8s4r/robots/unknown/register", "$SYS/broker/uptime", "$share/g/k8s4r/robots/r1/register", control,
		"k8s4r/events", "k8s4r/events/ns", "k8s4r/events/ns/jobs", "k8s4r/events/ns/jobs/j/tasks/t/x",
	}
	wild = []string{
		"#", "+/#", "+/+", "k8s4r/#", "k8s4r/+", "k8s4r/robots/#", "k8s4r/robots/+/#", "k8s4r/robots/+/response", "k8s4r/robots/+/tasks/dispatch",
		"k8s4r/robots/r1/#", "k8s4r/robots/r1/+", "k8s4r/robots/r1/tasks/+", "k8s4r/robots/r1/tasks/#", "+/robots/r1/tasks/dispatch", "+/+/+/+/+", "$SYS/#", "$CONTROL/#",
		"$share/g/#", "$share/g/k8s4r/robots/r1/tasks/dispatch", "$share/g/k8s4r/robots/+/tasks/dispatch",
		"k8s4r/events/#", "k8s4r/events/+", "k8s4r/events/+/+/+", "k8s4r/events/ns/jobs/#", "$share/g/k8s4r/events/#",
		"k8s4r/robots/+/register", "k8s4r/robots/+/heartbeat", "k8s4r/robots/+/presence", "k8s4r/robots/+/tasks/+/status", "k8s4r/robots/+/tasks/+/logs",
	}
)

// topics are all that a message may be published to.
func publishableTopics() []string {
	return slices.Concat(publishTopics("r1"), subscribeTopics("r1"), publishTopics("r2"), subscribeTopics("r2"), publishTopics("l1"), subscribeTopics("l1"), shared, events, odd)
}

// permissions are the topics of a client: a robot, the server or the console.
type permissions struct {
	name      string
	publishes []string
	receives  []string
	retains   []string // topics with retained messages
}

func robotPermissions(name string) permissions {
	return permissions{name: name, publishes: publishTopics(name), receives: subscribeTopics(name)}
}

func legacyPermissions(name string) permissions {
	h := robotPermissions(name)
	h.publishes = append(h.publishes, shared...)
	return h
}

// serverPermissions also allow to publish to robots that do not exist.
func serverPermissions() permissions {
	h := permissions{name: "k8s4r-server", receives: slices.Clone(shared)}
	for _, r := range append(robots, "unknown") {
		h.publishes = append(h.publishes, subscribeTopics(r)...)
		h.receives = append(h.receives, publishTopics(r)...)
		h.retains = append(h.retains, "k8s4r/robots/"+r+"/tasks/state")
	}
	return h
}

// actor is a client that tries all actions on all topics.
type actor struct {
	name      string
	permitted permissions // zero: none
	connect   func(...func(*packets.Connect)) (*peer, error)
}

// setup is a broker with all clients that may receive messages, and with one that tries all
// actions.
type setup struct {
	t           *testing.T
	broker      backend
	certs       map[string]*tls.Certificate
	subscribers map[string]*peer
	clients     map[string]permissions
}

func newSetup(t *testing.T, b backend) *setup {
	s := &setup{t: t, broker: b, certs: map[string]*tls.Certificate{}, subscribers: map[string]*peer{}, clients: map[string]permissions{}}
	server, r1 := serverPermissions(), robotPermissions("r1")
	if !b.supportsLegacy() {
		// Mosquitto checks the levels of a topic but not their content; the server checks it.
		r1.publishes = append(r1.publishes, ownOdd)
		server.receives = append(server.receives, ownOdd)
	}
	for _, h := range []permissions{server, r1, robotPermissions("r2"), {name: "k8s4r-console", publishes: events}} {
		s.clients[h.name] = h
		s.certs[h.name] = b.authority().NewClientCertificate(h.name, time.Hour)
		if !strings.HasPrefix(h.name, "k8s4r-") {
			b.admit(h.name)
		}
	}
	if b.supportsLegacy() {
		s.clients["l1"] = legacyPermissions("l1")
	}
	return s
}

// connectAs connects with the certificate of one and the client id of another.
func (s *setup) connectAs(cert, id string, change ...func(*packets.Connect)) (*peer, error) {
	conn, err := s.broker.dialTLS(s.certs[cert])
	if err != nil {
		return nil, err
	}
	p, _, err := connectPeer(conn, id, change...)
	return p, err
}

func (s *setup) connectLegacy(change ...func(*packets.Connect)) (*peer, error) {
	conn, err := s.broker.dialPlain()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	p, _, err := connectPeer(conn, "k8s4r-agent-l1", change...)
	return p, err
}

func (s *setup) connect(name string, change ...func(*packets.Connect)) (*peer, error) {
	if name == "l1" {
		return s.connectLegacy(change...)
	}
	return s.connectAs(name, name, change...)
}

// connectSubscribers connects all clients but one, with all their permitted subscriptions.
func (s *setup) connectSubscribers(but string) {
	for name, h := range s.clients {
		if name != but {
			s.subscribers[name] = s.connectSubscriber(h)
		}
	}
}

func (s *setup) connectSubscriber(h permissions) *peer {
	s.t.Helper()
	p := s.mustConnect(s.connect(h.name))
	s.subscribeAll(p, h)
	return p
}

func (s *setup) subscribeAll(p *peer, h permissions) {
	s.t.Helper()
	for _, filter := range h.filters() {
		if code, err := p.subscribe(filter, h.name == "k8s4r-server"); err != nil || code != 1 {
			s.t.Fatalf("%s subscribes to %s: %#x %v", h.name, filter, code, err)
		}
	}
}

// filters returns the filters that the programs subscribe to.
func (h permissions) filters() []string {
	if h.name != "k8s4r-server" {
		return h.receives
	}
	at := "k8s4r/robots/+"
	return append(slices.Clone(shared), at+"/register", at+"/heartbeat", at+"/presence", at+"/tasks/+/status", at+"/tasks/+/logs")
}

func (s *setup) mustConnect(p *peer, err error) *peer {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// receiversOf returns the clients that received this text, with the topic.
func (s *setup) receiversOf(text string) (by []string) {
	s.t.Helper()
	for name, subscriber := range s.subscribers {
		received, err := subscriber.drainMessages()
		if err != nil {
			s.t.Fatalf("%s was disconnected: %v", name, err)
		}
		for _, m := range received {
			if string(m.Payload) == text {
				by = append(by, name)
			}
		}
	}
	return by
}

// cellCount counts the cells of the matrix, by outcome.
type cellCount struct{ cells, leaks int }

func (c *cellCount) addCell(t *testing.T, ok bool, format string, a ...any) {
	t.Helper()
	c.cells++
	if !ok {
		c.leaks++
		t.Errorf(format, a...)
	}
}

// testPermissionMatrix tries all actions of all actors on a broker. name is that of its figures.
func testPermissionMatrix(t *testing.T, name string, start func(*testing.T) backend) {
	t.Helper()
	var c cellCount
	for _, actorName := range actorNames {
		t.Run(actorName, func(t *testing.T) {
			s := newSetup(t, start(t))
			a, ok := s.actor(actorName)
			if !ok {
				t.Skip("not supported by this broker")
			}
			s.connectSubscribers(a.permitted.name)
			s.tryPublish(a, &c)
			s.tryWills(a, &c)
			s.trySubscribe(a, &c)
		})
	}
	testkit.RecordFigures(t, name, map[string]int{"topic_cells": c.cells, "leaks": c.leaks})
	if c.cells < 500 {
		t.Errorf("only %d cells, want at least 500", c.cells)
	}
}

var actorNames = []string{
	"the robot itself", "another robot", "the server", "the console", "a legacy agent", "a client without a certificate", "a client in plaintext", "a revoked robot",
	"a robot whose certificate has expired", "a robot of a foreign CA", "a robot with another's client id", "a robot with the client id of the server",
	"a connection that was taken over", "a robot named by a wildcard", "a robot named by a topic",
}

// actor returns the actor of this name, with the permissions of its certificate.
func (s *setup) actor(name string) (actor, bool) {
	with := func(cert, id string, permitted permissions) (actor, bool) {
		return actor{name, permitted, func(change ...func(*packets.Connect)) (*peer, error) { return s.connectAs(cert, id, change...) }}, true
	}
	odd := func(cn string, lasts time.Duration, from *testca.Authority, id string) (actor, bool) {
		s.certs["odd"] = from.NewClientCertificate(cn, lasts)
		return with("odd", id, permissions{})
	}
	own := s.broker.authority()
	switch name {
	case "the robot itself":
		return with("r1", "r1", s.clients["r1"])
	case "another robot":
		return with("r2", "r2", s.clients["r2"])
	case "the server":
		return with("k8s4r-server", "k8s4r-server", s.clients["k8s4r-server"])
	case "the console":
		return with("k8s4r-console", "k8s4r-console", s.clients["k8s4r-console"])
	case "a legacy agent":
		return actor{name, s.clients["l1"], s.connectLegacy}, s.broker.supportsLegacy()
	case "a client without a certificate":
		return with("none", "r1", permissions{})
	case "a client in plaintext":
		return actor{name, permissions{}, func(change ...func(*packets.Connect)) (*peer, error) {
			conn, err := s.broker.dialPlain()
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errRefused, err)
			}
			p, _, err := connectPeer(conn, "r1", change...)
			return p, err
		}}, true
	case "a revoked robot":
		s.certs["r3"] = own.NewClientCertificate("r3", time.Hour)
		s.broker.admit("r3")
		s.broker.revoke("r3")
		return with("r3", "r3", permissions{})
	case "a robot whose certificate has expired":
		return odd("r1", -time.Minute, own, "r1")
	case "a robot of a foreign CA":
		return odd("r1", time.Hour, testca.New(s.t), "r1")
	case "a robot with another's client id":
		a, ok := with("r2", "r1", s.clients["r2"])
		return a, ok
	case "a robot with the client id of the server":
		return with("r2", "k8s4r-server", s.clients["r2"])
	case "a connection that was taken over":
		return s.newTakenOverActor(), true
	case "a robot named by a wildcard":
		return odd("+", time.Hour, own, "+")
	case "a robot named by a topic":
		return odd("r1/tasks", time.Hour, own, "r1/tasks")
	}
	panic(name)
}

// newTakenOverActor returns a connection of r1 that another one of r1 has replaced. It sets no will,
// because a will of the replaced connection is permitted.
func (s *setup) newTakenOverActor() actor {
	return actor{"a connection that was taken over", permissions{}, func(change ...func(*packets.Connect)) (*peer, error) {
		if len(change) > 0 {
			return nil, errRefused
		}
		old, err := s.connect("r1")
		if err == nil {
			s.subscribers["r1"] = s.connectSubscriber(s.clients["r1"])
		}
		return old, err
	}}
}

func (s *setup) tryPublish(a actor, c *cellCount) {
	for _, retain := range []bool{false, true} {
		for i, topic := range publishableTopics() {
			text := fmt.Sprintf("%v %d", retain, i)
			allowed := slices.Contains(a.permitted.publishes, topic)
			if retain {
				allowed = slices.Contains(a.permitted.retains, topic)
			}
			p, err := a.connect()
			if !s.isConnected(a, err) {
				c.addCell(s.t, true, "")
				continue
			}
			if len(a.permitted.receives) > 0 && s.hasOwnClientID(a) {
				s.subscribeAll(p, a.permitted)
			}
			code, _ := p.publish(topic, text, retain)
			received := s.receiversOf(text)
			if own, err := p.drainMessages(); err == nil && slices.ContainsFunc(own, func(m *packets.Publish) bool { return string(m.Payload) == text }) {
				received = append(received, "itself")
			}
			c.addCell(s.t, s.isOutcomeRight(a, topic, allowed, retain, code, received), "publish on %s, retained %v: reason code %#x, received by %q", topic, retain, code, received)
			if retain {
				late := s.lateReceivers(a, text)
				trusted := a.permitted.name == "k8s4r-server" && !s.refusesRetained() // and the server may publish any retained message
				c.addCell(s.t, allowed || trusted || len(late) == 0, "retained on %s: received later by %q", topic, late)
			}
			_ = p.conn.Close()
		}
	}
}

// hasOwnClientID reports whether an actor connects under its own client id.
func (s *setup) hasOwnClientID(a actor) bool {
	return !strings.Contains(a.name, "client id")
}

// isConnected reports whether the broker accepted the connection. Any error but a refusal fails the
// test.
func (s *setup) isConnected(a actor, err error) bool {
	s.t.Helper()
	if err != nil && !errors.Is(err, errRefused) {
		s.t.Fatal(err)
	}
	if err != nil && a.permitted.name != "" && s.hasOwnClientID(a) {
		s.t.Fatalf("%s is refused: %v", a.name, err)
	}
	return err == nil
}

// isOutcomeRight reports whether the reason code and the receivers of a message are as the table
// requires.
func (s *setup) isOutcomeRight(a actor, topic string, allowed, retain bool, code byte, received []string) bool {
	if !allowed && (!retain || s.refusesRetained()) {
		return len(received) == 0 && code >= 0x80 || len(received) == 0 && a.permitted.name == ""
	}
	if !allowed { // and retained: it may be delivered as any other message, but not retained
		return len(received) == 0 || slices.Contains(a.permitted.publishes, topic)
	}
	if strings.Contains(topic, "/unknown/") {
		return len(received) == 0
	}
	var want []string
	for name, h := range s.clients {
		if name != a.permitted.name && slices.Contains(h.receives, topic) {
			want = append(want, name)
		}
	}
	return slices.Equal(want, received)
}

func (s *setup) refusesRetained() bool { return s.broker.refusesWillsAtOnce() }

// lateReceivers returns the clients that get a retained text when they subscribe again.
func (s *setup) lateReceivers(a actor, text string) (by []string) {
	s.t.Helper()
	for name, h := range s.clients {
		if name == a.permitted.name {
			continue
		}
		s.subscribers[name] = s.connectSubscriber(h)
	}
	return s.receiversOf(text)
}

func (s *setup) tryWills(a actor, c *cellCount) {
	for _, retain := range []bool{false, true} {
		for i, topic := range publishableTopics() {
			text := fmt.Sprintf("will %v %d", retain, i)
			allowed := slices.Contains(a.permitted.publishes, topic)
			if retain {
				allowed = slices.Contains(a.permitted.retains, topic)
			}
			p, err := a.connect(withWill(topic, text, retain))
			if err == nil {
				p.closeWithWill()
			} else if !errors.Is(err, errRefused) {
				s.t.Fatal(err)
			}
			if !allowed {
				received := s.receiversOf(text)
				mayPass := retain && !s.refusesRetained() && slices.Contains(a.permitted.publishes, topic)
				c.addCell(s.t, len(received) == 0 || mayPass, "will on %s, retained %v: received by %q", topic, retain, received)
				c.addCell(s.t, err != nil || !s.broker.refusesWillsAtOnce(), "will on %s, retained %v: accepted at CONNECT", topic, retain)
				continue
			}
			c.addCell(s.t, err != nil && !s.hasOwnClientID(a) || s.willArrives(topic, text), "will on %s, retained %v: not delivered (%v)", topic, retain, err)
		}
	}
}

// willArrives blocks until a client receives the will, if any client may.
func (s *setup) willArrives(topic, text string) bool {
	received := false
	for name := range s.subscribers {
		received = received || slices.Contains(s.clients[name].receives, topic)
	}
	for until := time.Now().Add(waitTimeout); received && time.Now().Before(until); {
		if len(s.receiversOf(text)) > 0 {
			return true
		}
	}
	return !received
}

// trySubscribe subscribes to all filters while all clients publish on all permitted topics.
func (s *setup) trySubscribe(a actor, c *cellCount) {
	for i, filter := range append(publishableTopics(), wild...) {
		p, err := a.connect()
		if !s.isConnected(a, err) {
			c.addCell(s.t, true, "")
			continue
		}
		isNeeded := slices.Contains(a.permitted.filters(), filter)
		code, err := p.subscribe(filter, false)
		if err == nil && (a.permitted.name != "k8s4r-server" || isNeeded) { // it may request less than it needs; what it receives is checked below
			c.addCell(s.t, isNeeded == (code < 0x80), "subscribe to %s: reason code %#x", filter, code)
		}
		text := fmt.Sprint("message ", i)
		s.publishAll(a, p, text)
		received, err := p.drainMessages()
		wrong := slices.DeleteFunc(received, func(m *packets.Publish) bool { return slices.Contains(a.permitted.receives, m.Topic) })
		c.addCell(s.t, len(wrong) == 0, "subscribed to %s: received %d messages without permission, the first on %s", filter, len(wrong), firstTopic(wrong))
		if err == nil && isNeeded && (s.broker.supportsLegacy() || !slices.Contains(shared, filter)) {
			c.addCell(s.t, len(received) > 0, "subscribed to %s: received no message", filter)
		}
		_ = p.conn.Close()
	}
}

func firstTopic(received []*packets.Publish) string {
	if len(received) == 0 {
		return ""
	}
	return received[0].Topic
}

// publishAll lets all clients publish on all permitted topics, the server also retained messages.
func (s *setup) publishAll(a actor, p *peer, text string) {
	s.t.Helper()
	publishers := map[string]*peer{a.permitted.name: p}
	for name, subscriber := range s.subscribers {
		publishers[name] = subscriber
	}
	for name, h := range s.clients {
		publisher := publishers[name]
		if publisher == nil || publisher == p && !s.hasOwnClientID(a) {
			continue
		}
		for _, topic := range h.publishes {
			if code, err := publisher.publish(topic, text, slices.Contains(h.retains, topic)); err != nil || code >= 0x80 {
				s.t.Fatalf("%s cannot publish on %s: %#x, %v", name, topic, code, err)
			}
		}
	}
	s.receiversOf(text)
}

func TestPermissions_EmbeddedBroker(t *testing.T) {
	testPermissionMatrix(t, "topics-embedded", func(t *testing.T) backend { return newEmbedded(t) })
}
