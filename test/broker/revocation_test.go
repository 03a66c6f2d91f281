package broker_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/broker/mosquitto"
	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/internal/server/revocation"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// crlSetup is a Mosquitto that reads the revocation list of a server with two robots.
type crlSetup struct {
	t         *testing.T
	authority *ca.Authority
	robots    client.Client
	informer  *controllertest.FakeInformer
	file      string
	address   string
	broker    *testkit.Process
	proofs    map[string]*tls.Certificate // of robots
}

func newCRLSetup(t *testing.T) *crlSetup {
	t.Helper()
	authority, err := ca.OpenManaged(t.TempDir(), ca.DefaultLifetime)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := robotv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &crlSetup{t: t, authority: authority, file: filepath.Join(dir, "robots.crl"), address: testkit.FreeAddr(t), proofs: map[string]*tls.Certificate{}}
	s.robots = fakeapi.NewBuilder(scheme).WithStatusSubresource(&robotv1.Robot{}).Build()
	for _, id := range []string{"r1", "r2"} {
		s.addRobot(id)
	}
	s.startWriter(scheme)
	testkit.EventuallyNoError(t, time.Minute, "the list is written", func() error { return s.expectList() })
	s.startBroker(dir)
	return s
}

// addRobot creates a robot that has joined.
func (s *crlSetup) addRobot(id string) {
	s.t.Helper()
	key, _, err := keyfile.NewKey()
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := s.authority.SignRobot(id, key.Public())
	if err != nil {
		s.t.Fatal(err)
	}
	s.proofs[id] = &tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}
	fingerprint := identity.CertificateFingerprint(c)
	r := &robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: id}}
	r.Status.Identity = &robotv1.RobotIdentity{
		Accepted:    &robotv1.AcceptedIdentity{Key: fingerprint},
		Certificate: &robotv1.IssuedCertificate{SerialNumber: c.SerialNumber.Text(16), NotAfter: metav1.NewTime(c.NotAfter), Key: fingerprint},
	}
	if err := errors.Join(s.robots.Create(s.t.Context(), r), s.robots.Status().Update(s.t.Context(), r)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *crlSetup) startWriter(scheme *runtime.Scheme) {
	s.t.Helper()
	informers := &informertest.FakeInformers{Scheme: scheme}
	var err error
	if s.informer, err = informers.FakeInformerFor(s.t.Context(), &robotv1.Robot{}); err != nil {
		s.t.Fatal(err)
	}
	w := &revocation.Writer{File: s.file, Authority: s.authority, Robots: s.robots, Informers: informers, Log: logr.Discard()}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Start(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}

func (s *crlSetup) startBroker(dir string) {
	s.t.Helper()
	files, err := mosquitto.Config{
		Listen: s.address, Dir: dir, CAFile: "ca.crt", CertFile: "tls.crt", KeyFile: "tls.key", CRLFile: "robots.crl", Plugin: testkit.FindMosquittoPlugin(s.t), Robots: []string{"r1", "r2"},
	}.Files()
	if err != nil {
		s.t.Fatal(err)
	}
	own, err := s.authority.ServingCertificate("127.0.0.1")(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		s.t.Fatal(err)
	}
	files["ca.crt"], files["tls.crt"] = s.authority.TrustPEM(), keyfile.EncodeCertificates(own.Leaf)
	files["tls.key"] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	s.broker = testkit.NewConfiguredMosquitto(s.t, dir, files)
	s.broker.Start()
	testkit.EventuallyNoError(s.t, time.Minute, "mosquitto listens", func() error { return s.connect("r2") })
}

// connect returns an error unless the broker accepts the robot.
func (s *crlSetup) connect(robot string) error {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: waitTimeout}, "tcp", s.address, &tls.Config{RootCAs: s.authority.TrustPool(), Certificates: []tls.Certificate{*s.proofs[robot]}})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, _, err = connectPeer(conn, robot)
	return err
}

// setRevoked revokes a robot, or approves it again.
func (s *crlSetup) setRevoked(id string, revoked bool) {
	s.t.Helper()
	before := &robotv1.Robot{}
	if err := s.robots.Get(s.t.Context(), client.ObjectKey{Namespace: "default", Name: id}, before); err != nil {
		s.t.Fatal(err)
	}
	after := before.DeepCopy()
	after.Spec.Identity = &robotv1.RobotIdentitySpec{Revoked: revoked}
	if err := s.robots.Update(s.t.Context(), after); err != nil {
		s.t.Fatal(err)
	}
	s.informer.Update(before, after)
}

// expectList returns an error unless the file lists the certificates of these robots.
func (s *crlSetup) expectList(robots ...string) error {
	text, err := os.ReadFile(s.file)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return errors.New("the file is not PEM")
	}
	list, err := x509.ParseRevocationList(block.Bytes)
	if err != nil {
		return err
	}
	var got, want []string
	for _, e := range list.RevokedCertificateEntries {
		got = append(got, e.SerialNumber.Text(16))
	}
	for _, id := range robots {
		want = append(want, s.proofs[id].Leaf.SerialNumber.Text(16))
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("it lists %q, want %q", got, want)
	}
	return nil
}

// Mosquitto reads the list again on SIGHUP. A later list replaces the earlier one in both directions.
func TestMosquitto_RefusesRobotsOnTheRevocationList(t *testing.T) {
	s := newCRLSetup(t)
	if info, err := os.Stat(s.file); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the broker's user cannot read the list: %v, %v", info, err)
	}
	if err := s.connect("r1"); err != nil {
		t.Fatalf("before it is revoked: %v", err)
	}
	s.setRevoked("r1", true)
	testkit.EventuallyNoError(t, time.Minute, "r1 is listed", func() error { return s.expectList("r1") })
	s.broker.Signal(syscall.SIGHUP)
	testkit.Eventually(t, time.Minute, "r1 is refused", func() bool { return s.connect("r1") != nil })
	if err := s.connect("r2"); err != nil {
		t.Errorf("r2, which is not revoked: %v", err)
	}
	s.setRevoked("r1", false)
	testkit.EventuallyNoError(t, time.Minute, "r1 is not listed", func() error { return s.expectList() })
	s.broker.Signal(syscall.SIGHUP)
	testkit.EventuallyNoError(t, time.Minute, "r1 is accepted again", func() error { return s.connect("r1") })
}
