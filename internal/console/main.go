package console

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/platform/program"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// mqttFiles are the PEM files for the connection to the broker.
type mqttFiles struct{ ca, cert, key string }

// Main runs k8s4r-console and returns its exit status, as program.Main does.
func Main(args []string, stdout, stderr io.Writer) int {
	var cfg Config
	var files mqttFiles
	return program.Program{
		Name:       "k8s4r-console",
		Replicated: true,
		Scheme:     newOwnScheme(),
		Cache:      func() cache.Options { return cache.Options{} },
		AddFlags:   func(f *pflag.FlagSet) { cfg.addFlags(f); files.addFlags(f) },
		Validate:   func() error { return errors.Join(cfg.validate(), files.applyTo(&cfg)) },
		Add:        func(mgr ctrl.Manager) error { return addToManager(mgr, cfg) },
	}.Main(args, stdout, stderr)
}

func (c *Config) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.Address, "bind-address", "127.0.0.1:8800", "address to listen on; addresses other than loopback require --cert-file")
	f.StringVar(&c.CertFile, "cert-file", "", "certificate of the console, PEM; if empty, the console serves HTTP, on loopback only")
	f.StringVar(&c.KeyFile, "key-file", "", "private key of the certificate, PEM")
	f.StringVar(&c.SessionKeyFile, "session-key-file", "", "file with at least 32 random bytes, the same for all replicas, from which the key of sessions is derived; if empty, --key-file; without both, users sign in again after a restart")
	f.StringVar(&c.PublicURL, "public-url", "", "URL at which browsers open the console, such as https://console.example.com; if empty, they must use localhost or an IP address")
	f.StringVar(&c.Archive, "archive", "", "address of the archive that the manager writes: postgres://USER@HOST/DATABASE with the password in PGPASSWORD, or sqlite:PATH on the same machine; if empty, deleted objects are not shown")
	f.StringVar(&c.MQTTURL, "mqtt-url", "", "MQTT broker to publish events to, such as mqtts://host:8883; if empty, events are not published")
}

func (m *mqttFiles) addFlags(f *pflag.FlagSet) {
	f.StringVar(&m.ca, "mqtt-ca-file", "", "CA certificates that the broker's certificate must chain to, PEM; if empty, the system's CAs")
	f.StringVar(&m.cert, "mqtt-cert-file", "", "client certificate for the broker, PEM, with the common name k8s4r-console; if empty, none")
	f.StringVar(&m.key, "mqtt-key-file", "", "private key of the certificate, PEM")
}

func (m *mqttFiles) applyTo(c *Config) (err error) {
	if (m.cert == "") != (m.key == "") {
		return errors.New("--mqtt-cert-file and --mqtt-key-file: set both or none")
	}
	if c.MQTTURL == "" && (m.ca != "" || m.cert != "") {
		return errors.New("--mqtt-ca-file, --mqtt-cert-file: require --mqtt-url")
	}
	c.MQTT, err = m.loadTLS()
	return err
}

// loadTLS returns the TLS configuration for the broker. It is nil if no files are configured.
func (m *mqttFiles) loadTLS() (*tls.Config, error) {
	if m.ca == "" && m.cert == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if m.ca != "" {
		if c.RootCAs, err = keyfile.ReadPool(m.ca); err != nil {
			return nil, fmt.Errorf("--mqtt-ca-file: %w", err)
		}
	}
	if m.cert != "" {
		if c.GetClientCertificate, err = keyfile.ClientCertificateFunc(m.cert, m.key); err != nil {
			return nil, fmt.Errorf("--mqtt-cert-file: %w", err)
		}
	}
	return c, nil
}

func (c *Config) validate() error {
	errs := []error{}
	if (c.CertFile == "") != (c.KeyFile == "") {
		errs = append(errs, errors.New("--cert-file and --key-file: set both or none"))
	}
	if c.CertFile == "" && !program.IsLoopback(c.Address) {
		errs = append(errs, fmt.Errorf("--bind-address=%s: tokens of users would be sent unencrypted; set --cert-file and --key-file, or use a loopback address behind a proxy that serves HTTPS", c.Address))
	}
	if _, err := ParsePublicURL(c.PublicURL); err != nil {
		errs = append(errs, fmt.Errorf("--public-url=%s: %w", c.PublicURL, err))
	}
	if c.Archive != "" {
		store, err := archive.Open(c.Archive)
		if err != nil {
			errs = append(errs, fmt.Errorf("--archive: %w", err))
		} else {
			errs = append(errs, store.Close())
		}
	}
	return errors.Join(errs...)
}

// addToManager adds the console to mgr.
func addToManager(mgr ctrl.Manager, cfg Config) error {
	cfg.Metrics = ctrlmetrics.Registry
	c, err := New(mgr.GetConfig(), cfg, mgr.GetLogger().WithName("console"))
	if err != nil {
		return err
	}
	return errors.Join(
		mgr.AddReadyzCheck("console", func(r *http.Request) error { return c.Ready(r.Context()) }),
		mgr.Add(allReplicas{c}),
	)
}

// allReplicas runs the console in every replica. The console changes nothing by itself, so
// replicas do not conflict.
type allReplicas struct{ *Console }

// Start serves until ctx ends.
func (e allReplicas) Start(ctx context.Context) error { return e.Run(ctx) }

// NeedLeaderElection returns false.
func (allReplicas) NeedLeaderElection() bool { return false }
