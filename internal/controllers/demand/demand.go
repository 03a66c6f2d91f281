// Package demand says in the words of placement what Tasks need and what
// Robots have.
package demand

import (
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/placement"
	"k8s4r.io/k8s4r/internal/robotfacts"
)

// DefaultPriority is that of a Job that does not say, and of a Task that was
// created by hand.
const DefaultPriority = 50

// defaultTasks bounds the tasks on a robot whose capacity does not.
const defaultTasks = 64

// Task is what a task of this definition needs, under the object's name. An init
// task holds less than its resources (Holds).
func Task(name string, def *v1alpha1.TaskDefinition, holds *v1alpha1.Resources, disk *v1alpha1.EphemeralDisk) placement.Task {
	t := placement.Task{
		Name: name, Driver: def.Driver, Needs: room(def.Resources), Shared: min(disk.Bytes(), bound), Isolation: isolation(def),
		Secrets: len(def.SecretEnv) > 0,
	}
	if holds != nil {
		t.Needs, t.Init = room(holds), true
	}
	return t
}

// isolation is what a task insists on, in the words of placement.
func isolation(def *v1alpha1.TaskDefinition) string {
	if def.Isolation == nil || len(def.Isolation.Required) == 0 {
		return ""
	}
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(def.Isolation.Required))), ",")
}

// Of is what a Task needs.
func Of(t *v1alpha1.Task) placement.Task {
	return Task(t.Name, &t.Spec.TaskDefinition, t.Spec.Holds, t.Spec.EphemeralDisk)
}

func room(r *v1alpha1.Resources) placement.Room {
	if r == nil {
		return placement.Room{}
	}
	return placement.Room{
		CPU: milli(r.CPU), Memory: whole(r.Memory), Disk: whole(r.Disk),
		IOPS: min(max(r.IOPS, 0), bound), Devices: devices(r.Devices),
	}
}

// Robot is what a robot has. What it holds is not in the object.
func Robot(r *v1alpha1.Robot) placement.Robot {
	out := &placement.Offer{
		Phase:         Phase(r),
		Revoked:       r.Revoked(),
		Unschedulable: r.Spec.Unschedulable || r.Spec.Drain || r.Revoked() || r.DeletionTimestamp != nil,
		Labels:        robotfacts.Labels(r),
		Attrs:         robotfacts.Attributes(r),
		Document:      Document(r),
		Capacity:      capacity(r),
	}
	if d := r.Status.DeviceInfo; d != nil {
		out.Drivers = d.Drivers
	}
	return placement.Robot{Name: r.Name, Offer: out}
}

// Phase is the one that decisions about a robot go by. One that is revoked is as
// good as Offline from that moment: whatever is still heard from it is not
// believed, and a broker that nobody has told would go on bringing it work.
func Phase(r *v1alpha1.Robot) lifecycle.RobotPhase {
	if r.Revoked() {
		return lifecycle.RobotOffline
	}
	return lifecycle.ParseRobotPhase(r.Status.Phase)
}

// Document tells whether the robot's agent speaks the document's protocol.
func Document(r *v1alpha1.Robot) bool {
	return r.Status.Agent != nil && r.Status.Agent.Protocol == v1alpha1.ProtocolDocument
}

// capacity is what the operator says, else what the robot says. Who says
// nothing about a thing is not bounded by it, but has no devices.
func capacity(r *v1alpha1.Robot) placement.Room {
	c := said(r.Status.DeviceInfo)
	named := map[string]resource.Quantity{}
	for name, q := range r.Spec.Capacity {
		switch name {
		case v1alpha1.CapacityTasks:
			c.Tasks = whole(&q)
		case v1alpha1.CapacityCPU:
			c.CPU = milli(&q)
		case v1alpha1.CapacityMemory:
			c.Memory = whole(&q)
		case v1alpha1.CapacityDisk:
			c.Disk = whole(&q)
		case v1alpha1.CapacityIOPS:
			c.IOPS = whole(&q)
		default:
			named[name] = q
		}
	}
	c.Devices = devices(named)
	return c
}

// said is the capacity by the robot's own word.
func said(d *v1alpha1.DeviceInfo) placement.Room {
	c := placement.Room{
		Tasks: defaultTasks, CPU: placement.Unlimited, Memory: placement.Unlimited,
		Disk: placement.Unlimited, IOPS: placement.Unlimited,
	}
	if d == nil {
		return c
	}
	if d.CPU != nil && d.CPU.LogicalCores > 0 {
		c.CPU = int64(d.CPU.LogicalCores) * 1000
	}
	if d.Memory != nil && d.Memory.Total > 0 {
		c.Memory = d.Memory.Total
	}
	if n := robotfacts.LargestDisk(d); n > 0 {
		c.Disk = n
	}
	return c
}

// devices are counted whole.
func devices(named map[string]resource.Quantity) placement.Devices {
	if len(named) == 0 {
		return nil
	}
	counts := make(map[string]int64, len(named))
	for name, q := range named {
		counts[name] = whole(&q)
	}
	return placement.NewDevices(counts)
}

// bound keeps sums of a replica's tasks from overflowing.
const bound = math.MaxInt64 / 1024

func milli(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return min(max(q.MilliValue(), 0), bound)
}

func whole(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return min(max(q.Value(), 0), bound)
}
