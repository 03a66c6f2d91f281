package jobflow

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/child"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/stepjob"
)

// JobName is the name of a step's Job (contract §6.5). It ends in a hash where it
// would be longer than a name may be.
func JobName(flow, step string) string { return child.Name(child.MaxName, flow, step) }

// newJob makes the Job of a step. The template's labels and annotations are not the
// Job's.
func newJob(f *flowv1.JobFlow, s *step, t *Template, v stepjob.Values) (Create, error) {
	c := Create{Step: s.Name}
	if t.Robots != nil {
		spec, err := stepjob.Robots(t.Robots, s.Flow, v)
		c.Robots = &robotv1.Job{ObjectMeta: jobMeta(f, s.job, t.Robots.Name), Spec: spec}
		return c, err
	}
	spec, err := stepjob.Pods(t.Pods, s.Flow, v)
	c.Pods = &batchv1.Job{ObjectMeta: jobMeta(f, s.job, t.Pods.Name), Spec: spec}
	return c, err
}

// jobMeta carries where the Job comes from twice: a label finds it, an annotation has
// it in full where it is too long for a label (contract §3.11).
func jobMeta(f *flowv1.JobFlow, name, template string) metav1.ObjectMeta {
	from := map[string]string{
		flowv1.KeyCreatedByJobTemplate: fmt.Sprintf("%s.%s", f.Namespace, template),
		flowv1.KeyCreatedByJobFlow:     fmt.Sprintf("%s.%s", f.Namespace, f.Name),
	}
	labels := make(map[string]string, len(from))
	for k, v := range from {
		labels[k] = child.Label(v)
	}
	return metav1.ObjectMeta{
		Namespace: f.Namespace, Name: name, Labels: labels, Annotations: from,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f, flowv1.GroupVersion.WithKind("JobFlow"))},
	}
}
