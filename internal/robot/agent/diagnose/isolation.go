package diagnose

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// checkDrivers lists the available drivers, and what the others need.
func checkDrivers(s Subject) []Finding {
	found := []Finding{okFinding("drivers", "available: "+strings.Join(s.Drivers, ", "))}
	if !slices.Contains(s.Drivers, "docker") {
		found = append(found, newFinding(Warn, "drivers", "docker is not available: no engine responds on "+s.Engine,
			"for tasks in containers, install one (apt install docker.io), or set --docker-socket to its socket"))
	}
	if !slices.Contains(s.Drivers, "java") {
		found = append(found, newFinding(Warn, "drivers", "java is not available: the program java was not found", "for tasks in Java, install a runtime (apt install default-jre-headless)"))
	}
	return found
}

// checkIsolation lists the available and missing kinds of isolation. A missing one is no
// failure: the robot reports it, and tasks that require it are not placed here.
func checkIsolation(s Subject) []Finding {
	host, err := s.probeHost()
	if err != nil {
		return []Finding{newFinding(Warn, "isolation", fmt.Sprintf("cannot be probed: %v", err), "run this as the user that the agent runs as")}
	}
	var found []Finding
	if len(host.Allowed) > 0 {
		found = append(found, okFinding("isolation", "available: "+joinFacts(host.Allowed)))
	}
	for _, l := range host.Missing {
		found = append(found, newFinding(Warn, "isolation", fmt.Sprintf("%s is missing: %s", l.Fact, l.Reason), l.Remedy))
	}
	return found
}

// checkTaskUser warns if tasks run as root by default.
func checkTaskUser(s Subject) []Finding {
	if s.TaskUser == "root" {
		return []Finding{newFinding(Warn, "task user", "tasks without a user run as root, so every user who can submit tasks is root on this robot",
			"remove taskUser from the configuration, or set it to another user")}
	}
	return []Finding{okFinding("task user", "tasks without a user run as "+s.TaskUser)}
}

// probeHost returns what the agent has found, or probes the host with control groups of its
// own, because the agent's hold its tasks.
func (s Subject) probeHost() (isolation.Host, error) {
	if s.Isolation != nil {
		return *s.Isolation, nil
	}
	dir, err := os.MkdirTemp("", "k8s4r-doctor-")
	if err != nil {
		return isolation.Host{}, err
	}
	defer os.RemoveAll(dir)
	host := isolation.ProbeHost("doctor-"+s.RobotID, dir)
	if host.Tree != nil {
		_ = host.Tree.Remove() // if it fails, an empty group is left
	}
	return host, nil
}

func joinFacts(facts []isolation.Fact) string {
	words := make([]string, len(facts))
	for i, f := range facts {
		words[i] = string(f)
	}
	return strings.Join(words, ", ")
}
