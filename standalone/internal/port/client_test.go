package port

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestClientUser_IsThatOfTheProcess(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if uid, ok := ClientUser(conn); !ok || uid != os.Getuid() {
		t.Errorf("user %d, %t", uid, ok)
	}
}

func TestFindClientUser(t *testing.T) {
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "net"), 0o755); err != nil {
		t.Fatal(err)
	}
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2
`
	if err := os.WriteFile(filepath.Join(proc, "net", "tcp"), []byte(table), 0o644); err != nil {
		t.Fatal(err)
	}
	at := func(port int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }
	if uid, ok := findClientUser(proc, at(50000), at(8080)); !ok || uid != 1000 {
		t.Errorf("the client's end: user %d, %t", uid, ok)
	}
	if _, ok := findClientUser(proc, at(50001), at(8080)); ok {
		t.Error("found the user of an unknown connection")
	}
}
