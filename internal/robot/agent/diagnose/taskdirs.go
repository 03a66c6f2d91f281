package diagnose

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/internal/robot/isolation"
)

const taskDirsCheck = "task directories"

// checkTaskDirs checks that setuid programs and devices of tasks have no effect on the robot. A
// running agent has mounted its directories so, if it could; otherwise a mount is tried.
func checkTaskDirs(s Subject) []Finding {
	const good = "setuid programs and device files of tasks have no effect"
	var err error
	switch {
	case !slices.ContainsFunc(s.TaskDirs, func(dir string) bool { return !isolation.IsProtected(dir) }):
		return []Finding{okFinding(taskDirsCheck, good)}
	case s.Isolation == nil:
		if err = tryProtect(s.StateDir); err == nil {
			return []Finding{okFinding(taskDirsCheck, good+" while an agent runs")}
		}
	}
	message := "are not mounted with nosuid and nodev: a setuid program or device file that a task of root leaves there has effect for all users of the robot. " +
		"Other tasks cannot create such files for root, and no container can create devices or gain rights by such programs"
	if err != nil {
		message += fmt.Sprintf(" (%v)", withoutPath(err))
	}
	return []Finding{newFinding(Warn, taskDirsCheck, message,
		"run the agent as root with CAP_SYS_ADMIN in the mount namespace of the robot, or put "+strings.TrimSuffix(s.StateDir, "/")+" on a file system that is mounted with nosuid,nodev")}
}

// tryProtect protects a directory of its own, and removes it.
func tryProtect(stateDir string) error {
	there, err := nearestExisting(stateDir)
	if err != nil {
		return err
	}
	probe, err := os.MkdirTemp(there, "probe-")
	if err != nil {
		return err
	}
	defer os.Remove(probe)
	if err := isolation.ProtectDir(probe); err != nil {
		return err
	}
	return isolation.UnprotectDir(probe)
}
