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

	"k8s4r.io/k8s4r/internal/testkit/testca"
)

// backend is a broker that the matrix is asked of.
type backend interface {
	authority() *testca.Authority
	dialTLS(shown *tls.Certificate) (net.Conn, error) // nil: shows none
	dialPlain() (net.Conn, error)
	admit(robot string)
	revoke(name string)
	// refusesWillsAtOnce, or else only when they are to be published.
	refusesWillsAtOnce() bool
	knowsLegacy() bool
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
func topics() []string {
	return slices.Concat(publishTopics("r1"), subscribeTopics("r1"), publishTopics("r2"), subscribeTopics("r2"), publishTopics("l1"), subscribeTopics("l1"), shared, events, odd)
}

// holder is a client with permissions: a robot, or the server.
type holder struct {
	name   string
	says   []string
	hears  []string
	states []string // what it may have retained
}

func robotHolder(name string) holder {
	return holder{name: name, says: publishTopics(name), hears: subscribeTopics(name)}
}

func legacyHolder(name string) holder {
	h := robotHolder(name)
	h.says = append(h.says, shared...)
	return h
}

// serverHolder may also publish to robots that do not exist.
func serverHolder() holder {
	h := holder{name: "k8s4r-server", hears: slices.Clone(shared)}
	for _, r := range append(robots, "unknown") {
		h.says = append(h.says, subscribeTopics(r)...)
		h.hears = append(h.hears, publishTopics(r)...)
		h.states = append(h.states, "k8s4r/robots/"+r+"/tasks/state")
	}
	return h
}

// actor is a client that tries everything.
type actor struct {
	name  string
	may   holder // zero: it may do nothing
	enter func(...func(*packets.Connect)) (*peer, error)
}

// scene is a broker with all clients that may receive something, and with one that
// tries everything.
type scene struct {
	t      *testing.T
	broker backend
	certs  map[string]*tls.Certificate
	ears   map[string]*peer
	who    map[string]holder
}

func newScene(t *testing.T, b backend) *scene {
	s := &scene{t: t, broker: b, certs: map[string]*tls.Certificate{}, ears: map[string]*peer{}, who: map[string]holder{}}
	server, r1 := serverHolder(), robotHolder("r1")
	if !b.knowsLegacy() {
		// Mosquitto checks the levels of a topic but not their content; the server checks it.
		r1.says = append(r1.says, ownOdd)
		server.hears = append(server.hears, ownOdd)
	}
	for _, h := range []holder{server, r1, robotHolder("r2"), {name: "k8s4r-console", says: events}} {
		s.who[h.name] = h
		s.certs[h.name] = b.authority().NewClientCertificate(h.name, time.Hour)
		if !strings.HasPrefix(h.name, "k8s4r-") {
			b.admit(h.name)
		}
	}
	if b.knowsLegacy() {
		s.who["l1"] = legacyHolder("l1")
	}
	return s
}

// as connects with the certificate of one and the client id of another.
func (s *scene) as(cert, id string, change ...func(*packets.Connect)) (*peer, error) {
	conn, err := s.broker.dialTLS(s.certs[cert])
	if err != nil {
		return nil, err
	}
	p, _, err := hello(conn, id, change...)
	return p, err
}

func (s *scene) legacy(change ...func(*packets.Connect)) (*peer, error) {
	conn, err := s.broker.dialPlain()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	p, _, err := hello(conn, "k8s4r-agent-l1", change...)
	return p, err
}

func (s *scene) enter(name string, change ...func(*packets.Connect)) (*peer, error) {
	if name == "l1" {
		return s.legacy(change...)
	}
	return s.as(name, name, change...)
}

// listen connects all clients but one, with all subscriptions that they may have.
func (s *scene) listen(but string) {
	for name, h := range s.who {
		if name != but {
			s.ears[name] = s.ear(h)
		}
	}
}

func (s *scene) ear(h holder) *peer {
	s.t.Helper()
	p := s.must(s.enter(h.name))
	s.subscribeAll(p, h)
	return p
}

func (s *scene) subscribeAll(p *peer, h holder) {
	s.t.Helper()
	for _, filter := range h.filters() {
		if code, err := p.subscribe(filter, h.name == "k8s4r-server"); err != nil || code != 1 {
			s.t.Fatalf("%s subscribes to %s: %#x %v", h.name, filter, code, err)
		}
	}
}

// filters are those that the programs use.
func (h holder) filters() []string {
	if h.name != "k8s4r-server" {
		return h.hears
	}
	at := "k8s4r/robots/+"
	return append(slices.Clone(shared), at+"/register", at+"/heartbeat", at+"/presence", at+"/tasks/+/status", at+"/tasks/+/logs")
}

func (s *scene) must(p *peer, err error) *peer {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// receiversOf returns the clients that received this text, with the topic.
func (s *scene) receiversOf(text string) (by []string) {
	s.t.Helper()
	for name, ear := range s.ears {
		heard, err := ear.fence()
		if err != nil {
			s.t.Fatalf("%s is disturbed: %v", name, err)
		}
		for _, m := range heard {
			if string(m.Payload) == text {
				by = append(by, name)
			}
		}
	}
	return by
}

// count of the cells, by their outcome.
type count struct{ cells, leaks int }

func (c *count) add(t *testing.T, ok bool, format string, a ...any) {
	t.Helper()
	c.cells++
	if !ok {
		c.leaks++
		t.Errorf(format, a...)
	}
}

func matrix(t *testing.T, start func(*testing.T) backend) {
	var c count
	for _, name := range actorNames {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, start(t))
			a, ok := s.actor(name)
			if !ok {
				t.Skip("not of this broker")
			}
			s.listen(a.may.name)
			s.tryPublish(a, &c)
			s.tryWills(a, &c)
			s.trySubscribe(a, &c)
		})
	}
	t.Logf("%d cells, %d leaks", c.cells, c.leaks)
	if c.cells < 500 {
		t.Errorf("%d cells are not several hundred", c.cells)
	}
}

