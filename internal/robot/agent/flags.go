package agent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/driver"
)

// flagSet is a command line of this program.
type flagSet struct {
	*flag.FlagSet
	usage string // what stands above the flags
}

func newFlagSet(name, usage string) flagSet {
	f := flagSet{flag.NewFlagSet(name, flag.ContinueOnError), usage}
	f.SetOutput(io.Discard)
	return f
}

// parseArgs reads the command line, and prints help if that is asked for.
func (f flagSet) parseArgs(args []string, help io.Writer) error {
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		_, _ = io.WriteString(help, f.usage)
		f.SetOutput(help)
		f.PrintDefaults()
	}
	if err == nil && f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return err
}

// flags are a command line that holds an agent's configuration. What it does not
// say is taken from the environment, then from a file, then from the defaults.
type flags struct {
	flagSet
	config            Config
	broker, tokenFile string
	server, caFile    string
	file              string
	version           bool

	sources map[string]string // of flags that were not given on the command line
}

// errVersion is returned for --version.
var errVersion = errors.New("version asked for")

const usage = `Usage: k8s4r-agent [flags]
       k8s4r-agent doctor|status|unit [flags]

Runs the tasks of one robot. Every flag can be given as an environment
variable too, --robot-id as K8S4R_AGENT_ROBOT_ID, and in a file in YAML that
--config names, as robotId. A flag wins over the environment, that over the file.

  doctor   tells what this robot lacks, and how to get it
  status   tells how the agent of this robot is
  unit     prints a systemd unit that runs the agent as a service

`

func newFlags(name, usage string) *flags {
	f := &flags{flagSet: newFlagSet(name, usage), sources: map[string]string{}}
	c := &f.config
	c.Labels = map[string]string{}
	f.StringVar(&f.file, "config", "", "`file` in YAML with any of these")
	f.StringVar(&c.RobotID, "robot-id", "", "`name` of this robot, unique in the cluster (default: the host's name)")
	f.StringVar(&f.server, "server", "", "`URL` of the server, https://host:port, at which the robot joins and gets its certificate (default: it proves nothing)")
	f.StringVar(&c.CAHash, "ca-hash", "", "`fingerprint` of the server's authority, as it is printed with the join token")
	f.StringVar(&f.caFile, "ca-file", "", "`file` of certificates, PEM, that vouch for the server and the broker (default: those of this system)")
	f.StringVar(&f.broker, "mqtt-url", "", "`URL` of the MQTT broker, mqtts://[user:password@]host[:port] or mqtt://… (default: where the server says, without one "+defaultBroker+")")
	f.StringVar(&c.StateDir, "state-dir", "/var/lib/k8s4r-agent", "`directory` for the journal and the tasks' own directories")
	f.StringVar(&c.TaskUser, "task-user", "", "`user` that tasks run as when they name none (default: for an agent that is root k8s4r-task, or nobody where there is no such user; else the agent's own)")
	f.Func("label", "a label of this robot, `key=value`; repeat it, or separate several by commas", f.addLabels)
	f.StringVar(&c.Token, "token", "", "join `token`")
	f.StringVar(&f.tokenFile, "token-file", "", "`file` that holds the join token")
	f.DurationVar(&c.Heartbeat, "heartbeat", 30*time.Second, "`time` between heartbeats")
	f.StringVar(&c.OnStop, "on-stop", OnStopLeave, "what `becomes` of the tasks when the agent is told to stop: leave (they run on, and the next agent takes them over) or end")
	f.StringVar(&c.DockerSocket, "docker-socket", driver.DefaultEngine, "unix `socket` of the Docker engine; the driver docker is offered while one answers there")
	f.StringVar(&c.HealthSocket, "health-socket", "", "`path` of a local socket on which the agent tells how it is (default: health.sock in the state directory)")
	f.IntVar(&c.ParentFD, "parent-fd", -1, "stop when the pipe on this file `descriptor` is closed by the parent process")
	f.TextVar(&c.LogLevel, "log-level", slog.LevelInfo, "least `level` to log: debug, info, warn or error")
	f.StringVar(&c.LogFormat, "log-format", "text", "`format` of the log: text or json")
	f.BoolVar(&f.version, "version", false, "print the version and exit")
	return f
}

// parse reads the configuration of an agent. An error names where the value that is
// at fault comes from.
func parse(args []string, env func(string) (string, bool), help io.Writer) (Config, error) {
	f := newFlags("k8s4r-agent", usage)
	err := f.parse(args, env, help)
	return f.config, err
}

func (f *flags) parse(args []string, env func(string) (string, bool), help io.Writer) error {
	if err := f.parseArgs(args, help); err != nil {
		return err
	}
	if err := f.fromEnv(env); err != nil {
		return err
	}
	if f.version {
		return errVersion
	}
	if err := f.fromFile(); err != nil {
		return err
	}
	return errors.Join(f.setRobotID(), f.setServer(), f.setBroker(), f.setPaths(), f.setTaskUser(), f.setToken(), f.check())
}

// fromEnv sets the flags that were not given.
func (f *flags) fromEnv(env func(string) (string, bool)) error {
	given := f.given()
	var errs []error
	f.VisitAll(func(g *flag.Flag) {
		name := "K8S4R_AGENT_" + strings.ToUpper(strings.ReplaceAll(g.Name, "-", "_"))
		value, ok := env(name)
		if given[g.Name] || !ok {
			return
		}
		f.sources[g.Name] = fmt.Sprintf("%s (--%s)", name, g.Name)
		if err := f.Set(g.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("invalid value %q for %s: %w", value, f.sources[g.Name], err))
		}
	})
	return errors.Join(errs...)
}

// given are the flags that have a value other than their default.
func (f *flags) given() map[string]bool {
	given := map[string]bool{}
	f.Visit(func(g *flag.Flag) { given[g.Name] = true })
	return given
}

// source is where the value of a flag comes from, as its user wrote it.
func (f *flags) source(name string) string {
	if s, ok := f.sources[name]; ok {
		return s
	}
	return "--" + name
}

func (f *flags) addLabels(list string) error {
	for pair := range strings.SplitSeq(list, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return errLabel(pair)
		}
		if err := f.addLabel(key, value); err != nil {
			return err
		}
	}
	return nil
}

func (f *flags) addLabel(key, value string) error {
	if !plain(key, 253, "._-/") || key == "" || !plain(value, 63, "._-") {
		return errLabel(key + "=" + value)
	}
	f.config.Labels[key] = value
	if len(f.config.Labels) > maxLabels {
		return fmt.Errorf("more than %d labels", maxLabels)
	}
	return nil
}

func errLabel(pair string) error {
	return fmt.Errorf("label %.100q must be key=value of letters, digits, '-', '_' and '.'", pair)
}

// plain tells whether s has at most n characters, all of them letters, digits
// or among extra.
func plain(s string, n int, extra string) bool {
	bad := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(extra, c)
	}
	return len(s) <= n && strings.IndexFunc(s, bad) < 0
}
