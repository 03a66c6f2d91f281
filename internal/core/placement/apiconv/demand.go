// Package apiconv converts between objects of the API and the types of placement.
package apiconv

import (
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/robotattr"
)

// DefaultPriority is the priority of a Job without one, and of a Task that was created by hand.
const DefaultPriority = 50

// defaultTasks is the task limit of a robot without one.
const defaultTasks = 64

// TaskFrom returns what a task of this definition needs, under the namespace and name of the object.
// An init task needs only its extra resources (ExtraResources).
func TaskFrom(namespace, name string, def *v1alpha1.TaskDefinition, extra *v1alpha1.Resources, disk *v1alpha1.EphemeralDisk) placement.Task {
	t := placement.Task{
		Name: name, Driver: def.Driver, Needs: roomFor(def.Resources), Shared: min(disk.SizeInBytes(), bound), Isolation: requiredIsolation(def),
		Secrets: len(def.SecretEnv) > 0, Subject: subjectKey(namespace, def),
	}
	if extra != nil {
		t.Needs, t.Init = roomFor(extra), true
	}
	return t
}

// requiredIsolation returns the required kinds, sorted and separated by commas.
func requiredIsolation(def *v1alpha1.TaskDefinition) string {
	if def.Isolation == nil || len(def.Isolation.Required) == 0 {
		return ""
	}
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(def.Isolation.Required))), ",")
}

// TaskOf returns what a Task needs.
func TaskOf(t *v1alpha1.Task) placement.Task {
	out := TaskFrom(t.Namespace, t.Name, &t.Spec.TaskDefinition, t.Spec.ExtraResources, t.Spec.EphemeralDisk)
	out.Array = t.Spec.Array != nil
	return out
}

func roomFor(r *v1alpha1.Resources) placement.Room {
	if r == nil {
		return placement.Room{}
	}
	return placement.Room{
		CPU: milliValue(r.CPU), Memory: wholeValue(r.Memory), Disk: wholeValue(r.Disk),
		IOPS: min(max(r.IOPS, 0), bound), MBits: bandwidth(r.Networks), Devices: wholeDevices(r.Devices),
	}
}

// bandwidth returns the sum of the networks in megabits per second.
func bandwidth(networks []v1alpha1.Network) (sum int64) {
	for i := range networks {
		sum = min(sum+max(networks[i].MBits, 0), bound)
	}
	return sum
}

// RobotFrom returns what a robot offers. The caller adds the room that its tasks hold.
func RobotFrom(r *v1alpha1.Robot) placement.Robot {
	out := &placement.Offer{
		Phase:         EffectivePhase(r),
		Revoked:       r.IsRevoked(),
		Unschedulable: r.Spec.Unschedulable || r.Spec.Drain || r.IsRevoked() || r.DeletionTimestamp != nil,
		Impairment:    impairedCheck(r),
		Labels:        robotattr.TaskVisibleLabels(r),
		Attrs:         robotattr.Attributes(r),
		LegacyAgent:   HasLegacyAgent(r),
		RunsArrays:    r.Status.Agent != nil && r.Status.Agent.RunsArrays,
		Policy:        policyFrom(r.Status.Policy),
		Capacity:      robotCapacity(r),
	}
	if d := r.Status.DeviceInfo; d != nil {
		out.Drivers = d.Drivers
	}
	return placement.Robot{Name: r.Name, Offer: out}
}

// Impairment returns the condition because of which a connected robot gets no new tasks, or nil. The
// first one explains the others: people know of a maintenance, and a robot that cannot write its journal
// does not answer either.
func Impairment(r *v1alpha1.Robot) *metav1.Condition {
	for _, bad := range []metav1.Condition{
		{Type: v1alpha1.ConditionMaintenance, Status: metav1.ConditionTrue},
		{Type: v1alpha1.ConditionJournalReadOnly, Status: metav1.ConditionTrue},
		{Type: v1alpha1.ConditionResponsive, Status: metav1.ConditionFalse},
		{Type: v1alpha1.ConditionDiskPressure, Status: metav1.ConditionTrue},
	} {
		if c := meta.FindStatusCondition(r.Status.Conditions, bad.Type); c != nil && c.Status == bad.Status {
			return c
		}
	}
	return nil
}