var actorNames = []string{
	"the robot itself", "another robot", "the server", "the console", "a legacy agent", "a client without a certificate", "a client in plaintext", "a revoked robot",
	"a robot whose certificate has expired", "a robot of a foreign authority", "a robot with another's client id", "a robot that calls itself the server",
	"a connection that was taken over", "a robot named by a wildcard", "a robot named by a topic",
}

// actor makes the one of this name. Who may do something has its own holder.
func (s *scene) actor(name string) (actor, bool) {
	with := func(cert, id string, may holder) (actor, bool) {
		return actor{name, may, func(change ...func(*packets.Connect)) (*peer, error) { return s.as(cert, id, change...) }}, true
	}
	odd := func(cn string, lasts time.Duration, from *testca.Authority, id string) (actor, bool) {
		s.certs["odd"] = from.NewClientCertificate(cn, lasts)
		return with("odd", id, holder{})
	}
	own := s.broker.authority()
	switch name {
	case "the robot itself":
		return with("r1", "r1", s.who["r1"])
	case "another robot":
		return with("r2", "r2", s.who["r2"])
	case "the server":
		return with("k8s4r-server", "k8s4r-server", s.who["k8s4r-server"])
	case "the console":
		return with("k8s4r-console", "k8s4r-console", s.who["k8s4r-console"])
	case "a legacy agent":
		return actor{name, s.who["l1"], s.legacy}, s.broker.knowsLegacy()
	case "a client without a certificate":
		return with("none", "r1", holder{})
	case "a client in plaintext":
		return actor{name, holder{}, func(change ...func(*packets.Connect)) (*peer, error) {
			conn, err := s.broker.dialPlain()
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errRefused, err)
			}
			p, _, err := hello(conn, "r1", change...)
			return p, err
		}}, true
	case "a revoked robot":
		s.certs["r3"] = own.NewClientCertificate("r3", time.Hour)
		s.broker.admit("r3")
		s.broker.revoke("r3")
		return with("r3", "r3", holder{})
	case "a robot whose certificate has expired":
		return odd("r1", -time.Minute, own, "r1")
	case "a robot of a foreign authority":
		return odd("r1", time.Hour, testca.New(s.t), "r1")
	case "a robot with another's client id":
		a, ok := with("r2", "r1", s.who["r2"])
		return a, ok
	case "a robot that calls itself the server":
		return with("r2", "k8s4r-server", s.who["r2"])
	case "a connection that was taken over":
		return s.takenOver(), true
	case "a robot named by a wildcard":
		return odd("+", time.Hour, own, "+")
	case "a robot named by a topic":
		return odd("r1/tasks", time.Hour, own, "r1/tasks")
	}
	panic(name)
}

