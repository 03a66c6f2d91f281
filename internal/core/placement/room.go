package placement

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Room is an amount of each resource that tasks share on a robot.
type Room struct {
	Tasks  int64
	CPU    int64 // in thousandths of a core
	Memory int64 // in bytes
	Disk   int64 // in bytes
	IOPS   int64 // operations a second
	MBits  int64 // megabits a second
	// Devices are countable devices of the robot, such as arms.
	Devices Devices
}

// Unlimited is the capacity of a robot that reports none.
const Unlimited = math.MaxInt64

// Device is a number of devices with the same name.
type Device struct {
	Name  string
	Count int64
}

// Devices are sorted by name, without duplicates and zero counts. A robot has a handful, so a
// list is faster than a map and costs nothing if it is empty.
type Devices []Device

// NewDevices returns counts as a sorted list.
func NewDevices(counts map[string]int64) Devices {
	var out Devices
	for name, n := range counts {
		if n != 0 {
			out = append(out, Device{name, n})
		}
	}
	slices.SortFunc(out, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// CountOf returns the number of devices of one name.
func (d Devices) CountOf(name string) int64 {
	for i := range d {
		if d[i].Name == name {
			return d[i].Count
		}
	}
	return 0
}

// addScaled returns d plus sign times o. Neither is changed: copies of a Room share their
// devices.
func (d Devices) addScaled(o Devices, sign int64) Devices {
	if len(o) == 0 {
		return d
	}
	out := make(Devices, 0, len(d)+len(o))
	add := func(name string, n int64) {
		if n != 0 {
			out = append(out, Device{name, n})
		}
	}
	for len(d) > 0 && len(o) > 0 {
		switch c := strings.Compare(d[0].Name, o[0].Name); {
		case c < 0:
			out, d = append(out, d[0]), d[1:]
		case c > 0:
			add(o[0].Name, sign*o[0].Count)
			o = o[1:]
		default:
			add(d[0].Name, d[0].Count+sign*o[0].Count)
			d, o = d[1:], o[1:]
		}
	}
	out = append(out, d...)
	for _, x := range o {
		add(x.Name, sign*x.Count)
	}
	return slices.Clip(out)
}

// Plus returns r + o.
func (r Room) Plus(o Room) Room { return r.addScaled(o, 1) }

// Minus returns r - o.
func (r Room) Minus(o Room) Room { return r.addScaled(o, -1) }

func (r Room) addScaled(o Room, sign int64) Room {
	return Room{
		Tasks:   r.Tasks + sign*o.Tasks,
		CPU:     r.CPU + sign*o.CPU,
		Memory:  r.Memory + sign*o.Memory,
		Disk:    r.Disk + sign*o.Disk,
		IOPS:    r.IOPS + sign*o.IOPS,
		MBits:   r.MBits + sign*o.MBits,
		Devices: r.Devices.addScaled(o.Devices, sign),
	}
}

// Beyond returns, part by part, by how much r exceeds o.
func (r Room) Beyond(o Room) Room {
	d := r.Minus(o)
	d.Tasks, d.CPU, d.Memory, d.Disk = max(d.Tasks, 0), max(d.CPU, 0), max(d.Memory, 0), max(d.Disk, 0)
	d.IOPS, d.MBits = max(d.IOPS, 0), max(d.MBits, 0)
	d.Devices = slices.DeleteFunc(slices.Clone(d.Devices), func(x Device) bool { return x.Count <= 0 })
	return d
}

// Equal reports whether both rooms are the same.
func (r Room) Equal(o Room) bool {
	return r.Tasks == o.Tasks && r.CPU == o.CPU && r.Memory == o.Memory && r.Disk == o.Disk && r.IOPS == o.IOPS && r.MBits == o.MBits &&
		slices.Equal(r.Devices, o.Devices)
}

// The parts of a room, in the order in which they are compared. Devices follow.
const (
	partTasks = iota
	partCPU
	partMemory
	partDisk
	partIOPS
	partMBits
	partDevices
)

// lackingPartOf returns the first part of r that is not free, or -1. A robot may hold more of a
// part than its capacity, because the capacity was reduced; that does not matter to a demand that
// needs none of it.
func (r *Room) lackingPartOf(free *Room) int {
	switch {
	case r.Tasks > free.Tasks:
		return partTasks
	case r.CPU > free.CPU && r.CPU > 0:
		return partCPU
	case r.Memory > free.Memory && r.Memory > 0:
		return partMemory
	case r.Disk > free.Disk && r.Disk > 0:
		return partDisk
	case r.IOPS > free.IOPS && r.IOPS > 0:
		return partIOPS
	case r.MBits > free.MBits && r.MBits > 0:
		return partMBits
	}
	for i := range r.Devices {
		if r.Devices[i].Count > free.Devices.CountOf(r.Devices[i].Name) {
			return partDevices + i
		}
	}
	return -1
}

// partCount returns the number of parts that a demand for r may lack.
func (r *Room) partCount() int { return partDevices + len(r.Devices) }

// rejectPart returns the rejection of a robot that lacks a part, either because it is in use or
// because the robot's capacity is too small.
func (r *Room) rejectPart(part int, tooSmall bool) Rejection {
	if part >= partDevices {
		return r.Devices[part-partDevices].rejectDevice(tooSmall)
	}
	checks := &partChecks[part]
	if tooSmall {
		return Rejection{Check: checks.capacity, Want: r.partText(part)}
	}
	return Rejection{Check: checks.free, Want: r.partText(part)}
}

// partChecks are the names of the checks of each part but devices.
var partChecks = [partDevices]struct{ free, capacity CheckName }{
	partTasks:  {CheckFreeTasks, CheckTaskCapacity},
	partCPU:    {CheckFreeCPU, CheckCPUCapacity},
	partMemory: {CheckFreeMemory, CheckMemoryCapacity},
	partDisk:   {CheckFreeDisk, CheckDiskCapacity},
	partIOPS:   {CheckFreeIOPS, CheckIOPSCapacity},
	partMBits:  {CheckFreeMBits, CheckMBitsCapacity},
}

// partText returns the amount of a part as Kubernetes writes it.
func (r *Room) partText(part int) string {
	switch part {
	case partCPU:
		return resource.NewMilliQuantity(r.CPU, resource.DecimalSI).String()
	case partMemory:
		return resource.NewQuantity(r.Memory, resource.BinarySI).String()
	case partDisk:
		return resource.NewQuantity(r.Disk, resource.BinarySI).String()
	case partIOPS:
		return strconv.FormatInt(r.IOPS, 10)
	case partMBits:
		return strconv.FormatInt(r.MBits, 10)
	}
	return strconv.FormatInt(r.Tasks, 10)
}

func (d Device) rejectDevice(tooSmall bool) Rejection {
	want := d.Name
	if d.Count > 1 {
		want = fmt.Sprintf("%d of %s", d.Count, d.Name)
	}
	if tooSmall {
		return Rejection{Check: CheckDeviceCapacity, Want: want}
	}
	return Rejection{Check: CheckFreeDevices, Want: want}
}

// loadShare returns the load of the most loaded part in thousandths.
func (r *Room) loadShare(capacity *Room) int64 {
	most := max(
		thousandths(r.Tasks, capacity.Tasks),
		thousandths(r.CPU, capacity.CPU),
		thousandths(r.Memory, capacity.Memory),
		thousandths(r.Disk, capacity.Disk),
		thousandths(r.IOPS, capacity.IOPS),
		thousandths(r.MBits, capacity.MBits),
	)
	for _, d := range r.Devices {
		most = max(most, thousandths(d.Count, capacity.Devices.CountOf(d.Name)))
	}
	return most
}

func thousandths(held, capacity int64) int64 {
	if held <= 0 || capacity <= 0 || capacity == Unlimited {
		return 0
	}
	return int64(float64(held) / float64(capacity) * 1000)
}
