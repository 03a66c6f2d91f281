package controlplane

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var today = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// makeServing loads or creates a serving certificate on that day.
func makeServing(t *testing.T, dir string, day time.Time, address string) pair {
	t.Helper()
	p := pki{dir: dir, now: func() time.Time { return day }, lifetime: DefaultLifetime}
	ca, err := p.loadCA()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := p.loadServing(ca, []string{"localhost"}, []net.IP{net.ParseIP(address)})
	if err != nil {
		t.Fatal(err)
	}
	if err := leaf.cert.CheckSignatureFrom(ca.cert); err != nil {
		t.Error(err)
	}
	if err := leaf.cert.VerifyHostname(address); err != nil {
		t.Error(err)
	}
	return leaf
}

func TestPKI_KeepsCertificateWhileUsable(t *testing.T) {
	for _, c := range []struct {
		name      string
		inHarm    func(t *testing.T, dir string)
		inAfter   time.Duration
		inAddress string
		wantKept  bool
	}{
		{name: "the next start uses what is there", wantKept: true},
		{name: "after half its life it is kept", inAfter: DefaultLifetime / 2, wantKept: true},
		{name: "with less than a third of its life left it is renewed", inAfter: DefaultLifetime * 3 / 4},
		{name: "after its end it is renewed", inAfter: 2 * DefaultLifetime},
		{name: "when the clock is set back before its start it is renewed", inAfter: -24 * time.Hour},
		{name: "for another address it is renewed", inAddress: "192.0.2.1"},
		{name: "a half-written one is replaced", inHarm: truncate("apiserver.crt")},
		{name: "a key without its certificate is replaced", inHarm: remove("apiserver.crt")},
		{name: "a key that is another's is replaced", inHarm: swapKey},
		{name: "with a new authority it is renewed", inHarm: removeCA},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			first := makeServing(t, dir, today, "127.0.0.1")
			if c.inHarm != nil {
				c.inHarm(t, dir)
			}
			if c.inAddress == "" {
				c.inAddress = "127.0.0.1"
			}
			day := today.Add(c.inAfter)
			second := makeServing(t, dir, day, c.inAddress)
			if kept := bytes.Equal(first.certPEM, second.certPEM); kept != c.wantKept {
				t.Errorf("kept: %v, want %v", kept, c.wantKept)
			}
			if !day.Before(second.cert.NotAfter) {
				t.Errorf("on %s the certificate has ended: %s", day, second.cert.NotAfter)
			}
		})
	}
}

func truncate(file string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		if err := os.Truncate(filepath.Join(dir, file), 10); err != nil {
			t.Fatal(err)
		}
	}
}

func removeCA(t *testing.T, dir string) {
	remove("ca.key")(t, dir)
	remove("ca.crt")(t, dir)
}

// Another CA would lock out every kubeconfig elsewhere, for a disk that fails for a moment.
func TestPKI_NeverReplacesCAThatCannotBeRead(t *testing.T) {
	for name, harm := range map[string]func(*testing.T, string){
		"certificate damaged": truncate("ca.crt"), "key damaged": truncate("ca.key"), "key missing": remove("ca.key"),
		"certificate cannot be read": replaceByDir("ca.crt"), "key cannot be read": replaceByDir("ca.key"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			makeServing(t, dir, today, "127.0.0.1")
			harm(t, dir)
			before := readCA(dir)
			p := pki{dir: dir, now: func() time.Time { return today }, lifetime: DefaultLifetime}
			if _, err := p.loadCA(); err == nil || !strings.Contains(err.Error(), dir) {
				t.Errorf("the error is %v", err)
			}
			if after := readCA(dir); after != before {
				t.Error("the CA was replaced")
			}
		})
	}
}

// replaceByDir makes a file that cannot be read, also by root.
func replaceByDir(file string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		remove(file)(t, dir)
		if err := os.Mkdir(filepath.Join(dir, file), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func readCA(dir string) string {
	certificate, _ := os.ReadFile(filepath.Join(dir, "ca.crt"))
	key, _ := os.ReadFile(filepath.Join(dir, "ca.key"))
	return string(certificate) + string(key)
}

// A machine whose clock is wrong at its start must not lock out kubeconfigs for good.
func TestPKI_SignsCAThatIsNotValidAgainWithItsKey(t *testing.T) {
	for name, day := range map[string]time.Time{"not valid yet": today.AddDate(-30, 0, 0), "expired": today.AddDate(30, 0, 0)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := makeServing(t, dir, today, "127.0.0.1")
			p := pki{dir: dir, now: func() time.Time { return today }, lifetime: DefaultLifetime}
			known, err := p.loadCA()
			if err != nil {
				t.Fatal(err)
			}
			makeServing(t, dir, day, "127.0.0.1")
			again := makeServing(t, dir, today, "127.0.0.1")
			if err := again.cert.CheckSignatureFrom(known.cert); err != nil || bytes.Equal(first.certPEM, again.certPEM) {
				t.Errorf("a client that knows the first CA: %v", err)
			}
		})
	}
}

// A start that was killed between the two files of the CA continues.
func TestPKI_CompletesCAWithItsKey(t *testing.T) {
	dir := t.TempDir()
	makeServing(t, dir, today, "127.0.0.1")
	key, _ := os.ReadFile(filepath.Join(dir, "ca.key"))
	remove("ca.crt")(t, dir)
	makeServing(t, dir, today, "127.0.0.1")
	if again, _ := os.ReadFile(filepath.Join(dir, "ca.key")); !bytes.Equal(key, again) {
		t.Error("the key was replaced")
	}
}

func remove(file string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		if err := os.Remove(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
}

// swapKey leaves the files as a crash during a renewal does.
func swapKey(t *testing.T, dir string) {
	_, other, err := newKey()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "apiserver.key"), other, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestPKI_NeverReplacesServiceAccountKey(t *testing.T) {
	p := pki{dir: t.TempDir(), now: time.Now}
	file, err := p.serviceAccountKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.serviceAccountKey(); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file); string(got) != "damaged" {
		t.Error("a key that could not be read was replaced, which invalidates every token")
	}
}