// takenOver is a connection of r1 that another one of r1 has replaced. It keeps
// its will to itself: a will of the one before is r1's own word.
func (s *scene) takenOver() actor {
	return actor{"a connection that was taken over", holder{}, func(change ...func(*packets.Connect)) (*peer, error) {
		if len(change) > 0 {
			return nil, errRefused
		}
		old, err := s.enter("r1")
		if err == nil {
			s.ears["r1"] = s.ear(s.who["r1"])
		}
		return old, err
	}}
}

func (s *scene) tryPublish(a actor, c *count) {
	for _, retain := range []bool{false, true} {
		for i, topic := range topics() {
			text := fmt.Sprintf("%v %d", retain, i)
			allowed := slices.Contains(a.may.says, topic)
			if retain {
				allowed = slices.Contains(a.may.states, topic)
			}
			p, err := a.enter()
			if !s.entered(a, err) {
				c.add(s.t, true, "")
				continue
			}
			if len(a.may.hears) > 0 && s.own(a) {
				s.subscribeAll(p, a.may)
			}
			code, _ := p.publish(topic, text, retain)
			heard := s.receiversOf(text)
			if own, err := p.fence(); err == nil && slices.ContainsFunc(own, func(m *packets.Publish) bool { return string(m.Payload) == text }) {
				heard = append(heard, "itself")
			}
			c.add(s.t, s.isOutcomeRight(a, topic, allowed, retain, code, heard), "publish on %s, retained %v: answered %#x, heard by %q", topic, retain, code, heard)
			if retain {
				late := s.lateHearers(a, text)
				trusted := a.may.name == "k8s4r-server" && !s.refusesRetained() // with all that is the server's to say
				c.add(s.t, allowed || trusted || len(late) == 0, "retained on %s: heard later by %q", topic, late)
			}
			_ = p.conn.Close()
		}
	}
}

// own reports whether an actor connects under its own client id.
func (s *scene) own(a actor) bool {
	return !strings.Contains(a.name, "client id") && !strings.Contains(a.name, "calls itself")
}

// entered reports whether the broker accepted the connection. Any error but a refusal fails the
// test.
func (s *scene) entered(a actor, err error) bool {
	s.t.Helper()
	if err != nil && !errors.Is(err, errRefused) {
		s.t.Fatal(err)
	}
	if err != nil && a.may.name != "" && s.own(a) {
		s.t.Fatalf("%s is refused: %v", a.name, err)
	}
	return err == nil
}

// isOutcomeRight reports whether the reason code and the receivers of a message are as the table
// requires.
func (s *scene) isOutcomeRight(a actor, topic string, allowed, retain bool, code byte, heard []string) bool {
	if !allowed && (!retain || s.refusesRetained()) {
		return len(heard) == 0 && code >= 0x80 || len(heard) == 0 && a.may.name == ""
	}
	if !allowed { // and retained: it may pass as any other message does, and is not kept
		return len(heard) == 0 || slices.Contains(a.may.says, topic)
	}
	if strings.Contains(topic, "/unknown/") {
		return len(heard) == 0
	}
	var want []string
	for name, h := range s.who {
		if name != a.may.name && slices.Contains(h.hears, topic) {
			want = append(want, name)
		}
	}
	return slices.Equal(want, heard)
}

func (s *scene) refusesRetained() bool { return s.broker.refusesWillsAtOnce() }

