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

func openManaged(t *testing.T, dir string, c *clock) *Authority {
	t.Helper()
	a, err := openAuthority(dir, true, c.now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, _, err := keyfile.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestAuthority_SignsRobotCertificates(t *testing.T) {
	at := &clock{time.Now()}
	dir := t.TempDir()
	a := openManaged(t, dir, at)
	c, err := a.SignRobot("r1", newKey(t).Public())
	if err != nil {
		t.Fatal(err)
	}
	if name, err := identity.CertificateName(c); name != "r1" || err != nil {
		t.Errorf("the certificate is for %q, %v", name, err)
	}
	if _, err := a.SignRobot(identity.ServerName, newKey(t).Public()); err == nil {
		t.Error("a robot certificate with the name of the server was signed")
	}
	if err := openManaged(t, dir, at).VerifyClient(c, 0); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if err := openManaged(t, t.TempDir(), at).VerifyClient(c, 0); err == nil {
		t.Error("another CA verifies it")
	}
	at.Time = c.NotAfter.Add(time.Hour)
	if a.VerifyClient(c, 0) == nil || a.VerifyClient(c, 2*time.Hour) != nil || a.VerifyClient(c, time.Minute) == nil {
		t.Error("an expired certificate is not verified as specified")
	}
	serving, err := a.ServingCertificate("localhost")(nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.VerifyClient(serving.Leaf, 0) == nil {
		t.Error("a serving certificate is accepted as a client certificate")
	}
}

func TestServingCertificate_IsRenewedWithoutRestart(t *testing.T) {
	at := &clock{time.Now()}
	a := openManaged(t, t.TempDir(), at)
	get := a.ServingCertificate("localhost", "192.0.2.7")
	first, err := get(nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := get(nil); again != first {
		t.Error("a second certificate was signed")
	}
	if err := first.Leaf.VerifyHostname("192.0.2.7"); err != nil {
		t.Error(err)
	}
	at.Time = RenewalTime(first.Leaf)
	if later, _ := get(nil); later == first {
		t.Error("the certificate was not renewed")
	}
}

// TestAuthority_RotatesWithoutLockingOutRobots simulates ten years: a robot that renews daily trusts
// each server certificate by the CAs that it got a day before.
func TestAuthority_RotatesWithoutLockingOutRobots(t *testing.T) {
	at := &clock{time.Now()}
	dir := t.TempDir()
	a := openManaged(t, dir, at)
	first := a.KeyFingerprint()
	trusted := a.TrustPool()
	var robot *x509.Certificate
	key := newKey(t).Public()
	end := at.Add(caLifetime + rotateBefore)
	for day := 0; at.Before(end); day++ {
		serving, err := a.ServingCertificate("localhost")(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := serving.Leaf.Verify(x509.VerifyOptions{Roots: trusted, DNSName: "localhost", CurrentTime: at.Time}); err != nil {
			t.Fatalf("at %s: %v", at, err)
		}
		if robot != nil {
			if err := a.VerifyClient(robot, time.Hour); err != nil {
				t.Fatalf("the robot at %s: %v", at, err)
			}
		}
		if robot, err = a.SignRobot("r1", key); err != nil {
			t.Fatal(err)
		}
		trusted = a.TrustPool()
		if day%60 == 0 {
			a = openManaged(t, dir, at) // after a restart of the server
		}
		at.Time = at.Add(24 * time.Hour)
	}
	if a.KeyFingerprint() == first {
		t.Error("the CA was never rotated")
	}
}

func TestOpen_RequiresAllFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); err == nil {
		t.Error("an empty directory is accepted")
	}
	openManaged(t, dir, &clock{time.Now()})
	if _, err := Open(dir); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(dir, fileTrust)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a directory without trusted CAs is accepted")
	}
}

// TestAuthority_CompletesRotationAfterCrash crashes after the next key is renamed and before its
// certificate is.
func TestAuthority_CompletesRotationAfterCrash(t *testing.T) {
	at := &clock{time.Now()}
	dir := t.TempDir()
	a := openManaged(t, dir, at)
	first := a.KeyFingerprint()
	at.Time = at.Add(caLifetime - 2*rotateBefore + time.Hour)
	a = openManaged(t, dir, at)
	if err := os.Rename(a.path(fileNextKey), a.path(fileKey)); err != nil {
		t.Fatal(err)
	}
	if nextKey := openManaged(t, dir, at).KeyFingerprint(); nextKey == first {
		t.Error("the next CA is not in use")
	}
}

// A new CA would lock out all robots.
func TestOpenManaged_DoesNotReplaceDamagedCA(t *testing.T) {
	dir := t.TempDir()
	openManaged(t, dir, &clock{time.Now()})
	if err := os.WriteFile(filepath.Join(dir, fileKey), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenManaged(dir); err == nil {
		t.Error("a damaged key is accepted")
	}
}

func TestBrokerTLSConfig_RequiresClientCertificate(t *testing.T) {
	a := openManaged(t, t.TempDir(), &clock{time.Now()})
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
		t.Errorf("the client is %q", got)
	}
	if err := dial(&tls.Config{}); err == nil {
		t.Error("a client without a certificate is accepted")
	}
}
