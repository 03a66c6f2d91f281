package install

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Each row interrupts a request over a real connection.
func TestIsInterrupted(t *testing.T) {
	for name, row := range map[string]struct {
		isHTTP2   bool
		interrupt func(client net.Conn, server *httptest.Server)
	}{
		"the client closes its connection, HTTP/2": {isHTTP2: true, interrupt: func(client net.Conn, _ *httptest.Server) { client.Close() }},
		"the client closes its connection":         {interrupt: func(client net.Conn, _ *httptest.Server) { client.Close() }},
		"the server closes the connection, HTTP/2": {isHTTP2: true, interrupt: func(_ net.Conn, server *httptest.Server) { server.CloseClientConnections() }},
		"the server closes the connection":         {interrupt: func(_ net.Conn, server *httptest.Server) { server.CloseClientConnections() }},
	} {
		t.Run(name, func(t *testing.T) {
			received, done := make(chan struct{}), make(chan struct{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				close(received)
				<-done
			}))
			server.EnableHTTP2 = row.isHTTP2
			server.StartTLS()
			defer server.Close()
			defer close(done)
			var conn net.Conn
			transport := server.Client().Transport.(*http.Transport)
			transport.DialContext = func(ctx context.Context, network, address string) (_ net.Conn, err error) {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return conn, err
			}
			go func() {
				<-received
				row.interrupt(conn, server)
			}()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, server.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := server.Client().Do(request)
			if err == nil {
				answer.Body.Close()
			}
			if !isInterrupted(err) {
				t.Errorf("%v is no interruption", err)
			}
		})
	}
	if !isInterrupted(fmt.Errorf("apply: %w", errors.New("http2: client connection force closed via ClientConn.Close"))) {
		t.Error("a connection that another request has closed is no interruption")
	}
	if isInterrupted(context.DeadlineExceeded) || isInterrupted(nil) {
		t.Error("other errors are no interruption")
	}
}

func TestRepeatInterrupted_RepeatsOnlyInterruptions(t *testing.T) {
	refused := errors.New("refused")
	for _, row := range []struct {
		first error
		calls int
		want  error
	}{{fmt.Errorf("apply: %w", net.ErrClosed), 2, nil}, {refused, 1, refused}} {
		calls := 0
		err := RepeatInterrupted(func() error {
			if calls++; calls == 1 {
				return row.first
			}
			return nil
		})
		if calls != row.calls || !errors.Is(err, row.want) {
			t.Errorf("after %v: %d calls, %v", row.first, calls, err)
		}
	}
}
