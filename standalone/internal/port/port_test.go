package port

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

func TestCheck_NamesHolderOfPort(t *testing.T) {
	l, err := Listen("127.0.0.1:0", "secure-port")
	if err != nil {
		t.Fatal(err)
	}
	_, number, _ := net.SplitHostPort(l.Addr().String())
	err = Check(l.Addr().String(), "secure-port")
	if err == nil {
		t.Fatal("a port in use is reported as free")
	}
	for _, want := range []string{"port " + number, "--secure-port", fmt.Sprintf("process %d", os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call shows that the first left the port free
		if err := Check("127.0.0.1:"+number, "secure-port"); err != nil {
			t.Error(err)
		}
	}
}

func TestCheck_RejectsForeignAddress(t *testing.T) {
	if err := Check("192.0.2.1:0", "mqtt-address"); err == nil || !strings.Contains(err.Error(), "--mqtt-address") {
		t.Errorf("got %v", err)
	}
}

func TestFindHolder_FindsNoneInEmptyProc(t *testing.T) {
	if _, ok := findHolder(t.TempDir(), 80); ok {
		t.Error("found a holder in an empty /proc")
	}
}
