package up

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// parsed returns the options of a command line.
func parsed(t *testing.T, args ...string) options {
	t.Helper()
	var o options
	f := pflag.NewFlagSet("up", pflag.ContinueOnError)
	o.addFlags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestManagerConfig_ReadsRayEnvironment(t *testing.T) {
	o := parsed(t)
	t.Setenv("CLUSTER_DOMAIN", "robots.example")
	if cfg, err := o.managerConfig(); err != nil || cfg.Ray.ClusterDomain != "robots.example" {
		t.Errorf("read %+v, %v", cfg.Ray, err)
	}
	t.Setenv("ENABLE_PROBES_INJECTION", "perhaps")
	if err := o.validate(); err == nil || !strings.Contains(err.Error(), "ENABLE_PROBES_INJECTION") {
		t.Errorf("an invalid boolean: %v", err)
	}
}

func TestCompleteRetention(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []string
		want time.Duration
	}{
		{name: "a day by default", want: 24 * time.Hour},
		{name: "off by the flag", in: []string{"--finished-retention=0"}},
		{name: "off without an archive", in: []string{"--archive=none"}},
		{name: "off in an external cluster", in: []string{"--kubeconfig=config"}},
		{name: "on without an archive by the flag", in: []string{"--archive=none", "--finished-retention=1h"}, want: time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			var o options
			f := pflag.NewFlagSet("up", pflag.ContinueOnError)
			o.addFlags(f)
			if err := f.Parse(c.in); err != nil {
				t.Fatal(err)
			}
			o.completeRetention(f)
			cfg, err := o.managerConfig()
			if err != nil || cfg.Finished.Age != c.want || cfg.Finished.Count != 1000 {
				t.Errorf("%+v, %v", cfg.Finished, err)
			}
		})
	}
}

func TestOptions_Validate(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []string
		want string // part of the error; if empty, none
	}{
		{name: "no flags"},
		{name: "an unknown part", in: []string{"--without=etcd"}, want: "--without=etcd: no such part"},
		{name: "robots without a broker", in: []string{"--without=broker"}, want: "set --mqtt-url"},
		{name: "robots with an external broker need --allow-anonymous-agents", in: []string{"--mqtt-url=mqtts://b:8883"}, want: "add --allow-anonymous-agents"},
		{name: "robots with an external broker", in: []string{"--mqtt-url=mqtts://b:8883", "--allow-anonymous-agents"}},
		{name: "an external broker without TLS", in: []string{"--mqtt-url=mqtt://b:1883", "--robots=0"}, want: "--mqtt-url: the MQTT broker at mqtt://b:1883 is reached without TLS"},
		{name: "an external broker without TLS that a flag allows", in: []string{"--mqtt-url=mqtt://b:1883", "--robots=0", "--allow-plaintext-broker"}},
		{name: "an external broker without TLS on this machine", in: []string{"--mqtt-url=mqtt://127.0.0.1:1883", "--robots=0"}},
		{name: "a broker without the server", in: []string{"--without=server,robots"}, want: "--without=server: the broker cannot authenticate robots"},
		{name: "a broker without the server for anonymous agents", in: []string{"--without=server,robots", "--allow-anonymous-agents"}},
		{name: "a certificate duration that is too short", in: []string{"--robot-certificate-duration=1s"}, want: "--robot-certificate-duration=1s"},
		{name: "a CA of robots that is too short for their certificates", in: []string{"--robot-ca-duration=7h", "--robot-certificate-duration=1h"}, want: "--robot-ca-duration=7h0m0s: must be at least 8 times --robot-certificate-duration, which is 1h0m0s"},
		{name: "lifetimes of minutes", in: []string{"--robot-ca-duration=8m", "--robot-certificate-duration=1m", "--cluster-certificate-duration=1m"}},
		{name: "certificates of the cluster that end during the start", in: []string{"--cluster-certificate-duration=1s"}, want: "--cluster-certificate-duration=1s: must be from 30s"},
		{name: "certificates of the cluster that never end", in: []string{"--cluster-certificate-duration=1000000h"}, want: "--cluster-certificate-duration=1000000h0m0s: must be"},
		{name: "a console behind a proxy", in: []string{"--public-url=https://console.example.com"}},
		{name: "a console below a path", in: []string{"--public-url=https://example.com/console"}, want: "--public-url=https://example.com/console: must have no path"},
		{name: "a URL of no console", in: []string{"--public-url=https://console.example.com", "--without=console"}, want: "--public-url: is of the console"},
		{name: "neither a broker nor clients of one", in: []string{"--without=broker,server", "--robots=0"}},
		{name: "a negative retention", in: []string{"--finished-retention=-1h"}, want: "--finished-retention=-1h0m0s: must be from 0 (off)"},
		{name: "too many robots", in: []string{"--robots=1001"}, want: "--robots=1001"},
		{name: "a negative number of robots", in: []string{"--robots=-1"}, want: "--robots=-1"},
		{name: "a port that is too large", in: []string{"--secure-port=65536"}, want: "--secure-port=65536"},
		{name: "a name as bind address", in: []string{"--bind-address=localhost"}, want: "must be an IP address"},
		{name: "an IPv6 bind address", in: []string{"--bind-address=::1"}},
		{name: "an MQTT address without a port", in: []string{"--mqtt-address=127.0.0.1"}, want: "--mqtt-address=127.0.0.1: must be host:port"},
		{name: "disabled metrics", in: []string{"--metrics-address="}},
		{name: "an offline period of 0", in: []string{"--offline-after=0s"}, want: "--offline-after=0s: must be positive"},
		{name: "a node with another capacity", in: []string{"--node-capacity=cpu=8,memory=32Gi,nvidia.com/gpu=1"}},
		{name: "an invalid capacity", in: []string{"--node-capacity=cpu=much"}, want: "--node-capacity=cpu=much: must be a resource and a quantity"},
		{name: "an invalid pod range", in: []string{"--pod-range=10.0.0.1"}, want: "--pod-range=10.0.0.1: must be an IPv4 range"},
		{name: "an archive in PostgreSQL", in: []string{"--archive=postgres://archive@db/history", "--archive-max-age=2160h"}},
		{name: "no archive", in: []string{"--archive=none"}},
		{name: "an invalid archive address", in: []string{"--archive=off"}, want: "--archive: archive: must be sqlite:PATH"},
		{name: "a negative archive size", in: []string{"--archive-max-bytes=-1"}, want: "--archive-max-bytes=-1: must be 0"},
		{name: "no data directory", in: []string{"--data-dir="}, want: "--data-dir"},
		{name: "reports the first of two mistakes", in: []string{"--robots=-1", "--secure-port=-1"}, want: "--robots=-1"},
		{name: "reports the second of two mistakes", in: []string{"--robots=-1", "--secure-port=-1"}, want: "--secure-port=-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := parsed(t, c.in...)
			err := o.validate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
