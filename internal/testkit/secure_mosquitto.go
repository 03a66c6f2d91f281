package testkit

import (
	"fmt"
	"os/user"
	"path/filepath"
	"testing"

	"k8s4r.io/k8s4r/internal/testkit/testca"
)

// SecureMosquitto is a Mosquitto that requires certificates. It has no rules for topics.
type SecureMosquitto struct {
	*Mosquitto
	// CA signs the certificates of the broker and its clients.
	CA *testca.Authority

	caDir string
}

// NewSecureMosquitto starts a broker on a free local port.
func NewSecureMosquitto(t testing.TB) *SecureMosquitto {
	t.Helper()
	// Started by root, it would switch to a user that cannot read its key.
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	ca, dir, caDir := testca.New(t), t.TempDir(), t.TempDir()
	ca.WriteServerFiles(dir)
	ca.WriteCAFiles(caDir)
	settings := fmt.Sprintf("cafile %[1]s/ca.crt\ncertfile %[1]s/tls.crt\nkeyfile %[1]s/tls.key\nuser %[2]s\n"+
		"require_certificate true\nuse_identity_as_username true\nallow_anonymous false\n", dir, me.Username)
	return &SecureMosquitto{startMosquitto(t, settings), ca, caDir}
}

// URL returns the MQTT URL of the broker.
func (m *SecureMosquitto) URL() string { return "mqtts://" + m.Addr }

// ServerFlags returns the flags with which k8s4r-server uses the broker at addr, which is the
// broker's or that of a proxy, and lets robots join that use the broker.
func (m *SecureMosquitto) ServerFlags(addr string) []string {
	return []string{
		"--mqtt-url", "mqtts://" + addr, "--mqtt-ca-file", filepath.Join(m.caDir, "ca.crt"),
		"--robot-ca-dir", m.caDir, "--robot-mqtt-url", m.URL(), "--api-bind-address", "127.0.0.1:0",
	}
}
