package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "robot.k8s4r.io", Version: "v1alpha1"}

// AddToScheme makes the kinds of this package known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Job{}, &JobList{},
		&TaskGroup{}, &TaskGroupList{},
		&Task{}, &TaskList{},
		&Robot{}, &RobotList{},
		&JobTemplate{}, &JobTemplateList{},
		&HeartbeatSlice{}, &HeartbeatSliceList{},
		&Rollout{}, &RolloutList{},
		&MaintenanceWindow{}, &MaintenanceWindowList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
