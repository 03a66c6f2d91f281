package placement

import "strings"

// Rejection is the reason that a robot cannot take a demand, as data. Equal demands and equal
// robots result in equal rejections, so that they can be counted. The zero value means that the
// robot can take the demand.
type Rejection struct {
	Check CheckName
	// Want is the value that the demand needs. It is empty if the check has no value.
	Want string
	// Got is the value that the robot has instead. It is empty if it is unknown or irrelevant.
	Got string
}

// CheckName names a check that may reject a robot.
type CheckName string

// The checks, in the order in which they run. Each check of free room has a check of capacity
// beside it: a full robot may take the task later, a robot that is too small never can.
const (
	CheckRobotExists      CheckName = "RobotExists"
	CheckRevoked          CheckName = "Revoked"
	CheckPhase            CheckName = "Phase"
	CheckUnschedulable    CheckName = "Unschedulable"
	CheckResponsive       CheckName = "Responsive"
	CheckMaintenance      CheckName = "Maintenance"
	CheckJournalReadOnly  CheckName = "JournalReadOnly"
	CheckDiskPressure     CheckName = "DiskPressure"
	CheckLabel            CheckName = "Label"
	CheckDatacenter       CheckName = "Datacenter"
	CheckConstraint       CheckName = "Constraint"
	CheckConstraintSyntax CheckName = "ConstraintSyntax"
	CheckDriver           CheckName = "Driver"
	CheckIsolation        CheckName = "Isolation"
	CheckSecretEnv        CheckName = "SecretEnv"
	CheckArrays           CheckName = "Arrays"
	CheckSelfStop         CheckName = "SelfStop"
	CheckBlockedRobots    CheckName = "BlockedRobots"
	CheckPolicy           CheckName = "Policy"
	CheckPolicyFile       CheckName = "PolicyFile"
	CheckFailedRobots     CheckName = "FailedRobots"
	CheckStoppedAtRobot   CheckName = "StoppedAtRobot"
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
	CheckFreeMBits        CheckName = "FreeMBits"
	CheckMBitsCapacity    CheckName = "MBitsCapacity"
	CheckFreeDevices      CheckName = "FreeDevices"
	CheckDeviceCapacity   CheckName = "DeviceCapacity"
)

// rejectionTexts are the messages for users. {want} and {got} are replaced by the values.
var rejectionTexts = map[CheckName]string{
	CheckRobotExists:      "is neither in this namespace nor shared with it",
	CheckRevoked:          "revoked",
	CheckPhase:            "phase is {got}",
	CheckUnschedulable:    "unschedulable",
	CheckResponsive:       "does not answer dispatches",
	CheckMaintenance:      "in maintenance",
	CheckJournalReadOnly:  "its agent cannot write its journal",
	CheckDiskPressure:     "its disk is almost full",
	CheckLabel:            "label {want} missing",
	CheckDatacenter:       "not in datacenter {want}",
	CheckConstraint:       "constraint {want} is not met",
	CheckConstraintSyntax: "constraint {want} is invalid: {got}",
	CheckDriver:           "driver {want} is not offered (has {got})",
	CheckIsolation:        "isolation {want} missing",
	CheckSecretEnv:        "its agent does not support secretEnv",
	CheckArrays:           "its agent does not run arrays",
	CheckSelfStop:         "its agent cannot stop a task by itself",
	CheckBlockedRobots:    "blocked for the task group",
	CheckPolicy:           "its policy does not allow {want} ({got})",
	CheckPolicyFile:       "its policy file cannot be used, so it takes no tasks",
	CheckFailedRobots:     "the task failed on it",
	CheckStoppedAtRobot:   "the task was stopped at the robot by {got}",
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
	CheckFreeMBits:        "mbits {want} is not free",
	CheckMBitsCapacity:    "mbits {want} is more than it has",
	CheckFreeDevices:      "{want} in use",
	CheckDeviceCapacity:   "{want} missing",
}

// IsZero reports whether the robot can take the demand.
func (r Rejection) IsZero() bool { return r == Rejection{} }

// String returns a message such as "label env=prod missing".
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
