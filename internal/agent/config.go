package agent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/wire"
)

// Config is what an agent needs to know. It is complete after parse.
type Config struct {
	RobotID  string
	Broker   *url.URL // mqtt or tcp, with a port
	StateDir string
	Labels   map[string]string
	Token    string
	// Heartbeat is the time between two heartbeats.
	Heartbeat time.Duration
	// ParentFD is a pipe whose end tells the agent to stop. -1: none.
	ParentFD  int
	LogLevel  slog.Level
	LogFormat string // text or json
}

// The bounds of --heartbeat: below, it costs more than it tells; above, the
// robot would be taken for offline.
const (
	minHeartbeat = time.Second
	maxHeartbeat = 2 * time.Minute
)

const maxLabels = 64

// errVersion is returned by parse for --version.
var errVersion = errors.New("version asked for")

const usage = `Usage: k8s4r-agent [flags]

Runs the tasks of one robot. Every flag can be given as an environment
variable too: --robot-id as K8S4R_AGENT_ROBOT_ID. A flag wins.

`

// parse reads flags, and from env what no flag says. An error names the flag
// that is at fault.
func parse(args []string, env func(string) (string, bool), help io.Writer) (Config, error) {
	c := Config{Labels: map[string]string{}}
	var broker, tokenFile string
	var version bool
	f := flag.NewFlagSet("k8s4r-agent", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&c.RobotID, "robot-id", "", "`name` of this robot, unique in the cluster (default: the host's name)")
	f.StringVar(&broker, "mqtt-url", "mqtt://127.0.0.1:1883", "`URL` of the MQTT broker, mqtt://[user:password@]host[:port] or tcp://…")
	f.StringVar(&c.StateDir, "state-dir", "/var/lib/k8s4r-agent", "`directory` for the journal and the tasks' own directories")
	f.Func("label", "a label of this robot, `key=value`; repeat it, or separate several by commas", c.addLabels)
	f.StringVar(&c.Token, "token", "", "join `token`")
	f.StringVar(&tokenFile, "token-file", "", "`file` that holds the join token")
	f.DurationVar(&c.Heartbeat, "heartbeat", 30*time.Second, "`time` between heartbeats")
	f.IntVar(&c.ParentFD, "parent-fd", -1, "stop when the pipe on this file `descriptor` is closed by the parent process")
	f.TextVar(&c.LogLevel, "log-level", slog.LevelInfo, "least `level` to log: debug, info, warn or error")
	f.StringVar(&c.LogFormat, "log-format", "text", "`format` of the log: text or json")
	f.BoolVar(&version, "version", false, "print the version and exit")

	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			printUsage(f, help)
		}
		return c, err
	}
	if f.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err := fromEnv(f, env); err != nil {
		return c, err
	}
	if version {
		return c, errVersion
	}
	return c, errors.Join(c.setRobotID(), c.setBroker(broker), c.setStateDir(), c.setToken(tokenFile), c.check())
}

func printUsage(f *flag.FlagSet, w io.Writer) {
	_, _ = io.WriteString(w, usage)
	f.SetOutput(w)
	f.PrintDefaults()
}

// fromEnv sets the flags that were not given.
func fromEnv(f *flag.FlagSet, env func(string) (string, bool)) error {
	given := map[string]bool{}
	f.Visit(func(g *flag.Flag) { given[g.Name] = true })
	var errs []error
	f.VisitAll(func(g *flag.Flag) {
		name := "K8S4R_AGENT_" + strings.ToUpper(strings.ReplaceAll(g.Name, "-", "_"))
		value, ok := env(name)
		if given[g.Name] || !ok {
			return
		}
		if err := f.Set(g.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("invalid value %q for %s (--%s): %w", value, name, g.Name, err))
		}
	})
	return errors.Join(errs...)
}

func (c *Config) addLabels(list string) error {
	for pair := range strings.SplitSeq(list, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || !plain(key, 253, "._-/") || key == "" || !plain(value, 63, "._-") {
			return fmt.Errorf("label %.100q must be key=value of letters, digits, '-', '_' and '.'", pair)
		}
		c.Labels[key] = value
	}
	if len(c.Labels) > maxLabels {
		return fmt.Errorf("more than %d labels", maxLabels)
	}
	return nil
}

// plain tells whether s has at most n characters, all of them letters, digits
// or among extra.
func plain(s string, n int, extra string) bool {
	bad := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(extra, c)
	}
	return len(s) <= n && strings.IndexFunc(s, bad) < 0
}

func (c *Config) setRobotID() error {
	if c.RobotID != "" {
		if err := wire.ValidRobotID(c.RobotID); err != nil {
			return fmt.Errorf("--robot-id: %w", err)
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

func (c *Config) setBroker(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return fmt.Errorf("--mqtt-url: %q is not a URL", raw)
	case u.Scheme != "mqtt" && u.Scheme != "tcp":
		return fmt.Errorf("--mqtt-url %q: the scheme must be mqtt or tcp", u.Redacted())
	case u.Hostname() == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "":
		return fmt.Errorf("--mqtt-url %q must be mqtt://host:port", u.Redacted())
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "1883")
	}
	c.Broker = u
	return nil
}

func (c *Config) setStateDir() error {
	if c.StateDir == "" {
		return errors.New("--state-dir must not be empty")
	}
	dir, err := filepath.Abs(c.StateDir)
	if err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	c.StateDir = dir
	return nil
}

func (c *Config) setToken(file string) error {
	switch {
	case file == "":
		return nil
	case c.Token != "":
		return errors.New("--token and --token-file exclude each other")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	c.Token = strings.TrimSpace(string(b))
	if c.Token == "" {
		return fmt.Errorf("--token-file: %s is empty", file)
	}
	return nil
}

func (c *Config) check() error {
	var errs []error
	if c.Heartbeat < minHeartbeat || c.Heartbeat > maxHeartbeat {
		errs = append(errs, fmt.Errorf("--heartbeat %v must be between %v and %v", c.Heartbeat, minHeartbeat, maxHeartbeat))
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		errs = append(errs, fmt.Errorf("--log-format %q must be text or json", c.LogFormat))
	}
	if c.ParentFD >= 0 && c.ParentFD < 3 {
		errs = append(errs, fmt.Errorf("--parent-fd %d must be 3 or more", c.ParentFD))
	}
	if _, err := unix.FcntlInt(uintptr(c.ParentFD), unix.F_GETFD, 0); c.ParentFD >= 3 && err != nil {
		errs = append(errs, fmt.Errorf("--parent-fd %d is not open", c.ParentFD))
	}
	return errors.Join(errs...)
}
