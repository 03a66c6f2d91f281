package stepjob

import (
	"fmt"
	"regexp"

	"sigs.k8s.io/json"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// rootUser is the user root by any of its names, as config/admission/privileges.yaml
// knows it.
var rootUser = regexp.MustCompile(`^(root|0+)(:.*)?$`)

// privilege is what a task may have that needs a permission (docs/permissions.md).
type privilege struct {
	field string // that gives it, of a task
	has   func(*robotv1.TaskDefinition) bool
}

var privileges = []privilege{
	{"driver: raw_exec", func(d *robotv1.TaskDefinition) bool { return d.Driver == robotv1.DriverRawExec }},
	{"user: root", func(d *robotv1.TaskDefinition) bool { return rootUser.MatchString(d.User) }},
	{"config.dockerConfig.volumes", func(d *robotv1.TaskDefinition) bool {
		return d.Config.DockerConfig != nil && len(d.Config.DockerConfig.Volumes) > 0
	}},
}

// checkPrivileges refuses a patch that changes a task with a privilege and does not
// name that privilege itself. Admission sees only the patch: without this, who may
// write workflows could put a command of their own into somebody's privileged
// template.
func checkPrivileges(step *flowv1.Flow, merged *robotv1.JobSpec) error {
	var patch robotv1.JobSpec
	if err := json.UnmarshalCaseSensitivePreserveInts(step.Patch.JobSpec.Raw, &patch); err != nil {
		return err
	}
	for i := range patch.TaskGroups {
		g := &patch.TaskGroups[i]
		for _, said := range g.Definitions() {
			if err := checkDefinition(definition(merged, g.Name, said.Name), said); err != nil {
				return fmt.Errorf("%s: %w", field(step, "patch.jobSpec.taskGroups[%s].tasks[%s]", g.Name, said.Name), err)
			}
		}
	}
	return nil
}

func checkDefinition(merged, said *robotv1.TaskDefinition) error {
	for _, p := range privileges {
		if merged != nil && p.has(merged) && !p.has(said) {
			return fmt.Errorf("changes a task that has %s, which needs a permission of whoever changes it; write %[1]s in the patch too", p.field)
		}
	}
	return nil
}

// definition is a task of a Job. Nil: it has none of the name.
func definition(spec *robotv1.JobSpec, group, task string) *robotv1.TaskDefinition {
	for i := range spec.TaskGroups {
		if spec.TaskGroups[i].Name != group {
			continue
		}
		for _, d := range spec.TaskGroups[i].Definitions() {
			if d.Name == task {
				return d
			}
		}
	}
	return nil
}
