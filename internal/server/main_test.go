package server

import (
	"bytes"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
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

func TestHelpNamesEveryFlag(t *testing.T) {
	var out, errs bytes.Buffer
	Main([]string{"--help"}, &out, &errs)
	for _, flag := range []string{
		"kubeconfig", "mqtt-url", "mqtt-client-id", "robot-namespace", "offline-after", "leader-elect",
		"leader-elect-namespace", "metrics-bind-address", "health-probe-bind-address",
	} {
		if !strings.Contains(out.String(), "--"+flag) {
			t.Errorf("--%s is not in the help", flag)
		}
	}
}

func TestTheSchemeKnowsWhatTheServerWrites(t *testing.T) {
	for _, kind := range []string{"Robot", "Task"} {
		if !Scheme().Recognizes(v1alpha1.GroupVersion.WithKind(kind)) {
			t.Errorf("%s is not known", kind)
		}
	}
}
