package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Robot is a machine that runs tasks. The server creates it when its agent registers; it may also
// be created in advance.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=robots,singular=robot,shortName=rb,categories=k8s4r
// +kubebuilder:printcolumn:name="RobotID",type=string,JSONPath=`.spec.robotId`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Hostname",type=string,JSONPath=`.status.deviceInfo.hostname`
// +kubebuilder:printcolumn:name="OS",type=string,JSONPath=`.status.deviceInfo.platform.os`
// +kubebuilder:printcolumn:name="CPUs",type=integer,JSONPath=`.status.deviceInfo.cpu.logicalCores`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.runningTasks`
// +kubebuilder:printcolumn:name="LastHeartbeat",type=date,JSONPath=`.status.lastHeartbeatTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.agent.version`,priority=1
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.agent.address`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.robotId",message="metadata.name must be the same as spec.robotId"
type Robot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the settings of an operator.
	Spec RobotSpec `json:"spec"`
	// Status is what the robot reports, and the state derived from it.
	// +optional
	Status RobotStatus `json:"status,omitempty"`
}

// RobotList is a list of Robots.
//
// +kubebuilder:object:root=true
type RobotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Robot `json:"items"`
}

// RobotSpec has the settings of an operator for a robot.
type RobotSpec struct {
	// RobotID is the name of the robot, unique in the cluster and equal to metadata.name. It
	// cannot change.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must be 1 to 63 characters of a-z, 0-9 and '-', and start and end with a letter or digit, because it becomes a part of MQTT topics"
	// +kubebuilder:validation:XValidation:rule="!(self in ['k8s4r-server', 'k8s4r-console', 'k8s4r-admin'])",message="is reserved for a program of K8s4r; choose another"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot change; create another Robot"
	RobotID string `json:"robotId"`
	// Description for people.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// Labels for selectors and constraints, in addition to metadata.labels. If both have the same
	// label, this value is used. The agent's own labels are added unless they are set here. Names
	// and values follow the syntax of Kubernetes labels.
	// Labels share.robot.k8s4r.io/NAMESPACE, which share the robot, have an effect in
	// metadata.labels only.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
	// Unschedulable prevents new tasks on the robot. Running tasks continue.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty"`
	// Drain prevents new tasks on the robot and evicts the running ones, so that they run
	// elsewhere.
	// +optional
	Drain bool `json:"drain,omitempty"`
	// Capacity of the robot. The values of cpu, memory and disk override what the agent reports.
	// iops is the number of disk operations per second, mbits the bandwidth in megabits per
	// second; if not set, they are not limited. tasks is the number of tasks that may run at the
	// same time; if not set, 64. Any other name is a countable device, such as arm: 1; a device
	// that is not listed does not exist.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Capacity map[string]resource.Quantity `json:"capacity,omitempty"`
	// Identity has the decisions of an operator about the robot's identity.
	// +optional
	Identity *RobotIdentitySpec `json:"identity,omitempty"`
	// UnlockMaintenance is the id in status.maintenance of a maintenance that the robot shall end. Set
	// by `k8s4r robot unlock`. A change needs the verb unlock on the Robot.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	UnlockMaintenance string `json:"unlockMaintenance,omitempty"`
}

// The names in Robot.spec.capacity that are not devices.
const (
	CapacityCPU    = "cpu"
	CapacityMemory = "memory"
	CapacityDisk   = "disk"
	CapacityIOPS   = "iops"
	CapacityMBits  = "mbits"
	CapacityTasks  = "tasks"
)

// The dialects that an agent can speak.
const (
	// ProtocolV1 is the protocol of legacy agents: MQTT 3.1.1 on shared topics, without attempts.
	ProtocolV1 = "v1"
	// ProtocolV2 is MQTT 5 on topics of the robot's own.
	ProtocolV2 = "v2"
)

