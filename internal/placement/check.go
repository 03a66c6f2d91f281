package placement

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"k8s4r.io/k8s4r/internal/lifecycle"
)

// Verdict of one check. The zero value: it fits.
type Verdict struct {
	Reason  string // a word for programs
	Message string // a part of a sentence for people, equal for equal demands
}

// Fits tells whether nothing speaks against the robot.
func (v Verdict) Fits() bool { return v == Verdict{} }

// Check looks at one side of a demand and a robot.
type Check func(*Demand, *Robot) Verdict

// standing are the checks whose verdict stays the same during a cycle.
var standing = []Check{online, schedulable, labelled, offered}

// room are the checks that depend on what the robot holds. In a cycle robots
// only fill up, so a no stays a no.
var room = []Check{places, cpu, memory}

// judge returns the first no.
func judge(checks []Check, d *Demand, r *Robot) Verdict {
	for _, check := range checks {
		if v := check(d, r); !v.Fits() {
			return v
		}
	}
	return Verdict{}
}

func online(_ *Demand, r *Robot) Verdict {
	if r.Phase == lifecycle.RobotOnline {
		return Verdict{}
	}
	return Verdict{"NotOnline", "phase is " + string(r.Phase)}
}

func schedulable(_ *Demand, r *Robot) Verdict {
	if !r.Unschedulable {
		return Verdict{}
	}
	return Verdict{"Unschedulable", "unschedulable"}
}

func labelled(d *Demand, r *Robot) Verdict {
	missing := "" // the first in the order of names, so that equal robots say the same
	for k, want := range d.Selector {
		if got, ok := r.Labels[k]; (!ok || got != want) && (missing == "" || k < missing) {
			missing = k
		}
	}
	if missing == "" {
		return Verdict{}
	}
	return Verdict{"LabelMissing", "label " + missing + "=" + d.Selector[missing] + " missing"}
}

// documentDrivers are what an agent offers that does not say.
var documentDrivers = []string{"exec", "raw_exec"}

func offered(d *Demand, r *Robot) Verdict {
	has := r.Drivers
	if len(has) == 0 {
		has = documentDrivers
	}
	for _, t := range d.Tasks {
		if !slices.Contains(has, t.Driver) {
			return Verdict{"DriverMissing", fmt.Sprintf("driver %s is not offered (has %s)", t.Driver, strings.Join(has, ", "))}
		}
	}
	return Verdict{}
}

func places(d *Demand, r *Robot) Verdict {
	need := d.Needs().Tasks
	switch free := r.Capacity.Tasks - r.Held.Tasks; {
	case need <= free:
		return Verdict{}
	case need > r.Capacity.Tasks:
		return Verdict{"TooFewPlaces", fmt.Sprintf("%d tasks are more than it ever runs at a time", need)}
	}
	return Verdict{"NoPlaceLeft", "no place left"}
}

func cpu(d *Demand, r *Robot) Verdict {
	need := d.Needs().CPU
	if need == 0 || need <= r.Capacity.CPU-r.Held.CPU {
		return Verdict{}
	}
	return Verdict{"NotEnoughCPU", fmt.Sprintf("cpu %s is not free", resource.NewMilliQuantity(need, resource.DecimalSI))}
}

func memory(d *Demand, r *Robot) Verdict {
	need := d.Needs().Memory
	if need == 0 || need <= r.Capacity.Memory-r.Held.Memory {
		return Verdict{}
	}
	return Verdict{"NotEnoughMemory", fmt.Sprintf("memory %s is not free", resource.NewQuantity(need, resource.BinarySI))}
}
