package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// unitName is what the unit is called (k8s4r-agent unit).
const unitName = "k8s4r-agent.service"

// install is how the unit comes to be there.
const install = "k8s4r-agent unit | sudo tee /etc/systemd/system/" + unitName + " && sudo systemctl daemon-reload && sudo systemctl enable --now k8s4r-agent"

// needed are the settings of the unit without which the agent cannot keep its word.
var needed = []struct{ property, value, accident string }{
	{"KillMode", "process", "a restart of the agent kills all of its tasks"},
	{"Delegate", "yes", "systemd takes the tasks' control groups apart"},
	{"Restart", "always", "nobody starts the agent again when it has ended"},
}

// service asks systemd about the unit.
func service(ctx context.Context) []Finding {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return []Finding{bad(Warn, "service", "this host does not run systemd", "see that something starts the agent at boot, and again when it ends, and kills only its main process")}
	}
	args := []string{"show", unitName, "--property=LoadState,UnitFileState,KillMode,Delegate,Restart"}
	if os.Geteuid() != 0 {
		args = append([]string{"--user"}, args...)
	}
	ctx, cancel := context.WithTimeout(ctx, networkPatience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", args...).Output()
	if err != nil {
		return []Finding{bad(Warn, "service", fmt.Sprintf("systemd does not answer: %v", err), "run this as the user that the agent runs as")}
	}
	return unit(properties(string(out)))
}

// properties reads lines like Restart=always.
func properties(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			all[k] = v
		}
	}
	return all
}

// unit judges the unit by its properties.
func unit(p map[string]string) []Finding {
	if p["LoadState"] != "loaded" {
		return []Finding{bad(Warn, "service", unitName+" is not installed: nobody starts the agent at boot", install)}
	}
	var found []Finding
	for _, n := range needed {
		if p[n.property] != n.value {
			found = append(found, bad(Warn, "service", fmt.Sprintf("%s has %s=%s: %s", unitName, n.property, p[n.property], n.accident),
				fmt.Sprintf("set %s=%s by systemctl edit k8s4r-agent, or install the unit anew", n.property, n.value)))
		}
	}
	if p["UnitFileState"] != "enabled" {
		found = append(found, bad(Warn, "service", unitName+" is not enabled: nobody starts the agent at boot", "sudo systemctl enable k8s4r-agent"))
	}
	if len(found) == 0 {
		found = append(found, good("service", unitName+" is installed and enabled"))
	}
	return found
}
