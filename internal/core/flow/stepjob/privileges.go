package stepjob

import (
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/json"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// rootUser matches all names of the user root, as config/admission/privileges.yaml does.
var rootUser = regexp.MustCompile(`^(root|0+)(:|$)`)

// privilege returns the setting of a task that requires a permission (docs/reference/permissions.md),
// as the author of a patch writes it, or "".
type privilege func(*robotv1.TaskDefinition) string

// privileges evaluate each task as config/admission/privileges.yaml does. A patch that does not name
// the driver is not taken for one of a container.
var privileges = []privilege{
	func(d *robotv1.TaskDefinition) string {
		return textIf(d.Driver == robotv1.DriverRawExec, "driver: raw_exec")
	},
	func(d *robotv1.TaskDefinition) string {
		return textIf(d.Driver != robotv1.DriverDocker && rootUser.MatchString(d.User), "user: root")
	},
	func(d *robotv1.TaskDefinition) string {
		return textIf(d.Driver != robotv1.DriverDocker && d.User != "" && !rootUser.MatchString(d.User), "user: "+d.User)
	},
	func(d *robotv1.TaskDefinition) string {
		return textIf(d.Driver == robotv1.DriverDocker && rootUser.MatchString(d.User), "driver: docker and user: root")
	},
	func(d *robotv1.TaskDefinition) string {
		return textIf(d.Config.DockerConfig != nil && len(d.Config.DockerConfig.Volumes) > 0, "config.dockerConfig.volumes")
	},
	func(d *robotv1.TaskDefinition) string {
		c := d.Config.DockerConfig
		isPrivileged := c != nil && (c.NetworkMode == "host" || strings.HasPrefix(c.NetworkMode, "container:"))
		if !isPrivileged {
			return ""
		}
		return "config.dockerConfig.networkMode: " + c.NetworkMode
	},
}

func textIf(holds bool, text string) string {
	if holds {
		return text
	}
	return ""
}

// checkPrivileges rejects a patch that changes what a privileged task runs and does not set the
// privilege itself. Admission checks only the patch, so users without the permission could
// otherwise run their own command in another user's privileged template.
func checkPrivileges(t *robotv1.JobTemplate, step *flowv1.Flow, merged *robotv1.JobSpec) error {
	var patch robotv1.JobSpec
	if err := json.UnmarshalCaseSensitivePreserveInts(step.Patch.JobSpec.Raw, &patch); err != nil {
		return err
	}
	for i := range patch.TaskGroups {
		g := &patch.TaskGroups[i]
		for _, patched := range g.TaskDefinitions() {
			if p := missingPrivilege(findDefinition(merged, g.Name, patched.Name), patched); p != "" {
				return fmt.Errorf("%s: changes a task that has %s, which requires a permission; set %[2]s in the patch, too",
					fieldPath(step, "patch.jobSpec.%s", definitionPath(g, patched)), p)
			}
		}
	}
	for i := range merged.TaskGroups {
		if err := checkGroupPrivileges(t, step, &patch, &merged.TaskGroups[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkGroupPrivileges rejects a patch that reaches a privileged task of a group through another
// field than the task itself and does not set the privilege.
func checkGroupPrivileges(t *robotv1.JobTemplate, step *flowv1.Flow, patch *robotv1.JobSpec, merged *robotv1.TaskGroupDefinition) error {
	field := fieldThatReachesGroup(t, patch, merged)
	if field == "" {
		return nil
	}
	for _, d := range merged.TaskDefinitions() {
		if p := missingPrivilege(d, findDefinition(patch, merged.Name, d.Name)); p != "" {
			at := definitionPath(merged, d)
			return fmt.Errorf("%s: also changes %s, which has %s and requires a permission; set %[3]s in patch.jobSpec.%[2]s, too",
				fieldPath(step, "patch.jobSpec.%s", field), at, p)
		}
	}
	return nil
}

// fieldThatReachesGroup returns the field of a patch that affects all tasks of a group, or "".
// Meta fills the references of their commands, and an item is a variable of theirs. A task that is
// added, or that shares their disk, runs beside them.
func fieldThatReachesGroup(t *robotv1.JobTemplate, patch *robotv1.JobSpec, merged *robotv1.TaskGroupDefinition) string {
	if len(patch.Meta) > 0 {
		return "meta"
	}
	for i := range patch.TaskGroups {
		g := &patch.TaskGroups[i]
		if g.Name != merged.Name {
			continue
		}
		if len(g.Meta) > 0 {
			return fmt.Sprintf("taskGroups[%s].meta", g.Name)
		}
		if g.Array != nil && len(g.Array.Items) > 0 {
			return fmt.Sprintf("taskGroups[%s].array.items", g.Name)
		}
		for _, d := range g.TaskDefinitions() {
			if merged.EphemeralDisk != nil || findDefinition(&t.Spec, g.Name, d.Name) == nil {
				return definitionPath(g, d)
			}
		}
	}
	return ""
}

// missingPrivilege returns a privilege of a task of the merged Job that the patch of the task
// does not set, or "". Both tasks may be nil.
func missingPrivilege(merged, patched *robotv1.TaskDefinition) string {
	if merged == nil {
		return ""
	}
	for _, of := range privileges {
		if p := of(merged); p != "" && (patched == nil || of(patched) != p) {
			return p
		}
	}
	return ""
}

// definitionPath returns the path of a task of the group in the spec of a Job.
func definitionPath(g *robotv1.TaskGroupDefinition, d *robotv1.TaskDefinition) string {
	list := "tasks"
	for i := range g.InitTasks {
		if &g.InitTasks[i] == d {
			list = "initTasks"
		}
	}
	return fmt.Sprintf("taskGroups[%s].%s[%s]", g.Name, list, d.Name)
}

// findDefinition returns a task of a Job, or nil. A patch may have several entries of a group.
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
