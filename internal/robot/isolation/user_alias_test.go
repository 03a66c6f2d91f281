package isolation

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestIsRootName(t *testing.T) {
	for name, want := range map[string]bool{
		"root": true, "0": true, "root:root": true, "0:1000": true,
		"": false, ":0": false, "00": false, "+0": false, "-0": false, "Root": false, "rooted": false, "toor": false, "1000:0": false,
	} {
		if got := IsRootName(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

func TestLookupTaskUser_RefusesOtherNamesOfRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run tasks as another user")
	}
	inPasswd(t, "root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/root:/bin/sh\nzero:x:00:0::/root:/bin/sh\npilot:x:1234:1234::/:/bin/sh\n", func() {
		for _, test := range []struct {
			name, fallback string
			uid            int // -1: refused
		}{
			{"root", "pilot", 0},
			{"0", "pilot", 0},
			{"toor", "pilot", -1},
			{"zero", "pilot", -1},
			{"00", "pilot", -1},
			{"pilot", "toor", 1234},
			{"", "pilot", 1234},
			{"", "toor", 0}, // the operator's choice
		} {
			u, err := LookupTaskUser(test.name, test.fallback)
			switch {
			case test.uid < 0:
				if err == nil || !strings.Contains(err.Error(), "user: ") || !strings.Contains(err.Error(), test.name) {
					t.Errorf("%q is %+v, %v, want an error that names it", test.name, u, err)
				}
			case err != nil || u == nil || int(u.UID) != test.uid:
				t.Errorf("%q or %q is %+v, %v, want uid %d", test.name, test.fallback, u, err, test.uid)
			}
		}
	})
}

// inPasswd calls f while /etc/passwd has other content for its thread.
func inPasswd(t *testing.T, content string, f func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its mount namespace
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			done <- err
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			done <- err
			return
		}
		if err := unix.Mount(file, "/etc/passwd", "", unix.MS_BIND, ""); err != nil {
			done <- err
			return
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
