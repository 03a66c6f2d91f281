package localapi

import (
	"fmt"
	"net/http"
	"strings"

	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

// findRequestedTask returns the task that the parameter task names. If there is none, it answers the request.
func (s *Server) findRequestedTask(w http.ResponseWriter, r *http.Request) (t runner.LiveTask, found bool) {
	tasks, err := s.listTasks(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return t, false
	}
	if t, err = findTask(tasks, r.FormValue("task")); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return t, false
	}
	return t, true
}

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
