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

// leaveSession creates a session of r1 with one queued dispatch, and disconnects.
func (s *setup) leaveSession() {
	s.t.Helper()
	p := s.mustConnect(s.connect("r1", withSessionExpiry))
	if code, err := p.subscribe(r1Dispatch, false); err != nil || code != 1 {
		s.t.Fatalf("%#x %v", code, err)
	}
	_ = p.conn.Close()
	server := s.mustConnect(s.connect("k8s4r-server"))
	if code, err := server.publish(r1Dispatch, "secret", false); err != nil || code >= 0x80 {
		s.t.Fatalf("%#x %v", code, err)
	}
	_ = server.conn.Close()
}

// resumeSession returns the messages that were queued for r1.
func (s *setup) resumeSession() []*packets.Publish {
	s.t.Helper()
	p := s.mustConnect(s.connect("r1", withSessionExpiry))
	received, err := p.drainMessages()
	if err != nil {
		s.t.Fatal(err)
	}
	_ = p.conn.Close()
	return received
}

func onEach(t *testing.T, test func(t *testing.T, s *setup)) {
	for name, start := range backends {
		t.Run(name, func(t *testing.T) { test(t, newSetup(t, start(t))) })
	}
}

var backends = map[string]func(*testing.T) backend{
	"embedded":  func(t *testing.T) backend { return newEmbedded(t) },
	"mosquitto": func(t *testing.T) backend { return newDebian(t) },
}

// mochi-mqtt/server#503: the last will was not checked against the ACL.
func TestMochiBug_WillSkipsACL(t *testing.T) {
	onEach(t, func(t *testing.T, s *setup) {
		victim := s.connectSubscriber(robotPermissions("r1"))
		if p, err := s.connect("r2", withWill(r1Dispatch, "run this", false)); err == nil {
			p.closeWithWill()
		}
		if received, err := victim.drainMessages(); err != nil || len(received) > 0 {
			t.Errorf("r1 received %v, %v", received, err)
		}
	})
}

// As above, with a permission that is revoked between CONNECT and the end of the connection.
func TestRevokedRobot_WillIsNotPublished(t *testing.T) {
	onEach(t, func(t *testing.T, s *setup) {
		server := s.connectSubscriber(serverPermissions())
		robot := s.mustConnect(s.connect("r1", withWill("k8s4r/robots/r1/presence", "gone", false)))
		s.broker.revoke("r1")
		robot.awaitClose()
		if received, err := server.drainMessages(); err != nil || len(received) > 0 {
			t.Errorf("the server received %v, %v", received, err)
		}
	})
}

// mochi-mqtt/server#504 and eclipse/mosquitto#3553: a client with the client ID of another inherited
// the messages that were queued for it.
func TestMochiBug_SecondIdentityInheritsSession(t *testing.T) {
	onEach(t, func(t *testing.T, s *setup) {
		s.leaveSession()
		if thief, err := s.connectAs("r2", "r1", withSessionExpiry); err == nil {
			if received, err := thief.drainMessages(); err != nil || len(received) > 0 {
				t.Errorf("r2 received %v, %v", received, err)
			}
		} else if !errors.Is(err, errRefused) {
			t.Fatal(err)
		}
		if received := s.resumeSession(); len(received) != 1 {
			t.Errorf("r1 received %d messages, want its own", len(received))
		}
	})
}

// As above, by a client with the same name after the credential was replaced.
func TestNewCredential_InheritsNoSession(t *testing.T) {
	e := newEmbedded(t)
	s := newSetup(t, e)
	s.leaveSession()
	e.renew("r1", "second")
	if received := s.resumeSession(); len(received) != 0 {
		t.Errorf("the new r1 received %s", received[0].Payload)
	}
}

// nanomq/nanomq#2333: a failed login with a clean start ended the session of the client with that
// ID.
func TestMochiBug_FailedLoginEndsSession(t *testing.T) {
	onEach(t, func(t *testing.T, s *setup) {
		s.leaveSession()
		s.certs["foreign"] = testca.New(t).NewClientCertificate("r1", time.Hour)
		s.certs["expired"] = s.broker.authority().NewClientCertificate("r1", -time.Minute)
		for _, cert := range []string{"foreign", "expired", "none"} {
			if _, err := s.connectAs(cert, "r1"); !errors.Is(err, errRefused) {
				t.Errorf("r1 with %s certificate: %v", cert, err)
			}
		}
		if p, err := s.connectAs("r2", "r1"); err == nil {
			_ = p.conn.Close()
		}
		if received := s.resumeSession(); len(received) != 1 {
			t.Errorf("r1 received %d messages, want one", len(received))
		}
	})
}

