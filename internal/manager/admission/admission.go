// Package admission validates what a schema and CEL cannot: that the steps of a JobFlow form an
// acyclic graph and that the steps they refer to exist. Every replica of the manager serves the
// webhook to the API server over HTTPS.
//
// The manager issues the serving certificate, stores it in a Secret that all replicas share, renews
// it and writes the CA bundle into the webhook's registration. If another program manages
// certificates, such as cert-manager, the manager only reads the files.
package admission

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Config is the configuration of the webhook. The zero value disables it.
type Config struct {
	// Listener is an open listener. If nil, Address is opened.
	Listener net.Listener
	// Address is an address such as ":9443". If it is empty and Listener is nil, the webhook is
	// disabled.
	Address string
	// CertDir is a directory with tls.crt and tls.key, in the format of cert-manager. The files are
	// reloaded when they change, and the registration is not written. If empty, the manager issues
	// its own certificate and writes the CA bundle into the registration.
	CertDir string
	// Service is the Service of the webhook, as namespace/name; the Secret is in its namespace. If
	// empty, k8s4r-system/k8s4r-manager-webhook.
	Service string
	// URL is the address of the webhook for the API server, without a path. If set, the manager
	// creates and deletes the registration. If empty, the API server connects to the Service.
	URL string
	// Registrar creates and deletes the registration by URL, which needs more permissions than the
	// role of the manager has. If nil, the manager's client does it.
	Registrar client.Client
	// Unreachable sets failurePolicy to Ignore, for a URL that the API server may not reach. The
	// controllers validate again in any case.
	Unreachable bool
	// RecordActions records who creates, changes and deletes objects. It keeps the registrations in
	// config/webhook/actions.yaml, if there are any, or creates them with URL.
	RecordActions bool
	// Archive records deletions. If nil, they are not recorded.
	Archive ActionRecorder
	// Now returns the current time. If nil, time.Now.
	Now func() time.Time
	// Every is the time between two checks of the certificate. If 0, one minute.
	Every time.Duration
}

// DefaultService is the Service in config/webhook.
const DefaultService = "k8s4r-system/k8s4r-manager-webhook"

// Validate returns an error that names the flag with an invalid value.
func (c *Config) Validate() error {
	if c.Service == "" {
		return nil
	}
	namespace, name, ok := strings.Cut(c.Service, "/")
	if !ok || namespace == "" || name == "" {
		return fmt.Errorf("--webhook-service=%s: must be namespace/name", c.Service)
	}
	return nil
}

// isEnabled reports whether the webhook is served.
func (c *Config) isEnabled() bool { return c.Listener != nil || c.Address != "" }

func (c Config) withDefaults() Config {
	if c.Service == "" {
		c.Service = DefaultService
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Every == 0 {
		c.Every = time.Minute
	}
	return c
}

// serviceName returns the name of the Service.
func (c *Config) serviceName() types.NamespacedName {
	namespace, name, _ := strings.Cut(c.Service, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// hostName returns the host that the API server expects in the certificate.
func (c *Config) hostName() (string, error) {
	if c.URL == "" {
		s := c.serviceName()
		return s.Name + "." + s.Namespace + ".svc", nil
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return "", fmt.Errorf("URL of the webhook: %w", err)
	}
	return u.Hostname(), nil
}

// Add registers the webhook with mgr if cfg enables it. The manager is not ready before the webhook
// is.
func Add(mgr ctrl.Manager, cfg Config) error {
	if !cfg.isEnabled() {
		return nil
	}
	s := &server{cfg: cfg.withDefaults(), client: mgr.GetClient(), live: mgr.GetAPIReader(), log: mgr.GetLogger().WithName("admission")}
	if err := mgr.AddReadyzCheck("webhook", s.checkReady); err != nil {
		return err
	}
	return mgr.Add(s)
}
