package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/internal/testkit"
)

const namespace = "default"

// system is a whole K8s4r, with a process for each program, so that each is measured on its own.
type system struct {
	client.WithWatch
	testing.TB
	up     *testkit.Up // API server and etcd
	broker *testkit.Process
	// programs are the other programs, by name.
	programs map[string]*testkit.Process
	fleet    *fleet
	created  int // robots with an object
}

// startSystem starts all programs for up to this many robots.
func startSystem(t testing.TB, robots int) *system {
	caDir := filepath.Join(t.TempDir(), "ca")
	auth, err := ca.OpenManaged(caDir, ca.DefaultLifetime)
	if err != nil {
		t.Fatal(err)
	}
	up := testkit.StartUp(t, append([]string{"--profile"}, testkit.ControlPlaneOnly...)...)
	s := &system{WithWatch: testkit.NewClient(t, up.RESTConfig()), TB: t, up: up, programs: map[string]*testkit.Process{}}
	var address string
	s.broker, address = startBroker(t, caDir, robots)
	s.fleet = newFleet(t, auth, address)
	s.startProgram("k8s4r-manager", "--leader-elect=false")
	s.startProgram("k8s4r-console", "--bind-address=127.0.0.1:0")
	s.startProgram("k8s4r-server", "--leader-elect=false", "--mqtt-url=mqtts://"+address, "--mqtt-ca-file="+filepath.Join(caDir, "ca.crt"),
		"--robot-ca-dir="+caDir, "--api-bind-address=127.0.0.1:0", "--log-dir="+t.TempDir())
	return s
}

// startProgram starts one of the programs, which serves its metrics and profiles.
func (s *system) startProgram(name string, args ...string) {
	address, kubeconfig := testkit.FreeAddr(s), s.up.Kubeconfig
	if name == "k8s4r-manager" { // admission knows it by its account
		kubeconfig = s.up.KubeconfigOf(name)
	}
	p := testkit.NewProcess(s, append([]string{testkit.BinaryPath(s, name), "--kubeconfig", kubeconfig,
		"--metrics-bind-address=" + address, "--health-probe-bind-address=0"}, args...)...)
	p.Start()
	s.programs[name] = p
	s.Logf("%s: profiles at http://%s/debug/pprof/", name, address)
}

// addRobots adds robots until there are n, and waits until all are registered.
func (s *system) addRobots(ctx context.Context, n int) {
	began := time.Now()
	s.createRobots(n)
	s.fleet.addRobots(ctx, n)
	at := s.fleet.awaitRegistered(n, 10*time.Minute)
	s.Logf("%d robots after %.0f s", n, at.Sub(began).Seconds())
}

// createRobots creates the objects of robots that have joined, up to n.
func (s *system) createRobots(n int) {
	errs := make([]error, n)
	forEach(s.created, n, 16, func(i int) { errs[i] = s.createRobot(robotID(i)) })
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
	s.created = max(s.created, n)
}

// forEach calls f with the numbers from first to below n, in several goroutines.
func forEach(first, n, workers int, f func(i int)) {
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := first + w; i < n; i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
}

func (s *system) createRobot(id string) error {
	r := newRobotObject(id)
	status := r.Status
	if err := s.Create(context.Background(), r); err != nil {
		return fmt.Errorf("create robot: %w", err)
	}
	before := r.DeepCopy()
	r.Status.Identity = status.Identity
	if err := s.Status().Patch(context.Background(), r, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("status of robot: %w", err)
	}
	return nil
}

// newRobotObject returns a robot that has joined and has not registered.
func newRobotObject(id string) *v1alpha1.Robot {
	const key = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	now := metav1.Now()
	return &v1alpha1.Robot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id},
		Spec:       v1alpha1.RobotSpec{RobotID: id, Labels: map[string]string{"robot": id, "fleet": "bench", "datacenter": "hall-" + id[len(id)-1:]}},
		Status: v1alpha1.RobotStatus{Identity: &v1alpha1.RobotIdentity{
			Accepted:    &v1alpha1.AcceptedIdentity{Key: key, By: "Token", Time: now},
			Certificate: &v1alpha1.IssuedCertificate{SerialNumber: "0123456789abcdef", NotAfter: metav1.NewTime(now.Add(ca.DefaultRobotLifetime)), Key: key},
		}},
	}
}

// parts are the measured processes, in the order of the tables.
var parts = []string{"broker", "k8s4r-server", "k8s4r-manager", "k8s4r-console", "API server and etcd"}

// usage is what the processes have used, by the names in parts.
type usage struct {
	at     time.Time
	rss    map[string]int
	cpu    map[string]time.Duration
	writes map[testkit.WriteRequest]int
}

func (s *system) readUsage() usage {
	u := usage{at: time.Now(), rss: map[string]int{}, cpu: map[string]time.Duration{}, writes: testkit.CountWrites(s, s.up.RESTConfig())}
	for _, name := range parts {
		switch name {
		case "broker":
			u.rss[name], u.cpu[name] = s.broker.RSS(), s.broker.CPU()
		case "API server and etcd":
			u.rss[name], u.cpu[name] = s.up.RSS(), s.up.CPU()
		default:
			u.rss[name], u.cpu[name] = s.programs[name].RSS(), s.programs[name].CPU()
		}
	}
	return u
}

// writePair writes a certificate and its key as PEM.
func writePair(c *tls.Certificate, certFile, keyFile string) error {
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return err
	}
	return keyfile.WriteAll(keyfile.WriteFile,
		keyfile.File{Path: certFile, Data: keyfile.EncodeCertificates(c.Leaf)},
		keyfile.File{Path: keyFile, Data: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})},
	)
}
