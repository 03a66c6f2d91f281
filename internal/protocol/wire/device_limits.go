package wire

import (
	"encoding/json"
	"slices"
)

// MaxDevice bounds the device information of one robot, in bytes of JSON.
const MaxDevice = 16 << 10

// MaxDeviceItems bounds the disks and the network interfaces of a device, and the addresses and
// flags of an interface.
const MaxDeviceItems = 64

// maxUnmarked bounds the device without Truncated.
const maxUnmarked = MaxDevice - len(`,"truncated":["disks","drivers","isolation","networkInterfaces"]`)

const (
	maxDrivers    = 16
	maxIsolations = 32
	maxDeviceText = 256
	// shortDeviceText is short enough that the texts outside of lists fit MaxDevice, whatever
	// they contain.
	shortDeviceText = 64
)

// deviceListNames are the lists of a device that may be cut, as Truncated names them.
var deviceListNames = []string{"disks", "drivers", "isolation", "networkInterfaces"}

// WithinLimits returns the device with shorter texts and lists, so that it fits MaxDevice.
// Truncated names the lists that were cut, here or before by the agent.
func (d DeviceInfo) WithinLimits() DeviceInfo {
	known := slices.DeleteFunc(slices.Clone(d.Truncated), func(name string) bool { return !slices.Contains(deviceListNames, name) })
	d.Truncated = nil
	d = d.withShortTexts(maxDeviceText)
	lists := d.cloneLists()
	if size := jsonSize(d); size > maxUnmarked {
		cutLists(lists, size-maxUnmarked)
		if jsonSize(d) > maxUnmarked {
			d = d.withShortTexts(shortDeviceText)
		}
	}
	for _, l := range lists {
		if l.isCut {
			known = append(known, l.name)
		}
	}
	if len(known) > 0 {
		slices.Sort(known)
		d.Truncated = slices.Compact(known)
	}
	return d
}

// deviceList is one list of a device.
type deviceList struct {
	name  string
	sizes []int // of the items, in bytes of JSON
	bytes int   // their sum
	isCut bool
	keep  func(n int) // cuts the list to its first n items
}

// cutLists removes the last items of the longest lists, until their sizes have decreased by excess.
func cutLists(lists []*deviceList, excess int) {
	for excess > 0 {
		longest := slices.MaxFunc(lists, func(a, b *deviceList) int { return a.bytes - b.bytes })
		last := len(longest.sizes) - 1
		if last < 0 {
			return
		}
		excess -= longest.sizes[last]
		longest.bytes -= longest.sizes[last]
		longest.sizes, longest.isCut = longest.sizes[:last], true
		longest.keep(last)
	}
}

// cloneLists replaces the lists by copies within the bounds of their lengths, and returns them.
func (d *DeviceInfo) cloneLists() []*deviceList {
	lists := []*deviceList{
		cloneList("disks", &d.Disks, MaxDeviceItems),
		cloneList("networkInterfaces", &d.NetworkInterfaces, MaxDeviceItems),
		cloneList("drivers", &d.Drivers, maxDrivers),
	}
	interfaces := lists[1]
	for i := range d.NetworkInterfaces {
		n := &d.NetworkInterfaces[i]
		interfaces.isCut = interfaces.isCut || len(n.Addresses) > MaxDeviceItems || len(n.Flags) > MaxDeviceItems
		n.Addresses, n.Flags = n.Addresses[:min(len(n.Addresses), MaxDeviceItems)], n.Flags[:min(len(n.Flags), MaxDeviceItems)]
	}
	interfaces.measure(len(d.NetworkInterfaces), func(i int) any { return d.NetworkInterfaces[i] })
	if d.Isolation != nil {
		copied := *d.Isolation
		d.Isolation = &copied
		lists = append(lists, cloneList("isolation", &copied.Available, maxIsolations), cloneList("isolation", &copied.Missing, maxIsolations))
	}
	return lists
}

func cloneList[T any](name string, items *[]T, most int) *deviceList {
	l := &deviceList{name: name, isCut: len(*items) > most, keep: func(n int) { *items = (*items)[:n] }}
	*items = slices.Clone((*items)[:min(len(*items), most)])
	l.measure(len(*items), func(i int) any { return (*items)[i] })
	return l
}

// measure sets the sizes of n items.
func (l *deviceList) measure(n int, item func(i int) any) {
	l.sizes, l.bytes = nil, 0
	for i := range n {
		size := jsonSize(item(i)) + len(",")
		l.sizes, l.bytes = append(l.sizes, size), l.bytes+size
	}
}

// jsonSize returns the encoded size. Values that cannot be encoded, such as NaN, have none.
func jsonSize(v any) int {
	text, err := json.Marshal(v)
	if err != nil {
		return 0
	}
	return len(text)
}

// withShortTexts returns the device with each text truncated to at most n bytes.
func (d DeviceInfo) withShortTexts(n int) DeviceInfo {
	short := func(s string) string { return TruncateText(s, n) }
	d.Hostname, d.TaskUser = short(d.Hostname), short(d.TaskUser)
	if p := d.Platform; p != nil {
		d.Platform = &Platform{
			OS: short(p.OS), Arch: short(p.Arch), Platform: short(p.Platform), PlatformFamily: short(p.PlatformFamily),
			PlatformVersion: short(p.PlatformVersion), KernelVersion: short(p.KernelVersion), KernelArch: short(p.KernelArch),
		}
	}
	if d.CPU != nil {
		c := *d.CPU
		c.ModelName, c.Vendor = short(c.ModelName), short(c.Vendor)
		d.CPU = &c
	}
	d.Drivers = mapTexts(d.Drivers, short)
	d.Disks = mapItems(d.Disks, func(k Disk) Disk {
		k.Device, k.MountPoint, k.FSType = short(k.Device), short(k.MountPoint), short(k.FSType)
		return k
	})
	d.NetworkInterfaces = mapItems(d.NetworkInterfaces, func(i NetworkInterface) NetworkInterface {
		i.Name, i.HardwareAddr = short(i.Name), short(i.HardwareAddr)
		i.Addresses, i.Flags = mapTexts(i.Addresses, short), mapTexts(i.Flags, short)
		return i
	})
	if d.Isolation != nil {
		d.Isolation = &Isolations{Available: mapTexts(d.Isolation.Available, short), Missing: mapItems(d.Isolation.Missing, func(m MissingIsolation) MissingIsolation {
			return MissingIsolation{Kind: short(m.Kind), Reason: short(m.Reason), Remedy: short(m.Remedy)}
		})}
	}
	return d
}

func mapTexts(texts []string, to func(string) string) []string { return mapItems(texts, to) }

// mapItems returns a new list of the same length. Nil stays nil.
func mapItems[T any](items []T, to func(T) T) []T {
	if items == nil {
		return nil
	}
	all := make([]T, len(items))
	for i, item := range items {
		all[i] = to(item)
	}
	return all
}
