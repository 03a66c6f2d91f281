package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runAlone runs a command line that needs no cluster.
func runAlone(t *testing.T, line ...string) (out, err string, status int) {
	t.Helper()
	var o, e bytes.Buffer
	status = Main(line, &o, &e)
	return o.String(), e.String(), status
}

func TestBrokerConfig_WritesOnceOrPrints(t *testing.T) {
	out, _, status := runAlone(t, "broker", "config", "mosquitto", "--robots", "r1")
	for _, want := range []string{"listener 8883\n", "cafile /etc/mosquitto/k8s4r/ca.crt", `"robot/r1"`} {
		if status != ExitOK || !strings.Contains(out, want) {
			t.Errorf("status %d and no %q in:\n%s", status, want, out)
		}
	}
	dir := t.TempDir()
	if _, err, status := runAlone(t, "broker", "config", "mosquitto", "--dir", dir); status != ExitOK {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "dynamic-security.json")
	if err := os.WriteFile(list, []byte("the plugin's"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err, status := runAlone(t, "broker", "config", "mosquitto", "--dir", dir)
	if text, _ := os.ReadFile(list); status != ExitUsage || string(text) != "the plugin's" || !strings.Contains(err, "already exists") {
		t.Errorf("status %d, %q, and the list is now %q", status, err, text)
	}
}

func TestBroker_RejectsInvalidRobotNames(t *testing.T) {
	for _, line := range [][]string{
		{"broker", "admit", "mosquitto", "+"},
		{"broker", "revoke", "mosquitto", "k8s4r-server"},
		{"broker", "config", "mosquitto", "--robots", "a/b"},
		{"broker", "config", "mosquitto", "--listen", "8883"},
		{"broker", "config", "mosquitto", "--plugin", "x\ny"},
	} {
		if out, err, status := runAlone(t, line...); status != ExitUsage || out != "" || err == "" {
			t.Errorf("%q: status %d, %s%s", line, status, out, err)
		}
	}
	out, _, _ := runAlone(t, "broker", "admit", "mosquitto", "r1", "r2")
	if strings.Count(out, "createClient") != 2 || strings.Count(out, "\n") != 2 {
		t.Errorf("admitted by %s", out)
	}
}
