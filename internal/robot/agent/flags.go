package agent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/policyfile"
	"k8s4r.io/k8s4r/internal/robot/driver/docker"
)

// flagSet is a command line of this program.
type flagSet struct {
	*flag.FlagSet
	usage string // printed above the flags
}

func newFlagSet(name, usage string) flagSet {
	f := flagSet{flag.NewFlagSet(name, flag.ContinueOnError), usage}
	f.SetOutput(io.Discard)
	return f
}

// parseArgs parses a command line without arguments, and prints help if it is requested.
func (f flagSet) parseArgs(args []string, help io.Writer) error {
	err := f.parseFlags(args, help)
	if err == nil && f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return err
}

// parseFlags parses the flags of a command line that may have arguments after them, and prints help
// if it is requested.
func (f flagSet) parseFlags(args []string, help io.Writer) error {
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		_, _ = io.WriteString(help, f.usage)
		f.SetOutput(help)
		f.PrintDefaults()
	}
	return err
}

// flags is a command line with an agent's configuration. Flags that are not given are taken
// from the environment, then from a file, then from the defaults.
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
var errVersion = errors.New("version requested")

const usage = `Usage: k8s4r-agent [flags]
       k8s4r-agent doctor|hold|logs|maintenance|policy|release|restart|status|stop|tasks|unit|update [flags]

Runs the tasks of one robot. Each flag can also be set by an environment variable
(--robot-id by K8S4R_AGENT_ROBOT_ID) and in the YAML file that --config names (as
robotId). A flag overrides the environment, which overrides the file.

  doctor       checks whether an agent can run on this robot, and proposes remedies
  hold         keeps rollouts and preemption from interrupting tasks on this robot
  logs         prints the log of a task on this robot
  maintenance  lets nothing start on this robot, or ends that
  policy       checks a policy file, and whether it allows the tasks of a manifest
  release      ends holds
  restart      restarts a task on this robot, or allows one that was stopped here again
  status       shows the state of the agent of this robot
  stop         stops a task, which does not run on this robot until it is restarted here
  tasks        lists the tasks of this robot
  unit         prints a systemd unit that runs the agent as a service
  update       updates the agent of this robot to a signed version

`

func newFlags(name, usage string) *flags {
	f := &flags{flagSet: newFlagSet(name, usage), sources: map[string]string{}}
	c := &f.config
	c.Labels = map[string]string{}
	f.StringVar(&f.file, "config", "", "YAML `file` with any of these settings")
	f.StringVar(&c.RobotID, "robot-id", "", "`name` of this robot, unique in the cluster (default: the host's name)")
	f.StringVar(&f.server, "server", "", "`URL` of the server, https://host:port, from which the robot gets its certificate (default: the robot has no certificate)")
	f.StringVar(&c.CAHash, "ca-hash", "", "`fingerprint` of the server's authority, as printed with the join token")
	f.StringVar(&f.caFile, "ca-file", "", "PEM `file` of the authorities that are trusted for the server and the broker (default: those of this system)")
	f.StringVar(&f.broker, "mqtt-url", "", "`URL` of the MQTT broker, mqtts://[user:password@]host[:port] or mqtt://… (default: the one that the server names; without --server "+defaultBroker+")")
	f.StringVar(&c.StateDir, "state-dir", "/var/lib/k8s4r-agent", "`directory` for the journal and the directories of tasks")
	f.StringVar(&c.TaskUser, "task-user", "", "`user` that runs tasks without a user (default: if the agent runs as root, k8s4r-task or, if that user does not exist, 'nobody'; else the agent's user)")
	f.StringVar(&c.PolicyFile, "policy", "", "`file` with what this robot allows; it must belong to root (default: "+policyfile.DefaultPath+", if it exists)")
	f.Func("label", "label of this robot, `key=value`; repeat the flag, or separate labels by commas", f.addLabels)
	f.StringVar(&c.Token, "token", "", "join `token`")
	f.StringVar(&f.tokenFile, "token-file", "", "`file` that holds the join token")
	f.DurationVar(&c.Heartbeat, "heartbeat", 30*time.Second, "`time` between heartbeats")
	f.BoolVar(&c.BatteryBackedClock, "battery-backed-clock", false, "the hardware clock of this robot has a battery and runs in UTC: after a restart of the robot, tasks with stopOnRobotAfter may start without contact until their self-stop deadline")
	f.TextVar(&c.CacheQuota, "cache-quota", byteSize(defaultCacheQuota), "most `bytes` of the cache of artifacts, such as 500Mi or 4Gi; 0 disables the cache and deletes its files")
	f.StringVar(&c.OnStop, "on-stop", OnStopLeave, "what to do with tasks when the agent stops: `leave` (they keep running, and the next agent takes them over) or end")
	f.StringVar(&c.DockerSocket, "docker-socket", docker.DefaultEngine, "unix `socket` of the Docker engine; the driver docker is offered while an engine answers")
	f.StringVar(&c.HealthSocket, "health-socket", "", "`path` of the local socket for health, status and metrics (default: health.sock in the state directory)")
	f.StringVar(&c.LocalSocket, "local-socket", "", "`path` of the socket for people at the robot, see k8s4r-agent tasks (default: local.sock in the state directory)")
	f.StringVar(&c.LocalGroup, "local-group", defaultLocalGroup, "`group` whose members may use the local socket, beside root and the agent's user")
	f.IntVar(&c.ParentFD, "parent-fd", -1, "stop when the pipe on this file `descriptor` is closed by the parent process")
	f.TextVar(&c.LogLevel, "log-level", slog.LevelInfo, "lowest `level` to log: debug, info, warn or error")
	f.StringVar(&c.LogFormat, "log-format", "text", "`format` of the log: text or json")
	f.BoolVar(&f.version, "version", false, "print the version and exit")
	return f
}

