package broker_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"k8s4r.io/k8s4r/internal/testkit/testca"
)

const r1Dispatch = "k8s4r/robots/r1/tasks/dispatch"

// away leaves a session of r1 behind, with one dispatch in it.
func (s *scene) away() {
	s.t.Helper()
	p := s.must(s.enter("r1", lasting))
	if code, err := p.subscribe(r1Dispatch, false); err != nil || code != 1 {
		s.t.Fatalf("%#x %v", code, err)
	}
	_ = p.conn.Close()
	server := s.must(s.enter("k8s4r-server"))
	if code, err := server.publish(r1Dispatch, "secret", false); err != nil || code >= 0x80 {
		s.t.Fatalf("%#x %v", code, err)
	}
	_ = server.conn.Close()
}

// finds what waited for r1, as a connection of its own does.
func (s *scene) finds() []*packets.Publish {
	s.t.Helper()
	p := s.must(s.enter("r1", lasting))
	heard, err := p.fence()
	if err != nil {
		s.t.Fatal(err)
	}
	_ = p.conn.Close()
	return heard
}

func onEach(t *testing.T, test func(t *testing.T, s *scene)) {
	for name, start := range backends {
		t.Run(name, func(t *testing.T) { test(t, newScene(t, start(t))) })
	}
}

var backends = map[string]func(*testing.T) backend{
	"embedded":  func(t *testing.T) backend { return newEmbedded(t) },
	"mosquitto": func(t *testing.T) backend { return newDebian(t) },
}

// mochi-mqtt/server#503: the last will was never asked of the ACL.
func TestMochiBug_WillSkipsACL(t *testing.T) {
	onEach(t, func(t *testing.T, s *scene) {
		victim := s.ear(robotHolder("r1"))
		if p, err := s.enter("r2", leaves(r1Dispatch, "run this", false)); err == nil {
			p.die()
		}
		if heard, err := victim.fence(); err != nil || len(heard) > 0 {
			t.Errorf("r1 hears %v, %v", heard, err)
		}
	})
}

// As above, with a right that is lost between CONNECT and the end.
func TestRevokedRobot_WillIsNotPublished(t *testing.T) {
	onEach(t, func(t *testing.T, s *scene) {
		server := s.ear(serverHolder())
		robot := s.must(s.enter("r1", leaves("k8s4r/robots/r1/presence", "gone", false)))
		s.broker.revoke("r1")
		robot.untilGone()
		if heard, err := server.fence(); err != nil || len(heard) > 0 {
			t.Errorf("the server hears %v, %v", heard, err)
		}
	})
}

// mochi-mqtt/server#504 and eclipse/mosquitto#3553: who comes with the client id
// of another inherits what waits for that one.
func TestMochiBug_SecondIdentityInheritsSession(t *testing.T) {
	onEach(t, func(t *testing.T, s *scene) {
		s.away()
		if thief, err := s.as("r2", "r1", lasting); err == nil {
			if heard, err := thief.fence(); err != nil || len(heard) > 0 {
				t.Errorf("r2 hears %v, %v", heard, err)
			}
		} else if !errors.Is(err, errRefused) {
			t.Fatal(err)
		}
		if heard := s.finds(); len(heard) != 1 {
			t.Errorf("r1 finds %d messages, want its own", len(heard))
		}
	})
}

// As above, by the one with the same name after its credential was replaced.
func TestNewCredential_InheritsNoSession(t *testing.T) {
	e := newEmbedded(t)
	s := newScene(t, e)
	s.away()
	e.renew("r1", "second")
	if heard := s.finds(); len(heard) != 0 {
		t.Errorf("the new r1 hears %s", heard[0].Payload)
	}
}

// nanomq/nanomq#2333: a login that fails, with a clean start, ends the session
// of the one that it claims to be.
func TestMochiBug_FailedLoginEndsSession(t *testing.T) {
	onEach(t, func(t *testing.T, s *scene) {
		s.away()
		s.certs["foreign"] = testca.New(t).NewClientCertificate("r1", time.Hour)
		s.certs["expired"] = s.broker.authority().NewClientCertificate("r1", -time.Minute)
		for _, cert := range []string{"foreign", "expired", "none"} {
			if _, err := s.as(cert, "r1"); !errors.Is(err, errRefused) {
				t.Errorf("r1 with %s certificate: %v", cert, err)
			}
		}
		if p, err := s.as("r2", "r1"); err == nil {
			_ = p.conn.Close()
		}
		if heard := s.finds(); len(heard) != 1 {
			t.Errorf("r1 finds %d messages, want one", len(heard))
		}
	})
}

