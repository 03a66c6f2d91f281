package cronjobflow

import (
	"errors"
	"fmt"

	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/dag"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/stepjob"
)

// Validate tells what is wrong with a schedule, its time zone or the template.
func Validate(spec *cronv1.CronJobFlowSpec) error {
	_, _, err := read(spec)
	return err
}

// read is the schedule, or why nothing can be started, in one word and in a sentence.
func read(spec *cronv1.CronJobFlowSpec) (times schedule, reason string, err error) {
	if times, reason, err = parse(spec); err != nil {
		return times, reason, err
	}
	template := &spec.JobFlowTemplate.Spec
	if err := errors.Join(dag.Validate(template.Flows), stepjob.Check(template)); err != nil {
		return times, "InvalidTemplate", fmt.Errorf("spec.jobFlowTemplate: %w", err)
	}
	return times, "", nil
}
