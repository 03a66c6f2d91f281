package placement

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Room is an amount of what tasks share on a robot.
type Room struct {
	Tasks  int64
	CPU    int64 // in thousandths of a core
	Memory int64 // in bytes
	Disk   int64 // in bytes
	IOPS   int64 // operations a second
	// Devices are the robot's countable things, such as arms.
	Devices Devices
}

// Unlimited is the capacity of a robot that does not say what it has.
const Unlimited = math.MaxInt64

// Device is a number of things of one name.
type Device struct {
	Name  string
	Count int64
}

// Devices are in the order of their names, no name twice and no count zero. A
// robot has a handful, so a list is faster than a map, and costs nothing where
// there are none.
type Devices []Device

// NewDevices puts counts in order.
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

// Of is the number of things of one name.
func (d Devices) Of(name string) int64 {
	for i := range d {
		if d[i].Name == name {
			return d[i].Count
		}
	}
	return 0
}

// plus is d and sign times o together. Neither is changed: rooms are copied
// freely, and the copies share their devices.
func (d Devices) plus(o Devices, sign int64) Devices {
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

// Plus is r and o together.
func (r Room) Plus(o Room) Room { return r.add(o, 1) }

// Minus is r without o.
func (r Room) Minus(o Room) Room { return r.add(o, -1) }

func (r Room) add(o Room, sign int64) Room {
	return Room{
		Tasks:   r.Tasks + sign*o.Tasks,
		CPU:     r.CPU + sign*o.CPU,
		Memory:  r.Memory + sign*o.Memory,
		Disk:    r.Disk + sign*o.Disk,
		IOPS:    r.IOPS + sign*o.IOPS,
		Devices: r.Devices.plus(o.Devices, sign),
	}
}

// Beyond is what r has more than o, part by part.
func (r Room) Beyond(o Room) Room {
	d := r.Minus(o)
	d.Tasks, d.CPU, d.Memory, d.Disk, d.IOPS = max(d.Tasks, 0), max(d.CPU, 0), max(d.Memory, 0), max(d.Disk, 0), max(d.IOPS, 0)
	d.Devices = slices.DeleteFunc(slices.Clone(d.Devices), func(x Device) bool { return x.Count <= 0 })
	return d
}

// Equal tells whether both are the same.
func (r Room) Equal(o Room) bool {
	return r.Tasks == o.Tasks && r.CPU == o.CPU && r.Memory == o.Memory && r.Disk == o.Disk && r.IOPS == o.IOPS &&
		slices.Equal(r.Devices, o.Devices)
}

// The parts of a room, in the order in which they are looked at. Devices
// follow.
const (
	partTasks = iota
	partCPU
	partMemory
	partDisk
	partIOPS
	partDevices
)

// lacks is the first part of r that is not free, or -1. Of a part of which
// nothing is needed a robot may even hold more than it has, because its
// capacity was made smaller.
func (r *Room) lacks(free *Room) int {
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
	}
	for i := range r.Devices {
		if r.Devices[i].Count > free.Devices.Of(r.Devices[i].Name) {
			return partDevices + i
		}
	}
	return -1
}

// parts is how many parts a demand for r may lack.
func (r *Room) parts() int { return partDevices + len(r.Devices) }

// lack is the verdict over a robot that lacks a part: for now, or for ever
// because it never has so much.
func (r *Room) lack(part int, ever bool) Verdict {
	var reason, what string
	switch part {
	case partTasks:
		if ever {
			return Verdict{"TooFewPlaces", fmt.Sprintf("%d tasks are more than it ever runs at a time", r.Tasks)}
		}
		return Verdict{"NoPlaceLeft", "no place left"}
	case partCPU:
		reason, what = "NotEnoughCPU", "cpu "+resource.NewMilliQuantity(r.CPU, resource.DecimalSI).String()
	case partMemory:
		reason, what = "NotEnoughMemory", "memory "+resource.NewQuantity(r.Memory, resource.BinarySI).String()
	case partDisk:
		reason, what = "NotEnoughDisk", "disk "+resource.NewQuantity(r.Disk, resource.BinarySI).String()
	case partIOPS:
		reason, what = "NotEnoughIOPS", fmt.Sprintf("iops %d", r.IOPS)
	default:
		return r.Devices[part-partDevices].lack(ever)
	}
	if ever {
		return Verdict{reason, what + " is more than it has"}
	}
	return Verdict{reason, what + " is not free"}
}

func (d Device) lack(ever bool) Verdict {
	name := d.Name
	if d.Count > 1 {
		name = fmt.Sprintf("%d of %s", d.Count, d.Name)
	}
	if ever {
		return Verdict{"DeviceMissing", name + " missing"}
	}
	return Verdict{"DeviceInUse", name + " in use"}
}

// load is the fullest part in thousandths.
func (r *Room) load(capacity *Room) int64 {
	most := max(
		share(r.Tasks, capacity.Tasks),
		share(r.CPU, capacity.CPU),
		share(r.Memory, capacity.Memory),
		share(r.Disk, capacity.Disk),
		share(r.IOPS, capacity.IOPS),
	)
	for _, d := range r.Devices {
		most = max(most, share(d.Count, capacity.Devices.Of(d.Name)))
	}
	return most
}

func share(held, capacity int64) int64 {
	if held <= 0 || capacity <= 0 || capacity == Unlimited {
		return 0
	}
	return int64(float64(held) / float64(capacity) * 1000)
}
