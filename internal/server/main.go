package server

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"k8s4r.io/k8s4r/internal/platform/program"
	"k8s4r.io/k8s4r/internal/platform/tracing"
	"k8s4r.io/k8s4r/internal/server/gateway"
	"k8s4r.io/k8s4r/internal/server/logapi"
)

// Main runs k8s4r-server and returns its exit status, as program.Main does.
func Main(args []string, stdout, stderr io.Writer) int {
	var cfg Config
	var join joinFlags
	return program.Program{
		Name:     "k8s4r-server",
		Scheme:   Scheme(),
		Cache:    func() cache.Options { return cache.Options{DefaultTransform: cache.TransformStripManagedFields()} },
		Trace:    func(t *tracing.Tracer) { cfg.Gateway.Tracer = t },
		AddFlags: func(f *pflag.FlagSet) { addFlags(f, &cfg); join.addFlags(f, &cfg) },
		Validate: func() error { return errors.Join(validateConfig(cfg), join.applyTo(&cfg)) },
		Add: func(mgr ctrl.Manager) error {
			logInsecureFlags(cfg.Gateway, mgr.GetLogger().WithName("server"))
			return Add(mgr, cfg)
		},
	}.Main(args, stdout, stderr)
}

func addFlags(f *pflag.FlagSet, c *Config) {
	b := &c.Gateway
	f.StringVar(&b.MQTTURL, "mqtt-url", "mqtt://127.0.0.1:1883", "MQTT broker, such as mqtts://host:8883; without TLS it must be on this machine, or see --allow-plaintext-broker")
	f.StringVar(&b.ClientID, "mqtt-client-id", "k8s4r-server", "client id at the broker; the same for all servers of a cluster, because only one speaks at a time")
	f.StringVar(&b.RobotNamespace, "robot-namespace", "default", "namespace that the Robots of robots that register are created in")
	f.DurationVar(&b.OfflineAfter, "offline-after", 5*time.Minute, "how long a robot may be silent before it is Offline; the same as the manager's. Less than three heartbeats, 90s, calls robots lost that are not")
	addLogFlags(f, &c.Logs)
	addAPIFlags(f, &c.API)
}

func addLogFlags(f *pflag.FlagSet, c *LogConfig) {
	f.StringVar(&c.Dir, "log-dir", "/var/lib/k8s4r/logs", "directory that keeps the logs of tasks; with --log-bucket those that are still written; empty: logs are not kept")
	f.StringVar(&c.Bucket, "log-bucket", "", "bucket that keeps the logs of tasks, such as s3://bucket?region=eu-central-1 or file:///mnt/logs; empty: --log-dir keeps them")
	f.DurationVar(&c.Limits.MaxAge, "log-max-age", 30*24*time.Hour, "age after which a log is removed")
	f.Int64Var(&c.Limits.TotalBytes, "log-max-bytes", 10<<30, "size of all logs; when they are more the oldest are removed")
	f.Int64Var(&c.Limits.AttemptBytes, "log-max-attempt-bytes", 64<<20, "size of the log of one attempt; of a longer one the beginning is removed")
}

func addAPIFlags(f *pflag.FlagSet, c *logapi.ServeConfig) {
	f.StringVar(&c.Address, "api-bind-address", ":8443", "address that serves the logs of tasks over HTTPS; 0: none")
	f.StringVar(&c.URL, "api-url", "", "URL that clients reach that by, such as https://k8s4r.example.com; empty: this machine's address and the port")
	f.StringVar(&c.CertFile, "api-cert-file", "", "certificate of the API, PEM; empty: one that is made at each start")
	f.StringVar(&c.KeyFile, "api-key-file", "", "key of that certificate")
	f.StringVar(&c.CAFile, "api-ca-file", "", "certificates that vouch for it, PEM; empty: clients trust what their system trusts")
}

func validateConfig(c Config) error {
	return errors.Join(
		validateBroker(c.Gateway),
		requireFlag(c.Gateway.OfflineAfter > 0, "--offline-after=%s: must be more than nothing", c.Gateway.OfflineAfter),
		requireFlag(c.Logs.Bucket == "" || c.Logs.Dir != "", "--log-bucket: needs --log-dir for the logs that are still written"),
		requireFlag((c.API.CertFile == "") == (c.API.KeyFile == ""), "--api-cert-file and --api-key-file: one is of no use without the other"),
		requireFlag(c.API.CAFile == "" || c.API.CertFile != "", "--api-ca-file: is for --api-cert-file, which is not given"),
	)
}

func validateBroker(c gateway.Config) error {
	if err := c.ValidateBroker(); err != nil {
		return fmt.Errorf("--mqtt-url: %w", err)
	}
	return nil
}

func requireFlag(ok bool, format string, a ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, a...)
}
