package agent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/agent/credential"
	"k8s4r.io/k8s4r/internal/identity"
	"k8s4r.io/k8s4r/internal/isolation"
	"k8s4r.io/k8s4r/internal/keyfile"
	"k8s4r.io/k8s4r/internal/wire"
)

// Config is what an agent needs to know. It is complete after parse.
type Config struct {
	RobotID  string
	Broker   *url.URL // mqtt, tcp or mqtts, with a port
	StateDir string
	Labels   map[string]string
	// TaskUser is who tasks run as that name no user. Empty: who the agent is.
	TaskUser string
	// Server is where the robot joins, and renews its certificate. Nil: it proves
	// nothing.
	Server *url.URL
	// BrokerIsGiven: the server's word on where the broker is does not count.
	BrokerIsGiven bool
	Token         string
	// CAHash and CA know the server and the broker, see credential.Config.
	CAHash string
	CA     []byte
	// Heartbeat is the time between two heartbeats.
	Heartbeat time.Duration
	// OnStop says what becomes of the tasks when the agent is told to stop:
	// OnStopLeave or OnStopEnd.
	OnStop string
	// DockerSocket is where the Docker engine listens, if there is one.
	DockerSocket string
	// ParentFD is a pipe whose end tells the agent to stop. -1: none.
	ParentFD  int
	LogLevel  slog.Level
	LogFormat string // text or json
	// HealthSocket is where the agent answers how it is. Empty: nowhere.
	HealthSocket string
}

// taskUser names who tasks run as that name no user.
func (c Config) taskUser() string {
	if c.TaskUser != "" {
		return c.TaskUser
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Geteuid()) // it is in no list of users
}

// The values of --on-stop.
const (
	OnStopLeave = "leave" // they run on, and the next agent takes them over
	OnStopEnd   = "end"
)

// The bounds of --heartbeat: below, it costs more than it tells; above, the
// robot would be taken for offline.
const (
	minHeartbeat = time.Second
	maxHeartbeat = 2 * time.Minute
)

const maxLabels = 64

// healthSocketName is where the health socket is in the state directory.
const healthSocketName = "health.sock"

func (f *flags) setRobotID() error {
	c := &f.config
	if c.RobotID != "" {
		if err := wire.ValidRobotID(c.RobotID); err != nil {
			return fmt.Errorf("%s: %w", f.source("robot-id"), err)
		}
		return nil
	}
	host, err := os.Hostname()
	if err == nil {
		host = strings.ToLower(strings.SplitN(host, ".", 2)[0])
		err = wire.ValidRobotID(host)
	}
	if err != nil {
		return fmt.Errorf("--robot-id is needed, since the host's name does not serve as one: %w", err)
	}
	c.RobotID = host
	return nil
}

func (f *flags) setBroker() error {
	name := f.source("mqtt-url")
	f.config.BrokerIsGiven = f.broker != ""
	if f.broker == "" && f.config.Server != nil {
		f.broker = "mqtts://" + f.config.Server.Hostname() // until the server says where
	}
	u, err := url.Parse(cmp.Or(f.broker, defaultBroker))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %q is not a URL", name, f.broker)
	case u.Scheme != "mqtt" && u.Scheme != "tcp" && u.Scheme != "mqtts":
		return fmt.Errorf("%s %q: the scheme must be mqtts, mqtt or tcp", name, u.Redacted())
	case u.Scheme != "mqtts" && f.config.Server != nil:
		return fmt.Errorf("%s %q: a robot with --server proves itself, for which the scheme must be mqtts", name, u.Redacted())
	case u.Hostname() == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "":
		return fmt.Errorf("%s %q must be mqtt://host:port", name, u.Redacted())
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), standardPorts[u.Scheme])
	}
	f.config.Broker = u
	return nil
}

const defaultBroker = "mqtt://127.0.0.1:1883"

