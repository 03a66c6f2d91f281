package revocation

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

const day = 24 * time.Hour

// bench is a writer that runs in a bubble of synctest.
type bench struct {
	t         *testing.T
	dir       string // of the CA
	file      string
	authority *ca.Authority
	stop      func()
}

func startWriter(t *testing.T, robots ...client.Object) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), file: filepath.Join(t.TempDir(), "robots.crl")}
	var err error
	if b.authority, err = ca.OpenManaged(b.dir, ca.DefaultLifetime); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := robotv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &Writer{
		File: b.file, Authority: b.authority, Robots: fakeapi.NewBuilder(scheme).WithObjects(robots...).Build(),
		Informers: &informertest.FakeInformers{Scheme: scheme}, Log: logr.Discard(),
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Start(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	synctest.Wait()
	return b
}

// lists returns the lists in the file.
func (b *bench) lists() []*x509.RevocationList {
	b.t.Helper()
	text, err := os.ReadFile(b.file)
	if err != nil {
		b.t.Fatal(err)
	}
	var all []*x509.RevocationList
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		l, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

func TestWriter_RefreshesListLongBeforeItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startWriter(t)
		defer b.stop()
		for range 100 {
			l := b.lists()[0]
			if left := time.Until(l.NextUpdate); left < validity-refreshInterval-time.Hour {
				t.Fatalf("the list expires in %s", left)
			}
			signer, _ := b.authority.CAs()
			if err := l.CheckSignatureFrom(signer); err != nil {
				t.Fatal(err)
			}
			time.Sleep(day / 2)
		}
	})
}

func TestWriter_RestoresRemovedFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startWriter(t)
		defer b.stop()
		if err := os.Remove(b.file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * checkInterval)
		if len(b.lists()) != 1 {
			t.Error("it was not written again")
		}
	})
}

// Robots with certificates of the earlier CA can connect until they renew: without a list of that CA
// brokers refuse them.
func TestWriter_KeepsListOfEarlierCAWhileItIsTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startWriter(t)
		defer b.stop()
		if err := ca.RequestRotation(b.dir, day); err != nil {
			t.Fatal(err)
		}
		most := 0
		for range 80 {
			time.Sleep(time.Hour)
			if err := b.authority.Refresh(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * checkInterval)
			signer, _ := b.authority.CAs()
			lists := b.lists()
			if err := lists[0].CheckSignatureFrom(signer); err != nil {
				t.Fatalf("the first list is of another CA: %v", err)
			}
			most = max(most, len(lists))
		}
		if n := len(b.lists()); most != 2 || n != 1 {
			t.Errorf("at most %d lists, at last %d", most, n)
		}
	})
}

func certificate(serial, key string, notAfter time.Time) robotv1.IssuedCertificate {
	return robotv1.IssuedCertificate{SerialNumber: serial, Key: key, NotAfter: metav1.NewTime(notAfter)}
}

func TestListRevoked(t *testing.T) {
	now := time.Now()
	later := now.Add(time.Hour)
	robot := func(accepted string, revoked bool, issued ...robotv1.IssuedCertificate) robotv1.Robot {
		r := robotv1.Robot{}
		r.Spec.Identity = &robotv1.RobotIdentitySpec{Revoked: revoked}
		last := len(issued) - 1
		r.Status.Identity = &robotv1.RobotIdentity{Accepted: &robotv1.AcceptedIdentity{Key: accepted}, Certificate: &issued[last], EarlierCertificates: issued[:last]}
		return r
	}
	got := listRevoked([]robotv1.Robot{
		{},
		robot("a", false, certificate("1", "a", later), certificate("2", "", later)),
		robot("b", true, certificate("5", "b", now.Add(-time.Minute)), certificate("4", "b", later), certificate("3", "", later)),
		robot("c", false, certificate("6", "old", later), certificate("7", "c", later)), // was reinstalled
	}, now)
	if want := []string{"3", "4", "6"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
