package agent

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestConfigFile_SetsAllFlags(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	path := configFile(t, `# of the arm
robotId: arm-7
mqttUrl: "mqtt://broker.example"
stateDir: /srv/k8s4r
tokenFile: `+token+`
heartbeat: 10s
onStop: end
logLevel: debug
logFormat: json
healthSocket: /run/k8s4r.sock
labels:
  env: prod
  version: 1.10
  careful: yes
`)
	c, err := parseConfig([]string{"--config", path}, noEnv, os.Stdout)
	must(t, err)
	if c.RobotID != "arm-7" || c.Broker.Host != "broker.example:1883" || c.StateDir != "/srv/k8s4r" || c.Token != "secret" ||
		c.Heartbeat != 10*time.Second || c.OnStop != OnStopEnd || c.LogLevel != slog.LevelDebug || c.LogFormat != "json" || c.HealthSocket != "/run/k8s4r.sock" {
		t.Errorf("config %+v", c)
	}
	if want := map[string]string{"env": "prod", "version": "1.10", "careful": "yes"}; !maps.Equal(c.Labels, want) {
		t.Errorf("labels %v, want %v", c.Labels, want)
	}
}

func TestConfig_FlagOverEnvironmentOverFile(t *testing.T) {
	path := configFile(t, "robotId: file\nheartbeat: 1s\nonStop: end\nlabels: {from: file}\n")
	env := map[string]string{"K8S4R_AGENT_CONFIG": path, "K8S4R_AGENT_HEARTBEAT": "2s", "K8S4R_AGENT_ROBOT_ID": "env"}
	c, err := parseConfig([]string{"--robot-id", "flag", "--label", "a=b"}, func(k string) (string, bool) { v, ok := env[k]; return v, ok }, os.Stdout)
	must(t, err)
	if c.RobotID != "flag" || c.Heartbeat != 2*time.Second || c.OnStop != OnStopEnd || c.LogFormat != "text" {
		t.Errorf("robot %s (want that of the flag), heartbeat %v (of the environment), on stop %s (of the file), log format %s (the default)",
			c.RobotID, c.Heartbeat, c.OnStop, c.LogFormat)
	}
	if want := map[string]string{"a": "b"}; !maps.Equal(c.Labels, want) {
		t.Errorf("labels %v, want %v: those of the flag take the place of the file's", c.Labels, want)
	}
}

func TestConfigFile_MayBeEmpty(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n"} {
		if _, err := parseConfig([]string{"--config", configFile(t, text), "--robot-id", "r1"}, noEnv, os.Stdout); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestConfigFile_RejectsInvalid(t *testing.T) {
	const known = "the keys are batteryBackedClock, caFile, caHash, cacheQuota, dockerSocket, healthSocket, heartbeat, labels, localGroup, localSocket, logFormat, logLevel, mqttUrl, onStop, policy, robotId, server, stateDir, taskUser, tokenFile"
	tests := []struct {
		name, text string
		want       []string
	}{
		{"an unknown key", "robotId: r1\nheartbaet: 1s\n", []string{":2: heartbaet is not a key", known}},
		{"a flag's name", "robot-id: r1\n", []string{":1: robot-id is not a key", known}},
		{"what only a parent process can set", "parentFd: 3\n", []string{":1: parentFd is not a key"}},
		{"a file in a file", "config: other.yaml\n", []string{":1: config is not a key"}},
		{"a secret", "token: abc\n", []string{":1: token is a secret", "tokenFile"}},
		{"a key twice", "heartbeat: 1s\nonStop: end\nheartbeat: 2s\n", []string{":3: heartbeat is already set in line 1"}},
		{"an invalid duration", "\n\nheartbeat: soon\n", []string{":3: heartbeat has an invalid value: must be a time such as 30s"}},
		{"a switch that is neither on nor off", "batteryBackedClock: maybe\n", []string{":1: batteryBackedClock has an invalid value: must be true or false"}},
		{"a time out of bounds", "heartbeat: 1h\n", []string{":1: heartbeat 1h0m0s must be between"}},
		{"a robot id with a slash", "robotId: a/b\n", []string{":1: robotId: robot id \"a/b\" must be"}},
		{"a URL that is not spoken", "mqttUrl: http://a\n", []string{":1: mqttUrl \"http://a\": the scheme"}},
		{"an unknown value", "onStop: keep\n", []string{":1: onStop \"keep\" must be leave or end"}},
		{"a token file that is not there", "tokenFile: /no/such\n", []string{":1: tokenFile: open /no/such"}},
		{"no value", "stateDir:\n", []string{":1: stateDir has an invalid value: it must be a single value"}},
		{"a list for a value", "robotId: [a]\n", []string{":1: robotId has an invalid value: it must be a single value"}},
		{"labels that are text", "labels: a=b\n", []string{":1: labels line 1 must be like key: value"}},
		{"an invalid label", "labels:\n  a: b\n  c: d e\n", []string{":1: labels in line 3: label \"c\": the value \"d e\" must be"}},
		{"a label with a list", "labels:\n  a: [b]\n", []string{":1: labels in line 2: it must be a single value"}},
		{"a list", "- robotId: r1\n", []string{"line 1 must be like key: value"}},
		{"two documents", "robotId: r1\n---\nrobotId: r2\n", []string{"second document"}},
		{"what is no YAML", "robotId: 'r1\n", []string{"yaml: line"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := configFile(t, test.text)
			var stdout, stderr bytes.Buffer
			if code := Main([]string{"--config", path}, &stdout, &stderr); code != exitUsage {
				t.Errorf("exit status %d, want %d", code, exitUsage)
			}
			out := stderr.String()
			for _, want := range append(test.want, path) {
				if !strings.Contains(out, want) || strings.Count(out, "\n") != 1 {
					t.Errorf("stderr %q, want one line with %q", out, want)
				}
			}
		})
	}
	var stdout, stderr bytes.Buffer
	if code := Main([]string{"--config", "/no/such.yaml"}, &stdout, &stderr); code != exitUsage || !strings.Contains(stderr.String(), "--config: open /no/such.yaml") {
		t.Errorf("a file that is not there: %d, %q", code, stderr.String())
	}
}

func TestConfigFile_ReportsAllErrors(t *testing.T) {
	_, err := parseConfig([]string{"--config", configFile(t, "a: 1\nb: 2\nheartbeat: soon\n")}, noEnv, os.Stdout)
	for _, want := range []string{":1: a", ":2: b", ":3: heartbeat"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}
