package brokerauth

import (
	"crypto/x509"
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/protocol/acl"
	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/server/ca"
)

// bench is a registry that has seen all robots, and certificates.
type bench struct {
	*Registry
	t            *testing.T
	auth         *ca.Authority
	disconnected []string
	events       []string
}

func newBench(t *testing.T, cfg Config) *bench {
	t.Helper()
	auth, err := ca.OpenManaged(t.TempDir(), ca.DefaultLifetime)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Registry: NewRegistry(cfg), t: t, auth: auth}
	b.SetDependencies(nil, func(name string) { b.disconnected = append(b.disconnected, name) }, func(o client.Object, reason, message string) { b.events = append(b.events, o.GetName()+" "+message) })
	b.setReady()
	return b
}

func (b *bench) certificate(id string) *x509.Certificate {
	b.t.Helper()
	key, _, err := keyfile.NewKey()
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := b.auth.SignRobot(id, key.Public())
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func robot(namespace, id, key string) *robotv1.Robot {
	r := &robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id}, Spec: robotv1.RobotSpec{RobotID: id}}
	if key != "" {
		r.Status.Identity = &robotv1.RobotIdentity{Accepted: &robotv1.AcceptedIdentity{Key: key}}
	}
	return r
}

func (b *bench) expectRefused(p broker.Peer, want error) {
	b.t.Helper()
	if id, err := b.Authenticate(p); !errors.Is(err, want) {
		b.t.Errorf("%s: %+v, %v, want %v", p.ClientID, id, err, want)
	}
}

func (b *bench) expectAdmitted(p broker.Peer, want broker.Identity) {
	b.t.Helper()
	if id, err := b.Authenticate(p); err != nil || id.Name != want.Name || id.Role != want.Role {
		b.t.Errorf("%s: %+v, %v, want %+v", p.ClientID, id, err, want)
	}
}

func TestRegistry_Authenticate(t *testing.T) {
	b := newBench(t, Config{})
	c := b.certificate("r1")
	me := broker.Peer{ClientID: "r1", Certificate: c}
	b.expectRefused(me, errUnknownRobot)
	b.updateRobot(robot("hall", "r1", ""))
	b.expectRefused(me, errOtherKey)
	b.updateRobot(robot("hall", "r1", identity.CertificateFingerprint(c)))
	b.expectAdmitted(me, broker.Identity{Name: "r1", Role: acl.Robot})
	if id, _ := b.Authenticate(me); id.Generation != identity.CertificateFingerprint(c) || !id.Expires.Equal(c.NotAfter) {
		t.Errorf("%+v", id)
	}
	b.expectAdmitted(broker.Peer{ClientID: "r2", Certificate: c}, broker.Identity{Name: "r1", Role: acl.Robot}) // the broker refuses this client ID
	b.expectRefused(broker.Peer{ClientID: "r1", Certificate: b.certificate("r1")}, errOtherKey)
	b.expectRefused(broker.Peer{ClientID: "r1"}, errCertificateRequired)
	b.expectRefused(broker.Peer{ClientID: "r3"}, errNoCertificate)
	b.expectRefused(broker.Peer{ClientID: "k8s4r-agent-r3"}, errLegacy)
	b.expectRefused(broker.Peer{ClientID: identity.ServerName}, errReservedName)
	server, err := b.auth.ServerClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	b.expectAdmitted(broker.Peer{ClientID: identity.ServerName, Certificate: server.Leaf}, broker.Identity{Name: identity.ServerName, Role: acl.Server})
	serving, err := b.auth.ServingCertificate("localhost")(nil)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := b.Authenticate(broker.Peer{ClientID: identity.ServerName, Certificate: serving.Leaf}); err == nil {
		t.Errorf("a serving certificate is accepted as a client certificate: %+v", id)
	}
}

func TestRegistry_AllowsUnauthenticatedClientsByFlag(t *testing.T) {
	b := newBench(t, Config{AllowLegacy: true})
	b.updateRobot(robot("hall", "r1", "sha256:key"))
	b.expectAdmitted(broker.Peer{ClientID: "k8s4r-agent-r2"}, broker.Identity{Name: "r2", Role: acl.LegacyAgent})
	b.expectRefused(broker.Peer{ClientID: "k8s4r-agent-r1"}, errCertificateRequired)
	b.expectRefused(broker.Peer{ClientID: "k8s4r-agent-a/b"}, errLegacy)
	b.expectRefused(broker.Peer{ClientID: "listener"}, errNoCertificate)

	b = newBench(t, Config{AllowAnonymous: true})
	b.updateRobot(robot("hall", "r1", "sha256:key"))
	b.expectAdmitted(broker.Peer{ClientID: "listener"}, broker.Identity{Name: "listener", Role: acl.Anonymous})
	b.expectRefused(broker.Peer{ClientID: "r1"}, errCertificateRequired)
	b.expectRefused(broker.Peer{ClientID: "k8s4r-agent-r1"}, errCertificateRequired)
	b.expectRefused(broker.Peer{ClientID: identity.ServerName}, errReservedName)
}

