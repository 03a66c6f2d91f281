// Package admission judges what a schema and CEL cannot: whether the steps of a
// JobFlow can be put in an order, and whether what they refer to is there (contract
// §1, Webhook). The manager serves it to the API server over HTTPS, on every replica.
//
// The certificate for that is made, kept in a Secret that all replicas share, and
// renewed while they run; whom to trust is written into the webhook's registration.
// Where another keeps certificates, such as cert-manager, nothing of that is done.
package admission

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Config says where and how admission is served. The zero value: it is not.
type Config struct {
	// Listener that is open already. Nil: Address is opened.
	Listener net.Listener
	// Address such as :9443. Empty, without a Listener: nothing is served.
	Address string
	// CertDir has tls.crt and tls.key, as cert-manager keeps them, and they are read
	// again when they change. The registration is then left to whoever keeps them.
	// Empty: the manager makes its own certificate and registers it.
	CertDir string
	// Service that leads the API server here, as namespace/name; the Secret is kept
	// beside it. Empty: k8s4r-system/k8s4r-manager-webhook.
	Service string
	// URL that the API server reaches this by, without a path. Empty: by the Service.
	// With it the registration is made, not only completed.
	URL string
	// Unreachable lets everything pass that the API server cannot ask about. It is
	// for a URL that it may not reach; the controllers judge again in any case.
	Unreachable bool
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
	// Every is the time between two looks at the certificate. 0: a minute.
	Every time.Duration
}

// DefaultService is that of config/webhook.
const DefaultService = "k8s4r-system/k8s4r-manager-webhook"

// Validate refuses what makes no sense, by a sentence that names the flag.
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

// serves tells whether anything is to be served.
func (c *Config) serves() bool { return c.Listener != nil || c.Address != "" }

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

// service is the Service's name.
func (c *Config) service() types.NamespacedName {
	namespace, name, _ := strings.Cut(c.Service, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// host is the name or address that the API server expects in the certificate.
func (c *Config) host() (string, error) {
	if c.URL == "" {
		s := c.service()
		return s.Name + "." + s.Namespace + ".svc", nil
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return "", fmt.Errorf("URL of the webhook: %w", err)
	}
	return u.Hostname(), nil
}

// Add serves admission with mgr, where cfg asks for it. The manager is ready when it
// does.
func Add(mgr ctrl.Manager, cfg Config) error {
	if !cfg.serves() {
		return nil
	}
	s := &server{cfg: cfg.withDefaults(), client: mgr.GetClient(), live: mgr.GetAPIReader(), log: mgr.GetLogger().WithName("admission")}
	if err := mgr.AddReadyzCheck("webhook", s.ready); err != nil {
		return err
	}
	return mgr.Add(s)
}