// CVE-2018-12546: a retained message remained after the permission to publish it was revoked.
func TestMochiBug_RetainedMessageOutlivesPermission(t *testing.T) {
	onEach(t, func(t *testing.T, s *setup) {
		robot := s.mustConnect(s.connect("r1"))
		_, _ = robot.publish("k8s4r/robots/r1/register", "x", true)
		s.broker.revoke("r1")
		if received, err := s.connectSubscriber(serverPermissions()).drainMessages(); err != nil || len(received) > 0 {
			t.Errorf("the server received %v, %v", received, err)
		}
	})
}

// Revocation closes the existing connection within five seconds.
func TestRevocation_ClosesConnections(t *testing.T) {
	onEach(t, func(t *testing.T, s *setup) {
		robot := s.mustConnect(s.connect("r1", withSessionExpiry))
		gone := make(chan struct{})
		go func() { robot.awaitClose(); close(gone) }()
		s.broker.revoke("r1")
		select {
		case <-gone:
		case <-time.After(5 * time.Second):
			t.Error("still connected")
		}
		if p, err := s.connect("r1"); err == nil {
			if code, err := p.publish("k8s4r/robots/r1/register", "x", false); err == nil && code < 0x80 {
				t.Error("a revoked robot can publish")
			}
		}
		if p, err := s.connect("r2"); err != nil {
			t.Errorf("r2 cannot connect: %v %v", p, err)
		}
	})
}

// A connection ends when the certificate of its client expires.
func TestExpiredCertificate_ClosesConnection(t *testing.T) {
	e := newEmbedded(t)
	s := newSetup(t, e)
	s.certs["r1"] = e.ca.NewClientCertificate("r1", 2*time.Second)
	robot := s.mustConnect(s.connect("r1"))
	const notAuthorized = 0x87
	if reason := robot.awaitClose(); reason != notAuthorized {
		t.Errorf("disconnected with %#x", reason)
	}
}

// Ten thousand malformed CONNECT packets neither affect other clients nor increase the memory of the
// broker.
func TestMalformedConnect_IsRejected(t *testing.T) {
	e := newEmbedded(t)
	s := newSetup(t, e)
	s.connectSubscribers("")
	random := rand.New(rand.NewPCG(1, 2))
	some := func(n int) {
		for range n {
			conn, err := net.DialTimeout("tcp", strings.TrimPrefix(e.URL(), "mqtt://"), waitTimeout)
			if err != nil {
				t.Fatal(err)
			}
			sendMalformed(t, conn, malformedConnect(random))
		}
	}
	some(1000) // initial allocations do not count as growth
	before := heapBytes()
	some(10_000)
	if after := heapBytes(); after > before+before/10 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
	for name, subscriber := range s.subscribers {
		if _, err := subscriber.drainMessages(); err != nil {
			t.Errorf("%s was disconnected: %v", name, err)
		}
	}
	s.mustConnect(s.connect("r1"))
}

func sendMalformed(t *testing.T, conn net.Conn, packet []byte) {
	t.Helper()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(waitTimeout))
	_, _ = conn.Write(packet)
	_ = conn.(*net.TCPConn).CloseWrite()
	for answer := make([]byte, 64); ; {
		n, err := conn.Read(answer)
		var waited net.Error
		if errors.As(err, &waited) && waited.Timeout() {
			t.Fatalf("%x: no response, and the connection is open", packet)
		}
		if n >= 4 && answer[0] == 0x20 && answer[3] == 0 {
			t.Fatalf("%x was accepted", packet)
		}
		if err != nil {
			return
		}
	}
}

// malformed returns a CONNECT of an unauthenticated client with some of its bytes changed, cut off
// or too long.
func malformedConnect(random *rand.Rand) []byte {
	var b bytes.Buffer
	c := &packets.Connect{
		ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: "stranger", KeepAlive: 60, UsernameFlag: true, Username: "u", PasswordFlag: true, Password: []byte("p"),
		Properties: &packets.Properties{},
	}
	withWill("k8s4r/robots/r1/presence", "x", true)(c)
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

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
