package build

import (
	"strings"
	"testing"
	"time"
)

func TestSettings(t *testing.T) {
	for _, row := range []struct {
		name, variable, value string
		want                  func(Settings) bool
		wantErr               string
	}{
		{"nothing is set", "", "", func(s Settings) bool {
			return s.WaitForGCS && s.Probes && s.RedisCleanup && s.ReplicaIndex && !s.LoginShell && !s.HeadClusterIP && !s.DeterministicHeadName && !s.RandomDelete && s.ClusterDomain == "cluster.local" && s.Requeue == 5*time.Minute
		}, ""},
		{"off", "ENABLE_PROBES_INJECTION", "False", func(s Settings) bool { return !s.Probes }, ""},
		{"on", "ENABLE_RANDOM_POD_DELETE", "TRUE", func(s Settings) bool { return s.RandomDelete }, ""},
		{"neither true nor false", "ENABLE_LOGIN_SHELL", "yes", nil, `ENABLE_LOGIN_SHELL: "yes" must be true or false`},
		{"the domain", "CLUSTER_DOMAIN", "robots.example", func(s Settings) bool { return s.ClusterDomain == "robots.example" }, ""},
		{"the time", "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV", "60", func(s Settings) bool { return s.Requeue == time.Minute }, ""},
		{"not a number", "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV", "5m", nil, `RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV: "5m" must be a number of seconds`},
	} {
		s, err := SettingsFrom(func(name string) string {
			if name == row.variable {
				return row.value
			}
			return ""
		})
		if row.wantErr == "" && (err != nil || !row.want(s)) || row.wantErr != "" && (err == nil || !strings.Contains(err.Error(), row.wantErr)) {
			t.Errorf("%s: %+v, %v", row.name, s, err)
		}
	}
}

func TestConfigure_RejectsOtherKinds(t *testing.T) {
	s := DefaultSettings()
	for file, want := range map[string]string{
		"apiVersion: v1\nkind: ConfigMap":             `apiVersion "v1" and kind "ConfigMap" are not supported`,
		"apiVersion: [":                               "configuration: ",
		"apiVersion: config.ray.io/v1alpha1":          `kind "" are not supported`,
		"headSidecarContainers: [{name: [not, it]}]":  "configuration: headSidecarContainers: ",
		"defaultContainerEnvs: [{name: A, vaule: b}]": `configuration: defaultContainerEnvs: json: unknown field "vaule"`,
		"defaultPodLabels: {a: y}":                    "configuration: defaultPodLabels: found a bool where text is needed; write it in quotes",
		"defaultContainerEnvs: [{name: A, value: 1}]": "configuration: defaultContainerEnvs: found a number where text is needed; write it in quotes",
		"kind: Configuration\nkind: Configuration":    "already set in map",
	} {
		if _, err := s.Configure([]byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", file, err)
		}
	}
}

func TestConfigure_ReturnsOtherFields(t *testing.T) {
	s := DefaultSettings()
	rest, err := s.Configure([]byte("apiVersion: config.ray.io/v1alpha1\nkind: Configuration\nqps: 7\ndefaultPodLabels: {a: b, c: 'y'}"))
	if err != nil || len(rest) != 1 || string(rest["qps"]) != "7" || s.Labels["a"] != "b" || s.Labels["c"] != "y" {
		t.Errorf("rest %s, labels %v, %v", rest, s.Labels, err)
	}
}
