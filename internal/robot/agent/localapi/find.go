package localapi

import (
	"fmt"
	"strings"

	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

// findTask returns the task with a name, such as demo-0 or production/demo-0, or with a UID.
func findTask(tasks []runner.LiveTask, name string) (found runner.LiveTask, err error) {
	if name == "" {
		return found, fmt.Errorf("the name of a task is required")
	}
	var matches []string
	for _, t := range tasks {
		if t.Name != name && t.FullName() != name && t.UID != name {
			continue
		}
		found = t
		matches = append(matches, t.FullName())
	}
	switch {
	case len(matches) == 0:
		return found, fmt.Errorf("task %.300q is not on this robot; k8s4r-agent tasks lists those that are", name)
	case len(matches) > 1:
		return found, fmt.Errorf("more than one task has the name %s: use one of %s", name, strings.Join(matches, ", "))
	}
	return found, nil
}