// RobotStatus is the observed state of a robot.
type RobotStatus struct {
	// Phase of the robot. Pending: not approved yet. Online: connected. Unknown: disconnected for
	// less than the manager's --offline-after. Offline: disconnected for longer. Written by the
	// manager; the server writes the first Pending when it creates the object.
	// +optional
	// +kubebuilder:validation:Enum=Pending;Online;Offline;Unknown;pending;online;offline;unknown
	Phase string `json:"phase,omitempty"`
	// LastHeartbeatTime is the time of the last heartbeat at the last write of the status. If
	// heartbeatSlice is set, the slice has a later one, and this is updated when the connection
	// changes and every 16 to 20 minutes. Written by the server.
	// +optional
	LastHeartbeatTime *metav1.MicroTime `json:"lastHeartbeatTime,omitempty"`
	// AcknowledgedUntil ends the period in which the server acknowledges heartbeats, by its clock, if
	// heartbeatSlice is not set. Otherwise it is a year after lastHeartbeatTime, so that a manager
	// of an earlier version, which does not read slices, replaces no task that its robot may still
	// run. Written by the server.
	// +optional
	AcknowledgedUntil *metav1.MicroTime `json:"acknowledgedUntil,omitempty"`
	// HeartbeatSlice is the name of the HeartbeatSlice that has the robot's last heartbeat. If not
	// set, the robot has never sent one, or the server is of an earlier version and writes all of
	// them here. Written by the server.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	HeartbeatSlice string `json:"heartbeatSlice,omitempty"`
	// Message explains the phase to people. Written by the manager; the server writes the first
	// one when it creates the object.
	// +optional
	Message string `json:"message,omitempty"`
	// RunningTasks is the number of tasks that occupy the robot, updated within seconds. Written
	// by the manager.
	// +optional
	RunningTasks int32 `json:"runningTasks"`
	// DeviceInfo is what the agent reports about the machine. Written by the server.
	// +optional
	DeviceInfo *DeviceInfo `json:"deviceInfo,omitempty"`
	// Agent describes the program on the robot. Written by the server.
	// +optional
	Agent *AgentInfo `json:"agent,omitempty"`
	// Policy is the robot's own policy, as its agent registered it. The agent enforces it, and no
	// task is placed on the robot that it does not allow. If not set, the robot has none. Written by
	// the server.
	// +optional
	Policy *RobotPolicy `json:"policy,omitempty"`
	// StoppedTasks are tasks that people at the robot have stopped. They are not placed on it until they
	// are restarted there. Written by the server.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=256
	StoppedTasks []StoppedTask `json:"stoppedTasks,omitempty"`
	// Maintenance of the robot, in which it starts nothing. If not set, there is none. Written by the
	// server.
	// +optional
	Maintenance *RobotMaintenance `json:"maintenance,omitempty"`
	// Holds of people at the robot, who do not want its tasks to be interrupted by rollouts, updates of the
	// agent and preemption. Written by the server.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=64
	Holds []RobotHold `json:"holds,omitempty"`
	// PrefetchOrder is what the robot should fetch now for a Rollout. Written by the manager.
	// +optional
	PrefetchOrder *RobotPrefetchOrder `json:"prefetchOrder,omitempty"`
	// Prefetch is what the robot reports about such orders. Written by the server.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=8
	Prefetch []RobotPrefetch `json:"prefetch,omitempty"`
	// Identity of the robot. Not set if it never joined.
	// +optional
	Identity *RobotIdentity `json:"identity,omitempty"`
	// Conditions of the robot. The server writes Connected, Responsive, DiskPressure,
	// JournalReadOnly, Maintenance, Held, LabelsAccepted and Authenticated; the manager writes Approved, Identity and
	// IdentityConflict.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// StoppedTask is a task that a person at the robot has stopped.
type StoppedTask struct {
	// UID of the Task.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
	// Namespace of the Task.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Name of the Task.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// By is the user of the robot who stopped it, such as "alice (uid 1000)".
	// +optional
	// +kubebuilder:validation:MaxLength=64
	By string `json:"by,omitempty"`
	// Since is when it was stopped, by the robot's clock.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// RobotMaintenance is a maintenance that a person at the robot has begun.
type RobotMaintenance struct {
	// ID is different for each maintenance.
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// By is the user of the robot who began it, such as "alice (uid 1000)".
	// +optional
	// +kubebuilder:validation:MaxLength=64
	By string `json:"by,omitempty"`
	// Reason that the user gave.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// Since is when it began, by the robot's clock.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// RobotHold keeps tasks of a robot from being interrupted by rollouts, updates of the agent and preemption,
// until a person at the robot releases it.
type RobotHold struct {
	// ID is different for each hold.
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// TaskUID of the only Task that is held. If empty, all tasks of the robot and its agent.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TaskUID string `json:"taskUID,omitempty"`
	// TaskNamespace of that Task.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	TaskNamespace string `json:"taskNamespace,omitempty"`
	// TaskName of that Task.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TaskName string `json:"taskName,omitempty"`
	// By is the user of the robot who holds it, such as "alice (uid 1000)".
	// +optional
	// +kubebuilder:validation:MaxLength=64
	By string `json:"by,omitempty"`
	// Reason that the user gave.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// Since is when it began, by the robot's clock.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// AgentInfo describes the program on the robot.
type AgentInfo struct {
	// Protocol that the agent speaks: v1 for legacy agents, else v2.
	// +optional
	// +kubebuilder:validation:Enum=v1;v2
	Protocol string `json:"protocol,omitempty"`
	// Version of the agent. Empty if it reports none.
	// +optional
	Version string `json:"version,omitempty"`
	// Address at which people can reach the robot. Empty if it reports none.
	// +optional
	Address string `json:"address,omitempty"`
	// AnswersDispatches is true if the agent reports that it has accepted a task, before it
	// prepares and starts it. Only then does a missing answer count (disconnect.dispatchTimeout).
	// +optional
	AnswersDispatches bool `json:"answersDispatches,omitempty"`
	// RunsArrays is true if the agent runs Tasks of arrays. Others get none.
	// +optional
	RunsArrays bool `json:"runsArrays,omitempty"`
	// RestartsTasks is true if the agent restarts tasks by their restartPolicy, also after a restart of
	// the robot. For others the manager does.
	// +optional
	RestartsTasks bool `json:"restartsTasks,omitempty"`
	// RefusesInterruptions is true if the agent refuses to interrupt a held task, or one whose maintenance
	// window has closed. Others stop what they are asked to.
	// +optional
	RefusesInterruptions bool `json:"refusesInterruptions,omitempty"`
	// UpdatesItself is true if the agent acts by Rollouts of the kind Agent: its policy file has a key in
	// update.publicKeys.
	// +optional
	UpdatesItself bool `json:"updatesItself,omitempty"`
	// Update is what the agent last reported about an order to update it. If not set, it has none.
	// +optional
	Update *AgentUpdate `json:"update,omitempty"`
	// Prefetches is true if the agent fetches artifacts and images before a task needs them. Others get no
	// such orders.
	// +optional
	Prefetches bool `json:"prefetches,omitempty"`
}

// DeviceInfo is what the agent reports about the machine. Every field is optional.
type DeviceInfo struct {
	// Hostname of the robot.
	// +optional
	Hostname string `json:"hostname,omitempty"`
	// Platform is the operating system and kernel.
	// +optional
	Platform *Platform `json:"platform,omitempty"`
	// CPU describes the processor.
	// +optional
	CPU *CPU `json:"cpu,omitempty"`
	// Memory of the robot.
	// +optional
	Memory *Memory `json:"memory,omitempty"`
	// Swap of the robot.
	// +optional
	Swap *Swap `json:"swap,omitempty"`
	// Disks are the mounted file systems.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Disks []Disk `json:"disks,omitempty"`
	// NetworkInterfaces of the robot.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	NetworkInterfaces []NetworkInterface `json:"networkInterfaces,omitempty"`
	// BootTime by the robot's clock.
	// +optional
	BootTime *metav1.Time `json:"bootTime,omitempty"`
	// LastUpdated by the robot's clock.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
	// Uptime in seconds.
	// +optional
	Uptime int64 `json:"uptime,omitempty"`
	// Drivers that the robot supports. If empty, exec and raw_exec, as with legacy agents.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Drivers []string `json:"drivers,omitempty"`
	// Isolation that the robot supports.
	// +optional
	Isolation *Isolations `json:"isolation,omitempty"`
	// TaskUser is the Unix user of tasks that do not set user. Empty if the agent reports none.
	// +optional
	TaskUser string `json:"taskUser,omitempty"`
	// Truncated names the lists that were cut because the device information exceeded 16 KiB, or a
	// list its maximum length.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +listType=set
	Truncated []string `json:"truncated,omitempty"`
}

// Isolations lists the kinds of isolation that a robot supports, and those that it does not.
type Isolations struct {
	// Available kinds. Tasks can require them in isolation.required.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Available []string `json:"available,omitempty"`
	// Missing kinds, each with the reason and a remedy.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Missing []MissingIsolation `json:"missing,omitempty"`
}

// MissingIsolation is a kind of isolation that a robot does not support.
type MissingIsolation struct {
	// Kind of isolation, as in isolation.required of a task.
	Kind string `json:"kind"`
	// Reason why the robot does not support it, for people.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Remedy describes how to make it available, for people.
	// +optional
	Remedy string `json:"remedy,omitempty"`
}

// Platform is the operating system and kernel.
type Platform struct {
	// OS, such as linux.
	// +optional
	OS string `json:"os,omitempty"`
	// Arch, such as arm64.
	// +optional
	Arch string `json:"arch,omitempty"`
	// Platform is the distribution, such as debian.
	// +optional
	Platform string `json:"platform,omitempty"`
	// PlatformFamily of the distribution.
	// +optional
	PlatformFamily string `json:"platformFamily,omitempty"`
	// PlatformVersion of the distribution.
	// +optional
	PlatformVersion string `json:"platformVersion,omitempty"`
	// KernelVersion, such as 6.1.0.
	// +optional
	KernelVersion string `json:"kernelVersion,omitempty"`
	// KernelArch, such as aarch64.
	// +optional
	KernelArch string `json:"kernelArch,omitempty"`
}

// CPU describes the processor.
type CPU struct {
	// PhysicalCores of all sockets.
	// +optional
	PhysicalCores int32 `json:"physicalCores,omitempty"`
	// LogicalCores that the kernel schedules on.
	// +optional
	LogicalCores int32 `json:"logicalCores,omitempty"`
	// ModelName of the processor.
	// +optional
	ModelName string `json:"modelName,omitempty"`
	// Vendor of the processor.
	// +optional
	Vendor string `json:"vendor,omitempty"`
	// MHz is the clock frequency.
	// +optional
	MHz float64 `json:"mhz,omitempty"`
	// UsagePercent of all cores together.
	// +optional
	UsagePercent float64 `json:"usagePercent,omitempty"`
}

// Memory is in bytes.
type Memory struct {
	// Total managed by the kernel.
	// +optional
	Total int64 `json:"total,omitempty"`
	// Available to new programs.
	// +optional
	Available int64 `json:"available,omitempty"`
	// Used by programs.
	// +optional
	Used int64 `json:"used,omitempty"`
	// Free is not used at all.
	// +optional
	Free int64 `json:"free,omitempty"`
	// Buffers of the kernel.
	// +optional
	Buffers int64 `json:"buffers,omitempty"`
	// Cached files.
	// +optional
	Cached int64 `json:"cached,omitempty"`
	// UsagePercent of the total.
	// +optional
	UsagePercent float64 `json:"usagePercent,omitempty"`
}

// Swap is in bytes.
type Swap struct {
	// Total managed by the kernel.
	// +optional
	Total int64 `json:"total,omitempty"`
	// Used by programs.
	// +optional
	Used int64 `json:"used,omitempty"`
	// Free is not used at all.
	// +optional
	Free int64 `json:"free,omitempty"`
	// UsagePercent of the total.
	// +optional
	UsagePercent float64 `json:"usagePercent,omitempty"`
}

// Disk is one mounted file system; sizes are in bytes.
type Disk struct {
	// Device that holds it.
	// +optional
	Device string `json:"device,omitempty"`
	// MountPoint is the directory at which it is mounted.
	// +optional
	MountPoint string `json:"mountPoint,omitempty"`
	// FSType, such as ext4.
	// +optional
	FSType string `json:"fsType,omitempty"`
	// Total size.
	// +optional
	Total int64 `json:"total,omitempty"`
	// Used part.
	// +optional
	Used int64 `json:"used,omitempty"`
	// Free part.
	// +optional
	Free int64 `json:"free,omitempty"`
	// UsagePercent of the total.
	// +optional
	UsagePercent float64 `json:"usagePercent,omitempty"`
}

// NetworkInterface is one interface with its counters since boot.
type NetworkInterface struct {
	// Name, such as eth0.
	// +optional
	Name string `json:"name,omitempty"`
	// HardwareAddr is the MAC address.
	// +optional
	HardwareAddr string `json:"hardwareAddr,omitempty"`
	// Addresses with their prefix lengths.
	// +optional
	// +listType=atomic
	Addresses []string `json:"addresses,omitempty"`
	// MTU in bytes.
	// +optional
	MTU int32 `json:"mtu,omitempty"`
	// Flags, such as up.
	// +optional
	// +listType=atomic
	Flags []string `json:"flags,omitempty"`
	// BytesSent since boot.
	// +optional
	BytesSent int64 `json:"bytesSent,omitempty"`
	// BytesRecv since boot.
	// +optional
	BytesRecv int64 `json:"bytesRecv,omitempty"`
	// PacketsSent since boot.
	// +optional
	PacketsSent int64 `json:"packetsSent,omitempty"`
	// PacketsRecv since boot.
	// +optional
	PacketsRecv int64 `json:"packetsRecv,omitempty"`
}
