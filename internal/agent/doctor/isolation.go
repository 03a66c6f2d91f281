package doctor

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/internal/isolation"
)

// drivers tells which kinds of tasks can run, and what the others need.
func drivers(s Subject) []Finding {
	found := []Finding{good("drivers", "this robot runs tasks of the drivers "+strings.Join(s.Drivers, ", "))}
	if !slices.Contains(s.Drivers, "docker") {
		found = append(found, bad(Warn, "drivers", "no docker: no engine answers on "+s.Engine,
			"for tasks in containers, install one (apt install docker.io), or say with --docker-socket where it listens"))
	}
	if !slices.Contains(s.Drivers, "java") {
		found = append(found, bad(Warn, "drivers", "no java: there is no such program", "for tasks in Java, install one (apt install default-jre-headless)"))
	}
	return found
}

// isolated tells what tasks can be confined by. Nothing of it is needed: the robot
// says what it lacks, and tasks may insist.
func isolated(s Subject) []Finding {
	host, err := s.host()
	if err != nil {
		return []Finding{bad(Warn, "isolation", fmt.Sprintf("cannot be tried: %v", err), "run this as the user that the agent runs as")}
	}
	var found []Finding
	if len(host.Allowed) > 0 {
		found = append(found, good("isolation", "there is "+list(host.Allowed)))
	}
	for _, l := range host.Lacks {
		found = append(found, bad(Warn, "isolation", fmt.Sprintf("there is no %s: %s", l.Fact, l.Why), l.How))
	}
	return found
}

// taskUser tells whom whoever submits tasks is on this robot.
func taskUser(s Subject) []Finding {
	if s.TaskUser == "root" {
		return []Finding{bad(Warn, "task user", "tasks that name no user run as root: whoever may submit tasks is root on this robot",
			"leave taskUser out of the configuration, or name another user there")}
	}
	return []Finding{good("task user", "tasks that name no user run as "+s.TaskUser)}
}

// host is what the agent has found, or what is found here. It is tried in a tree of
// our own: in the agent's, its tasks live.
func (s Subject) host() (isolation.Host, error) {
	if s.Isolation != nil {
		return *s.Isolation, nil
	}
	dir, err := os.MkdirTemp("", "k8s4r-doctor-")
	if err != nil {
		return isolation.Host{}, err
	}
	defer os.RemoveAll(dir)
	host := isolation.Probe("doctor-"+s.RobotID, dir)
	if host.Tree != nil {
		_ = host.Tree.Remove() // an error: an empty group is left
	}
	return host, nil
}

func list(facts []isolation.Fact) string {
	words := make([]string, len(facts))
	for i, f := range facts {
		words[i] = string(f)
	}
	return strings.Join(words, ", ")
}
