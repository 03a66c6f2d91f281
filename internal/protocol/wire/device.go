package wire

import "time"

// DeviceInfo is what a robot says about itself. Every field is optional.
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
	// Drivers is ours: the names of the drivers that the robot offers. Empty:
	// a document agent, which runs commands only.
	Drivers []string `json:"drivers,omitempty"`
	// Isolation is ours: what the robot can shut a task off with.
	Isolation *Isolations `json:"isolation,omitempty"`
	// TaskUser is ours: who tasks run as that name no user. Empty: it does not say.
	TaskUser string `json:"taskUser,omitempty"`
}

// Isolations are the kinds of isolation that a robot has in force, and those that
// it lacks.
type Isolations struct {
	Available []string           `json:"available,omitempty"`
	Missing   []MissingIsolation `json:"missing,omitempty"`
}

// MissingIsolation says of a kind of isolation why the robot does not have it, and
// how to get it.
type MissingIsolation struct {
	Kind string `json:"kind"`
	Why  string `json:"why,omitempty"`
	How  string `json:"how,omitempty"`
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

// Steady is the device without what always changes: use, counters and time.
// Two robots, or two moments, that differ only in those have equal Steady
// values, so that a heartbeat need not carry it and nobody writes it down.
func (d DeviceInfo) Steady() DeviceInfo {
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
