package certexpiry

import (
	"crypto/x509"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func certificate(lifetime time.Duration) *x509.Certificate {
	return &x509.Certificate{NotBefore: noon, NotAfter: noon.Add(lifetime)}
}

func TestValidity_ExpiresSoon(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		lifetime, left time.Duration
		want           bool
	}{
		{365 * day, 122 * day, false}, // is renewed by now
		{365 * day, 31 * day, false},
		{365 * day, 29 * day, true},
		{3650 * day, 31 * day, false},
		{6 * time.Minute, 2 * time.Minute, false},
		{6 * time.Minute, 50 * time.Second, true},
		{365 * day, -day, true},
	} {
		v := Validity{noon, noon.Add(c.lifetime)}
		if got := v.ExpiresSoon(v.NotAfter.Add(-c.left)); got != c.want {
			t.Errorf("%s of %s left: %v", c.left, c.lifetime, got)
		}
	}
}

func TestTracker_IsAMetric(t *testing.T) {
	var tracker Tracker
	tracker.Set("apiserver", certificate(time.Hour))
	tracker.Set("gone", certificate(time.Hour))
	tracker.Set("gone", nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(&tracker)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	m := families[0].GetMetric()[0]
	if got := m.GetGauge().GetValue(); got != float64(noon.Add(time.Hour).Unix()) || m.GetLabel()[0].GetValue() != "apiserver" {
		t.Errorf("%v", m)
	}
}

func TestPublish_ReplacesEarlierCertificates(t *testing.T) {
	c := fakeapi.NewBuilder(clientgoscheme.Scheme).Build()
	for _, lifetime := range []time.Duration{time.Hour, 2 * time.Hour, 2 * time.Hour} {
		var tracker Tracker
		tracker.Set("apiserver", certificate(lifetime))
		if err := Publish(t.Context(), c, tracker.Certificates()); err != nil {
			t.Fatal(err)
		}
		found, err := Find(t.Context(), c)
		if err != nil || !maps.Equal(found, tracker.Certificates()) {
			t.Errorf("%v, %v", found, err)
		}
	}
}
