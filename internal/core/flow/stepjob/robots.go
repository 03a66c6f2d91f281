package stepjob

import (
	"errors"
	"fmt"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// BuildRobotJobSpec returns the spec of a step's robot Job: a copy of the template's,
// patched and with references replaced.
func BuildRobotJobSpec(t *robotv1.JobTemplate, step *flowv1.Flow, v Values) (robotv1.JobSpec, error) {
	spec := *t.Spec.DeepCopy()
	if hasPatch(step) {
		if err := mergePatch(step, robotPatch, &spec); err != nil {
			return robotv1.JobSpec{}, err
		}
		if err := errors.Join(checkAddedGroups(t, step, &spec), checkPrivileges(t, step, &spec)); err != nil {
			return robotv1.JobSpec{}, err
		}
	}
	err := expandRobots(&spec, expander{lookup: v.lookupReference, literal: escapeForAgent})
	if err != nil {
		return robotv1.JobSpec{}, fmt.Errorf("robot JobTemplate %s: spec.%w", t.Name, err)
	}
	return spec, nil
}

// checkAddedGroups returns an error if the patch adds a group without tasks or a task
// without a driver.
func checkAddedGroups(t *robotv1.JobTemplate, step *flowv1.Flow, spec *robotv1.JobSpec) error {
	for i := range spec.TaskGroups {
		g := &spec.TaskGroups[i]
		path := fieldPath(step, "patch.jobSpec.taskGroups[%s]", g.Name)
		if len(g.Tasks) == 0 {
			return fmt.Errorf("%s: robot JobTemplate %s has no such group and the patch gives it no tasks; use the name of an existing group, or set tasks", path, t.Name)
		}
		for _, d := range g.TaskDefinitions() {
			if d.Driver == "" {
				return fmt.Errorf("%s.tasks[%s]: robot JobTemplate %s has no such task and the patch gives it no driver; use the name of an existing task, or set driver and config", path, d.Name, t.Name)
			}
		}
	}
	return nil
}

// expandRobots replaces the references in a robot Job.
func expandRobots(spec *robotv1.JobSpec, e expander) error {
	for i := range spec.TaskGroups {
		g := &spec.TaskGroups[i]
		if err := expandItems(g, e); err != nil {
			return err
		}
		for _, d := range g.TaskDefinitions() {
			if err := expandDefinition(fmt.Sprintf("taskGroups[%s].tasks[%s].", g.Name, d.Name), d, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// expandItems replaces the references in the items of an array. The agent expands nothing in them.
func expandItems(g *robotv1.TaskGroupDefinition, e expander) error {
	if g.Array == nil {
		return nil
	}
	asIs := expander{lookup: e.lookup, literal: keepLiteral}
	return asIs.expandAll(fmt.Sprintf("taskGroups[%s].array.items", g.Name), g.Array.Items)
}

func expandDefinition(path string, d *robotv1.TaskDefinition, e expander) error {
	for _, name := range sortedKeys(d.Env) {
		value, err := e.expandText(d.Env[name])
		if err != nil {
			return fmt.Errorf("%senv[%s]: %w", path, name, err)
		}
		d.Env[name] = value
	}
	if c := d.Config.ExecConfig; c != nil {
		if err := e.expandCommand(path+"config.execConfig.", &c.Command, c.Args); err != nil {
			return err
		}
	}
	if c := d.Config.DockerConfig; c != nil {
		if err := e.expandCommand(path+"config.dockerConfig.", &c.Command, c.Args); err != nil {
			return err
		}
	}
	if c := d.Config.JavaConfig; c != nil {
		if err := e.expandAll(path+"config.javaConfig.jvmOptions", c.JVMOptions); err != nil {
			return err
		}
		return e.expandAll(path+"config.javaConfig.args", c.Args)
	}
	return nil
}

// expandCommand replaces the references in a command and its arguments.
func (e expander) expandCommand(path string, command *string, args []string) error {
	if err := e.expandField(path+"command", command); err != nil {
		return err
	}
	return e.expandAll(path+"args", args)
}
