package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClientConfig_MasterReplacesAddress(t *testing.T) {
	const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for master, want := range map[string]string{"": "https://10.0.0.1:6443", "https://10.0.0.2:6443": "https://10.0.0.2:6443"} {
		o := options{kubeconfig: path, master: master}
		c, err := o.clientConfig()
		if err != nil || c.Host != want || c.BearerToken != "secret" {
			t.Errorf("--master=%s: %+v, %v", master, c, err)
		}
	}
}

func TestOptions_RejectTwoServersAtOneAddress(t *testing.T) {
	for _, c := range []struct {
		metrics, probe string
		rejected       bool
	}{
		{":8081", ":8081", true}, // Volcano's --listen-address, and our default
		{":8080", ":8081", false},
		{"0", "0", false},
		{"", "", false},                       // the default, and none
		{"127.0.0.1:0", "127.0.0.1:0", false}, // any free port
	} {
		err := (&options{metricsAddress: c.metrics, probeAddress: c.probe}).validateCommon()
		if (err != nil) != c.rejected || err != nil && !strings.Contains(err.Error(), "--health-probe-bind-address") {
			t.Errorf("%s and %s: %v", c.metrics, c.probe, err)
		}
	}
}
