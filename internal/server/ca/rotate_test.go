package ca

import (
	"crypto"
	"crypto/x509"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// fleetRobot renews its certificate like an agent, and trusts the CAs of its last renewal.
type fleetRobot struct {
	t           *testing.T
	key         crypto.PublicKey
	certificate *x509.Certificate
	trusted     []*x509.Certificate
}

// renewWith connects to a server, and renews the certificate if that is due. Both sides must trust
// each other.
func (r *fleetRobot) renewWith(a *Authority, now time.Time) {
	r.t.Helper()
	serving, err := a.ServingCertificate("localhost")(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.certificate != nil {
		if _, err := serving.Leaf.Verify(x509.VerifyOptions{Roots: keyfile.NewPool(r.trusted...), DNSName: "localhost", CurrentTime: now}); err != nil {
			r.t.Fatalf("at %s the robot does not trust the server: %v", now, err)
		}
		if _, err := a.VerifyClient(r.certificate); err != nil {
			r.t.Fatalf("at %s the server does not trust the robot: %v", now, err)
		}
	}
	if r.certificate != nil && now.Before(RenewalTime(r.certificate)) {
		return
	}
	if r.certificate, err = a.SignRobot("r1", r.key); err != nil {
		r.t.Fatal(err)
	}
	if r.trusted, err = keyfile.ParseCertificates(a.TrustPEM()); err != nil {
		r.t.Fatal(err)
	}
}

func TestRequestRotation_ReplacesCAWithoutLockingOutRobots(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name     string
		period   time.Duration
		isOff    func(since time.Duration) bool // whether the server does not run
		replaced time.Duration                  // when the old CA must be gone
	}{
		{name: "while the server runs", period: 2 * day, replaced: 4*day + time.Hour},
		{name: "with a period shorter than certificates are valid", period: time.Hour, replaced: 2*day + time.Hour},
		{name: "while the server is off for long", period: 2 * day, replaced: 30 * day,
			isOff: func(since time.Duration) bool {
				return since > time.Hour && since < 10*day || since > 10*day+3*time.Hour && since < 20*day
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := &clock{time.Now()}
			dir := t.TempDir()
			a := openManaged(t, dir, at)
			first, _ := a.CAs()
			robot := &fleetRobot{t: t, key: newKey(t).Public()}
			robot.renewWith(a, at.Time)
			if err := RequestRotation(dir, c.period); err != nil {
				t.Fatal(err)
			}
			if err := RequestRotation(dir, c.period); !errors.Is(err, ErrRotating) {
				t.Errorf("a second request: %v", err)
			}
			wasOff := false
			for since := time.Duration(0); since <= c.replaced; since += 30 * time.Minute {
				at.Time = at.Add(30 * time.Minute)
				if c.isOff != nil && c.isOff(since) {
					wasOff = true
					continue
				}
				if wasOff {
					a, wasOff = openManaged(t, dir, at), false
				}
				if err := a.Refresh(); err != nil {
					t.Fatal(err)
				}
				robot.renewWith(a, at.Time)
			}
			if signer, next := a.CAs(); signer.Equal(first) || next != nil {
				t.Errorf("the CA was not replaced: %s, next %v", signer.NotBefore, next)
			}
			if slices.ContainsFunc(a.trust, first.Equal) || len(a.trust) != 1 {
				t.Errorf("the old CA is trusted still, among %d", len(a.trust))
			}
			if err := RequestRotation(dir, c.period); err != nil {
				t.Errorf("another rotation: %v", err)
			}
		})
	}
}

func TestRequestRotation_BoundsPeriod(t *testing.T) {
	dir := t.TempDir()
	openManaged(t, dir, &clock{time.Now()})
	for _, period := range []time.Duration{-time.Hour, 0, MaxRotationPeriod + 1} {
		if err := RequestRotation(dir, period); err == nil {
			t.Errorf("period %s is accepted", period)
		}
	}
	if err := RequestRotation(t.TempDir(), time.Hour); err == nil {
		t.Error("a directory without a CA is accepted")
	}
}

// A robot's command line names the key of the CA that signs, also while the next CA is trusted.
func TestTrustPEM_BeginsWithSigner(t *testing.T) {
	at := &clock{time.Now()}
	dir := t.TempDir()
	a := openManaged(t, dir, at)
	if err := RequestRotation(dir, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := a.Refresh(); err != nil {
		t.Fatal(err)
	}
	all, err := keyfile.ParseCertificates(a.TrustPEM())
	if err != nil || len(all) != 2 {
		t.Fatalf("%d CAs, %v", len(all), err)
	}
	if identity.CertificateFingerprint(all[0]) != a.KeyFingerprint() {
		t.Error("the first CA does not sign")
	}
}

// A CA whose lifetime is minutes is replaced again and again.
func TestAuthority_RotatesShortLivedCA(t *testing.T) {
	at := &clock{time.Now()}
	a, err := openAuthority(t.TempDir(), true, 8*time.Minute, at.now)
	if err != nil {
		t.Fatal(err)
	}
	a.SetRobotLifetime(time.Minute)
	robot := &fleetRobot{t: t, key: newKey(t).Public()}
	signers := map[string]bool{}
	for range 30 * 60 / 3 {
		at.Time = at.Add(3 * time.Second)
		robot.renewWith(a, at.Time)
		signers[a.KeyFingerprint()] = true
	}
	if len(signers) < 4 || len(a.trust) > 4 {
		t.Errorf("%d CAs have signed, %d are trusted", len(signers), len(a.trust))
	}
}

// TestOpen_FollowsReplacedFiles replaces the files of a Secret in the three steps of
// docs/how-to/replace-the-robots-ca.md.
func TestOpen_FollowsReplacedFiles(t *testing.T) {
	at := &clock{time.Now()}
	mounted, other := t.TempDir(), t.TempDir()
	from, to := openManaged(t, mounted, at), openManaged(t, other, at)
	oldCA, newCA := from.TrustPEM(), to.TrustPEM()
	a := openUnchanged(t, mounted, at)
	robot := &fleetRobot{t: t, key: newKey(t).Public()}
	write := func(name string, data []byte) {
		if err := os.WriteFile(a.path(name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) []byte {
		data, err := os.ReadFile(to.path(name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for _, step := range []func(){
		func() {},
		func() { write(fileTrust, slices.Concat(oldCA, newCA)) },
		func() { write(fileCertificate, read(fileCertificate)); write(fileKey, read(fileKey)) },
		func() { write(fileTrust, newCA) },
	} {
		step()
		for range 25 {
			at.Time = at.Add(time.Hour)
			robot.renewWith(a, at.Time)
		}
	}
	if a.KeyFingerprint() != to.KeyFingerprint() || len(a.trust) != 1 {
		t.Errorf("%s, %d CAs are trusted", a.KeyFingerprint(), len(a.trust))
	}
}
