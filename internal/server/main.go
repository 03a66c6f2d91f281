package server

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/platform/apiserve"
	"k8s4r.io/k8s4r/internal/platform/program"
	"k8s4r.io/k8s4r/internal/platform/tracing"
	"k8s4r.io/k8s4r/internal/server/gateway"
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
	f.StringVar(&b.ClientID, "mqtt-client-id", "k8s4r-server", "client ID at the broker; the same for all servers of a cluster, because only the leader connects")
	f.StringVar(&b.RobotNamespace, "robot-namespace", "default", "namespace in which Robots are created for robots that register")
	f.DurationVar(&b.OfflineAfter, "offline-after", 5*time.Minute, "how long a robot may send no heartbeat before it is Offline; use the same value for the manager. Values below 90s, three heartbeats, make connected robots count as lost")
	f.StringVar(&c.Archive, "archive", "", "archive that the manager writes, from which the history API answers who did what: sqlite:PATH or postgres://USER@HOST/DATABASE; empty: none")
	addLogFlags(f, &c.Logs)
	addAPIFlags(f, &c.API)
}

func addLogFlags(f *pflag.FlagSet, c *LogConfig) {
	f.StringVar(&c.Dir, "log-dir", "/var/lib/k8s4r/logs", "directory in which the logs of tasks are stored; with --log-bucket, only logs that are still being written; empty: logs are not stored")
	f.StringVar(&c.Bucket, "log-bucket", "", "bucket in which the logs of tasks are stored, such as s3://bucket?region=eu-central-1 or file:///mnt/logs; empty: --log-dir")
	f.DurationVar(&c.Limits.MaxAge, "log-max-age", 30*24*time.Hour, "time after its last write at which a log is removed")
	f.Int64Var(&c.Limits.TotalBytes, "log-max-bytes", 10<<30, "maximum size of all logs in bytes; above it, the oldest logs are removed")
	f.Int64Var(&c.Limits.AttemptBytes, "log-max-attempt-bytes", 64<<20, "maximum size of the log of one attempt in bytes; above it, the oldest part is removed")
}

func addAPIFlags(f *pflag.FlagSet, c *apiserve.Config) {
	f.StringVar(&c.Address, "api-bind-address", ":8443", "address of the HTTPS API for joining robots and for the logs of tasks; 0: no API")
	f.StringVar(&c.URL, "api-url", "", "URL at which clients reach the API, such as https://k8s4r.example.com; empty: this machine's address and the port of --api-bind-address")
	f.StringVar(&c.CertFile, "api-cert-file", "", "PEM file with the certificate of the API; empty: a certificate of the CA in --robot-ca-dir, or a self-signed one that is created at each start")
	f.StringVar(&c.KeyFile, "api-key-file", "", "PEM file with the key of --api-cert-file")
	f.StringVar(&c.CAFile, "api-ca-file", "", "PEM file with the CA of --api-cert-file; empty: clients use the CAs of their system")
}

func validateConfig(c Config) error {
	return errors.Join(
		validateBroker(c.Gateway),
		validateArchive(c.Archive),
		requireFlag(c.Gateway.OfflineAfter > 0, "--offline-after=%s: must be positive", c.Gateway.OfflineAfter),
		requireFlag(c.Logs.Bucket == "" || c.Logs.Dir != "", "--log-bucket: also set --log-dir, for the logs that are still being written"),
		requireFlag((c.API.CertFile == "") == (c.API.KeyFile == ""), "--api-cert-file, --api-key-file: set both or none"),
		requireFlag(c.API.CAFile == "" || c.API.CertFile != "", "--api-ca-file: also set --api-cert-file, whose CA it has"),
	)
}

func validateBroker(c gateway.Config) error {
	if err := c.ValidateBroker(); err != nil {
		return fmt.Errorf("--mqtt-url: %w", err)
	}
	return nil
}

// validateArchive opens the archive, which does not connect, to check its address.
func validateArchive(address string) error {
	if address == "" {
		return nil
	}
	store, err := archive.Open(address)
	if err != nil {
		return fmt.Errorf("--archive: %w", err)
	}
	return store.Close()
}

func requireFlag(ok bool, format string, a ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, a...)
}
