package controlplane

import (
	"context"
	"crypto/tls"
	"net"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/client-go/transport"
)

// maxRenewalInterval is the longest time between two checks of the certificates, and so between a
// renewal that failed and the next.
const maxRenewalInterval = time.Hour

// renewer renews the certificates while the programs run, and these read the files again: the API
// server when they change, its clients at each connection and in intervals.
type renewer struct {
	cfg        Config
	pki        pki
	kubeconfig string
	loaded     atomic.Pointer[credentials]
}

func newRenewer(c Config, kubeconfig string) *renewer {
	if c.Lifetime == 0 {
		c.Lifetime = DefaultLifetime
	}
	r := &renewer{cfg: c, kubeconfig: kubeconfig, pki: pki{dir: filepath.Join(c.Dir, "pki"), now: time.Now, lifetime: c.Lifetime}}
	// Clients must have taken up a certificate long before the last third of its lifetime is over.
	transport.CertCallbackRefreshDuration = min(transport.CertCallbackRefreshDuration, r.interval())
	return r
}

// interval returns the time between two checks.
func (r *renewer) interval() time.Duration { return min(maxRenewalInterval, r.cfg.Lifetime/20) }

// run renews certificates that are due until ctx ends.
func (r *renewer) run(ctx context.Context) error {
	tick := time.NewTicker(r.interval())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := r.renew(); err != nil {
			r.cfg.Warn("cannot renew the certificates of the API server and its clients, will try again", err)
		}
	}
}

// renew loads the credentials, and renews those that are due.
func (r *renewer) renew() error {
	c, err := r.pki.loadCredentials(r.kubeconfig, r.cfg.Listener.Addr().(*net.TCPAddr))
	if err != nil {
		return err
	}
	r.loaded.Store(&c)
	if r.cfg.OnCertificates != nil {
		r.cfg.OnCertificates(c.certificates())
	}
	return nil
}

func (r *renewer) current() credentials { return *r.loaded.Load() }

// kubeletCertificate returns the current serving certificate of the kubelet.
func (r *renewer) kubeletCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return r.loaded.Load().kubelet.toTLS(), nil
}
