package agent

import (
	"runtime"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/mem"
	"github.com/shirou/gopsutil/v4/net"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// The most disks and interfaces that are reported: a machine with many containers has
// hundreds that are not the robot's.
const (
	maxDisks      = 16
	maxInterfaces = 16
)

// deviceReader reads the device information of the robot. What cannot be read is left out.
type deviceReader struct {
	drivers func() []string
	now     func() time.Time
	fixed   wire.DeviceInfo // does not change while the agent runs
}

func newDeviceReader(drivers func() []string, confines isolation.Host, taskUser string, now func() time.Time) *deviceReader {
	t := &deviceReader{drivers: drivers, now: now}
	t.fixed.Isolation, t.fixed.TaskUser = isolationInfo(confines), taskUser
	if h, err := host.Info(); err == nil {
		t.fixed.Hostname = h.Hostname
		t.fixed.Platform = &wire.Platform{
			OS: h.OS, Arch: runtime.GOARCH, Platform: h.Platform, PlatformFamily: h.PlatformFamily,
			PlatformVersion: h.PlatformVersion, KernelVersion: h.KernelVersion, KernelArch: h.KernelArch,
		}
		// Read once: the kernel computes it from the clock, and a clock that
		// is being set would make the device look changed.
		boot := time.Unix(int64(h.BootTime), 0).UTC()
		t.fixed.BootTime = &boot
	}
	t.fixed.CPU = readCPU()
	return t
}

func isolationInfo(h isolation.Host) *wire.Isolations {
	i := &wire.Isolations{}
	for _, f := range h.Allowed {
		i.Available = append(i.Available, string(f))
	}
	for _, l := range h.Missing {
		i.Missing = append(i.Missing, wire.MissingIsolation{Kind: string(l.Fact), Reason: l.Reason, Remedy: l.Remedy})
	}
	return i
}

func readCPU() *wire.CPU {
	c := &wire.CPU{}
	c.PhysicalCores, _ = cpu.Counts(false)
	c.LogicalCores, _ = cpu.Counts(true)
	if all, err := cpu.Info(); err == nil && len(all) > 0 {
		c.ModelName, c.Vendor, c.MHz = all[0].ModelName, all[0].VendorID, all[0].Mhz
	}
	return c
}

// readDevice returns the current device information.
func (t *deviceReader) readDevice() wire.DeviceInfo {
	d, now := t.fixed, t.now().UTC()
	d.Drivers = t.drivers()
	d.LastUpdated = &now
	if d.BootTime != nil {
		d.Uptime = uint64(max(now.Sub(*d.BootTime), 0) / time.Second)
	}
	c := *t.fixed.CPU
	if use, err := cpu.Percent(0, false); err == nil && len(use) == 1 {
		c.UsagePercent = use[0]
	}
	d.CPU = &c
	d.Memory, d.Swap = readMemory()
	var hasMoreDisks, hasMoreInterfaces bool
	d.Disks, hasMoreDisks = readDisks()
	d.NetworkInterfaces, hasMoreInterfaces = readNetworkInterfaces()
	if hasMoreDisks {
		d.Truncated = append(d.Truncated, "disks")
	}
	if hasMoreInterfaces {
		d.Truncated = append(d.Truncated, "networkInterfaces")
	}
	return d.WithinLimits()
}

func readMemory() (*wire.Memory, *wire.Swap) {
	var m *wire.Memory
	var s *wire.Swap
	if v, err := mem.VirtualMemory(); err == nil {
		m = &wire.Memory{
			Total: v.Total, Available: v.Available, Used: v.Used, Free: v.Free,
			Buffers: v.Buffers, Cached: v.Cached, UsagePercent: v.UsedPercent,
		}
	}
	if v, err := mem.SwapMemory(); err == nil {
		s = &wire.Swap{Total: v.Total, Used: v.Used, Free: v.Free, UsagePercent: v.UsedPercent}
	}
	return m, s
}

// readDisks returns at most maxDisks, and whether there are more.
func readDisks() (all []wire.Disk, hasMore bool) {
	parts, _ := disk.Partitions(false)
	for _, p := range parts[:min(len(parts), maxDisks)] {
		d := wire.Disk{Device: p.Device, MountPoint: p.Mountpoint, FSType: p.Fstype}
		if u, err := disk.Usage(p.Mountpoint); err == nil {
			d.Total, d.Used, d.Free, d.UsagePercent = u.Total, u.Used, u.Free, u.UsedPercent
		}
		all = append(all, d)
	}
	return all, len(parts) > maxDisks
}

// readNetworkInterfaces returns at most maxInterfaces, and whether there are more.
func readNetworkInterfaces() (all []wire.NetworkInterface, hasMore bool) {
	list, _ := net.Interfaces()
	counters := map[string]net.IOCountersStat{}
	if io, err := net.IOCounters(true); err == nil {
		for _, c := range io {
			counters[c.Name] = c
		}
	}
	for _, i := range list[:min(len(list), maxInterfaces)] {
		c := counters[i.Name]
		n := wire.NetworkInterface{
			Name: i.Name, HardwareAddr: i.HardwareAddr, MTU: i.MTU, Flags: i.Flags,
			BytesSent: c.BytesSent, BytesRecv: c.BytesRecv, PacketsSent: c.PacketsSent, PacketsRecv: c.PacketsRecv,
		}
		for _, a := range i.Addrs {
			n.Addresses = append(n.Addresses, a.Addr)
		}
		all = append(all, n)
	}
	return all, len(list) > maxInterfaces
}
