package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
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

	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/credential"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// Config is the configuration of an agent. It is complete after parseConfig.
type Config struct {
	RobotID  string
	Broker   *url.URL // mqtt, tcp or mqtts, with a port
	StateDir string
	Labels   map[string]string
	// TaskUser is the user of tasks that name none. If empty, they run as the agent's user.
	TaskUser string
	// PolicyFile is the file with what the robot allows. If empty, it is policyfile.DefaultPath,
	// which may be missing: then everything is allowed.
	PolicyFile string
	// Server is the URL at which the robot joins and renews its certificate. If nil, the robot
	// has no certificate.
	Server *url.URL
	// BrokerIsGiven ignores the broker that the server names.
	BrokerIsGiven bool
	Token         string
	// CAHash and CA authenticate the server and the broker, see credential.Config.
	CAHash string
	CA     []byte
	// Heartbeat is the time between two heartbeats.
	Heartbeat time.Duration
	// BatteryBackedClock declares that the hardware clock runs while the robot is off.
	BatteryBackedClock bool
	// CacheQuota bounds the cache of artifacts in bytes. If 0, there is none.
	CacheQuota byteSize
	// OnStop is what happens to tasks when the agent stops: OnStopLeave or OnStopEnd.
	OnStop string
	// DockerSocket is the socket of the Docker engine, if there is one.
	DockerSocket string
	// ParentFD is a pipe; when it is closed, the agent stops. If -1, there is none.
	ParentFD  int
	LogLevel  slog.Level
	LogFormat string // text or json
	// HealthSocket is the path of the health socket. If empty, there is none.
	HealthSocket string
	// LocalSocket is the path of the socket for people at the robot. If empty, there is none.
	LocalSocket string
	// Launch is how the launcher has started this program. It is zero if none has.
	Launch slots.Mark
	// LocalGroup is the name of the group whose members may use LocalSocket. If empty, or if the robot has
	// no such group, only root and the agent's user may.
	LocalGroup string
}

// effectiveTaskUser returns the name of the user of tasks that name none.
func (c Config) effectiveTaskUser() string {
	if c.TaskUser != "" {
		return c.TaskUser
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Geteuid()) // the user has no name
}

// areTasksRoot reports whether tasks that name no user run as root.
func (c Config) areTasksRoot() (bool, error) {
	if c.TaskUser == "" {
		return os.Geteuid() == 0, nil
	}
	u, err := isolation.LookupUser(c.TaskUser)
	return u != nil && u.UID == 0, err
}

// The values of --on-stop.
const (
	OnStopLeave = "leave" // they run on, and the next agent takes them over
	OnStopEnd   = "end"
)

// The bounds of the heartbeat interval: a shorter one costs too much, and with a longer one
// the robot would be Offline.
const (
	minHeartbeat = time.Second
	maxHeartbeat = 2 * time.Minute
)

const maxLabels = 64

// healthSocketName is the name of the health socket in the state directory.
const healthSocketName = "health.sock"

// localSocketName is the name of the socket for people at the robot in the state directory.
const localSocketName = "local.sock"

// defaultLocalGroup is the group whose members may use it.
const defaultLocalGroup = "k8s4r"

func (f *flags) setRobotID() error {
	c := &f.config
	if c.RobotID != "" {
		if err := wire.ValidateRobotID(c.RobotID); err != nil {
			return fmt.Errorf("%s: %w", f.sourceOf("robot-id"), err)
		}
		return nil
	}
	host, err := os.Hostname()
	if err == nil {
		host = strings.ToLower(strings.SplitN(host, ".", 2)[0])
		err = wire.ValidateRobotID(host)
	}
	if err != nil {
		return fmt.Errorf("--robot-id is required, because the host name is not a valid robot id: %w", err)
	}
	c.RobotID = host
	return nil
}

func (f *flags) setBroker() error {
	name := f.sourceOf("mqtt-url")
	f.config.BrokerIsGiven = f.broker != ""
	if f.broker == "" && f.config.Server != nil {
		f.broker = "mqtts://" + f.config.Server.Hostname() // until the server names another
	}
	u, err := url.Parse(cmp.Or(f.broker, defaultBroker))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %q is not a URL", name, f.broker)
	case u.Scheme != "mqtt" && u.Scheme != "tcp" && u.Scheme != "mqtts":
		return fmt.Errorf("%s %q: the scheme must be mqtts, mqtt or tcp", name, u.Redacted())
	case u.Scheme != "mqtts" && f.config.Server != nil:
		return fmt.Errorf("%s %q: with --server the scheme must be mqtts", name, u.Redacted())
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

// setServer parses the server and its authorities.
func (f *flags) setServer() (err error) {
	c := &f.config
	if f.server != "" {
		if c.Server, err = credential.ParseServerURL(f.server); err != nil {
			return fmt.Errorf("%s: %w", f.sourceOf("server"), err)
		}
	}
	if c.CAHash != "" {
		if err := identity.ValidateFingerprint(c.CAHash); err != nil {
			return fmt.Errorf("%s: %w", f.sourceOf("ca-hash"), err)
		}
	}
	if f.caFile == "" {
		return nil
	}
	if c.CA, err = os.ReadFile(f.caFile); err == nil {
		_, err = keyfile.ParseCertificates(c.CA)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.sourceOf("ca-file"), err)
	}
	return nil
}

