package console

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/console/row"
)

// kind maps a kind of the console to those of the API server and the archive.
type kind struct {
	version  schema.GroupVersion
	kind     string
	resource string
	archived archive.Kind // empty if the kind is not archived
	fresh    func() client.Object
}

// groupResource returns the resource in the API server.
func (k kind) groupResource() schema.GroupResource {
	return k.version.WithResource(k.resource).GroupResource()
}

var kinds = map[row.Kind]kind{
	row.Jobs:         {robotv1.GroupVersion, "Job", "jobs", archive.Job, func() client.Object { return &robotv1.Job{} }},
	row.Rollouts:     {robotv1.GroupVersion, "Rollout", "rollouts", "", func() client.Object { return &robotv1.Rollout{} }},
	row.TaskGroups:   {robotv1.GroupVersion, "TaskGroup", "taskgroups", archive.TaskGroup, func() client.Object { return &robotv1.TaskGroup{} }},
	row.Tasks:        {robotv1.GroupVersion, "Task", "tasks", archive.Task, func() client.Object { return &robotv1.Task{} }},
	row.Robots:       {robotv1.GroupVersion, "Robot", "robots", archive.Robot, func() client.Object { return &robotv1.Robot{} }},
	row.JobFlows:     {flowv1.GroupVersion, "JobFlow", "jobflows", archive.JobFlow, func() client.Object { return &flowv1.JobFlow{} }},
	row.CronJobFlows: {cronv1.GroupVersion, "CronJobFlow", "cronjobflows", "", func() client.Object { return &cronv1.CronJobFlow{} }},
	row.VCJobs:       {batchv1.GroupVersion, "Job", "jobs", archive.VCJob, func() client.Object { return &batchv1.Job{} }},
	row.RayClusters:  {rayv1.GroupVersion, "RayCluster", "rayclusters", archive.RayCluster, func() client.Object { return &rayv1.RayCluster{} }},
	row.Pods:         {corev1.SchemeGroupVersion, "Pod", "pods", "", func() client.Object { return &corev1.Pod{} }},
}

// rowKind returns the kind of the console for a kind of the archive.
func rowKind(k archive.Kind) row.Kind {
	for name, is := range kinds {
		if is.archived == k {
			return name
		}
	}
	return ""
}

// NewScheme returns a scheme with the kinds that the console reads and changes.
func NewScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, robotv1.AddToScheme, flowv1.AddToScheme, cronv1.AddToScheme, batchv1.AddToScheme, busv1.AddToScheme, rayv1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}

// newRESTMapper returns a mapper with the known kinds built in, which saves the discovery
// requests for each caller.
func newRESTMapper(s *runtime.Scheme) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(s.PrioritizedVersionsAllGroups())
	add := func(v schema.GroupVersion, kind, resource string) {
		m.AddSpecific(v.WithKind(kind), v.WithResource(resource), v.WithResource(resource), meta.RESTScopeNamespace)
	}
	for _, k := range kinds {
		add(k.version, k.kind, k.resource)
	}
	add(busv1.GroupVersion, "Command", "commands")
	return m
}
