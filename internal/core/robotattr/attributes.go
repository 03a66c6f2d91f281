// Package robotattr returns the labels and attributes of a Robot that jobs can refer to.
package robotattr

import (
	"maps"
	"strconv"
	"strings"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// TaskVisibleLabels returns the labels of metadata and spec; spec wins. Tasks can read them, so
// labels that show with which namespaces the robot is shared are left out.
func TaskVisibleLabels(r *v1alpha1.Robot) map[string]string {
	all := make(map[string]string, len(r.Labels)+len(r.Spec.Labels))
	maps.Copy(all, r.Labels)
	maps.Copy(all, r.Spec.Labels)
	maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasPrefix(name, v1alpha1.ShareLabelPrefix) })
	return all
}

// HasLabels reports whether a robot with these labels has all labels of a selector.
func HasLabels(labels, selector map[string]string) bool {
	for key, value := range selector {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// Attributes returns the values that constraints and tasks use as ${robot.attr.NAME}. Values
// that the agent did not report are missing.
func Attributes(r *v1alpha1.Robot) map[string]string {
	out := map[string]string{}
	set := func(name, value string) {
		if value != "" {
			out[name] = value
		}
	}
	set("name", r.Name)
	if a := r.Status.Agent; a != nil {
		set("agent.version", a.Version)
		set("agent.protocol", a.Protocol)
	}
	if d := r.Status.DeviceInfo; d != nil {
		set("hostname", d.Hostname)
		setPlatform(d.Platform, set)
		setHardware(d, set)
		set("drivers", strings.Join(d.Drivers, ","))
		for _, driver := range d.Drivers {
			set("driver."+driver, "true")
		}
		if d.Isolation != nil {
			for _, kind := range d.Isolation.Available {
				set("isolation."+kind, "true")
			}
		}
	}
	return out
}

func setPlatform(p *v1alpha1.Platform, set func(name, value string)) {
	if p == nil {
		return
	}
	set("os", p.OS)
	set("arch", p.Arch)
	set("kernel", p.KernelVersion)
	set("platform", p.Platform)
	set("platform.family", p.PlatformFamily)
	set("platform.version", p.PlatformVersion)
}

func setHardware(d *v1alpha1.DeviceInfo, set func(name, value string)) {
	amount := func(name string, n int64) {
		if n > 0 {
			set(name, strconv.FormatInt(n, 10))
		}
	}
	if d.CPU != nil {
		amount("cpu.cores", int64(d.CPU.LogicalCores))
		set("cpu.model", d.CPU.ModelName)
		set("cpu.vendor", d.CPU.Vendor)
	}
	if d.Memory != nil {
		amount("memory.total", d.Memory.Total)
	}
	amount("disk.total", LargestDisk(d))
}

// LargestDisk returns the size of the largest disk in bytes. A sum would be too high: task data
// is on one disk, and a disk is often listed under several mount points.
func LargestDisk(d *v1alpha1.DeviceInfo) int64 {
	var most int64
	for i := range d.Disks {
		most = max(most, d.Disks[i].Total)
	}
	return most
}
