package stepjob

import (
	"fmt"
	"regexp"

	"sigs.k8s.io/json"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// rootUser matches all names of the user root, as config/admission/privileges.yaml does.
var rootUser = regexp.MustCompile(`^(root|0+)(:.*)?$`)

// privilege is a setting of a task that requires a permission (docs/reference/permissions.md).
type privilege struct {
	field string // the field of the task that grants it
	has   func(*robotv1.TaskDefinition) bool
}

var privileges = []privilege{
	{"driver: raw_exec", func(d *robotv1.TaskDefinition) bool { return d.Driver == robotv1.DriverRawExec }},
	{"user: root", func(d *robotv1.TaskDefinition) bool { return rootUser.MatchString(d.User) }},
	{"config.dockerConfig.volumes", func(d *robotv1.TaskDefinition) bool {
		return d.Config.DockerConfig != nil && len(d.Config.DockerConfig.Volumes) > 0
	}},
}

// checkPrivileges rejects a patch that changes a privileged task and does not set the
// privilege itself. Admission checks only the patch, so users without the permission could
// otherwise run their own command in another user's privileged template.
func checkPrivileges(step *flowv1.Flow, merged *robotv1.JobSpec) error {
	var patch robotv1.JobSpec
	if err := json.UnmarshalCaseSensitivePreserveInts(step.Patch.JobSpec.Raw, &patch); err != nil {
		return err
	}
	for i := range patch.TaskGroups {
		g := &patch.TaskGroups[i]
		for _, patched := range g.TaskDefinitions() {
			if err := checkDefinition(findDefinition(merged, g.Name, patched.Name), patched); err != nil {
				return fmt.Errorf("%s: %w", fieldPath(step, "patch.jobSpec.taskGroups[%s].tasks[%s]", g.Name, patched.Name), err)
			}
		}
	}
	return nil
}

func checkDefinition(merged, patched *robotv1.TaskDefinition) error {
	for _, p := range privileges {
		if merged != nil && p.has(merged) && !p.has(patched) {
			return fmt.Errorf("changes a task that has %s, which requires a permission; set %[1]s in the patch, too", p.field)
		}
	}
	return nil
}

// findDefinition returns a task of a Job, or nil.
func findDefinition(spec *robotv1.JobSpec, group, task string) *robotv1.TaskDefinition {
	for i := range spec.TaskGroups {
		if spec.TaskGroups[i].Name != group {
			continue
		}
		for _, d := range spec.TaskGroups[i].TaskDefinitions() {
			if d.Name == task {
				return d
			}
		}
	}
	return nil
}
