package placement

import "strings"

// Rejection says why a robot cannot take a demand, as data. Equal demands and equal robots
// give equal rejections, so that they can be counted. The zero value: nothing is in the way.
type Rejection struct {
	Check CheckName
	// Want is what the demand needs. Empty if the check alone says it.
	Want string
	// Got is what the robot has instead. Empty if that is not known or does not help.
	Got string
}

// CheckName names a check that may reject a robot.
type CheckName string

// The checks, in the order in which they run. Each of the free amounts has a capacity
// beside it: a robot that is full may take the task later, a robot that is too small never.
const (
	CheckRobotExists      CheckName = "RobotExists"
	CheckRevoked          CheckName = "Revoked"
	CheckPhase            CheckName = "Phase"
	CheckUnschedulable    CheckName = "Unschedulable"
	CheckLabel            CheckName = "Label"
	CheckDatacenter       CheckName = "Datacenter"
	CheckConstraint       CheckName = "Constraint"
	CheckConstraintSyntax CheckName = "ConstraintSyntax"
	CheckDriver           CheckName = "Driver"
	CheckIsolation        CheckName = "Isolation"
	CheckSecretEnv        CheckName = "SecretEnv"
	CheckSelfStop         CheckName = "SelfStop"
	CheckBlockedRobots    CheckName = "BlockedRobots"
	CheckFailedRobots     CheckName = "FailedRobots"
	CheckFreeTasks        CheckName = "FreeTasks"
	CheckTaskCapacity     CheckName = "TaskCapacity"
	CheckFreeCPU          CheckName = "FreeCPU"
	CheckCPUCapacity      CheckName = "CPUCapacity"
	CheckFreeMemory       CheckName = "FreeMemory"
	CheckMemoryCapacity   CheckName = "MemoryCapacity"
	CheckFreeDisk         CheckName = "FreeDisk"
	CheckDiskCapacity     CheckName = "DiskCapacity"
	CheckFreeIOPS         CheckName = "FreeIOPS"
	CheckIOPSCapacity     CheckName = "IOPSCapacity"
	CheckFreeDevices      CheckName = "FreeDevices"
	CheckDeviceCapacity   CheckName = "DeviceCapacity"
)

// rejectionTexts are the messages for people. {want} and {got} stand for the values.
var rejectionTexts = map[CheckName]string{
	CheckRobotExists:      "is neither in this namespace nor shared with it",
	CheckRevoked:          "revoked",
	CheckPhase:            "phase is {got}",
	CheckUnschedulable:    "unschedulable",
	CheckLabel:            "label {want} missing",
	CheckDatacenter:       "not in datacenter {want}",
	CheckConstraint:       "constraint {want} is not met",
	CheckConstraintSyntax: "constraint {want} cannot be read: {got}",
	CheckDriver:           "driver {want} is not offered (has {got})",
	CheckIsolation:        "isolation {want} missing",
	CheckSecretEnv:        "its agent does not support secretEnv",
	CheckSelfStop:         "its agent cannot stop a task by itself",
	CheckBlockedRobots:    "blocked for the task group",
	CheckFailedRobots:     "the task failed on it",
	CheckFreeTasks:        "task limit reached",
	CheckTaskCapacity:     "{want} tasks are more than its task limit",
	CheckFreeCPU:          "cpu {want} is not free",
	CheckCPUCapacity:      "cpu {want} is more than it has",
	CheckFreeMemory:       "memory {want} is not free",
	CheckMemoryCapacity:   "memory {want} is more than it has",
	CheckFreeDisk:         "disk {want} is not free",
	CheckDiskCapacity:     "disk {want} is more than it has",
	CheckFreeIOPS:         "iops {want} is not free",
	CheckIOPSCapacity:     "iops {want} is more than it has",
	CheckFreeDevices:      "{want} in use",
	CheckDeviceCapacity:   "{want} missing",
}

// IsZero reports whether nothing is in the way of the demand.
func (r Rejection) IsZero() bool { return r == Rejection{} }

// String returns a clause for people, such as "label env=prod missing".
func (r Rejection) String() string {
	text, ok := rejectionTexts[r.Check]
	if !ok { // written by a newer manager
		text = "check " + string(r.Check) + " failed: want {want}, got {got}"
	}
	text = strings.NewReplacer("{want}", r.Want, "{got}", r.Got).Replace(text)
	if r.Check == CheckConstraint && r.Got != "" {
		text += ": " + r.Got
	}
	return text
}
