package isolation

import (
	"os"
	"os/user"
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
		{"no user: whoever the agent is", "", 0, "", -1},
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

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestATaskRunsAsItsUserWithItsGroupsOnly(t *testing.T) {
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
		t.Errorf("it says %v, want %v", got, want)
	}
	if os.Geteuid() != 0 {
		t.Error("we have become somebody else")
	}
}
