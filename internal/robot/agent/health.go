package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/isolation"
	"k8s4r.io/k8s4r/internal/version"
)

// healthPatience is how long the runner may take to answer. It is far beyond a
// sync of a slow disk.
const healthPatience = 2 * time.Second

// Health is how an agent is.
type Health struct {
	RobotID   string    `json:"robotId"`
	Version   string    `json:"version"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
	// Problem is why the agent takes on nothing. Empty: it does.
	Problem string `json:"problem,omitempty"`

	Broker string `json:"broker"`
	// Connected to the broker, since then; else without a connection since then.
	Connected bool       `json:"connected"`
	Since     *time.Time `json:"since,omitempty"`
	// Registered tells that the server knows the robot, over this connection.
	Registered bool `json:"registered"`
	// LastContact is when the last heartbeat was sent that the server has
	// acknowledged. Nil: none since the agent started.
	LastContact *time.Time `json:"lastContact,omitempty"`

	StateDir       string     `json:"stateDir"`
	JournalBytes   int64      `json:"journalBytes"`
	ReportsPending int        `json:"reportsPending"`
	Tasks          []LiveTask `json:"tasks"`
	// Troubles counts what went wrong since the agent started, dropped messages
	// above all, by what it was.
	Troubles map[string]int `json:"troubles,omitempty"`

	Drivers   []string       `json:"drivers"`
	Isolation isolation.Host `json:"isolation"`
	// TaskUser is who tasks run as that name no user.
	TaskUser string `json:"taskUser"`
}

// health is how the agent is now.
func (a *Agent) health(ctx context.Context) Health {
	ctx, cancel := context.WithTimeout(ctx, healthPatience)
	defer cancel()
	tasks, busy := a.ask(ctx)
	h := Health{
		RobotID: a.config.RobotID, Version: version.Version, PID: os.Getpid(), StartedAt: a.began.UTC(),
		Broker: a.broker.Load().Redacted(), LastContact: a.contact.when(time.Now()),
		StateDir: a.config.StateDir, ReportsPending: a.out.waiting(), Troubles: a.runner.noise.byLine(),
		Drivers: a.runner.drivers.Offered(), Isolation: a.runner.host, TaskUser: a.config.taskUser(),
	}
	var since time.Time
	if h.Connected, h.Registered, since = a.link.standing(); !since.IsZero() {
		h.Since = &since
	}
	if info, err := os.Stat(filepath.Join(h.StateDir, "journal")); err == nil {
		h.JournalBytes = info.Size()
	}
	if h.Tasks = tasks; busy != nil {
		h.Problem = busy.Error()
	}
	a.meter.fill(h.Tasks)
	return h
}

// unready is why the robot gets no work. Nil: it does.
func (h Health) unready() error {
	switch {
	case h.Problem != "":
		return errors.New(h.Problem)
	case !h.Connected:
		return errDown
	case !h.Registered:
		return errors.New("not registered: the robot waits for its approval, or no server is there")
	}
	return nil
}

// serveHealth answers on the health socket until ctx ends. Without one the agent
// works all the same: tasks are worth more than the word about them.
func (a *Agent) serveHealth(ctx context.Context, parts *sync.WaitGroup) {
	if a.config.HealthSocket == "" {
		return
	}
	listener, err := listenPrivately(ctx, a.config.HealthSocket)
	if err != nil {
		a.log.Warn("nobody can ask how the agent is", "error", err)
		return
	}
	server := &http.Server{Handler: a.healthHandler(), ReadHeaderTimeout: time.Second, WriteTimeout: 2 * healthPatience}
	server.SetKeepAlivesEnabled(false) // a goroutine for each who asked once
	context.AfterFunc(ctx, func() { server.Close() })
	parts.Go(func() { _ = server.Serve(listener) })
}

func (a *Agent) healthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		h := a.health(r.Context())
		h.Connected, h.Registered = true, true
		verdict(w, h.unready())
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { verdict(w, a.health(r.Context()).unready()) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		WriteMetrics(w, a.health(r.Context()))
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a.health(r.Context()))
	})
	return mux
}

func verdict(w http.ResponseWriter, problem error) {
	if problem != nil {
		http.Error(w, problem.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// listenPrivately makes a socket that only this user can connect to. One that an
// agent left behind when it was killed is replaced; one that answers is another
// agent's.
func listenPrivately(ctx context.Context, path string) (net.Listener, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("another program answers on %s: give each agent its own --health-socket", path)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("%s is there and no socket: name another --health-socket", path)
		}
		os.Remove(path)
	}
	config := net.ListenConfig{Control: private}
	l, err := config.Listen(ctx, "unix", path)
	if errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("%s is too long for a socket, which Linux allows 107 bytes: give a shorter --health-socket", path)
	}
	return l, err
}

// private sets the mode before the socket has its name: after it, somebody might
// have connected already.
func private(_, _ string, c syscall.RawConn) error {
	var err error
	if outer := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); outer != nil {
		return outer
	}
	return err
}
