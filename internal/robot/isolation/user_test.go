package isolation

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLookupUser(t *testing.T) {
	me, err := user.LookupId("0")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, in string
		euid     int
		want     string // of the error
		uid      int    // -1: nil
	}{
		{"no user: the agent's own", "", 0, "", -1},
		{"by name", "nobody", 0, "", 65534},
		{"by number", "65534", 0, "", 65534},
		{"unknown name", "no-such-user", 0, `user: this robot has no "no-such-user" in /etc/passwd: add it there, or leave the field user empty`, -1},
		{"unknown number: its group would be a guess", "54321", 0, `user: this robot has no "54321" in /etc/passwd: add it there, or leave the field user empty`, -1},
		{"another user, without root", me.Username, 65534,
			`user: "root" cannot be used, since the agent of this robot is not root: leave the field user empty, or run the agent as root`, -1},
		{"the agent's own user, without root", "nobody", 65534, "", -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u, err := lookupUser(tc.in, tc.euid)
			if got := errorText(err); got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
			if (u == nil) != (tc.uid < 0) || (u != nil && int(u.UID) != tc.uid) {
				t.Errorf("user %+v, want uid %d", u, tc.uid)
			}
		})
	}
}

func TestDefaultUser(t *testing.T) {
	for _, tc := range []struct {
		name  string
		euid  int
		among []string
		want  string
		fails bool
	}{
		{"root: the first user that exists", 0, []string{"no-such-user", "nobody"}, "nobody", false},
		{"not root: the agent's own", 1000, []string{"nobody"}, "", false},
		{"no user exists: an error", 0, []string{"no-such-user"}, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := findDefaultUser(tc.euid, tc.among); got != tc.want || (err != nil) != tc.fails {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestIsAgents(t *testing.T) {
	for _, tc := range []struct {
		name string
		euid int
		want bool
		err  string
	}{
		{"nobody", 0, false, ""},
		{"root", 0, true, ""},
		{"nobody", 65534, true, ""},
		{"root", 65534, false, `"root" cannot be used, since the agent is not root`},
		{"no-such-user", 0, false, `this robot has no "no-such-user" in /etc/passwd`},
	} {
		if got, err := isAgentUser(tc.name, tc.euid); got != tc.want || errorText(err) != tc.err {
			t.Errorf("%s for %d: %v, %v", tc.name, tc.euid, got, err)
		}
	}
}

func TestUser_FirstForbiddenDir(t *testing.T) {
	dir := t.TempDir() // below a directory that is not accessible
	outer := filepath.Dir(dir)
	inner := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(inner, link); err != nil {
		t.Fatal(err)
	}
	mode := func(path string, m os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, m); err != nil {
			t.Fatal(err)
		}
	}
	unprivileged, root := &User{Name: "nobody", UID: 65534, GID: 65534}, &User{Name: "root"}
	check := func(what string, u *User, path, want string) {
		t.Helper()
		if got := u.FirstForbiddenDir(path); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("the first on the way", unprivileged, inner, outer)
	check("root passes", root, inner, "")
	check("the agent's own user passes", nil, inner, "")
	mode(outer, 0o711)
	check("all open", unprivileged, inner, "")
	mode(inner, 0o700)
	check("the path itself does not count", unprivileged, inner, "")
	mode(filepath.Join(dir, "a"), 0o766)
	check("reading is not passing", unprivileged, inner, filepath.Join(dir, "a"))
	check("behind a link", unprivileged, link, filepath.Join(dir, "a"))
	if err := os.Chown(filepath.Join(dir, "a"), 0, 65534); err != nil {
		t.Fatal(err)
	}
	mode(filepath.Join(dir, "a"), 0o710)
	check("by its group", unprivileged, inner, "")
	mode(filepath.Join(dir, "a"), 0o701)
	check("a group that is kept out", unprivileged, inner, filepath.Join(dir, "a"))
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestStart_RunsAsUserWithItsGroups(t *testing.T) {
	if !allowed(t, FactUser) {
		return
	}
	u, err := LookupUser("nobody")
	if err != nil {
		t.Fatal(err)
	}
	out, _ := run(t, sh("id -u; id -g; id -G; grep CapEff /proc/self/status"), Confinement{User: u})
	want := []string{"65534", "65534", "65534", "CapEff:", "0000000000000000"}
	if got := strings.Fields(out); !slices.Equal(got, want) {
		t.Errorf("the task prints %v, want %v", got, want)
	}
	if os.Geteuid() != 0 {
		t.Error("the user of the test itself has changed")
	}
}
