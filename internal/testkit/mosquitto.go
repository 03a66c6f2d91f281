package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"testing"

	"k8s4r.io/k8s4r/internal/broker/mosquitto"
)

// FindMosquitto returns the path of Mosquitto. It is often not in the PATH of users.
func FindMosquitto() string {
	if path, err := exec.LookPath("mosquitto"); err == nil {
		return path
	}
	return "/usr/sbin/mosquitto"
}

// FindMosquittoPlugin returns the path of the dynamic security plugin in Debian's package.
func FindMosquittoPlugin(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/mosquitto_dynamic_security.so")
	if err != nil || len(found) == 0 {
		t.Fatal("mosquitto_dynamic_security.so is missing (make deps installs it)")
	}
	return found[0]
}

// NewConfiguredMosquitto writes the files of a configuration to dir, and returns Mosquitto with it. It has
// not started.
func NewConfiguredMosquitto(t testing.TB, dir string, files map[string][]byte) *Process {
	t.Helper()
	// Started by root, it would switch to a user that cannot read the files of this test. A fleet may be
	// larger than the default of the configuration.
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	files[mosquitto.ConfFile] = fmt.Append(files[mosquitto.ConfFile], "user ", me.Username, "\nmax_connections -1\n")
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return NewProcess(t, FindMosquitto(), "-c", filepath.Join(dir, mosquitto.ConfFile))
}
