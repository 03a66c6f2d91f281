package isolation

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFindGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "group")
	list := "root:x:0:\n#old:x:1:\n\n+nis\nk8s4r-task:x:9:\nk8s4r:x:4711:alice,bob\nk8s4r:x:4712:\nbroken:x:-1:\nlast:x:4294967295:"
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"root": 0, "k8s4r": 4711, "last": 4294967295, "": -1, "k8s": -1, "alice": -1, "x": -1, "#old": -1, "+nis": -1} {
		gid, err := findGroup(file, name)
		if err != nil || (gid == nil) != (want < 0) || gid != nil && int64(*gid) != want {
			t.Errorf("group %q: %v, %v, want %d", name, gid, err, want)
		}
	}
	if gid, err := findGroup(file, "broken"); err == nil {
		t.Errorf("a group with a broken id: %v", gid)
	}
	if _, err := findGroup(filepath.Join(t.TempDir(), "missing"), "k8s4r"); err == nil {
		t.Error("a missing list is no error")
	}
	if gid, err := FindGroup("root"); err != nil || gid == nil || *gid != 0 {
		t.Errorf("the group root of this machine: %v, %v", gid, err)
	}
}

func TestUserName(t *testing.T) {
	for uid, want := range map[uint32]string{0: "root", 3999999999: ""} {
		if got := UserName(uid); got != want {
			t.Errorf("uid %d is %q, want %q", uid, got, want)
		}
	}
}
