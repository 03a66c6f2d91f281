package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Robot is a machine in the field that runs tasks.
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

	// Spec is what an operator says of the robot.
	Spec RobotSpec `json:"spec"`
	// Status is what the robot says of itself, and what has come of it.
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

// RobotSpec is what an operator says of a robot.
type RobotSpec struct {
	// RobotID names the robot in the whole cluster. It cannot change.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must be 1 to 63 characters of a-z, 0-9 and '-', and start and end with a letter or digit, because it becomes a part of MQTT topics"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot change; create another Robot"
	RobotID string `json:"robotId"`
	// Description for people.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// Labels that selectors and constraints see, beside those in
	// metadata.labels. Where both have a name, this one counts. A label
	// share.robot.k8s4r.io/NAMESPACE shares the robot in metadata.labels only.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
	// Unschedulable keeps new tasks away. Running ones stay.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty"`
	// Drain keeps new tasks away too, and stops those that run here, so that
	// they run again elsewhere.
	// +optional
	Drain bool `json:"drain,omitempty"`
	// Capacity of the robot. cpu, memory and disk replace what the robot says
	// of itself, iops are what its disks do in a second, tasks bounds how many
	// tasks it runs at a time (64 when not set), and any other name is a
	// countable device, such as arm: 1.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Capacity map[string]resource.Quantity `json:"capacity,omitempty"`
	// Identity is what an operator decides about who may be this robot.
	// +optional
	Identity *RobotIdentitySpec `json:"identity,omitempty"`
}

// The names in Robot.spec.capacity that mean something by themselves.
const (
	CapacityCPU    = "cpu"
	CapacityMemory = "memory"
	CapacityDisk   = "disk"
	CapacityIOPS   = "iops"
	CapacityTasks  = "tasks"
)

// The dialects that an agent can speak.
const (
	// ProtocolDocument is MQTT 3.1.1 on shared topics, without attempts.
	ProtocolDocument = "document"
	// ProtocolK8s4r is MQTT 5 on the robot's own topics.
	ProtocolK8s4r = "k8s4r"
)

// RobotStatus is what is known of a robot.
type RobotStatus struct {
	// Phase is written only by the manager, but for the first Pending, which the
	// server writes with the object.
	// +optional
	// +kubebuilder:validation:Enum=Pending;Online;Offline;Unknown;pending;online;offline;unknown
	Phase string `json:"phase,omitempty"`
	// LastHeartbeatTime is written only by the server, at least every third of
	// the time after which a silent robot is offline.
	// +optional
	LastHeartbeatTime *metav1.MicroTime `json:"lastHeartbeatTime,omitempty"`
	// AcknowledgedUntil is the time up to which the server acknowledges
	// heartbeats: it moves this on before it acknowledges a later one. Who fences
	// itself counts from the last acknowledged one, so the manager counts from
	// here. Written only by the server.
	// +optional
	AcknowledgedUntil *metav1.MicroTime `json:"acknowledgedUntil,omitempty"`
	// Message for people about the phase. Written only by the manager, but
	// for the first one, which the server writes with the object.
	// +optional
	Message string `json:"message,omitempty"`
	// RunningTasks is how many tasks the robot holds. Written only by the
	// manager, a few seconds late.
	// +optional
	RunningTasks int32 `json:"runningTasks"`
	// DeviceInfo is the robot's own word. Written only by the server.
	// +optional
	DeviceInfo *DeviceInfo `json:"deviceInfo,omitempty"`
	// Agent is the program on the robot. Written only by the server.
	// +optional
	Agent *AgentInfo `json:"agent,omitempty"`
	// Identity that the robot has proven. Nil: it never joined.
	// +optional
	Identity *RobotIdentity `json:"identity,omitempty"`
	// Conditions: Connected, Responsive and Authenticated are the server's,
	// Approved, Identity and IdentityDisputed are the manager's.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AgentInfo is the program on the robot.
type AgentInfo struct {
	// Protocol that it speaks: k8s4r or document.
	// +optional
	// +kubebuilder:validation:Enum=k8s4r;document
	Protocol string `json:"protocol,omitempty"`
	// Version of the program. Empty: it does not say.
	// +optional
	Version string `json:"version,omitempty"`
	// Address where people can reach the robot. Empty: it does not say.
	// +optional
	Address string `json:"address,omitempty"`
}

// DeviceInfo is what a robot says about itself. Every field is optional.
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
	// Drivers that the robot offers. Empty: those of a document agent, which
	// runs commands.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Drivers []string `json:"drivers,omitempty"`
	// Isolation that the robot has for its tasks.
	// +optional
	Isolation *Isolations `json:"isolation,omitempty"`
	// TaskUser is who tasks run as that name no user. Empty: it does not say.
	// +optional
	TaskUser string `json:"taskUser,omitempty"`
}

// Isolations are the kinds of isolation that a robot has in force, and those that
// it lacks.
type Isolations struct {
	// Available kinds, which tasks may require.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Available []string `json:"available,omitempty"`
	// Missing kinds.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Missing []MissingIsolation `json:"missing,omitempty"`
}

// MissingIsolation is a kind of isolation that a robot does not have.
type MissingIsolation struct {
	// Kind, as a task would require it.
	Kind string `json:"kind"`
	// Why the robot does not have it.
	// +optional
	Why string `json:"why,omitempty"`
	// How to get it.
	// +optional
	How string `json:"how,omitempty"`
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
	// MHz is the clock.
	// +optional
	MHz float64 `json:"mhz,omitempty"`
	// UsagePercent of all cores together.
	// +optional
	UsagePercent float64 `json:"usagePercent,omitempty"`
}

// Memory is in bytes.
type Memory struct {
	// Total that the kernel has.
	// +optional
	Total int64 `json:"total,omitempty"`
	// Available to new programs.
	// +optional
	Available int64 `json:"available,omitempty"`
	// Used by programs.
	// +optional
	Used int64 `json:"used,omitempty"`
	// Free of any use.
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
	// Total that the kernel has.
	// +optional
	Total int64 `json:"total,omitempty"`
	// Used by programs.
	// +optional
	Used int64 `json:"used,omitempty"`
	// Free of any use.
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
	// MountPoint is the directory that it appears at.
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
