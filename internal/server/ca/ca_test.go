package ca

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func made(t *testing.T, dir string, c *clock) *Authority {
	t.Helper()
	a, err := openAuthority(dir, true, c.now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func key(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, _, err := keyfile.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestTheCertificateOfARobot(t *testing.T) {
	at := &clock{time.Now()}
	dir := t.TempDir()
	a := made(t, dir, at)
	c, err := a.SignRobot("r1", key(t).Public())
	if err != nil {
		t.Fatal(err)
	}
	if name, err := identity.CertificateName(c); name != "r1" || err != nil {
		t.Errorf("it is for %q, %v", name, err)
	}
	if _, err := a.SignRobot(identity.ServerName, key(t).Public()); err == nil {
		t.Error("a robot is the server")
	}
	if err := made(t, dir, at).VerifyClient(c, 0); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if err := made(t, t.TempDir(), at).VerifyClient(c, 0); err == nil {
		t.Error("another authority vouches for it")
	}
	at.Time = c.NotAfter.Add(time.Hour)
	if a.VerifyClient(c, 0) == nil || a.VerifyClient(c, 2*time.Hour) != nil || a.VerifyClient(c, time.Minute) == nil {
		t.Error("its end does not count as it should")
	}
	serving, err := a.ServingCertificate("localhost")(nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.VerifyClient(serving.Leaf, 0) == nil {
		t.Error("the certificate of a server serves as that of a client")
	}
}

func TestServersAreRenewedWithoutARestart(t *testing.T) {
	at := &clock{time.Now()}
	a := made(t, t.TempDir(), at)
	get := a.ServingCertificate("localhost", "192.0.2.7")
	first, err := get(nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := get(nil); again != first {
		t.Error("each connection gets its own certificate")
	}
	if err := first.Leaf.VerifyHostname("192.0.2.7"); err != nil {
		t.Error(err)
	}
	at.Time = RenewalTime(first.Leaf)
	if later, _ := get(nil); later == first {
		t.Error("it is not renewed")
	}
}

// TestRobotsOutliveAnAuthority walks through ten years: a robot that renews
// trusts each server certificate by what it heard a day before.
func TestRobotsOutliveAnAuthority(t *testing.T) {
	at := &clock{time.Now()}
	dir := t.TempDir()
	a := made(t, dir, at)
	first := a.KeyFingerprint()
	heard := a.TrustPool()
	var robot *x509.Certificate
	for end := at.Add(caLifetime + rotateBefore); at.Before(end); at.Time = at.Add(24 * time.Hour) {
		serving, err := a.ServingCertificate("localhost")(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := serving.Leaf.Verify(x509.VerifyOptions{Roots: heard, DNSName: "localhost", CurrentTime: at.Time}); err != nil {
			t.Fatalf("at %s: %v", at, err)
		}
		if robot != nil {
			if err := a.VerifyClient(robot, time.Hour); err != nil {
				t.Fatalf("the robot at %s: %v", at, err)
			}
		}
		if robot, err = a.SignRobot("r1", key(t).Public()); err != nil {
			t.Fatal(err)
		}
		heard = a.TrustPool()
		if at.Second() == 0 {
			a = made(t, dir, at) // a restart now and then
		}
	}
	if a.KeyFingerprint() == first {
		t.Error("the authority was never renewed")
	}
}

func TestADirectoryOfAnother(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); err == nil {
		t.Error("an empty directory passes")
	}
	made(t, dir, &clock{time.Now()})
	if _, err := Open(dir); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(dir, fileTrust)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("no CA is trusted, and it passes")
	}
}

// TestAHeirSucceedsThroughACrash has the key in its place and the certificate not.
func TestAHeirSucceedsThroughACrash(t *testing.T) {
	at := &clock{time.Now()}
	dir := t.TempDir()
	a := made(t, dir, at)
	first := a.KeyFingerprint()
	at.Time = at.Add(caLifetime - 2*rotateBefore + time.Hour)
	a = made(t, dir, at)
	if err := os.Rename(a.path(fileNextKey), a.path(fileKey)); err != nil {
		t.Fatal(err)
	}
	if heir := made(t, dir, at).KeyFingerprint(); heir == first {
		t.Error("the heir has not succeeded")
	}
}

// TestADamagedAuthorityIsNotReplaced: that would lock every robot out.
func TestADamagedAuthorityIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	made(t, dir, &clock{time.Now()})
	if err := os.WriteFile(filepath.Join(dir, fileKey), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenManaged(dir); err == nil {
		t.Error("it passes")
	}
}

func TestTheBrokerAndItsClientsProveThemselves(t *testing.T) {
	a := made(t, t.TempDir(), &clock{time.Now()})
	l, err := tls.Listen("tcp", "127.0.0.1:0", a.BrokerTLSConfig("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	names := make(chan string, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s := c.(*tls.Conn)
			if s.Handshake() == nil {
				names <- s.ConnectionState().PeerCertificates[0].Subject.CommonName
			}
			c.Close()
		}
	}()
	dial := func(c *tls.Config) error {
		c.RootCAs = a.TrustPool()
		conn, err := tls.Dial("tcp", l.Addr().(*net.TCPAddr).String(), c)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1)) // TLS 1.3 refuses after the client's handshake
		return err
	}
	_ = dial(&tls.Config{GetClientCertificate: a.ServerClientCertificate})
	if got := <-names; got != identity.ServerName {
		t.Errorf("it is %q", got)
	}
	if err := dial(&tls.Config{}); err == nil {
		t.Error("a client without a certificate is let in")
	}
}
