package localapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/agent/selfupdate"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

const (
	// requestTimeout is how long the runner may take to reply, which is far longer than a sync of a slow disk.
	requestTimeout = 2 * time.Second
	// readTimeout is how long a client may take to send a request. http.Server lifts it once it has all of it,
	// so a followed log may take longer.
	readTimeout = 10 * time.Second
	// writeTimeout is how long a client may take to read what it has requested.
	writeTimeout = 10 * time.Second
	// maxRequests bounds the requests that are served at the same time, so that their users cannot take the
	// memory of a small robot.
	maxRequests = 16
	// maxLogs bounds those of them that read logs, which may take forever, so that places are left for actions.
	maxLogs = 8
	// maxConnections bounds the open connections, also those that request nothing.
	maxConnections = 64
	// maxBody bounds the body of a request, in bytes.
	maxBody = 4 << 10
)

// Config configures a Server.
type Config struct {
	RobotID string
	// Group is the name of the group whose members may use the socket. If empty, or if the robot has no
	// such group, there is none.
	Group   string
	Tasks   taskSource
	State   stateReader
	Updates updater
	// LogDir returns the directory of an attempt's log.
	LogDir func(uid string, attempt int32) string
	Log    *slog.Logger
}

// taskSource knows the tasks of the robot (runner.Runner).
type taskSource interface {
	ListTasks(ctx context.Context) ([]runner.LiveTask, error)
	Operate(ctx context.Context, q runner.LocalRequest) (string, error)
}

// updater updates the agent (selfupdate.Updater).
type updater interface {
	Request(ctx context.Context, r selfupdate.Request) (switchOver func(), err error)
}

// stateReader knows what people at the robot have decided (localstate.Store).
type stateReader interface{ Read() *wire.LocalState }

// Server serves the socket.
type Server struct {
	Config
	gid         *uint32 // of Group; nil: there is none
	readTimeout time.Duration
}

// NewServer returns a server for Serve.
func NewServer(c Config) (*Server, error) {
	gid, err := isolation.FindGroup(c.Group)
	if err != nil {
		return nil, fmt.Errorf("look up group %s: %w", c.Group, err)
	}
	return &Server{Config: c, gid: gid, readTimeout: readTimeout}, nil
}

// LacksGroup reports whether the robot has no group with the name in the configuration.
func (s *Server) LacksGroup() bool { return s.Group != "" && s.gid == nil }

// Serve serves a listener on a socket until ctx ends. It gives the socket to the group first.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := s.openToGroup(l.Addr().String()); err != nil {
		return errors.Join(err, l.Close())
	}
	server := &http.Server{
		Handler: s.handler(), ReadTimeout: s.readTimeout, MaxHeaderBytes: 8 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnState:   boundConnections(),
	}
	server.SetKeepAlivesEnabled(false) // an idle connection would hold a goroutine
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// openToGroup lets the members of the group connect. Until then only the agent's user may.
func (s *Server) openToGroup(path string) error {
	if s.gid == nil {
		return nil
	}
	if err := os.Chown(path, -1, int(*s.gid)); err != nil {
		return fmt.Errorf("give the socket to group %s: %w", s.Group, err)
	}
	return os.Chmod(path, 0o660)
}

// The keys of the connection and of its peer in the context of a request.
type (
	connKey struct{}
	peerKey struct{}
)

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /tasks", s.serveTasks)
	mux.Handle("GET /logs", boundRequests(maxLogs, "logs are read already; end one of them, such as a logs -f", http.HandlerFunc(s.serveLogs)))
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, r *http.Request) { s.serveTaskAction(w, r, runner.LocalStop) })
	mux.HandleFunc("POST /restart", func(w http.ResponseWriter, r *http.Request) { s.serveTaskAction(w, r, runner.LocalRestart) })
	mux.HandleFunc("POST /maintenance", s.serveMaintenance)
	mux.HandleFunc("POST /hold", s.serveHold)
	mux.HandleFunc("POST /release", s.serveRelease)
	mux.HandleFunc("POST /update", s.serveUpdate)
	return s.authorize(boundRequests(maxRequests, "requests are served already; try again", readParameters(mux)))
}

// boundConnections returns a hook for http.Server that closes the connections beyond maxConnections.
func boundConnections() func(net.Conn, http.ConnState) {
	var open atomic.Int64
	return func(c net.Conn, state http.ConnState) {
		if state == http.StateNew && open.Add(1) > maxConnections {
			_ = c.Close() // StateClosed follows
		}
		if state == http.StateClosed {
			open.Add(-1)
		}
	}
}

// boundRequests refuses requests while this many are served. The problem follows the number.
func boundRequests(most int, problem string, next http.Handler) http.Handler {
	places := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			next.ServeHTTP(w, r)
		default:
			http.Error(w, fmt.Sprintf("%d %s", most, problem), http.StatusServiceUnavailable)
		}
	})
}

// readParameters refuses requests whose parameters cannot be read.
func readParameters(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if err := r.ParseForm(); err != nil { // with a part of them, on could become off
			http.Error(w, "the parameters cannot be read: "+err.Error(), http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authorize refuses peers that may not use the socket.
func (s *Server) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(net.Conn)
		peer, err := readPeer(conn)
		switch {
		case err != nil:
			http.Error(w, "the credentials of the client are not known: "+err.Error(), http.StatusForbidden)
			return
		case !s.mayOperate(peer):
			s.Log.Warn("a user without permission was refused on the local socket", "user", peer.String(), "request", r.URL.Path)
			http.Error(w, s.describeUsers(peer), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, peer)))
	})
}

// describeUsers returns why a peer was refused.
func (s *Server) describeUsers(p Peer) string {
	if s.gid == nil {
		return fmt.Sprintf("%s may not operate this robot: run this as root", p)
	}
	return fmt.Sprintf("%s may not operate this robot: run this as root or as a member of group %s", p, s.Group)
}

// Tasks are the tasks of a robot.
type Tasks struct {
	RobotID string `json:"robotId"`
	// Maintenance of the robot. If nil, there is none.
	Maintenance *wire.Maintenance `json:"maintenance,omitempty"`
	// Holds of the robot and of its tasks.
	Holds []wire.Hold       `json:"holds,omitempty"`
	Tasks []runner.LiveTask `json:"tasks"`
}

func (s *Server) serveTasks(w http.ResponseWriter, r *http.Request) {
	tasks, err := s.listTasks(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	extendDeadline(w)
	local := s.State.Read()
	_ = json.NewEncoder(w).Encode(Tasks{RobotID: s.RobotID, Maintenance: local.Maintenance, Holds: local.Holds, Tasks: tasks})
}

func (s *Server) listTasks(ctx context.Context) ([]runner.LiveTask, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	tasks, err := s.Tasks.ListTasks(ctx)
	return addStopped(tasks, s.State.Read().StoppedTasks), err
}

// addStopped adds the tasks that people at the robot have stopped to those that are live.
func addStopped(tasks []runner.LiveTask, stopped []wire.StoppedTask) []runner.LiveTask {
	for _, t := range stopped {
		if !slices.ContainsFunc(tasks, func(live runner.LiveTask) bool { return live.UID == t.UID }) {
			tasks = append(tasks, runner.LiveTask{
				Namespace: t.Namespace, Name: t.Name, UID: t.UID, Attempt: t.Attempt, State: runner.TaskStopped, Since: &t.Since,
				Reason: wire.ReasonStoppedAtRobot + " by " + t.By,
			})
		}
	}
	return tasks
}

// extendDeadline gives the client writeTimeout to read what is written next.
func extendDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
}
