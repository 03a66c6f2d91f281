package cronjobflow

import (
	"errors"
	"fmt"

	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/flow/graph"
	"k8s4r.io/k8s4r/internal/core/flow/stepjob"
)

// Validate returns an error if the schedule, the time zone or the template is invalid.
func Validate(spec *cronv1.CronJobFlowSpec) error {
	_, _, err := readSpec(spec)
	return err
}

// readSpec returns the schedule, or the reason of the condition Valid and an error.
func readSpec(spec *cronv1.CronJobFlowSpec) (times schedule, reason string, err error) {
	if times, reason, err = parseSchedule(spec); err != nil {
		return times, reason, err
	}
	template := &spec.JobFlowTemplate.Spec
	if err := errors.Join(graph.Validate(template.Flows), stepjob.CheckFlow(template)); err != nil {
		return times, "InvalidTemplate", fmt.Errorf("spec.jobFlowTemplate: %w", err)
	}
	return times, "", nil
}
