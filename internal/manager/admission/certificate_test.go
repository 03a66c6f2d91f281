package admission

import (
	"bytes"
	"crypto/x509"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

const (
	day  = 24 * time.Hour
	host = "k8s4r-manager-webhook.k8s4r-system.svc"
)

func bundle(t *testing.T, data map[string][]byte) []*x509.Certificate {
	t.Helper()
	all, err := cert.ParseCertsPEM(data[keyBundle])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// next returns the refreshed data and checks that its bundle verifies its certificate.
func next(t *testing.T, now time.Time, data map[string][]byte) (fresh map[string][]byte, changed bool) {
	t.Helper()
	fresh, changed, err := refreshSecret(now, data, host)
	if err != nil {
		t.Fatal(err)
	}
	serving, ok := parsePair(fresh[keyCertificate], fresh[keyKey])
	if !ok || serving.Leaf.VerifyHostname(host) != nil || !isTrusted(serving.Leaf, fresh[keyBundle], now) {
		t.Fatalf("at %s the certificate is good for nothing", now)
	}
	return fresh, changed
}

func TestRefreshSecret_RenewsCertificateBeforeExpiry(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first, changed := next(t, start, nil)
	if !changed {
		t.Error("made, and not changed")
	}
	if _, changed := next(t, start.Add(59*day), first); changed {
		t.Error("renewed with more than a third of its life left")
	}
	second, changed := next(t, start.Add(61*day), first)
	if !changed || bytes.Equal(second[keyCertificate], first[keyCertificate]) {
		t.Error("not renewed with less than a third of its life left")
	}
	if !bytes.Equal(second[keyBundle], first[keyBundle]) {
		t.Error("the authority was renewed with it")
	}
}

// A client with a bundle that is a month old trusts the current certificate.
func TestRefreshSecret_NewAuthorityIsTrustedBeforeItSigns(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type heard struct {
		at     time.Time
		bundle []byte
	}
	var past []heard
	var data map[string][]byte
	most := 0
	for now := start; now.Before(start.Add(authorityLife + 100*day)); now = now.Add(10 * day) {
		data, _ = next(t, now, data)
		past = append(past, heard{now, data[keyBundle]})
		most = max(most, len(bundle(t, data)))
		serving, _ := parsePair(data[keyCertificate], data[keyKey])
		if i := len(past) - 4; i >= 0 && !isTrusted(serving.Leaf, past[i].bundle, now) {
			t.Fatalf("%s: a client with the bundle of %s does not trust the certificate", now, past[i].at)
		}
	}
	if most != 2 {
		t.Errorf("%d authorities at a time, want 2 at the change and else 1", most)
	}
}

func TestRefreshSecret_ReplacesInvalidData(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good, _ := next(t, now, nil)
	for _, key := range []string{keyBundle, keyAuthorityKey, keyCertificate, keyKey} {
		t.Run(key, func(t *testing.T) {
			bad := map[string][]byte{}
			for k, v := range good {
				bad[k] = v
			}
			bad[key] = []byte("nonsense")
			if _, changed := next(t, now, bad); !changed {
				t.Error("taken as it is")
			}
		})
	}
	if _, changed, err := refreshSecret(now, good, "127.0.0.1"); err != nil || !changed {
		t.Errorf("a certificate for another host is taken: %v", err)
	}
}

// Certificates that were issued while the clock was ahead are replaced when it is set back.
func TestRefreshSecret_ReplacesWhatIsNotValidYet(t *testing.T) {
	right := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	data, _ := next(t, right.Add(365*day), nil)
	if _, changed := next(t, right, data); !changed {
		t.Error("a CA that is not valid yet is kept")
	}
	data, _ = next(t, right, nil)
	serving := map[string][]byte{keyBundle: data[keyBundle], keyAuthorityKey: data[keyAuthorityKey]}
	if err := addServing(right.Add(365*day), serving, host); err != nil {
		t.Fatal(err)
	}
	if _, changed := next(t, right, serving); !changed {
		t.Error("a certificate that is not valid yet is kept")
	}
}
