// Package certexpiry shows when the certificates of a program expire: as a metric, and in a
// ConfigMap for `k8s4r doctor`.
package certexpiry

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/platform/serveraddr"
)

// ConfigMapName is the name of the ConfigMap in serveraddr.Namespace.
const ConfigMapName = "k8s4r-certificates"

// Validity is the time in which a certificate is valid.
type Validity struct {
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
}

// maxWarning is the longest time before the end of a certificate at which it expires soon.
const maxWarning = 30 * 24 * time.Hour

// ExpiresSoon reports whether a certificate should have been replaced by now: less than a sixth of
// its lifetime is left, and less than 30 days.
func (v Validity) ExpiresSoon(now time.Time) bool {
	return v.NotAfter.Sub(now) < min(maxWarning, v.NotAfter.Sub(v.NotBefore)/6)
}

var description = prometheus.NewDesc("k8s4r_certificate_expiry_timestamp_seconds", "When a certificate expires, as seconds since 1970, by its name.", []string{"certificate"}, nil)

// Tracker has the current certificates of a program, and is their metric. The zero value has none.
// It is safe for concurrent use.
type Tracker struct {
	mu  sync.Mutex
	all map[string]Validity
}

// Metrics returns the metrics of a Tracker, for their documentation.
func Metrics() []prometheus.Collector { return []prometheus.Collector{&Tracker{}} }

// Set replaces the certificate of a name. If c is nil, there is none.
func (t *Tracker) Set(name string, c *x509.Certificate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c == nil {
		delete(t.all, name)
		return
	}
	if t.all == nil {
		t.all = map[string]Validity{}
	}
	t.all[name] = Validity{c.NotBefore, c.NotAfter}
}

// Certificates returns all certificates, by name.
func (t *Tracker) Certificates() map[string]Validity {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.all)
}

// Describe implements prometheus.Collector.
func (t *Tracker) Describe(to chan<- *prometheus.Desc) { to <- description }

// Collect implements prometheus.Collector.
func (t *Tracker) Collect(to chan<- prometheus.Metric) {
	for name, v := range t.Certificates() {
		to <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, float64(v.NotAfter.Unix()), name)
	}
}

// Publish writes certificates into the ConfigMap.
func Publish(ctx context.Context, c client.Client, all map[string]Validity) error {
	data := map[string]string{}
	for name, v := range all {
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("publish the expiry of certificates: %w", err)
		}
		data[name] = string(text)
	}
	if err := serveraddr.WriteConfigMap(ctx, c, c, ConfigMapName, data); err != nil {
		return fmt.Errorf("publish the expiry of certificates: %w", err)
	}
	return nil
}

// Find reads the certificates from the ConfigMap. It fails with a NotFound error if no program has
// published them.
func Find(ctx context.Context, r client.Reader) (map[string]Validity, error) {
	var m corev1.ConfigMap
	if err := r.Get(ctx, client.ObjectKey{Namespace: serveraddr.Namespace, Name: ConfigMapName}, &m); err != nil {
		return nil, err
	}
	all := map[string]Validity{}
	for name, text := range m.Data {
		var v Validity
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return nil, fmt.Errorf("ConfigMap %s/%s: %s: %w", m.Namespace, m.Name, name, err)
		}
		all[name] = v
	}
	return all, nil
}