// impairedCheck returns the check that the robot fails because of its own condition, or "". Checks
// have the names of the conditions.
func impairedCheck(r *v1alpha1.Robot) placement.CheckName {
	if c := Impairment(r); c != nil {
		return placement.CheckName(c.Type)
	}
	return ""
}

// EffectivePhase returns the phase to decide by. A revoked robot is Offline at once: its messages
// are not trusted any more, even if the broker has not been notified and still delivers to it.
func EffectivePhase(r *v1alpha1.Robot) lifecycle.RobotPhase {
	if r.IsRevoked() {
		return lifecycle.RobotOffline
	}
	return lifecycle.ParseRobotPhase(r.Status.Phase)
}

// HasLegacyAgent reports whether the robot's agent speaks protocol v1.
func HasLegacyAgent(r *v1alpha1.Robot) bool {
	return r.Status.Agent != nil && r.Status.Agent.Protocol == v1alpha1.ProtocolV1
}

// robotCapacity returns spec.capacity, falling back to what the agent reported. An unset resource
// is unlimited; unset devices count as zero.
func robotCapacity(r *v1alpha1.Robot) placement.Room {
	c := reportedCapacity(r.Status.DeviceInfo)
	named := map[string]resource.Quantity{}
	for name, q := range r.Spec.Capacity {
		switch name {
		case v1alpha1.CapacityTasks:
			c.Tasks = wholeValue(&q)
		case v1alpha1.CapacityCPU:
			c.CPU = milliValue(&q)
		case v1alpha1.CapacityMemory:
			c.Memory = wholeValue(&q)
		case v1alpha1.CapacityDisk:
			c.Disk = wholeValue(&q)
		case v1alpha1.CapacityIOPS:
			c.IOPS = wholeValue(&q)
		case v1alpha1.CapacityMBits:
			c.MBits = wholeValue(&q)
		default:
			named[name] = q
		}
	}
	c.Devices = wholeDevices(named)
	return c
}

// reportedCapacity returns the capacity that the agent reported.
func reportedCapacity(d *v1alpha1.DeviceInfo) placement.Room {
	c := placement.Room{
		Tasks: defaultTasks, CPU: placement.Unlimited, Memory: placement.Unlimited,
		Disk: placement.Unlimited, IOPS: placement.Unlimited, MBits: placement.Unlimited,
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
	if n := robotattr.LargestDisk(d); n > 0 {
		c.Disk = n
	}
	return c
}

// wholeDevices rounds counts up to whole devices.
func wholeDevices(named map[string]resource.Quantity) placement.Devices {
	if len(named) == 0 {
		return nil
	}
	counts := make(map[string]int64, len(named))
	for name, q := range named {
		counts[name] = wholeValue(&q)
	}
	return placement.NewDevices(counts)
}

// bound keeps sums over the tasks of a replica from overflowing.
const bound = math.MaxInt64 / 1024

func milliValue(q *resource.Quantity) int64 { return scaledValue(q, resource.Milli) }

func wholeValue(q *resource.Quantity) int64 { return scaledValue(q, 0) }

// scaledValue returns a quantity in units of 10^scale, rounded up, from 0 to bound. Quantity itself
// has no defined value beyond an int64: 1e16 cores are 0 thousandths.
func scaledValue(q *resource.Quantity, scale resource.Scale) int64 {
	switch {
	case q == nil || q.Sign() <= 0:
		return 0
	case q.Cmp(*resource.NewScaledQuantity(bound, scale)) >= 0:
		return bound
	}
	return q.ScaledValue(scale)
}