// The check applies to anonymous clients that are already connected, too.
func TestRegistry_ProtectsAuthenticatedRobots(t *testing.T) {
	b := newBench(t, Config{AllowAnonymous: true})
	b.updateRobot(robot("hall", "r1", ""))
	anonymous, err := b.Authenticate(broker.Peer{ClientID: "listener"})
	if err != nil || anonymous.IsAuthenticated("r1") || anonymous.IsAuthenticated("r2") {
		t.Fatalf("%+v, %v: no robot is authenticated", anonymous, err)
	}
	accepted := robot("hall", "r1", "sha256:key")
	b.updateRobot(accepted)
	if !anonymous.IsAuthenticated("r1") || anonymous.IsAuthenticated("r2") {
		t.Error("want r1 with a key, r2 without")
	}
	revoked := robot("hall", "r1", "")
	revoked.Spec.Identity = &robotv1.RobotIdentitySpec{Revoked: true}
	b.updateRobot(revoked)
	if !anonymous.IsAuthenticated("r1") {
		t.Error("anonymous clients may act for a revoked robot")
	}
}

func TestRegistry_RefusesAllBeforeRobotsAreListed(t *testing.T) {
	b := newBench(t, Config{AllowAnonymous: true})
	b.ready = false
	b.expectRefused(broker.Peer{ClientID: "r1", Certificate: b.certificate("r1")}, errNotReady)
	b.expectRefused(broker.Peer{ClientID: "listener"}, errNotReady)
}

// Each change of the accepted key disconnects the robot once. Other changes do not.
func TestRegistry_DisconnectsWhenKeyChanges(t *testing.T) {
	b := newBench(t, Config{})
	c := b.certificate("r1")
	accepted := robot("hall", "r1", identity.CertificateFingerprint(c))
	revoked := accepted.DeepCopy()
	revoked.Spec.Identity = &robotv1.RobotIdentitySpec{Revoked: true}
	replaced := robot("hall", "r1", "sha256:other")
	heartbeat := accepted.DeepCopy()
	heartbeat.Status.RunningTasks = 5
	for _, step := range []struct {
		name         string
		do           func()
		disconnected bool
	}{
		{"it registers without a certificate", func() { b.updateRobot(robot("hall", "r1", "")) }, false},
		{"it is deleted without an accepted key", func() { b.removeRobot(robot("hall", "r1", "")) }, false},
		{"it is accepted: previous clients of its name are disconnected", func() { b.updateRobot(accepted) }, true},
		{"it sends a heartbeat", func() { b.updateRobot(heartbeat) }, false},
		{"it is revoked", func() { b.updateRobot(revoked) }, true},
		{"it is approved again", func() { b.updateRobot(accepted) }, false},
		{"another key is approved", func() { b.updateRobot(replaced) }, true},
		{"it is deleted", func() { b.removeRobot(replaced) }, true},
	} {
		b.disconnected = nil
		step.do()
		if slices.Contains(b.disconnected, "r1") != step.disconnected {
			t.Errorf("%s: disconnected %v", step.name, b.disconnected)
		}
	}
	b.expectRefused(broker.Peer{ClientID: "r1", Certificate: c}, errUnknownRobot)
}

func TestRegistry_ReportsRefusals(t *testing.T) {
	b := newBench(t, Config{})
	b.updateRobot(robot("hall", "r1", "sha256:key"))
	b.ReportRefusal(broker.Refusal{Name: "r1", Action: "publish", Topic: "k8s4r/robots/r2/register"})
	b.ReportRefusal(broker.Refusal{Name: "unknown", Action: "connect"})
	if want := []string{`r1 The robot tried to publish with a topic or client ID that is not its own, and was refused: "k8s4r/robots/r2/register"`}; !slices.Equal(b.events, want) {
		t.Errorf("events %q", b.events)
	}
}

func TestRegistry_OlderRobotHasTheID(t *testing.T) {
	b := newBench(t, Config{})
	c := b.certificate("r1")
	old, young := robot("a", "r1", identity.CertificateFingerprint(c)), robot("b", "r1", "sha256:other")
	old.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	young.CreationTimestamp = metav1.NewTime(time.Now())
	b.updateRobot(young)
	b.updateRobot(old)
	b.expectAdmitted(broker.Peer{ClientID: "r1", Certificate: c}, broker.Identity{Name: "r1", Role: acl.Robot})
	b.removeRobot(old)
	b.expectRefused(broker.Peer{ClientID: "r1", Certificate: c}, errOtherKey)
}
