package jobflow

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/flow/stepjob"
	"k8s4r.io/k8s4r/internal/core/naming"
)

// JobName returns the name of a step's Job: <flow>-<step>. A name that would be too long
// ends in a hash.
func JobName(flow, step string) string { return naming.ChildName(naming.MaxName, flow, step) }

// buildJob builds the Job of a step. It does not take over the template's labels and
// annotations.
func buildJob(f *flowv1.JobFlow, s *step, t *Template, v stepjob.Values) (Create, error) {
	c := Create{Step: s.Name}
	if t.Robots != nil {
		spec, err := stepjob.BuildRobotJobSpec(t.Robots, s.Flow, v)
		c.Robots = &robotv1.Job{ObjectMeta: jobMeta(f, s.jobName, t.Robots.Name), Spec: spec}
		return c, err
	}
	spec, err := stepjob.BuildPodJobSpec(t.Pods, s.Flow, v)
	c.Pods = &batchv1.Job{ObjectMeta: jobMeta(f, s.jobName, t.Pods.Name), Spec: spec}
	return c, err
}

// jobMeta names the flow and the template of a Job in labels, for selection, and in
// annotations, which hold names that are too long for a label.
func jobMeta(f *flowv1.JobFlow, name, template string) metav1.ObjectMeta {
	from := map[string]string{
		flowv1.KeyCreatedByJobTemplate: fmt.Sprintf("%s.%s", f.Namespace, template),
		flowv1.KeyCreatedByJobFlow:     fmt.Sprintf("%s.%s", f.Namespace, f.Name),
	}
	labels := make(map[string]string, len(from))
	for k, v := range from {
		labels[k] = naming.LabelValue(v)
	}
	return metav1.ObjectMeta{
		Namespace: f.Namespace, Name: name, Labels: labels, Annotations: from,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f, flowv1.GroupVersion.WithKind("JobFlow"))},
	}
}
