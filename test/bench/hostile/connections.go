package main

import (
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

// connectionGrace is how long the server has to close the connections that exceed its limits. It is
// shorter than the time after which it closes all that do not authenticate.
const connectionGrace = 3 * time.Second

// holdConnections opens idle connections to the join and log API from one address, and returns how
// many of them the server holds, and how much its memory grows.
func holdConnections(t testing.TB, up *testkit.Up) (held int, mb float64) {
	u, err := url.Parse(up.JoinURL)
	if err != nil {
		t.Fatal(err)
	}
	before := up.RSS()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range *connections {
		conn, err := net.DialTimeout("tcp", u.Host, waitTimeout)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer func() { _ = conn.Close() }()
			if isHeld(conn, connectionGrace) {
				mu.Lock()
				defer mu.Unlock()
				held++
			}
		})
	}
	wg.Wait()
	return held, max(0, float64(up.RSS()-before)/1e6)
}

// isHeld completes the TLS handshake, and reports whether the server leaves the connection open.
func isHeld(conn net.Conn, within time.Duration) bool {
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // sends nothing
	_ = secure.SetDeadline(time.Now().Add(within))
	if err := secure.Handshake(); err != nil {
		return errors.Is(err, os.ErrDeadlineExceeded)
	}
	_, err := secure.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}
