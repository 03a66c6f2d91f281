package server

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/server/gateway"
)

func TestMain_RejectsInvalidFlags(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
		want string
		code int
	}{
		{name: "help exits with 0", args: []string{"--help"}, code: 0},
		{name: "an unknown flag", args: []string{"--mqtt-uri=x"}, want: "mqtt-uri", code: 2},
		{name: "no time before a robot is offline", args: []string{"--offline-after=0s"}, want: "--offline-after", code: 2},
		{name: "an invalid duration", args: []string{"--offline-after=soon"}, want: "soon", code: 2},
		{name: "a broker on another machine without TLS", args: []string{"--mqtt-url=mqtt://broker:1883"}, want: "--mqtt-url: the MQTT broker at mqtt://broker:1883 is reached without TLS", code: 2},
		{name: "such a broker with --allow-plaintext-broker", args: []string{"--mqtt-url=mqtt://broker:1883", "--allow-plaintext-broker", "--kubeconfig=/does/not/exist"}, want: "/does/not/exist", code: 1},
		{name: "a kubeconfig that does not exist", args: []string{"--kubeconfig=/does/not/exist"}, want: "/does/not/exist", code: 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := Main(row.args, &out, &errs); code != row.code {
				t.Errorf("exit status %d, want %d", code, row.code)
			}
			if !strings.Contains(errs.String(), row.want) {
				t.Errorf("stderr is %q", errs.String())
			}
		})
	}
}

func TestMain_LogsInsecureFlags(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	logInsecureFlags(gateway.Config{MQTTURL: "mqtts://broker:8883"}, log)
	if len(lines) > 0 {
		t.Errorf("no insecure flag is set, but %q is logged", lines)
	}
	logInsecureFlags(gateway.Config{MQTTURL: "mqtt://broker:1883", AllowPlaintext: true, AllowLegacy: true, AllowAnonymous: true}, log)
	all := strings.Join(lines, "\n")
	for _, flag := range []string{"--allow-plaintext-broker", "--allow-legacy-agents", "--allow-anonymous-agents"} {
		if !strings.Contains(all, flag) {
			t.Errorf("%s is not logged: %s", flag, all)
		}
	}
}

func TestMain_HelpNamesEveryFlag(t *testing.T) {
	var out, errs bytes.Buffer
	Main([]string{"--help"}, &out, &errs)
	for _, flag := range []string{
		"kubeconfig", "mqtt-url", "mqtt-client-id", "robot-namespace", "offline-after", "leader-elect",
		"allow-plaintext-broker", "leader-elect-namespace", "metrics-bind-address", "health-probe-bind-address",
	} {
		if !strings.Contains(out.String(), "--"+flag) {
			t.Errorf("--%s is not in the help", flag)
		}
	}
}

func TestScheme_HasKindsThatTheServerWrites(t *testing.T) {
	for _, kind := range []string{"Robot", "Task"} {
		if !Scheme().Recognizes(v1alpha1.GroupVersion.WithKind(kind)) {
			t.Errorf("%s is not in the scheme", kind)
		}
	}
}
