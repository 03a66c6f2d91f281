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

	"k8s4r.io/k8s4r/internal/protocol/version"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/artifactcache"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
	"k8s4r.io/k8s4r/internal/robot/agent/transport"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// healthTimeout is how long the runner may take to reply, which is far longer than a sync of a
// slow disk.
const healthTimeout = 2 * time.Second

// Health is the state of an agent.
type Health struct {
	RobotID   string    `json:"robotId"`
	Version   string    `json:"version"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
	// Problem is why the agent accepts no tasks. If empty, it does.
	Problem string `json:"problem,omitempty"`

	Broker string `json:"broker"`
	// Connected reports whether there is a connection to the broker, and Since when it was
	// opened or lost.
	Connected bool       `json:"connected"`
	Since     *time.Time `json:"since,omitempty"`
	// Registered reports whether the server has registered the robot over this connection.
	Registered bool `json:"registered"`
	// LastContact is when the last heartbeat was sent that the server has
	// acknowledged. It is nil if there was none since the agent started.
	LastContact *time.Time `json:"lastContact,omitempty"`

	// Maintenance of the robot, in which nothing starts. If nil, there is none.
	Maintenance *wire.Maintenance `json:"maintenance,omitempty"`

	// Holds of the robot and of its tasks.
	Holds []wire.Hold `json:"holds,omitempty"`
	// Update is the state of the agent's own updates. If nil, it was never updated.
	Update *slots.Status `json:"update,omitempty"`
	// AgentUpdate is what the agent reports about the last order of a Rollout to update it. If nil, it has none.
	AgentUpdate *wire.AgentUpdate `json:"agentUpdate,omitempty"`

	StateDir     string `json:"stateDir"`
	JournalBytes int64  `json:"journalBytes"`
	// Cache is what the cache of artifacts contains. If nil, there is none.
	Cache          *artifactcache.Usage `json:"cache,omitempty"`
	ReportsPending int                  `json:"reportsPending"`
	Tasks          []runner.LiveTask    `json:"tasks"`
	// Errors counts errors since the agent started, such as dropped messages, by type.
	Errors map[string]int `json:"errors,omitempty"`

	Drivers   []string       `json:"drivers"`
	Isolation isolation.Host `json:"isolation"`
	// TaskUser is the user of tasks that name none.
	TaskUser string `json:"taskUser"`
}

// readHealth returns the state of the agent.
func (a *Agent) readHealth(ctx context.Context) Health {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	tasks, err := a.runner.ListTasks(ctx)
	local := a.local.Read()
	h := Health{
		RobotID: a.config.RobotID, Version: version.Version, PID: os.Getpid(), StartedAt: a.startedAt.UTC(),
		Broker: a.connection.Broker(), LastContact: a.lastSeen.Time(time.Now()),
		Maintenance: local.Maintenance, Holds: local.Holds, Update: a.slots.ReadStatus(a.config.Launch.Slot), AgentUpdate: a.orders.Report(), StateDir: a.config.StateDir, ReportsPending: a.outbox.PendingCount(), Errors: a.problems.countsByLine(),
		Drivers: a.drivers.Offered(), Isolation: a.host, TaskUser: a.config.effectiveTaskUser(),
	}
	var since time.Time
	if h.Connected, h.Registered, since = a.connection.State(); !since.IsZero() {
		h.Since = &since
	}
	if info, err := os.Stat(filepath.Join(h.StateDir, "journal")); err == nil {
		h.JournalBytes = info.Size()
	}
	if a.cache != nil {
		usage := a.cache.Usage()
		h.Cache = &usage
	}
	if h.Tasks = tasks; err != nil {
		h.Problem = err.Error()
	}
	return h
}

// notReadyReason returns why the robot gets no tasks. It is nil if it does.
func (h Health) notReadyReason() error {
	switch {
	case h.Problem != "":
		return errors.New(h.Problem)
	case !h.Connected:
		return transport.ErrDisconnected
	case !h.Registered:
		return errors.New("not registered: the robot waits for approval, or no server is running")
	}
	return nil
}

// serveHealth serves the health socket until ctx ends. If the socket cannot be opened, the
// agent works without.
func (a *Agent) serveHealth(ctx context.Context, parts *sync.WaitGroup) {
	if a.config.HealthSocket == "" {
		return
	}
	listener, err := listenPrivateSocket(ctx, a.config.HealthSocket)
	if err != nil {
		a.log.Warn("the health socket cannot be opened", "error", err)
		return
	}
	server := &http.Server{Handler: a.healthHandler(), ReadHeaderTimeout: time.Second, WriteTimeout: 2 * healthTimeout}
	server.SetKeepAlivesEnabled(false) // an idle connection would hold a goroutine
	context.AfterFunc(ctx, func() { server.Close() })
	parts.Go(func() { _ = server.Serve(listener) })
}

func (a *Agent) healthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		h := a.readHealth(r.Context())
		h.Connected, h.Registered = true, true
		writeVerdict(w, h.notReadyReason())
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		writeVerdict(w, a.readHealth(r.Context()).notReadyReason())
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		WriteMetrics(w, a.readHealth(r.Context()))
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a.readHealth(r.Context()))
	})
	return mux
}

func writeVerdict(w http.ResponseWriter, problem error) {
	if problem != nil {
		http.Error(w, problem.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// listenPrivateSocket opens a socket that only this user can connect to. It replaces the
// socket of a killed agent, but not one on which another program answers.
func listenPrivateSocket(ctx context.Context, path string) (net.Listener, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("another program listens on %s: set a different --health-socket for each agent", path)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("%s exists and is not a socket: set another --health-socket", path)
		}
		os.Remove(path)
	}
	config := net.ListenConfig{Control: setPrivateMode}
	l, err := config.Listen(ctx, "unix", path)
	if errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("%s is too long for a socket (at most 107 bytes): set a shorter --health-socket", path)
	}
	return l, err
}

// setPrivateMode sets the mode before the socket is bound, so that no other user can connect
// meanwhile.
func setPrivateMode(_, _ string, c syscall.RawConn) error {
	var err error
	if outer := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); outer != nil {
		return outer
	}
	return err
}
