package diagnose

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// unitName is the name of the unit that k8s4r-agent unit prints.
const unitName = "k8s4r-agent.service"

// installCommand installs the unit.
const installCommand = "k8s4r-agent unit | sudo tee /etc/systemd/system/" + unitName + " && sudo systemctl daemon-reload && sudo systemctl enable --now k8s4r-agent"

// requiredSettings are the settings of the unit without which tasks are lost.
var requiredSettings = []struct{ property, value, consequence string }{
	{"KillMode", "process", "a restart of the agent kills all of its tasks"},
	{"Delegate", "yes", "systemd removes the tasks' control groups"},
	{"Restart", "always", "the agent is not restarted when it exits"},
}

// checkService queries systemd for the unit.
func checkService(ctx context.Context) []Finding {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return []Finding{newFinding(Warn, "service", "this host does not run systemd", "make the init system start the agent at boot, restart it when it exits, and kill only its main process")}
	}
	args := []string{"show", unitName, "--property=LoadState,UnitFileState,KillMode,Delegate,Restart"}
	if os.Geteuid() != 0 {
		args = append([]string{"--user"}, args...)
	}
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", args...).Output()
	if err != nil {
		return []Finding{newFinding(Warn, "service", fmt.Sprintf("systemd does not respond: %v", err), "run this as the user that the agent runs as")}
	}
	return checkUnit(parseProperties(string(out)))
}

// parseProperties parses lines like Restart=always.
func parseProperties(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			all[k] = v
		}
	}
	return all
}

// checkUnit checks the properties of the unit.
func checkUnit(p map[string]string) []Finding {
	if p["LoadState"] != "loaded" {
		return []Finding{newFinding(Warn, "service", unitName+" is not installed: the agent does not start at boot", installCommand)}
	}
	var found []Finding
	for _, n := range requiredSettings {
		if p[n.property] != n.value {
			found = append(found, newFinding(Warn, "service", fmt.Sprintf("%s has %s=%s: %s", unitName, n.property, p[n.property], n.consequence),
				fmt.Sprintf("set %s=%s by systemctl edit k8s4r-agent, or reinstall the unit", n.property, n.value)))
		}
	}
	if p["UnitFileState"] != "enabled" {
		found = append(found, newFinding(Warn, "service", unitName+" is not enabled: the agent does not start at boot", "sudo systemctl enable k8s4r-agent"))
	}
	if len(found) == 0 {
		found = append(found, okFinding("service", unitName+" is installed and enabled"))
	}
	return found
}
