package wire

import "time"

// DeviceInfo is what the agent reports about the machine. Every field is optional.
type DeviceInfo struct {
	Hostname          string             `json:"hostname,omitempty"`
	Platform          *Platform          `json:"platform,omitempty"`
	CPU               *CPU               `json:"cpu,omitempty"`
	Memory            *Memory            `json:"memory,omitempty"`
	Swap              *Swap              `json:"swap,omitempty"`
	Disks             []Disk             `json:"disks,omitempty"`
	NetworkInterfaces []NetworkInterface `json:"networkInterfaces,omitempty"`
	BootTime          *time.Time         `json:"bootTime,omitempty"`
	LastUpdated       *time.Time         `json:"lastUpdated,omitempty"`
	// Uptime is in seconds.
	Uptime uint64 `json:"uptime,omitempty"`
	// Drivers (v2) are the names of the supported drivers. If empty, exec and raw_exec, as with
	// legacy agents.
	Drivers []string `json:"drivers,omitempty"`
	// Isolation (v2) lists the supported kinds of isolation.
	Isolation *Isolations `json:"isolation,omitempty"`
	// TaskUser (v2) is the Unix user of tasks that do not set one.
	TaskUser string `json:"taskUser,omitempty"`
	// Truncated (v2) names the lists that were cut, so that the device fits MaxDevice.
	Truncated []string `json:"truncated,omitempty"`
}

// Isolations lists the kinds of isolation that a robot supports, and those that it does not.
type Isolations struct {
	Available []string           `json:"available,omitempty"`
	Missing   []MissingIsolation `json:"missing,omitempty"`
}

// MissingIsolation is a kind of isolation that a robot does not support, with the reason and a
// remedy.
type MissingIsolation struct {
	Kind   string `json:"kind"`
	Reason string `json:"reason,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// Platform is the operating system and kernel.
type Platform struct {
	OS              string `json:"os,omitempty"`
	Arch            string `json:"arch,omitempty"`
	Platform        string `json:"platform,omitempty"`
	PlatformFamily  string `json:"platformFamily,omitempty"`
	PlatformVersion string `json:"platformVersion,omitempty"`
	KernelVersion   string `json:"kernelVersion,omitempty"`
	KernelArch      string `json:"kernelArch,omitempty"`
}

// CPU describes the processor.
type CPU struct {
	PhysicalCores int     `json:"physicalCores,omitempty"`
	LogicalCores  int     `json:"logicalCores,omitempty"`
	ModelName     string  `json:"modelName,omitempty"`
	Vendor        string  `json:"vendor,omitempty"`
	MHz           float64 `json:"mhz,omitempty"`
	UsagePercent  float64 `json:"usagePercent,omitempty"`
}

// Memory is in bytes.
type Memory struct {
	Total        uint64  `json:"total,omitempty"`
	Available    uint64  `json:"available,omitempty"`
	Used         uint64  `json:"used,omitempty"`
	Free         uint64  `json:"free,omitempty"`
	Buffers      uint64  `json:"buffers,omitempty"`
	Cached       uint64  `json:"cached,omitempty"`
	UsagePercent float64 `json:"usagePercent,omitempty"`
}

// Swap is in bytes.
type Swap struct {
	Total        uint64  `json:"total,omitempty"`
	Used         uint64  `json:"used,omitempty"`
	Free         uint64  `json:"free,omitempty"`
	UsagePercent float64 `json:"usagePercent,omitempty"`
}

// Disk is one mounted file system; sizes are in bytes.
type Disk struct {
	Device       string  `json:"device,omitempty"`
	MountPoint   string  `json:"mountPoint,omitempty"`
	FSType       string  `json:"fsType,omitempty"`
	Total        uint64  `json:"total,omitempty"`
	Used         uint64  `json:"used,omitempty"`
	Free         uint64  `json:"free,omitempty"`
	UsagePercent float64 `json:"usagePercent,omitempty"`
}

// NetworkInterface is one interface with its counters since boot.
type NetworkInterface struct {
	Name         string   `json:"name,omitempty"`
	HardwareAddr string   `json:"hardwareAddr,omitempty"`
	Addresses    []string `json:"addresses,omitempty"`
	MTU          int      `json:"mtu,omitempty"`
	Flags        []string `json:"flags,omitempty"`
	BytesSent    uint64   `json:"bytesSent,omitempty"`
	BytesRecv    uint64   `json:"bytesRecv,omitempty"`
	PacketsSent  uint64   `json:"packetsSent,omitempty"`
	PacketsRecv  uint64   `json:"packetsRecv,omitempty"`
}

// WithoutUsage returns the device without usage, counters and times, which always change.
// Heartbeats and Robot objects are updated only if the result changes.
func (d DeviceInfo) WithoutUsage() DeviceInfo {
	d.LastUpdated, d.Uptime = nil, 0
	if d.CPU != nil {
		c := *d.CPU
		c.MHz, c.UsagePercent = 0, 0
		d.CPU = &c
	}
	if d.Memory != nil {
		d.Memory = &Memory{Total: d.Memory.Total}
	}
	if d.Swap != nil {
		d.Swap = &Swap{Total: d.Swap.Total}
	}
	disks := make([]Disk, len(d.Disks))
	for i, k := range d.Disks {
		disks[i] = Disk{Device: k.Device, MountPoint: k.MountPoint, FSType: k.FSType, Total: k.Total}
	}
	d.Disks = disks
	nets := make([]NetworkInterface, len(d.NetworkInterfaces))
	for i, n := range d.NetworkInterfaces {
		n.BytesSent, n.BytesRecv, n.PacketsSent, n.PacketsRecv = 0, 0, 0, 0
		nets[i] = n
	}
	d.NetworkInterfaces = nets
	return d
}
