package agent

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func noEnv(string) (string, bool) { return "", false }

func TestParseConfig_RejectsInvalid(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(empty, []byte("\n"), 0o600))
	tests := []struct {
		name string
		args []string
		env  map[string]string
		want string
	}{
		{name: "a robot id with a slash", args: []string{"--robot-id", "a/b"}, want: `--robot-id: robot id "a/b" must be`},
		{name: "a robot id in upper case", args: []string{"--robot-id", "R1"}, want: "--robot-id"},
		{name: "a robot id of 300 characters", args: []string{"--robot-id", strings.Repeat("a", 300)}, want: "--robot-id"},
		{name: "a robot id from the environment", env: map[string]string{"K8S4R_AGENT_ROBOT_ID": "a/b"}, want: "--robot-id"},
		{name: "a URL with a scheme that is not spoken", args: []string{"--mqtt-url", "http://a:1"}, want: "--mqtt-url"},
		{name: "a URL without a host", args: []string{"--mqtt-url", "mqtt://"}, want: "--mqtt-url"},
		{name: "an invalid URL", args: []string{"--mqtt-url", "::"}, want: "--mqtt-url"},
		{name: "a URL with a path", args: []string{"--mqtt-url", "mqtt://a/b"}, want: "--mqtt-url"},
		{name: "an empty state directory", args: []string{"--state-dir", ""}, want: "--state-dir"},
		{name: "a label without a value", args: []string{"--label", "a"}, want: "flag -label"},
		{name: "a label without a key", args: []string{"--label", "=a"}, want: "flag -label"},
		{name: "a label with a space", args: []string{"--label", "site=x; reboot"}, want: "the value \"x; reboot\" must be empty, or at most 63 letters"},
		{name: "a label that ends with a dash", args: []string{"--label", "site=a-"}, want: "the value \"a-\" must be"},
		{name: "a label whose prefix is no domain", args: []string{"--label", "A b/site=a"}, want: "the name must be"},
		{name: "a label with a line end", args: []string{"--label", "a=b\nc"}, want: "flag -label"},
		{name: "a token twice", args: []string{"--token", "a", "--token-file", "b"}, want: "--token and --token-file"},
		{name: "a token file that is not there", args: []string{"--token-file", "/no/such"}, want: "--token-file"},
		{name: "a token file with nothing in it", args: []string{"--token-file", empty}, want: "--token-file"},
		{name: "a heartbeat that is too short", args: []string{"--heartbeat", "1ms"}, want: "--heartbeat"},
		{name: "a heartbeat that is too long", args: []string{"--heartbeat", "1h"}, want: "--heartbeat"},
		{name: "a heartbeat that is no time", args: []string{"--heartbeat", "soon"}, want: "-heartbeat"},
		{name: "a heartbeat in the environment that is no time", env: map[string]string{"K8S4R_AGENT_HEARTBEAT": "soon"}, want: "K8S4R_AGENT_HEARTBEAT"},
		{name: "an unknown log level", args: []string{"--log-level", "loud"}, want: "-log-level"},
		{name: "an unknown log format", args: []string{"--log-format", "xml"}, want: "--log-format"},
		{name: "a parent's pipe on stdout", args: []string{"--parent-fd", "1"}, want: "--parent-fd"},
		{name: "a parent's pipe that is not open", args: []string{"--parent-fd", "987"}, want: "--parent-fd 987 is not open"},
		{name: "an unknown flag", args: []string{"--nonsense"}, want: "-nonsense"},
		{name: "an argument", args: []string{"run"}, want: `unexpected argument "run"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for k, v := range test.env {
				t.Setenv(k, v)
			}
			var stdout, stderr bytes.Buffer
			if code := Main(test.args, &stdout, &stderr); code != exitUsage {
				t.Errorf("exit status %d, want %d", code, exitUsage)
			}
			if out := stderr.String(); !strings.Contains(out, test.want) || strings.Count(out, "\n") != 1 || stdout.Len() > 0 {
				t.Errorf("stderr %q and stdout %q, want one line with %q", out, stdout.String(), test.want)
			}
		})
	}
}

func TestParseConfig(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	env := map[string]string{
		"K8S4R_AGENT_ROBOT_ID": "from-env", "K8S4R_AGENT_LABEL": "a=1,b=2", "K8S4R_AGENT_HEARTBEAT": "5s", "K8S4R_AGENT_TOKEN_FILE": token,
		"K8S4R_AGENT_LOG_FORMAT": "json",
	}
	c, err := parseConfig([]string{"--heartbeat", "10s", "--mqtt-url", "tcp://broker", "--log-level", "debug", "--state-dir", "here"},
		func(k string) (string, bool) { v, ok := env[k]; return v, ok }, os.Stdout)
	must(t, err)
	here, _ := filepath.Abs("here")
	if c.RobotID != "from-env" || c.Token != "secret" || c.LogFormat != "json" || c.LogLevel != slog.LevelDebug || c.StateDir != here {
		t.Errorf("config %+v", c)
	}
	if c.Heartbeat != 10*time.Second {
		t.Errorf("heartbeat %v, want that of the flag, which wins", c.Heartbeat)
	}
	if c.Broker.Host != "broker:1883" {
		t.Errorf("broker %s, want the standard port", c.Broker.Host)
	}
	if !maps.Equal(c.Labels, map[string]string{"a": "1", "b": "2"}) {
		t.Errorf("labels %v", c.Labels)
	}

	c, err = parseConfig([]string{"--robot-id", "r1"}, noEnv, os.Stdout)
	must(t, err)
	if c.Broker.String() != "mqtt://127.0.0.1:1883" || c.StateDir != "/var/lib/k8s4r-agent" || c.Heartbeat != 30*time.Second || c.ParentFD != -1 {
		t.Errorf("defaults %+v", c)
	}
}

func TestParseConfig_NeedsNoTokenFileOfARobotThatHasJoined(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--robot-id", "r1", "--server", "https://server:8443", "--state-dir", dir, "--token-file", filepath.Join(dir, "deleted")}
	if _, err := parseConfig(args, noEnv, os.Stdout); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before it has joined: %v", err)
	}
	must(t, os.Mkdir(filepath.Join(dir, identityDir), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, identityDir, "certificate.pem"), nil, 0o600))
	if c, err := parseConfig(args, noEnv, os.Stdout); err != nil || c.Token != "" {
		t.Errorf("after it has joined: token %q, %v", c.Token, err)
	}
}

func TestHelpAndVersion(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if _, err := parseConfig([]string{"-h"}, noEnv, &stdout); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("parse = %v, want ErrHelp", err)
	}
	for _, want := range []string{"-robot-id", "-mqtt-url", "-state-dir", "-label", "-token-file", "-heartbeat", "-parent-fd", "K8S4R_AGENT_ROBOT_ID"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("help does not mention %s:\n%s", want, stdout.String())
		}
	}
	stdout.Reset()
	if code := Main([]string{"--version"}, &stdout, &stderr); code != exitOK || !strings.HasPrefix(stdout.String(), "k8s4r-agent ") {
		t.Errorf("--version: %d, %q", code, stdout.String())
	}
}
