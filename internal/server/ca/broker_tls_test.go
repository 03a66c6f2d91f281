package ca

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"testing"
	"time"
)

// brokerUser is a broker whose CA is in a directory, and a client that keeps its TLS session.
type brokerUser struct {
	t      *testing.T
	at     *clock
	dir    string
	auth   *Authority
	broker *tls.Config
	client *tls.Config
}

func newBrokerUser(t *testing.T) *brokerUser {
	u := &brokerUser{t: t, dir: t.TempDir(), at: &clock{time.Now().Truncate(ticketPeriod)}}
	u.restart()
	key := newKey(t)
	c, err := u.auth.SignRobot("r1", key.Public())
	if err != nil {
		t.Fatal(err)
	}
	u.client = &tls.Config{
		RootCAs: u.auth.TrustPool(), ServerName: "broker", Certificates: []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}},
		ClientSessionCache: tls.NewLRUClientSessionCache(1), Time: u.at.now,
	}
	return u
}

// restart is a new process with the same CA.
func (u *brokerUser) restart() {
	u.auth = openManaged(u.t, u.dir, u.at)
	u.broker = u.auth.BrokerTLSConfig("broker")
}

// connect returns whether the client has resumed its session, and the broker's error.
func (u *brokerUser) connect() (resumed bool, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		u.t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() { served <- u.serveOnce(l) }()
	tcp, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		u.t.Fatal(err)
	}
	defer tcp.Close()
	c := tls.Client(tcp, u.client)
	_, _ = c.Read(make([]byte, 1)) // the client gets the ticket after its handshake
	return c.ConnectionState().DidResume, <-served
}

// serveOnce completes a handshake and sends a byte.
func (u *brokerUser) serveOnce(l net.Listener) error {
	tcp, err := l.Accept()
	if err != nil {
		return err
	}
	defer tcp.Close()
	s := tls.Server(tcp, u.broker)
	if err := s.Handshake(); err != nil {
		return err
	}
	_, err = s.Write([]byte{1})
	return err
}

func (u *brokerUser) expect(what string, wantResumed, wantAccepted bool) {
	u.t.Helper()
	if resumed, err := u.connect(); resumed != wantResumed || (err == nil) != wantAccepted {
		u.t.Errorf("%s: resumed %v, %v; want %v, accepted %v", what, resumed, err, wantResumed, wantAccepted)
	}
}

func TestBrokerTLSConfig_ResumesSessions(t *testing.T) {
	u := newBrokerUser(t)
	u.expect("the first connection", false, true)
	u.expect("the next one", true, true)
	u.restart()
	u.expect("after a restart of the broker", true, true)
	u.at.Time = u.at.Add(ticketPeriod)
	u.expect("with the key of the period before", true, true)
}

// Each change requires a full handshake, which verifies the certificate.
func TestBrokerTLSConfig_ResumesNoOutdatedSession(t *testing.T) {
	for _, c := range []struct {
		name         string
		change       func(*brokerUser)
		wantAccepted bool
	}{
		{"the certificate has expired", func(u *brokerUser) { u.at.Time = u.at.Add(DefaultRobotLifetime + time.Second) }, false},
		{"it is not valid any more because the clock was set back", func(u *brokerUser) { u.at.Time = u.at.Add(-time.Hour) }, false},
		{"the CA was replaced", func(u *brokerUser) {
			if err := os.RemoveAll(u.dir); err != nil {
				u.t.Fatal(err)
			}
			u.restart()
			u.client.RootCAs = u.auth.TrustPool()
		}, false},
		{"the client has another version", func(u *brokerUser) { u.client.MaxVersion = tls.VersionTLS12 }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newBrokerUser(t)
			u.expect("the first connection", false, true)
			c.change(u)
			u.expect(c.name, false, c.wantAccepted)
		})
	}
}

func TestBrokerTLSConfig_ForgetsTicketKeys(t *testing.T) {
	u := newBrokerUser(t)
	u.auth.SetRobotLifetime(10 * ticketPeriod)
	key := newKey(t)
	c, err := u.auth.SignRobot("r1", key.Public())
	if err != nil {
		t.Fatal(err)
	}
	u.client.Certificates = []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}}
	u.expect("the first connection", false, true)
	u.at.Time = u.at.Add(2 * ticketPeriod)
	u.expect("two periods later", false, true)
}

// TLS 1.2 has no forward secrecy for resumed sessions.
func TestBrokerTLSConfig_ResumesNoSessionOfTLS12(t *testing.T) {
	u := newBrokerUser(t)
	u.client.MaxVersion = tls.VersionTLS12
	u.expect("the first connection", false, true)
	u.expect("the next one", false, true)
}

// The TLS library verifies some of this as well, but not in all versions.
func TestVerifyResumption_VerifiesTheChain(t *testing.T) {
	u := newBrokerUser(t)
	robot := u.client.Certificates[0].Leaf
	signer, _ := u.auth.CAs()
	other, _ := openManaged(t, t.TempDir(), u.at).CAs()
	b := &brokerTLS{authority: u.auth}
	for _, c := range []struct {
		name    string
		after   time.Duration
		chain   []*x509.Certificate
		wantErr bool
	}{
		{name: "valid", chain: []*x509.Certificate{robot, signer}},
		{name: "expired", after: DefaultRobotLifetime + time.Second, chain: []*x509.Certificate{robot, signer}, wantErr: true},
		{name: "of another CA", chain: []*x509.Certificate{robot, other}, wantErr: true},
		{name: "without a chain", wantErr: true},
	} {
		began := u.at.Time
		u.at.Time = began.Add(c.after)
		state := tls.ConnectionState{DidResume: true, PeerCertificates: []*x509.Certificate{robot}, VerifiedChains: [][]*x509.Certificate{c.chain}}
		if err := b.verifyResumption(state); (err != nil) != c.wantErr {
			t.Errorf("%s: %v", c.name, err)
		}
		u.at.Time = began
	}
}
