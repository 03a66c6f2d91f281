package shim

import (
	"bytes"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

// A task that writes without pause must not keep the shim from its deadlines: it checks them after
// each round. The test uses a file as a pipe that is never empty.
func TestOutput_ReadsBoundedBytesPerRound(t *testing.T) {
	o, err := openOutput(Spec{LogDir: t.TempDir(), LogBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	endless, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer endless.Close()
	if _, err := endless.Write(bytes.Repeat([]byte("y\n"), 4*maxReadPerRound)); err != nil {
		t.Fatal(err)
	}
	if _, err := endless.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(o.stdout.readFD)
	if o.stdout.readFD, err = unix.Dup(int(endless.Fd())); err != nil {
		t.Fatal(err)
	}
	for round := range int64(2) {
		o.drainAll(time.Now())
		if got, _ := endless.Seek(0, 1); got != (round+1)*maxReadPerRound {
			t.Fatalf("read %d bytes of %s in %d rounds, want %d per round", got, record.Stdout, round+1, maxReadPerRound)
		}
	}
}
