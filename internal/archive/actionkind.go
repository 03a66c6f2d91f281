package archive

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// actionResources are the resources of which actions are recorded.
var actionResources = map[Kind]schema.GroupResource{
	Job:         {Group: v1alpha1.GroupVersion.Group, Resource: "jobs"},
	TaskGroup:   {Group: v1alpha1.GroupVersion.Group, Resource: "taskgroups"},
	Task:        {Group: v1alpha1.GroupVersion.Group, Resource: "tasks"},
	Robot:       {Group: v1alpha1.GroupVersion.Group, Resource: "robots"},
	JobFlow:     {Group: flowv1.GroupVersion.Group, Resource: "jobflows"},
	CronJobFlow: {Group: cronv1.GroupVersion.Group, Resource: "cronjobflows"},
	VCJob:       {Group: batchv1.GroupVersion.Group, Resource: "jobs"},
	RayCluster:  {Group: rayv1.GroupVersion.Group, Resource: "rayclusters"},
}

// ActionKinds returns the kinds of which actions are recorded, sorted.
func ActionKinds() []Kind { return slices.Sorted(maps.Keys(actionResources)) }

// ActionResource returns the resource of a kind of which actions are recorded.
func ActionResource(k Kind) (r schema.GroupResource, ok bool) {
	r, ok = actionResources[k]
	return r, ok
}

// ActionKind returns the kind of a resource. ok is false if its actions are not recorded.
func ActionKind(r schema.GroupResource) (k Kind, ok bool) {
	for kind, resource := range actionResources {
		if resource == r {
			return kind, true
		}
	}
	return "", false
}