// CVE-2018-12546: what was retained stays when the right to say it is gone.
func TestMochiBug_RetainedMessageOutlivesPermission(t *testing.T) {
	onEach(t, func(t *testing.T, s *scene) {
		robot := s.must(s.enter("r1"))
		_, _ = robot.publish("k8s4r/robots/r1/register", "let me in", true)
		s.broker.revoke("r1")
		if heard, err := s.ear(serverHolder()).fence(); err != nil || len(heard) > 0 {
			t.Errorf("the server hears %v, %v", heard, err)
		}
	})
}

// Revocation cuts the connection that stands, within five seconds.
func TestRevocation_ClosesConnections(t *testing.T) {
	onEach(t, func(t *testing.T, s *scene) {
		robot := s.must(s.enter("r1", lasting))
		gone := make(chan struct{})
		go func() { robot.untilGone(); close(gone) }()
		s.broker.revoke("r1")
		select {
		case <-gone:
		case <-time.After(5 * time.Second):
			t.Error("still connected")
		}
		if p, err := s.enter("r1"); err == nil {
			if code, err := p.publish("k8s4r/robots/r1/register", "let me in", false); err == nil && code < 0x80 {
				t.Error("it is back")
			}
		}
		if p, err := s.enter("r2"); err != nil {
			t.Errorf("and so is r2: %v %v", p, err)
		}
	})
}

// A connection lasts no longer than the certificate that it came with.
func TestExpiredCertificate_ClosesConnection(t *testing.T) {
	e := newEmbedded(t)
	s := newScene(t, e)
	s.certs["r1"] = e.ca.NewClientCertificate("r1", 2*time.Second)
	robot := s.must(s.enter("r1"))
	const notAuthorized = 0x87
	if why := robot.untilGone(); why != notAuthorized {
		t.Errorf("it ends with %#x", why)
	}
}

// Ten thousand CONNECT packets that are wrong in every way leave the broker
// well, and as large as it was.
func TestMalformedConnect_IsRejected(t *testing.T) {
	e := newEmbedded(t)
	s := newScene(t, e)
	s.listen("")
	random := rand.New(rand.NewPCG(1, 2))
	some := func(n int) {
		for range n {
			conn, err := net.DialTimeout("tcp", strings.TrimPrefix(e.URL(), "mqtt://"), patience)
			if err != nil {
				t.Fatal(err)
			}
			spoil(t, conn, malformed(random))
		}
	}
	some(1000) // what the first cost is not growth
	before := heap()
	some(10_000)
	if after := heap(); after > before+before/10 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
	for name, ear := range s.ears {
		if _, err := ear.fence(); err != nil {
			t.Errorf("%s is disturbed: %v", name, err)
		}
	}
	s.must(s.enter("r1"))
}

func spoil(t *testing.T, conn net.Conn, packet []byte) {
	t.Helper()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = conn.Write(packet)
	_ = conn.(*net.TCPConn).CloseWrite()
	for answer := make([]byte, 64); ; {
		n, err := conn.Read(answer)
		var waited net.Error
		if errors.As(err, &waited) && waited.Timeout() {
			t.Fatalf("%x is neither answered nor hung up on", packet)
		}
		if n >= 4 && answer[0] == 0x20 && answer[3] == 0 {
			t.Fatalf("%x is welcome", packet)
		}
		if err != nil {
			return
		}
	}
}

// malformed returns a CONNECT of an unauthenticated client with some of its bytes changed, cut off
// or too long.
func malformed(random *rand.Rand) []byte {
	var b bytes.Buffer
	c := &packets.Connect{
		ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: "stranger", KeepAlive: 60, UsernameFlag: true, Username: "u", PasswordFlag: true, Password: []byte("p"),
		Properties: &packets.Properties{},
	}
	leaves("k8s4r/robots/r1/presence", "x", true)(c)
	_, _ = c.WriteTo(&b)
	raw := b.Bytes()
	switch random.IntN(4) {
	case 0:
		return raw[:1+random.IntN(len(raw)-1)]
	case 1:
		raw[1] = byte(random.IntN(128)) // the length
	case 2:
		return append([]byte{0x10, 0xff, 0xff, 0xff, 0x7f}, raw...)
	}
	for range 1 + random.IntN(8) {
		raw[1+random.IntN(len(raw)-1)] = byte(random.IntN(256))
	}
	return raw
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
