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

// Describe is the row of an object of any of the kinds. Nil: it is of none of them. The row
// shares the object's labels: neither may be changed.
func Describe(o client.Object) *Row {
	switch o := o.(type) {
	case *v1alpha1.Job:
		return Job(o)
	case *v1alpha1.TaskGroup:
		return TaskGroup(o)
	case *v1alpha1.Task:
		return Task(o)
	case *v1alpha1.Robot:
		return Robot(o)
	case *flowv1.JobFlow:
		return JobFlow(o)
	case *cronv1.CronJobFlow:
		return CronJobFlow(o)
	case *batchv1.Job:
		return VCJob(o)
	case *rayv1.RayCluster:
		return RayCluster(o)
	case *corev1.Pod:
		return Pod(o)
	}
	return nil
}

// Same tells whether nobody who looks at an object sees a difference between two versions of
// it: neither in its row nor on its page. What it uses and what a robot measures change all
// the time, and are looked up when they are wanted.
func Same(a, b client.Object) bool { return equality.Semantic.DeepEqual(seen(a), seen(b)) }

// seen is a copy of what readers see of an object. It shares what it can with the object.
func seen(o client.Object) any {
	switch o := o.(type) {
	case *v1alpha1.Job:
		c := *o
		c.ObjectMeta, c.Status.ObservedGeneration = seenMeta(c.ObjectMeta), 0
		return &c
	case *v1alpha1.TaskGroup:
		c := *o
		c.ObjectMeta, c.Status.ObservedGeneration = seenMeta(c.ObjectMeta), 0
		return &c
	case *v1alpha1.Task:
		c := *o
		c.ObjectMeta, c.Status.Resources = seenMeta(c.ObjectMeta), nil
		return &c
	case *v1alpha1.Robot:
		c := *o
		c.ObjectMeta, c.Status.AcknowledgedUntil, c.Status.DeviceInfo = seenMeta(c.ObjectMeta), nil, lasting(c.Status.DeviceInfo)
		return &c
	case *flowv1.JobFlow:
		c := *o
		c.ObjectMeta, c.Status.ObservedGeneration = seenMeta(c.ObjectMeta), 0
		return &c
	case *cronv1.CronJobFlow:
		c := *o
		c.ObjectMeta, c.Status.ObservedGeneration = seenMeta(c.ObjectMeta), 0
		return &c
	case *batchv1.Job:
		c := *o
		c.ObjectMeta = seenMeta(c.ObjectMeta)
		return &c
	case *rayv1.RayCluster:
		c := *o
		c.ObjectMeta, c.Status.ObservedGeneration, c.Status.LastUpdateTime = seenMeta(c.ObjectMeta), 0, nil
		return &c
	case *corev1.Pod:
		c := *o
		c.ObjectMeta = seenMeta(c.ObjectMeta)
		return &c
	}
	return o
}

func seenMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	m.ResourceVersion, m.Generation, m.ManagedFields = "", 0, nil
	return m
}

// lasting is what a robot says of itself that is not measured anew with each heartbeat.
func lasting(d *v1alpha1.DeviceInfo) *v1alpha1.DeviceInfo {
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
