package ca

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// fullDisk returns a disk on which the first n changes succeed.
func fullDisk(n int) disk {
	takeRoom := func() error {
		if n--; n < 0 {
			return syscall.ENOSPC
		}
		return nil
	}
	return disk{
		write: func(path string, data []byte) error {
			if err := takeRoom(); err != nil {
				return err
			}
			return keyfile.WriteFile(path, data)
		},
		rename: func(from, to string) error {
			if err := takeRoom(); err != nil {
				return err
			}
			return keyfile.Rename(from, to)
		},
	}
}

// openOnFullDisk opens the CA while the disk has room for n changes, and returns whether it was
// full.
func openOnFullDisk(t *testing.T, dir string, c *clock, n int) (isFull bool) {
	t.Helper()
	a := &Authority{dir: dir, isManaged: true, lifetime: DefaultLifetime, now: c.now, disk: fullDisk(n)}
	err := a.renewFiles()
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return err != nil
}

// After a full disk at any step, the next start has a CA whose key and certificate fit, and robots
// of before can still connect.
func TestAuthority_SurvivesFullDiskAtEachStep(t *testing.T) {
	for name, age := range map[string]time.Duration{
		"first CA": 0, "next CA": DefaultLifetime - 2*rotateBefore + time.Hour, "promotion": DefaultLifetime - rotateBefore + time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				if isFull := checkFullDiskAfter(t, age, n); !isFull {
					if n < 2 {
						t.Errorf("only %d changes of files were tried", n)
					}
					return
				}
			}
		})
	}
}

// checkFullDiskAfter fills up the disk after n changes of a CA of this age, and starts again.
func checkFullDiskAfter(t *testing.T, age time.Duration, n int) (isFull bool) {
	t.Helper()
	at := &clock{time.Now()}
	dir := filepath.Join(t.TempDir(), "pki", "robots")
	robot := newKey(t).Public()
	if age == 0 {
		isFull = openOnFullDisk(t, dir, at, n)
		openManaged(t, dir, at)
		return isFull
	}
	openManaged(t, dir, at)
	if at.Time = at.Add(DefaultLifetime - 2*rotateBefore + time.Minute); age > DefaultLifetime-2*rotateBefore+time.Hour {
		openManaged(t, dir, at) // creates the next CA
	}
	before := openUnchanged(t, dir, at)
	c, err := before.SignRobot("r1", robot)
	if err != nil {
		t.Fatal(err)
	}
	at.Time = at.Add(age - (DefaultLifetime - 2*rotateBefore + time.Minute))
	isFull = openOnFullDisk(t, dir, at, n)
	after := openManaged(t, dir, at)
	if _, err := after.VerifyClient(c); err != nil {
		t.Errorf("after %d changes, a robot of before: %v", n, err)
	}
	if trusted := after.trust; len(trusted) != 2 {
		t.Errorf("after %d changes, %d CAs are trusted", n, len(trusted))
	}
	return isFull
}

// openUnchanged opens the CA without renewing its files.
func openUnchanged(t *testing.T, dir string, c *clock) *Authority {
	t.Helper()
	a, err := openAuthority(dir, false, 0, c.now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A new CA would lock out all robots, so files that cannot be read, or are missing beside others,
// are left to an operator.
func TestOpenManaged_NeverReplacesFiles(t *testing.T) {
	damage := map[string]func(path string) error{
		"is empty": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"cannot be read": func(path string) error { // also by root
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		},
		"is missing": os.Remove,
	}
	for _, name := range []string{fileKey, fileCertificate, fileTrust, fileNextKey, fileNextCertificate} {
		for what, do := range damage {
			if strings.HasSuffix(name, ".crt") && name != fileTrust && what == "is missing" {
				continue // is signed again, with its key
			}
			t.Run(name+" "+what, func(t *testing.T) {
				at := &clock{time.Now()}
				dir := t.TempDir()
				openManaged(t, dir, at)
				if strings.HasPrefix(name, "next") {
					at.Time = at.Add(DefaultLifetime - 2*rotateBefore + time.Hour)
					openManaged(t, dir, at)
					at.Time = at.Add(rotateBefore)
				}
				if err := do(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				before := readAll(t, dir)
				if _, err := openAuthority(dir, true, DefaultLifetime, at.now); err == nil {
					t.Error("it is accepted")
				}
				if after := readAll(t, dir); after != before {
					t.Errorf("files were changed from\n%s to\n%s", before, after)
				}
			})
		}
	}
}

// readAll returns the names and contents of all files.
func readAll(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, e := range entries {
		text, _ := os.ReadFile(filepath.Join(dir, e.Name())) // not of directories
		all.WriteString(e.Name() + ":\n" + string(text))
	}
	return all.String()
}

// The key is what robots trust, so a certificate that is lost is signed again.
func TestOpenManaged_SignsLostCertificateAgain(t *testing.T) {
	at := &clock{time.Now()}
	dir := t.TempDir()
	a := openManaged(t, dir, at)
	trusted, first := a.TrustPool(), a.KeyFingerprint()
	robot, err := a.SignRobot("r1", newKey(t).Public())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(a.path(fileCertificate)); err != nil {
		t.Fatal(err)
	}
	a = openManaged(t, dir, at)
	if a.KeyFingerprint() != first {
		t.Error("the key was replaced")
	}
	if _, err := a.VerifyClient(robot); err != nil {
		t.Errorf("a robot of before: %v", err)
	}
	serving, err := a.ServingCertificate("localhost")(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyServer(serving.Leaf, trusted); err != nil {
		t.Errorf("a robot of before does not trust the server: %v", err)
	}
}

func verifyServer(c *x509.Certificate, trusted *x509.CertPool) error {
	_, err := c.Verify(x509.VerifyOptions{Roots: trusted, DNSName: "localhost"})
	return err
}
