package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/internal/controllers/archive"
	"k8s4r.io/k8s4r/internal/controllers/cronjobflow"
	"k8s4r.io/k8s4r/internal/controllers/job"
	"k8s4r.io/k8s4r/internal/controllers/jobflow"
	"k8s4r.io/k8s4r/internal/controllers/jobtemplate"
	"k8s4r.io/k8s4r/internal/controllers/maintenancewindow"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/controllers/retention"
	"k8s4r.io/k8s4r/internal/controllers/robot"
	"k8s4r.io/k8s4r/internal/controllers/robotidentity"
	"k8s4r.io/k8s4r/internal/controllers/rollout"
	"k8s4r.io/k8s4r/internal/controllers/task"
	"k8s4r.io/k8s4r/internal/controllers/taskgroup"
	"k8s4r.io/k8s4r/internal/controllers/vcjob"
)

// Names are the names of all controllers.
var Names = []string{job.Name, taskgroup.Name, task.Name, robot.Name, robotidentity.Name, rollout.Name, maintenancewindow.Name, jobflow.Name, jobtemplate.Name, cronjobflow.Name, vcjob.Name, raycluster.Name, archive.Name, retention.Name}

// selection selects the controllers that run.
type selection []string

// validate returns an error if a name is not that of a controller.
func (s selection) validate() error {
	var errs []error
	for _, item := range s {
		name := strings.TrimPrefix(item, "-")
		if item != "*" && !slices.Contains(Names, name) {
			errs = append(errs, fmt.Errorf("controllers: unknown controller %q; the controllers are %s", name, strings.Join(Names, ", ")))
		}
	}
	return errors.Join(errs...)
}

// isSelected reports whether the controller should run. A name takes precedence over *.
func (s selection) isSelected(name string) bool {
	switch {
	case slices.Contains(s, "-"+name):
		return false
	case slices.Contains(s, name):
		return true
	}
	return slices.Contains(s, "*")
}
