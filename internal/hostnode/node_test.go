package hostnode

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A shim of another version would reject what this process sends.
func TestNode_HoldsTheAgentsProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent")
	install := func(program string) {
		b, err := os.ReadFile(program)
		if err == nil {
			err = os.WriteFile(path+".new", b, 0o700)
		}
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install("/bin/true")
	n := &Node{cfg: Config{Program: path}}
	release, err := n.holdProgram()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	install("/bin/false")
	if err := exec.Command(n.program).Run(); err != nil {
		t.Errorf("after an upgrade: %v, want the program of before", err)
	}
}
