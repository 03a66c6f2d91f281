package gateway

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// maxText bounds the texts of the Robot kind.
const maxText = 256

// deviceWithinLimits returns the device information within the limits of the Robot kind, or nil.
func deviceWithinLimits(d *wire.DeviceInfo) *wire.DeviceInfo {
	if d == nil {
		return nil
	}
	return new(d.WithinLimits())
}

// deviceStatus converts device information, which is within limits, to the API type.
func deviceStatus(d *wire.DeviceInfo) *robotv1.DeviceInfo {
	if d == nil {
		return nil
	}
	s := &robotv1.DeviceInfo{
		Hostname: d.Hostname, BootTime: toSeconds(d.BootTime), LastUpdated: toSeconds(d.LastUpdated),
		Uptime: toInt64(d.Uptime), Drivers: d.Drivers, TaskUser: d.TaskUser, Truncated: d.Truncated,
	}
	if p := d.Platform; p != nil {
		s.Platform = &robotv1.Platform{
			OS: p.OS, Arch: p.Arch, Platform: p.Platform, PlatformFamily: p.PlatformFamily,
			PlatformVersion: p.PlatformVersion, KernelVersion: p.KernelVersion, KernelArch: p.KernelArch,
		}
	}
	if c := d.CPU; c != nil {
		s.CPU = &robotv1.CPU{
			PhysicalCores: toInt32(c.PhysicalCores), LogicalCores: toInt32(c.LogicalCores), ModelName: c.ModelName,
			Vendor: c.Vendor, MHz: c.MHz, UsagePercent: c.UsagePercent,
		}
	}
	if m := d.Memory; m != nil {
		s.Memory = &robotv1.Memory{
			Total: toInt64(m.Total), Available: toInt64(m.Available), Used: toInt64(m.Used), Free: toInt64(m.Free),
			Buffers: toInt64(m.Buffers), Cached: toInt64(m.Cached), UsagePercent: m.UsagePercent,
		}
	}
	if w := d.Swap; w != nil {
		s.Swap = &robotv1.Swap{Total: toInt64(w.Total), Used: toInt64(w.Used), Free: toInt64(w.Free), UsagePercent: w.UsagePercent}
	}
	s.Disks, s.NetworkInterfaces = diskStatus(d.Disks), interfaceStatus(d.NetworkInterfaces)
	s.Isolation = isolationStatus(d.Isolation)
	return s
}

func isolationStatus(i *wire.Isolations) *robotv1.Isolations {
	if i == nil {
		return nil
	}
	s := &robotv1.Isolations{Available: i.Available}
	for _, m := range i.Missing {
		s.Missing = append(s.Missing, robotv1.MissingIsolation{Kind: m.Kind, Reason: m.Reason, Remedy: m.Remedy})
	}
	return s
}

func diskStatus(ds []wire.Disk) []robotv1.Disk {
	var out []robotv1.Disk
	for _, d := range ds {
		out = append(out, robotv1.Disk{
			Device: d.Device, MountPoint: d.MountPoint, FSType: d.FSType,
			Total: toInt64(d.Total), Used: toInt64(d.Used), Free: toInt64(d.Free), UsagePercent: d.UsagePercent,
		})
	}
	return out
}

func interfaceStatus(ns []wire.NetworkInterface) []robotv1.NetworkInterface {
	var out []robotv1.NetworkInterface
	for _, n := range ns {
		out = append(out, robotv1.NetworkInterface{
			Name: n.Name, HardwareAddr: n.HardwareAddr, Addresses: n.Addresses, MTU: toInt32(n.MTU),
			Flags: n.Flags, BytesSent: toInt64(n.BytesSent), BytesRecv: toInt64(n.BytesRecv),
			PacketsSent: toInt64(n.PacketsSent), PacketsRecv: toInt64(n.PacketsRecv),
		})
	}
	return out
}

func truncateText(s string) string { return wire.TruncateText(s, maxText) }

func toInt32(n int) int32 { return int32(max(0, min(n, 1<<20))) }

// toSeconds returns a time in whole seconds, as the API stores it, or nil if it is
// missing or implausible.
func toSeconds(t *time.Time) *metav1.Time {
	if t == nil || t.Year() < 1980 || t.Year() > 2200 {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}

// withoutUsage returns the fields whose change is worth a write: all but usage, counters
// and times. Robots select the same.
func withoutUsage(d *robotv1.DeviceInfo) *robotv1.DeviceInfo {
	if d == nil {
		return nil
	}
	s := d.DeepCopy()
	s.LastUpdated, s.Uptime = nil, 0
	if s.CPU != nil {
		s.CPU.MHz, s.CPU.UsagePercent = 0, 0
	}
	if s.Memory != nil {
		s.Memory = &robotv1.Memory{Total: s.Memory.Total}
	}
	if s.Swap != nil {
		s.Swap = &robotv1.Swap{Total: s.Swap.Total}
	}
	for i, k := range s.Disks {
		s.Disks[i] = robotv1.Disk{Device: k.Device, MountPoint: k.MountPoint, FSType: k.FSType, Total: k.Total}
	}
	for i := range s.NetworkInterfaces {
		n := &s.NetworkInterfaces[i]
		n.BytesSent, n.BytesRecv, n.PacketsSent, n.PacketsRecv = 0, 0, 0, 0
	}
	return s
}