// lateHearers returns the clients that get a retained text when they subscribe again.
func (s *scene) lateHearers(a actor, text string) (by []string) {
	s.t.Helper()
	for name, h := range s.who {
		if name == a.may.name {
			continue
		}
		s.ears[name] = s.ear(h)
	}
	return s.receiversOf(text)
}

func (s *scene) tryWills(a actor, c *count) {
	for _, retain := range []bool{false, true} {
		for i, topic := range topics() {
			text := fmt.Sprintf("will %v %d", retain, i)
			allowed := slices.Contains(a.may.says, topic)
			if retain {
				allowed = slices.Contains(a.may.states, topic)
			}
			p, err := a.enter(leaves(topic, text, retain))
			if err == nil {
				p.die()
			} else if !errors.Is(err, errRefused) {
				s.t.Fatal(err)
			}
			if !allowed {
				heard := s.receiversOf(text)
				mayPass := retain && !s.refusesRetained() && slices.Contains(a.may.says, topic)
				c.add(s.t, len(heard) == 0 || mayPass, "will on %s, retained %v: heard by %q", topic, retain, heard)
				c.add(s.t, err != nil || !s.broker.refusesWillsAtOnce(), "will on %s, retained %v: accepted at CONNECT", topic, retain)
				continue
			}
			c.add(s.t, err != nil && !s.own(a) || s.willArrives(topic, text), "will on %s, retained %v: not delivered (%v)", topic, retain, err)
		}
	}
}

// willArrives blocks until a client receives the will, if any client may.
func (s *scene) willArrives(topic, text string) bool {
	heard := false
	for name := range s.ears {
		heard = heard || slices.Contains(s.who[name].hears, topic)
	}
	for until := time.Now().Add(patience); heard && time.Now().Before(until); {
		if len(s.receiversOf(text)) > 0 {
			return true
		}
	}
	return !heard
}

// trySubscribe subscribes where it may not, while all clients publish everything.
func (s *scene) trySubscribe(a actor, c *count) {
	for i, filter := range append(topics(), wild...) {
		p, err := a.enter()
		if !s.entered(a, err) {
			c.add(s.t, true, "")
			continue
		}
		needed := slices.Contains(a.may.filters(), filter)
		code, err := p.subscribe(filter, false)
		if err == nil && (a.may.name != "k8s4r-server" || needed) { // it may request less than it needs; what it receives is checked below
			c.add(s.t, needed == (code < 0x80), "subscribe to %s: answered %#x", filter, code)
		}
		text := fmt.Sprint("news ", i)
		s.publishAll(a, p, text)
		heard, err := p.fence()
		wrong := slices.DeleteFunc(heard, func(m *packets.Publish) bool { return slices.Contains(a.may.hears, m.Topic) })
		c.add(s.t, len(wrong) == 0, "subscribed to %s: hears %d messages that are not for it, first on %s", filter, len(wrong), first(wrong))
		if err == nil && needed && (s.broker.knowsLegacy() || !slices.Contains(shared, filter)) {
			c.add(s.t, len(heard) > 0, "subscribed to %s: hears nothing", filter)
		}
		_ = p.conn.Close()
	}
}

func first(heard []*packets.Publish) string {
	if len(heard) == 0 {
		return ""
	}
	return heard[0].Topic
}

// publishAll lets all clients publish on all topics that they may, the server also retained.
func (s *scene) publishAll(a actor, p *peer, text string) {
	s.t.Helper()
	speakers := map[string]*peer{a.may.name: p}
	for name, ear := range s.ears {
		speakers[name] = ear
	}
	for name, h := range s.who {
		speaker := speakers[name]
		if speaker == nil || speaker == p && !s.own(a) {
			continue
		}
		for _, topic := range h.says {
			if code, err := speaker.publish(topic, text, slices.Contains(h.states, topic)); err != nil || code >= 0x80 {
				s.t.Fatalf("%s cannot publish on %s: %#x, %v", name, topic, code, err)
			}
		}
	}
	s.receiversOf(text)
}

func TestPermissions_EmbeddedBroker(t *testing.T) {
	matrix(t, func(t *testing.T) backend { return newEmbedded(t) })
}
