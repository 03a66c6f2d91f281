package row

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// Describe returns the row of an object, or nil if its kind is unknown. The row shares the
// object's labels, which must not be changed.
func Describe(o client.Object) *Row {
	switch o := o.(type) {
	case *v1alpha1.Job:
		return DescribeJob(o)
	case *v1alpha1.Rollout:
		return DescribeRollout(o)
	case *v1alpha1.TaskGroup:
		return DescribeTaskGroup(o)
	case *v1alpha1.Task:
		return DescribeTask(o)
	case *v1alpha1.Robot:
		return DescribeRobot(o)
	case *flowv1.JobFlow:
		return DescribeJobFlow(o)
	case *cronv1.CronJobFlow:
		return DescribeCronJobFlow(o)
	case *batchv1.Job:
		return DescribeVCJob(o)
	case *rayv1.RayCluster:
		return DescribeRayCluster(o)
	case *corev1.Pod:
		return DescribePod(o)
	}
	return nil
}

// LooksEqual reports whether two versions of an object look the same to users. It ignores measured
// values such as resource usage, which change all the time and are read on demand.
func LooksEqual(a, b client.Object) bool {
	return equality.Semantic.DeepEqual(visibleCopy(a), visibleCopy(b))
}

// visibleCopy returns a shallow copy of an object without the fields that LooksEqual ignores.
func visibleCopy(o client.Object) any {
	switch o := o.(type) {
	case *v1alpha1.Job:
		c := *o
		c.ObjectMeta, c.Status.ObservedGeneration = copyVisibleMeta(c.ObjectMeta), 0
		return &c
	case *v1alpha1.Rollout:
		c := *o
		c.ObjectMeta, c.Status.ObservedGeneration = copyVisibleMeta(c.ObjectMeta), 0
		return &c
	case *v1alpha1.TaskGroup:
		c := *o
		c.ObjectMeta, c.Status.ObservedGeneration = copyVisibleMeta(c.ObjectMeta), 0
		return &c
	case *v1alpha1.Task:
		c := *o
		c.ObjectMeta, c.Status.Resources = copyVisibleMeta(c.ObjectMeta), nil
		return &c
	case *v1alpha1.Robot:
		c := *o
		c.ObjectMeta, c.Status.AcknowledgedUntil, c.Status.DeviceInfo = copyVisibleMeta(c.ObjectMeta), nil, copyStableDeviceInfo(c.Status.DeviceInfo)
		return &c
	case *flowv1.JobFlow:
		c := *o
		c.ObjectMeta, c.Status.ObservedGeneration = copyVisibleMeta(c.ObjectMeta), 0
		return &c
	case *cronv1.CronJobFlow:
		c := *o
		c.ObjectMeta, c.Status.ObservedGeneration = copyVisibleMeta(c.ObjectMeta), 0
		return &c
	case *batchv1.Job:
		c := *o
		c.ObjectMeta = copyVisibleMeta(c.ObjectMeta)
		return &c
	case *rayv1.RayCluster:
		c := *o
		c.ObjectMeta, c.Status.ObservedGeneration, c.Status.LastUpdateTime = copyVisibleMeta(c.ObjectMeta), 0, nil
		return &c
	case *corev1.Pod:
		c := *o
		c.ObjectMeta = copyVisibleMeta(c.ObjectMeta)
		return &c
	}
	return o
}

func copyVisibleMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	m.ResourceVersion, m.Generation, m.ManagedFields = "", 0, nil
	return m
}

// copyStableDeviceInfo returns the device info without values that are measured at each heartbeat.
func copyStableDeviceInfo(d *v1alpha1.DeviceInfo) *v1alpha1.DeviceInfo {
	if d == nil {
		return nil
	}
	out := &v1alpha1.DeviceInfo{Hostname: d.Hostname, Platform: d.Platform, BootTime: d.BootTime, Drivers: d.Drivers, Isolation: d.Isolation, TaskUser: d.TaskUser}
	if d.CPU != nil {
		out.CPU = &v1alpha1.CPU{LogicalCores: d.CPU.LogicalCores}
	}
	if d.Memory != nil {
		out.Memory = &v1alpha1.Memory{Total: d.Memory.Total}
	}
	for i := range d.Disks {
		out.Disks = append(out.Disks, v1alpha1.Disk{MountPoint: d.Disks[i].MountPoint, Total: d.Disks[i].Total})
	}
	return out
}
