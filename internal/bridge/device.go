package bridge

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/wire"
)

// The bounds of what a robot may say about itself, as its kind has them.
const (
	maxDisks   = 64
	maxNets    = 64
	maxDrivers = 16
	maxAddrs   = 64
	maxText    = 256

	maxIsolations = 32
)

// deviceStatus writes the device as the Robot kind has it.
func deviceStatus(d *wire.DeviceInfo) *robotv1.DeviceInfo {
	if d == nil {
		return nil
	}
	s := &robotv1.DeviceInfo{
		Hostname: cut(d.Hostname), BootTime: second(d.BootTime), LastUpdated: second(d.LastUpdated),
		Uptime: signed(d.Uptime), Drivers: texts(d.Drivers, maxDrivers), TaskUser: cut(d.TaskUser),
	}
	if p := d.Platform; p != nil {
		s.Platform = &robotv1.Platform{
			OS: cut(p.OS), Arch: cut(p.Arch), Platform: cut(p.Platform), PlatformFamily: cut(p.PlatformFamily),
			PlatformVersion: cut(p.PlatformVersion), KernelVersion: cut(p.KernelVersion), KernelArch: cut(p.KernelArch),
		}
	}
	if c := d.CPU; c != nil {
		s.CPU = &robotv1.CPU{
			PhysicalCores: small(c.PhysicalCores), LogicalCores: small(c.LogicalCores), ModelName: cut(c.ModelName),
			Vendor: cut(c.Vendor), MHz: c.MHz, UsagePercent: c.UsagePercent,
		}
	}
	if m := d.Memory; m != nil {
		s.Memory = &robotv1.Memory{
			Total: signed(m.Total), Available: signed(m.Available), Used: signed(m.Used), Free: signed(m.Free),
			Buffers: signed(m.Buffers), Cached: signed(m.Cached), UsagePercent: m.UsagePercent,
		}
	}
	if w := d.Swap; w != nil {
		s.Swap = &robotv1.Swap{Total: signed(w.Total), Used: signed(w.Used), Free: signed(w.Free), UsagePercent: w.UsagePercent}
	}
	s.Disks, s.NetworkInterfaces = disks(d.Disks), interfaces(d.NetworkInterfaces)
	s.Isolation = isolations(d.Isolation)
	return s
}

func isolations(i *wire.Isolations) *robotv1.Isolations {
	if i == nil {
		return nil
	}
	s := &robotv1.Isolations{Available: texts(i.Available, maxIsolations)}
	for _, m := range i.Missing[:min(len(i.Missing), maxIsolations)] {
		s.Missing = append(s.Missing, robotv1.MissingIsolation{Kind: cut(m.Kind), Why: cut(m.Why), How: cut(m.How)})
	}
	return s
}

func disks(ds []wire.Disk) []robotv1.Disk {
	var out []robotv1.Disk
	for _, d := range ds[:min(len(ds), maxDisks)] {
		out = append(out, robotv1.Disk{
			Device: cut(d.Device), MountPoint: cut(d.MountPoint), FSType: cut(d.FSType),
			Total: signed(d.Total), Used: signed(d.Used), Free: signed(d.Free), UsagePercent: d.UsagePercent,
		})
	}
	return out
}

func interfaces(ns []wire.NetworkInterface) []robotv1.NetworkInterface {
	var out []robotv1.NetworkInterface
	for _, n := range ns[:min(len(ns), maxNets)] {
		out = append(out, robotv1.NetworkInterface{
			Name: cut(n.Name), HardwareAddr: cut(n.HardwareAddr), Addresses: texts(n.Addresses, maxAddrs), MTU: small(n.MTU),
			Flags: texts(n.Flags, maxAddrs), BytesSent: signed(n.BytesSent), BytesRecv: signed(n.BytesRecv),
			PacketsSent: signed(n.PacketsSent), PacketsRecv: signed(n.PacketsRecv),
		})
	}
	return out
}

func texts(ts []string, most int) []string {
	var out []string
	for _, t := range ts[:min(len(ts), most)] {
		out = append(out, cut(t))
	}
	return out
}

// cut bounds a text that is not worth refusing.
func cut(s string) string { return wire.Cut(s, maxText) }

func small(n int) int32 { return int32(max(0, min(n, 1<<20))) }

// second is a time in whole seconds, as the API keeps it. Nil: it is not
// given, or cannot be.
func second(t *time.Time) *metav1.Time {
	if t == nil || t.Year() < 1980 || t.Year() > 2200 {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}

// steady is what of a device is worth a write when it changes: all but use,
// counters and time. It is the same selection that the robots make.
func steady(d *robotv1.DeviceInfo) *robotv1.DeviceInfo {
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
