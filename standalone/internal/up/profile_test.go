package up

import (
	"net"
	"os"
	"testing"
)

// TestOwnListener_RefusesOtherUsers has one that listens for another user.
func TestOwnListener_RefusesOtherUsers(t *testing.T) {
	for _, c := range []struct {
		name string
		uid  int
		want bool
	}{
		{"the user's own connection", os.Getuid(), true},
		{"a connection of another user", os.Getuid() + 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inner, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer inner.Close()
			l := ownListener{inner, c.uid}
			go func() {
				for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
					_, _ = conn.Write([]byte("x"))
					conn.Close()
				}
			}()
			client, err := net.Dial("tcp", inner.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			n, _ := client.Read(make([]byte, 1))
			if got := n == 1; got != c.want {
				t.Errorf("served: %t", got)
			}
		})
	}
}
