package up

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"time"

	"k8s4r.io/k8s4r/standalone/internal/component"
	"k8s4r.io/k8s4r/standalone/internal/port"
)

// addProfile adds the profiles of this process. They show what it holds in memory, so only its user
// gets them.
func (s *system) addProfile() {
	if s.profile == nil {
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	l := ownListener{s.profile, os.Getuid()}
	s.group.Add("profile", component.NewBackground(func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { server.Close() })()
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, nil))
}

// ownListener accepts connections of one user of this machine.
type ownListener struct {
	net.Listener
	uid int
}

// Accept implements net.Listener. It closes connections of other users.
func (l ownListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if uid, ok := port.ClientUser(conn); ok && uid == l.uid {
			return conn, nil
		}
		conn.Close()
	}
}

func profileURL(l net.Listener) string {
	if l == nil {
		return ""
	}
	return "http://" + l.Addr().String() + "/debug/pprof/"
}
