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
	a, err := openAuthority(dir, true, DefaultLifetime, c.now)
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
	if _, err := openManaged(t, dir, at).VerifyClient(c); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if _, err := openManaged(t, t.TempDir(), at).VerifyClient(c); err == nil {
		t.Error("another CA verifies it")
	}
	for when, want := range map[time.Time]bool{c.NotBefore: true, c.NotBefore.Add(-1): false, c.NotAfter: true, c.NotAfter.Add(1): false} {
		at.Time = when
		if isValid, err := a.VerifyClient(c); isValid != want || err != nil {
			t.Errorf("at %s: valid %v, %v", when, isValid, err)
		}
	}
	at.Time = c.NotAfter
	serving, err := a.ServingCertificate("localhost")(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.VerifyClient(serving.Leaf); err == nil {
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
	end := at.Add(DefaultLifetime + rotateBefore)
	for day := 0; at.Before(end); day++ {
		serving, err := a.ServingCertificate("localhost")(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := serving.Leaf.Verify(x509.VerifyOptions{Roots: trusted, DNSName: "localhost", CurrentTime: at.Time}); err != nil {
			t.Fatalf("at %s: %v", at, err)
		}
		if robot != nil {
			if _, err := a.VerifyClient(robot); err != nil {
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
		if day == 60 { // until well before the rotation, each month is like the last
			at.Time, robot = end.Add(-2*rotateBefore-60*24*time.Hour), nil
		}
	}
	if a.KeyFingerprint() == first {
		t.Error("the CA was never rotated")
	}
}

// Certificates that were issued while the clock was ahead must not be used when it is set back.
func TestAuthority_DropsCertificatesThatAreNotValidYet(t *testing.T) {
	right := time.Now()
	at := &clock{right}
	dir := t.TempDir()
	a := openManaged(t, dir, at)
	at.Time = right.Add(365 * 24 * time.Hour)
	robot, err := a.SignRobot("r1", newKey(t).Public())
	if err != nil {
		t.Fatal(err)
	}
	serve := a.ServingCertificate("localhost")
	for _, when := range []time.Time{at.Time, right} {
		at.Time = when
		c, err := serve(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: a.TrustPool(), DNSName: "localhost", CurrentTime: when}); err != nil {
			t.Errorf("at %s: %v", when, err)
		}
	}
	if isValid, err := a.VerifyClient(robot); isValid || err != nil {
		t.Errorf("the robot's certificate: valid %v, %v", isValid, err)
	}
}

func TestOpenManaged_ReissuesCAThatIsNotValidYet(t *testing.T) {
	right := time.Now()
	at := &clock{right.Add(365 * 24 * time.Hour)}
	dir := t.TempDir()
	ahead := openManaged(t, dir, at)
	key := ahead.KeyFingerprint()
	at.Time = right
	a := openManaged(t, dir, at)
	c, err := a.SignRobot("r1", newKey(t).Public())
	if err != nil {
		t.Fatal(err)
	}
	if isValid, err := a.VerifyClient(c); !isValid || err != nil || a.KeyFingerprint() != key {
		t.Errorf("valid %v, %v, key %s", isValid, err, a.KeyFingerprint())
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
	at.Time = at.Add(DefaultLifetime - 2*rotateBefore + time.Hour)
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
	if _, err := OpenManaged(dir, DefaultLifetime); err == nil {
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
