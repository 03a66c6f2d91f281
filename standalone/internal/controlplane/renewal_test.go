package controlplane

import (
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// listenerAt is a listener that only has an address.
type listenerAt struct{ net.Listener }

func (listenerAt) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443} }

func newTestRenewer(t *testing.T, c Config) *renewer {
	t.Helper()
	c.Dir, c.Listener = t.TempDir(), listenerAt{}
	return newRenewer(c, filepath.Join(c.Dir, "kubeconfig"))
}

// testLifetime keeps the number of checks small.
const testLifetime = 10 * 24 * time.Hour

// For two lifetimes, no certificate has less than a quarter of its lifetime left, and all are renewed.
func TestRenewer_RenewsAllCertificatesInTheRunningProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var latest map[string]*x509.Certificate
		r := newTestRenewer(t, Config{Lifetime: testLifetime, OnCertificates: func(all map[string]*x509.Certificate) { latest = all }})
		if err := r.renew(); err != nil {
			t.Fatal(err)
		}
		first := maps.Clone(latest)
		if names := slices.Sorted(maps.Keys(first)); !slices.Equal(names, []string{"admin", "apiserver", "cluster-ca", "controller-manager", "kubelet", "kubelet-client", "scheduler", "up"}) {
			t.Errorf("certificates %q", names)
		}
		stopped := make(chan error)
		go func() { stopped <- r.run(ctx) }()
		for end := time.Now().Add(2 * testLifetime); time.Now().Before(end); time.Sleep(7 * time.Hour) {
			synctest.Wait() // a renewal may be due at this time
			for name, c := range latest {
				if left := time.Until(c.NotAfter); left < testLifetime/4 {
					t.Fatalf("%s has %s left", name, left)
				}
			}
		}
		for name, c := range latest {
			if isSame := c.Equal(first[name]); isSame != (name == "cluster-ca") {
				t.Errorf("%s is the same: %v", name, isSame)
			}
		}
		if served, err := r.kubeletCertificate(nil); err != nil || !served.Leaf.Equal(latest["kubelet"]) {
			t.Errorf("the kubelet serves another certificate, %v", err)
		}
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

func TestRenewer_TriesAgainAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		warned := 0
		r := newTestRenewer(t, Config{Lifetime: testLifetime, Warn: func(string, error) { warned++ }})
		if err := r.renew(); err != nil {
			t.Fatal(err)
		}
		moved := r.pki.dir + "-moved"
		block := func() error { return errors.Join(os.Rename(r.pki.dir, moved), os.WriteFile(r.pki.dir, nil, 0o600)) }
		if err := block(); err != nil {
			t.Fatal(err)
		}
		stopped := make(chan error)
		go func() { stopped <- r.run(ctx) }()
		time.Sleep(testLifetime * 9 / 10)
		synctest.Wait() // a renewal is due at this time
		if warned == 0 {
			t.Error("no warning")
		}
		if err := errors.Join(os.Remove(r.pki.dir), os.Rename(moved, r.pki.dir)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * maxRenewalInterval)
		synctest.Wait()
		current := r.current()
		if left := time.Until(current.serving.cert.NotAfter); left < testLifetime/2 {
			t.Errorf("%s left after the directory is back", left)
		}
		cancel()
		<-stopped
	})
}

func TestWriteKubeconfig_NamesFilesThatAreRenewed(t *testing.T) {
	r := newTestRenewer(t, Config{})
	if err := r.renew(); err != nil {
		t.Fatal(err)
	}
	client, err := clientOf(r.kubeconfig)
	if err != nil || client.CertFile != r.pki.filePath("admin.crt") || client.KeyFile != r.pki.filePath("admin.key") || len(client.CertData) > 0 {
		t.Errorf("%+v, %v", client, err)
	}
}
