package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
)

// PathJobs is the path for Jobs, JobTemplates and Tasks.
const PathJobs = "/jobs/validate"

// handleJob validates a Job, a JobTemplate or a Task. Updates that change nothing that is validated
// are allowed, so that Jobs from before the webhook can be paused and canceled.
func handleJob(_ context.Context, r admission.Request) admission.Response {
	switch r.Kind.Kind {
	case "Task":
		task, had := &robotv1.Task{}, &robotv1.Task{}
		isEqual := func() bool { return equality.Semantic.DeepEqual(task.Spec.TaskDefinition, had.Spec.TaskDefinition) }
		return validateRequest(r, task, had, isEqual, func() error { return ValidateTask(&task.Spec) })
	case "JobTemplate":
		template, had := &robotv1.JobTemplate{}, &robotv1.JobTemplate{}
		return validateJobRequest(r, template, had, &template.Spec, &had.Spec, ValidateTemplate)
	}
	job, had := &robotv1.Job{}, &robotv1.Job{}
	return validateJobRequest(r, job, had, &job.Spec, &had.Spec, ValidateJob)
}

func validateJobRequest(r admission.Request, object, old client.Object, spec, had *robotv1.JobSpec, validate func(*robotv1.JobSpec) error) admission.Response {
	isEqual := func() bool {
		return spec.Type == had.Type && equality.Semantic.DeepEqual(spec.TaskGroups, had.TaskGroups) && equality.Semantic.DeepEqual(spec.Meta, had.Meta) &&
			equality.Semantic.DeepEqual(spec.RobotSelector, had.RobotSelector) && slices.Equal(spec.Datacenters, had.Datacenters)
	}
	return validateRequest(r, object, old, isEqual, func() error { return validate(spec) })
}

// ValidateJob returns what in a Job can never run on any robot, or nil.
func ValidateJob(spec *robotv1.JobSpec) error {
	return validateJobSpec(spec, func(g *robotv1.TaskGroupDefinition) map[string]string {
		meta := map[string]string{}
		maps.Copy(meta, spec.Meta)
		maps.Copy(meta, g.Meta)
		return meta
	})
}

// ValidateTemplate is ValidateJob for a JobTemplate, whose meta the patch of a workflow can complete.
func ValidateTemplate(spec *robotv1.JobSpec) error {
	return validateJobSpec(spec, func(*robotv1.TaskGroupDefinition) map[string]string { return nil })
}

// ValidateTask returns what in a Task without a Job can never run on any robot, or nil.
func ValidateTask(spec *robotv1.TaskSpec) error {
	meta := spec.Meta
	if meta == nil {
		meta = map[string]string{}
	}
	return errors.Join(checkConstraints("spec.", spec.Constraints), checkDefinition("spec.", &spec.TaskDefinition, meta))
}

func validateJobSpec(spec *robotv1.JobSpec, metaOf func(*robotv1.TaskGroupDefinition) map[string]string) error {
	errs := []error{checkLabels("spec.robotSelector", spec.RobotSelector), checkDatacenters(spec.Datacenters)}
	for i := range spec.TaskGroups {
		g := &spec.TaskGroups[i]
		path := fmt.Sprintf("spec.taskGroups[%s].", g.Name)
		errs = append(errs, checkConstraints(path, g.Constraints), checkPlacement(path, g.Placement), checkArray(path, spec.Type, &g.TaskGroupTemplate))
		meta := metaOf(g)
		for _, d := range g.TaskDefinitions() {
			errs = append(errs, checkDefinition(fmt.Sprintf("%stasks[%s].", path, d.Name), d, meta))
		}
	}
	return errors.Join(errs...)
}

// checkArray returns what of a group with an array is not possible.
func checkArray(path, jobType string, g *robotv1.TaskGroupTemplate) error {
	if err := array.Check(path, jobType, g); err != nil {
		return err
	}
	for _, d := range g.Tasks { // its size without the items is checked with the task
		if why := apiconv.DescribeOversize(&robotv1.TaskSpec{TaskDefinition: d, Array: array.LargestRange(g.Array)}); g.Array != nil && why != "" {
			return fmt.Errorf("%sarray.items: %s, or set a lower rangeSize", path, why)
		}
	}
	return nil
}

// checkConstraints returns which constraints no robot can satisfy.
func checkConstraints(path string, constraints []robotv1.Constraint) error {
	var errs []error
	for i, c := range apiconv.ConstraintsFrom(constraints) {
		if err := c.Check(); err != nil {
			errs = append(errs, fmt.Errorf("%sconstraints[%d]: %q: %w", path, i, c, err))
		}
	}
	return errors.Join(errs...)
}

func checkPlacement(path string, p *robotv1.Placement) error {
	if p == nil {
		return nil
	}
	var errs []error
	for i := range p.Affinity {
		errs = append(errs, checkLabels(fmt.Sprintf("%splacement.affinity[%d].robotLabels", path, i), p.Affinity[i].RobotLabels))
	}
	for i := range p.AntiAffinity {
		errs = append(errs, checkLabels(fmt.Sprintf("%splacement.antiAffinity[%d].robotLabels", path, i), p.AntiAffinity[i].RobotLabels))
	}
	return errors.Join(errs...)
}

// checkLabels returns which labels no robot can have, because of their syntax.
func checkLabels(path string, labels map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		wrong := slices.Concat(validation.IsQualifiedName(name), validation.IsValidLabelValue(labels[name]))
		if len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("%s: no robot can have the label %.300q: %s", path, name+"="+labels[name], strings.Join(wrong, "; ")))
		}
	}
	return errors.Join(errs...)
}

func checkDatacenters(names []string) error {
	var errs []error
	for _, name := range names {
		if wrong := validation.IsValidLabelValue(name); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("spec.datacenters: no robot can have the label %q: %s", "datacenter="+name, strings.Join(wrong, "; ")))
		}
	}
	return errors.Join(errs...)
}
