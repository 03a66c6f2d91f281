package diagnose

import (
	"errors"
	"fmt"

	"k8s4r.io/k8s4r/internal/robot/shim/program"
)

// checkShims runs the small program of shims once.
func checkShims() []Finding { return []Finding{describeShims(program.Usable())} }

// describeShims returns the finding about program.Usable's error.
func describeShims(err error) Finding {
	const check, cost = "shims", "each task takes twice the CPU time to start, and 2 MB instead of 1"
	switch {
	case err == nil:
		return okFinding(check, "shims run the small program that the agent carries")
	case errors.Is(err, program.ErrNotCarried):
		return newFinding(Warn, check, fmt.Sprintf("%v: %s", err, cost), "build the agent with make build, or install a release")
	}
	return newFinding(Warn, check, fmt.Sprintf("cannot run the program of shims from memory: %v; %s", err, cost),
		"allow programs in memory (sysctl vm.memfd_noexec=1 or 0), also in SELinux or AppArmor")
}