// parseConfig reads the configuration of an agent. An error names the source of the invalid
// value.
func parseConfig(args []string, env func(string) (string, bool), help io.Writer) (Config, error) {
	f := newFlags("k8s4r-agent", usage)
	err := f.parseAll(args, env, help)
	return f.config, err
}

func (f *flags) parseAll(args []string, env func(string) (string, bool), help io.Writer) error {
	if err := f.parseArgs(args, help); err != nil {
		return err
	}
	if err := f.setFromEnv(env); err != nil {
		return err
	}
	if f.version {
		return errVersion
	}
	if err := f.setFromFile(); err != nil {
		return err
	}
	return errors.Join(f.setRobotID(), f.setServer(), f.setBroker(), f.setPaths(), f.setTaskUser(), f.setToken(), f.checkValues())
}

// setFromEnv sets the flags that were not given from the environment.
func (f *flags) setFromEnv(env func(string) (string, bool)) error {
	given := f.givenFlags()
	var errs []error
	f.VisitAll(func(g *flag.Flag) {
		name := "K8S4R_AGENT_" + strings.ToUpper(strings.ReplaceAll(g.Name, "-", "_"))
		value, ok := env(name)
		if given[g.Name] || !ok {
			return
		}
		f.sources[g.Name] = fmt.Sprintf("%s (--%s)", name, g.Name)
		if err := f.setValue(g.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("invalid value %q for %s: %w", value, f.sources[g.Name], err))
		}
	})
	return errors.Join(errs...)
}

// setValue sets a flag. Its error names the values that are valid, which that of package flag does not.
func (f *flags) setValue(name, value string) error {
	err := f.Set(name, value)
	getter, ok := f.Lookup(name).Value.(flag.Getter)
	if err == nil || !ok {
		return err
	}
	switch getter.Get().(type) {
	case bool:
		return errors.New("must be true or false")
	case time.Duration:
		return errors.New("must be a time such as 30s")
	}
	return err
}

// givenFlags returns the names of the flags that were set.
func (f *flags) givenFlags() map[string]bool {
	given := map[string]bool{}
	f.Visit(func(g *flag.Flag) { given[g.Name] = true })
	return given
}

// sourceOf returns the name of a flag, environment variable or key, as the user wrote it.
func (f *flags) sourceOf(name string) string {
	if s, ok := f.sources[name]; ok {
		return s
	}
	return "--" + name
}

func (f *flags) addLabels(list string) error {
	for pair := range strings.SplitSeq(list, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf("label %.100q must be key=value", pair)
		}
		if err := f.addLabel(key, value); err != nil {
			return err
		}
	}
	return nil
}

func (f *flags) addLabel(key, value string) error {
	if err := wire.ValidateLabel(key, value); err != nil {
		return err
	}
	f.config.Labels[key] = value
	if len(f.config.Labels) > maxLabels {
		return fmt.Errorf("more than %d labels", maxLabels)
	}
	return nil
}
