package service

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// settings returns the values of the unit by section and key.
func settings(t *testing.T, unit string) map[string]string {
	t.Helper()
	all, section := map[string]string{}, ""
	for line := range strings.Lines(unit) {
		line = strings.TrimSpace(line)
		switch key, value, ok := strings.Cut(line, "="); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = line
		case !ok || section == "":
			t.Errorf("line %q is neither a section nor a setting in one", line)
		default:
			all[section+key] = value
		}
	}
	return all
}

func TestUnit_LeavesTasksRunning(t *testing.T) {
	got := settings(t, Unit("/usr/local/bin/k8s4r-agent", DefaultConfig))
	for key, want := range map[string]string{
		"[Service]ExecStart":          `"/usr/local/bin/k8s4r-agent" --config "/etc/k8s4r/agent.yaml"`,
		"[Service]KillMode":           "process",
		"[Service]Delegate":           "yes",
		"[Service]Restart":            "always",
		"[Service]TasksMax":           "infinity",
		"[Service]OOMPolicy":          "continue",
		"[Service]TimeoutStopSec":     "45",
		"[Service]StateDirectory":     "k8s4r-agent",
		"[Service]StateDirectoryMode": "0711",
		"[Unit]StartLimitIntervalSec": "0",
		"[Install]WantedBy":           "multi-user.target",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	// Tasks inherit the restrictions of the service.
	for key := range got {
		for _, confines := range []string{"NoNewPrivileges", "Private", "Protect", "Restrict", "SystemCall", "Capability", "MemoryDeny", "MemoryMax", "CPUQuota", "OOMScore", "User", "NoExec", "ExecPaths"} {
			if strings.HasPrefix(key, "[Service]"+confines) {
				t.Errorf("%s would confine tasks", key)
			}
		}
	}
}

func TestUnit_EscapesPaths(t *testing.T) {
	got := settings(t, Unit(`/opt/my "robot"/100%/$x\agent`, "/etc/a.yaml"))["[Service]ExecStart"]
	if want := `"/opt/my \"robot\"/100%%/$$x\\agent" --config "/etc/a.yaml"`; got != want {
		t.Errorf("ExecStart=%s, want %s", got, want)
	}
}

// TestUnit_IsValidForSystemd runs systemd-analyze where it is installed.
func TestUnit_IsValidForSystemd(t *testing.T) {
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("there is no systemd-analyze here")
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "k8s4r-agent.service")
	if err := os.WriteFile(path, []byte(Unit(program, DefaultConfig)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(verify, "verify", "--man=no", path).CombinedOutput(); err != nil || strings.Contains(string(out), path) {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}
