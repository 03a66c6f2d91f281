package server

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/server/gateway"
)

func TestMainRefusesBadFlagsWithASentence(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
		want string
		code int
	}{
		{name: "help is no failure", args: []string{"--help"}, code: 0},
		{name: "an unknown flag", args: []string{"--mqtt-uri=x"}, want: "mqtt-uri", code: 2},
		{name: "a silence of nothing", args: []string{"--offline-after=0s"}, want: "--offline-after", code: 2},
		{name: "a duration that is none", args: []string{"--offline-after=soon"}, want: "soon", code: 2},
		{name: "a broker that the network is believed for", args: []string{"--mqtt-url=mqtt://broker:1883"}, want: "--mqtt-url: the MQTT broker at mqtt://broker:1883 is reached without TLS", code: 2},
		{name: "the same, by a flag", args: []string{"--mqtt-url=mqtt://broker:1883", "--allow-plaintext-broker", "--kubeconfig=/does/not/exist"}, want: "/does/not/exist", code: 1},
		{name: "a kubeconfig that is not there", args: []string{"--kubeconfig=/does/not/exist"}, want: "/does/not/exist", code: 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := Main(row.args, &out, &errs); code != row.code {
				t.Errorf("exit status %d, want %d", code, row.code)
			}
			if !strings.Contains(errs.String(), row.want) {
				t.Errorf("said %q", errs.String())
			}
		})
	}
}

func TestMain_LogsInsecureFlags(t *testing.T) {
	var said []string
	log := funcr.New(func(_, line string) { said = append(said, line) }, funcr.Options{})
	logInsecureFlags(gateway.Config{MQTTURL: "mqtts://broker:8883"}, log)
	if len(said) > 0 {
		t.Errorf("nothing is open, and it says %q", said)
	}
	logInsecureFlags(gateway.Config{MQTTURL: "mqtt://broker:1883", AllowPlaintext: true, AllowLegacy: true, AllowAnonymous: true}, log)
	all := strings.Join(said, "\n")
	for _, flag := range []string{"--allow-plaintext-broker", "--allow-legacy-agents", "--allow-anonymous-agents"} {
		if !strings.Contains(all, flag) {
			t.Errorf("%s is not told: %s", flag, all)
		}
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
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
			t.Errorf("%s is not known", kind)
		}
	}
}