var standardPorts = map[string]string{"mqtt": "1883", "tcp": "1883", "mqtts": "8883"}

// setServer takes in where the robot joins.
func (f *flags) setServer() (err error) {
	c := &f.config
	if f.server != "" {
		if c.Server, err = credential.ParseServer(f.server); err != nil {
			return fmt.Errorf("%s: %w", f.source("server"), err)
		}
	}
	if c.Server != nil && identity.ValidRobot(c.RobotID) != nil {
		return fmt.Errorf("%s: %w", f.source("robot-id"), identity.ValidRobot(c.RobotID))
	}
	if c.CAHash != "" {
		if err := identity.ValidFingerprint(c.CAHash); err != nil {
			return fmt.Errorf("%s: %w", f.source("ca-hash"), err)
		}
	}
	if f.caFile == "" {
		return nil
	}
	if c.CA, err = os.ReadFile(f.caFile); err == nil {
		_, err = keyfile.Certificates(c.CA)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.source("ca-file"), err)
	}
	return nil
}

func (f *flags) setPaths() error {
	c := &f.config
	if c.StateDir == "" {
		return fmt.Errorf("%s must not be empty", f.source("state-dir"))
	}
	if c.HealthSocket == "" {
		c.HealthSocket = filepath.Join(c.StateDir, healthSocketName)
	}
	var errs [2]error
	c.StateDir, errs[0] = filepath.Abs(c.StateDir)
	c.HealthSocket, errs[1] = filepath.Abs(c.HealthSocket)
	return errors.Join(errs[:]...)
}

// setTaskUser finds who tasks run as that name no user. Where the agent is root that
// is somebody else unless root is what was written: the permission that a task needs
// for user: root would otherwise guard nothing but the word.
func (f *flags) setTaskUser() (err error) {
	c, name := &f.config, f.source("task-user")
	if c.TaskUser == "" {
		if c.TaskUser, err = isolation.DefaultUser(); err != nil {
			return fmt.Errorf("%s is needed: %w", name, err)
		}
		return nil
	}
	own, err := isolation.IsAgents(c.TaskUser)
	if err != nil {
		return fmt.Errorf("%s: %w; name a user who can, or leave it out", name, err)
	}
	if own {
		c.TaskUser = ""
	}
	return nil
}

func (f *flags) setToken() error {
	c, name := &f.config, f.source("token-file")
	switch {
	case f.tokenFile == "":
		return nil
	case c.Token != "":
		return fmt.Errorf("%s and %s exclude each other", f.source("token"), name)
	}
	b, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.Token = strings.TrimSpace(string(b))
	if c.Token == "" {
		return fmt.Errorf("%s: %s is empty", name, f.tokenFile)
	}
	return nil
}

func (f *flags) check() error {
	c := f.config
	var errs []error
	if c.Heartbeat < minHeartbeat || c.Heartbeat > maxHeartbeat {
		errs = append(errs, fmt.Errorf("%s %v must be between %v and %v", f.source("heartbeat"), c.Heartbeat, minHeartbeat, maxHeartbeat))
	}
	if c.OnStop != OnStopLeave && c.OnStop != OnStopEnd {
		errs = append(errs, fmt.Errorf("%s %q must be leave or end", f.source("on-stop"), c.OnStop))
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		errs = append(errs, fmt.Errorf("%s %q must be text or json", f.source("log-format"), c.LogFormat))
	}
	if c.ParentFD >= 0 && c.ParentFD < 3 {
		errs = append(errs, fmt.Errorf("%s %d must be 3 or more", f.source("parent-fd"), c.ParentFD))
	}
	if _, err := unix.FcntlInt(uintptr(c.ParentFD), unix.F_GETFD, 0); c.ParentFD >= 3 && err != nil {
		errs = append(errs, fmt.Errorf("%s %d is not open", f.source("parent-fd"), c.ParentFD))
	}
	return errors.Join(errs...)
}
