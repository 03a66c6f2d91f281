package apiconv

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
)

// ExtraResources returns, by name of each init task except daemons, the room that it takes beyond
// the room of the tasks that run after it. So a replica holds the maximum of what its init tasks
// and its other tasks need. A finished init task releases only what no later one needs.
func ExtraResources(g *v1alpha1.TaskGroupTemplate) map[string]*v1alpha1.Resources {
	if len(g.InitTasks) == 0 {
		return nil
	}
	rest := roomAfterInit(g)
	var daemons placement.Room // started before this one
	extra := make([]placement.Room, len(g.InitTasks))
	for i := range g.InitTasks {
		needs := roomFor(g.InitTasks[i].Resources)
		if g.InitTasks[i].Daemon {
			daemons = daemons.Plus(needs)
			continue
		}
		extra[i] = needs.Plus(daemons).Beyond(rest)
	}
	out := map[string]*v1alpha1.Resources{}
	var after placement.Room // extra room of later init tasks
	for i := len(extra) - 1; i >= 0; i-- {
		if g.InitTasks[i].Daemon {
			continue
		}
		holds := extra[i].Beyond(after)
		after = after.Plus(holds)
		out[g.InitTasks[i].Name] = resourcesFrom(holds)
	}
	return out
}

// roomAfterInit returns what a replica needs when its init tasks have ended.
func roomAfterInit(g *v1alpha1.TaskGroupTemplate) (sum placement.Room) {
	for i := range g.InitTasks {
		if g.InitTasks[i].Daemon {
			sum = sum.Plus(roomFor(g.InitTasks[i].Resources))
		}
	}
	for i := range g.Tasks {
		sum = sum.Plus(roomFor(g.Tasks[i].Resources))
	}
	return sum
}

// resourcesFrom returns a room as resources of the API.
func resourcesFrom(r placement.Room) *v1alpha1.Resources {
	out := &v1alpha1.Resources{IOPS: r.IOPS}
	if r.CPU > 0 {
		out.CPU = resource.NewMilliQuantity(r.CPU, resource.DecimalSI)
	}
	if r.Memory > 0 {
		out.Memory = resource.NewQuantity(r.Memory, resource.BinarySI)
	}
	if r.Disk > 0 {
		out.Disk = resource.NewQuantity(r.Disk, resource.BinarySI)
	}
	if r.MBits > 0 {
		out.Networks = []v1alpha1.Network{{MBits: r.MBits}}
	}
	for _, d := range r.Devices {
		if out.Devices == nil {
			out.Devices = map[string]resource.Quantity{}
		}
		out.Devices[d.Name] = *resource.NewQuantity(d.Count, resource.DecimalSI)
	}
	return out
}
