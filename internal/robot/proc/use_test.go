package proc

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// The child works and has a child of its own that exits.
func TestUseBelow_CountsDescendants(t *testing.T) {
	const work = `i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done`
	cmd := exec.Command("sh", "-c", "sh -c '"+work+"'; "+work+"; echo done; read line")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	u := ReadProcesses().UseBelow(os.Getpid())
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if u.CPU < used-100*time.Millisecond || u.CPU > used+100*time.Millisecond {
		t.Errorf("%v of the processor, the kernel says %v when it has ended", u.CPU, used)
	}
	if u.Memory < 100<<10 || u.Memory > 100<<20 {
		t.Errorf("%d bytes of memory for a shell", u.Memory)
	}
	if u := (Processes{}).UseBelow(1); u != (Use{}) {
		t.Errorf("a process that is gone: %+v", u)
	}
}