func (f *flags) setPaths() error {
	c := &f.config
	if c.StateDir == "" {
		return fmt.Errorf("%s must not be empty", f.sourceOf("state-dir"))
	}
	if c.HealthSocket == "" {
		c.HealthSocket = filepath.Join(c.StateDir, healthSocketName)
	}
	if c.LocalSocket == "" {
		c.LocalSocket = filepath.Join(c.StateDir, localSocketName)
	}
	var errs [4]error
	if c.PolicyFile != "" {
		c.PolicyFile, errs[2] = filepath.Abs(c.PolicyFile)
	}
	c.StateDir, errs[0] = filepath.Abs(c.StateDir)
	c.HealthSocket, errs[1] = filepath.Abs(c.HealthSocket)
	c.LocalSocket, errs[3] = filepath.Abs(c.LocalSocket)
	return errors.Join(errs[:]...)
}

// setTaskUser sets the user of tasks that name none. If the agent is root, that is another
// user unless root is configured: otherwise the permission to run as root would protect
// nothing.
func (f *flags) setTaskUser() (err error) {
	c, name := &f.config, f.sourceOf("task-user")
	if c.TaskUser == "" {
		if c.TaskUser, err = isolation.DefaultUser(); err != nil {
			return fmt.Errorf("%s is required: %w", name, err)
		}
		return nil
	}
	own, err := isolation.IsAgents(c.TaskUser)
	if err != nil {
		return fmt.Errorf("%s: %w; name an existing user, or remove it", name, err)
	}
	if own {
		c.TaskUser = ""
	}
	return nil
}

func (f *flags) setToken() error {
	c, name := &f.config, f.sourceOf("token-file")
	switch {
	case f.tokenFile == "":
		return nil
	case c.Token != "":
		return fmt.Errorf("%s and %s are mutually exclusive", f.sourceOf("token"), name)
	}
	b, err := os.ReadFile(f.tokenFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.hasCertificate():
		return nil // a robot that has joined must start without the file, which people delete then
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	}
	c.Token = strings.TrimSpace(string(b))
	if c.Token == "" {
		return fmt.Errorf("%s: %s is empty", name, f.tokenFile)
	}
	return nil
}

// hasCertificate reports whether the robot has joined, and needs no token.
func (c *Config) hasCertificate() bool {
	return c.Server != nil && credential.HasCertificate(filepath.Join(c.StateDir, identityDir))
}

func (f *flags) checkValues() error {
	c := f.config
	var errs []error
	if c.Heartbeat < minHeartbeat || c.Heartbeat > maxHeartbeat {
		errs = append(errs, fmt.Errorf("%s %v must be between %v and %v", f.sourceOf("heartbeat"), c.Heartbeat, minHeartbeat, maxHeartbeat))
	}
	if c.CacheQuota < 0 || c.CacheQuota > maxCacheQuota {
		errs = append(errs, fmt.Errorf("%s %v must be between 0 and %v", f.sourceOf("cache-quota"), c.CacheQuota, byteSize(maxCacheQuota)))
	}
	if c.OnStop != OnStopLeave && c.OnStop != OnStopEnd {
		errs = append(errs, fmt.Errorf("%s %q must be leave or end", f.sourceOf("on-stop"), c.OnStop))
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		errs = append(errs, fmt.Errorf("%s %q must be text or json", f.sourceOf("log-format"), c.LogFormat))
	}
	if c.ParentFD >= 0 && c.ParentFD < 3 {
		errs = append(errs, fmt.Errorf("%s %d must be 3 or more", f.sourceOf("parent-fd"), c.ParentFD))
	}
	if _, err := unix.FcntlInt(uintptr(c.ParentFD), unix.F_GETFD, 0); c.ParentFD >= 3 && err != nil {
		errs = append(errs, fmt.Errorf("%s %d is not open", f.sourceOf("parent-fd"), c.ParentFD))
	}
	return errors.Join(errs...)
}
