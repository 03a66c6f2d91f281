package joinapi

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/platform/pki"
	"k8s4r.io/k8s4r/internal/protocol/identity"
)

const day = 24 * time.Hour

// issueBetween gives the machine a certificate of the server's CA with these dates.
func (b *bench) issueBetween(m *machine, robot string, from, until time.Time) {
	b.t.Helper()
	signer, err := tls.LoadX509KeyPair(filepath.Join(b.caDir, "tls.crt"), filepath.Join(b.caDir, "tls.key"))
	if err != nil {
		b.t.Fatal(err)
	}
	m.cert, err = pki.SignCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: robot}, DNSNames: []string{robot}, NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}, m.key.Public(), signer.Leaf, signer.PrivateKey)
	if err != nil {
		b.t.Fatal(err)
	}
}

// recordLastMessage records when the robot was created and sent its last heartbeat.
func (b *bench) recordLastMessage(robot string, at time.Time) {
	b.t.Helper()
	r := b.robot(robot)
	r.CreationTimestamp = metav1.NewTime(at)
	if err := b.c.Update(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
	r = b.robot(robot)
	r.Status.LastHeartbeatTime = &metav1.MicroTime{Time: at}
	r.Status.Identity.Requested.Time = metav1.NewTime(at)
	if err := b.c.Status().Update(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
}

// A robot whose key is accepted must not be locked out by dates.
func TestRenew_AcceptsKeyWhateverTheDatesOfItsCertificate(t *testing.T) {
	for _, c := range []struct {
		name        string
		from, until time.Duration // of the certificate, from now
		silent      time.Duration // before now
		step        time.Duration // of the server's clock, meanwhile
		want        int
	}{
		{name: "not valid yet, as when the server's clock was ahead", from: 365 * day, until: 366 * day, want: http.StatusOK},
		{name: "not valid yet, and last received by a clock that was ahead", from: 365 * day, until: 366 * day, silent: -365 * day, want: http.StatusOK},
		{name: "expired for long", from: -81 * day, until: -80 * day, silent: 80 * day, want: http.StatusOK},
		{name: "valid, silent for long", from: -100 * day, until: day, silent: 100 * day, want: http.StatusOK},
		{name: "expired, silent for too long", from: -100 * day, until: -99 * day, silent: 91 * day, want: http.StatusUnauthorized},
		{name: "not valid yet, silent for too long", from: day, until: 2 * day, silent: 91 * day, want: http.StatusUnauthorized},
		{name: "the server's clock is set forward", from: -day, until: -1, step: 365 * day, want: http.StatusOK},
		{name: "the server's clock is set back", from: day, until: 2 * day, step: -365 * day, want: http.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			m := newMachine(t, "m1")
			b.join(m, "r1")
			b.acceptRequest("r1")
			b.recordLastMessage("r1", b.now.Add(-c.silent))
			b.issueBetween(m, "r1", b.now.Add(c.from), b.now.Add(c.until))
			b.now, b.uptime = b.now.Add(c.step), b.uptime+time.Minute
			reason, text := "", ""
			if c.want != http.StatusOK {
				reason, text = identity.ReasonUnauthorized, "no message of it was received for more than 90 days; join with a token"
			}
			status, a := b.renew(m)
			b.expectResponse(status, a, c.want, reason, text)
		})
	}
}

// Dates do not matter, but the key, the revocation and the rate do.
func TestRenew_RefusesOthersWhateverTheirDates(t *testing.T) {
	b := newBench(t)
	m := newMachine(t, "m1")
	b.join(m, "r1")
	b.acceptRequest("r1")
	b.recordLastMessage("r1", b.now)
	other := newMachine(t, "m1")
	b.issueBetween(other, "r1", b.now.Add(day), b.now.Add(2*day))
	status, a := b.renew(other)
	b.expectResponse(status, a, http.StatusForbidden, identity.ReasonReimaged, "has another key")
	b.setIdentitySpec("r1", robotv1.RobotIdentitySpec{Revoked: true, RevokedReason: "stolen"})
	b.issueBetween(m, "r1", b.now.Add(day), b.now.Add(2*day))
	status, a = b.renew(m)
	b.expectResponse(status, a, http.StatusForbidden, identity.ReasonRevoked, "stolen")
	b.setIdentitySpec("r1", robotv1.RobotIdentitySpec{})
	for range renewalBurst - 1 {
		b.issueBetween(m, "r1", b.now.Add(day), b.now.Add(2*day))
		status, a = b.renew(m)
		b.expectResponse(status, a, http.StatusOK, "", "")
		b.forgetCertificates("r1")
	}
	status, a = b.renew(m)
	b.expectResponse(status, a, http.StatusTooManyRequests, identity.ReasonTooMany, "renews too often")
}

// The key of a stolen robot that was replaced stays proven forever. It must not keep the robot from
// renewing.
func TestRenew_LimitsEachKeyOfRobot(t *testing.T) {
	for name, c := range map[string]struct {
		keepsConnections bool
		requests         int
		text             string
	}{"connections": {true, 2, "too many connections"}, "renewals": {false, renewalBurst, "renews too often"}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			m, stolen := newMachine(t, "m1"), newMachine(t, "m1")
			b.join(m, "r1")
			b.acceptRequest("r1")
			b.join(m, "r1")
			b.issueBetween(stolen, "r1", b.now.Add(-2*day), b.now.Add(-day))
			b.keepsConnections = c.keepsConnections
			for range c.requests {
				status, a := b.renew(stolen)
				b.expectResponse(status, a, http.StatusForbidden, identity.ReasonReimaged, "has another key")
			}
			status, a := b.renew(stolen)
			b.expectResponse(status, a, http.StatusTooManyRequests, identity.ReasonTooMany, c.text)
			status, a = b.renew(m)
			b.expectResponse(status, a, http.StatusOK, "", "")
		})
	}
}
