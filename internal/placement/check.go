package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/internal/lifecycle"
)

// Verdict of one check. The zero value: it fits.
type Verdict struct {
	Reason  string // a word for programs
	Message string // a part of a sentence for people, equal for equal demands
}

// Fits tells whether nothing speaks against the robot.
func (v Verdict) Fits() bool { return v == Verdict{} }

// Check looks at one side of a robot, whatever it holds.
type Check func(*Robot) Verdict

// present are the checks that time heals: a robot comes back, an operator
// lets it work again. That it is revoked comes first, for it hides the others.
var present = []Check{trusted, online, schedulable}

// meets are the checks of what a robot is, in the order in which people think:
// what they asked for, then what the robot can do.
func meets(rules *Rules, asks abilities) []Check {
	var checks []Check
	if rules != nil {
		checks = append(checks, labelled(rules.Selector)...)
		if len(rules.Datacenters) > 0 {
			checks = append(checks, within(rules.Datacenters))
		}
		for _, c := range rules.Constraints {
			checks = append(checks, meeting(c))
		}
	}
	checks = append(checks, offering(strings.Split(asks.drivers, ",")))
	if asks.isolation != "" {
		checks = append(checks, isolating(strings.Split(asks.isolation, ",")))
	}
	if asks.secrets {
		checks = append(checks, discreet)
	}
	if rules != nil && rules.Fenced {
		checks = append(checks, fencing)
	}
	if rules != nil && len(rules.Blocked) > 0 {
		checks = append(checks, notOn(rules.Blocked))
	}
	return checks
}

// judge returns the first no.
func judge(checks []Check, r *Robot) Verdict {
	for _, check := range checks {
		if v := check(r); !v.Fits() {
			return v
		}
	}
	return Verdict{}
}

func trusted(r *Robot) Verdict {
	if !r.Revoked {
		return Verdict{}
	}
	return Verdict{"Revoked", "revoked"}
}

func online(r *Robot) Verdict {
	if r.Phase == lifecycle.RobotOnline {
		return Verdict{}
	}
	return Verdict{"NotOnline", "phase is " + string(r.Phase)}
}

func schedulable(r *Robot) Verdict {
	if !r.Unschedulable {
		return Verdict{}
	}
	return Verdict{"Unschedulable", "unschedulable"}
}

// labelled goes by the names, so that equal robots say the same.
func labelled(selector map[string]string) []Check {
	var checks []Check
	for _, k := range slices.Sorted(maps.Keys(selector)) {
		want := selector[k]
		no := Verdict{"LabelMissing", "label " + k + "=" + want + " missing"}
		checks = append(checks, func(r *Robot) Verdict {
			if got, ok := r.Labels[k]; ok && got == want {
				return Verdict{}
			}
			return no
		})
	}
	return checks
}

// LabelDatacenter says where a robot is.
const LabelDatacenter = "datacenter"

func within(datacenters []string) Check {
	no := Verdict{"NotInDatacenter", "not in datacenter " + strings.Join(datacenters, " or ")}
	return func(r *Robot) Verdict {
		if in, ok := r.Labels[LabelDatacenter]; ok && slices.Contains(datacenters, in) {
			return Verdict{}
		}
		return no
	}
}

func meeting(c Constraint) Check {
	read, err := c.read()
	if err != nil {
		no := unreadable(c, err)
		return func(*Robot) Verdict { return no }
	}
	return read.judge
}

// documentDrivers are what an agent offers that does not say.
var documentDrivers = []string{"exec", "raw_exec"}

func offering(drivers []string) Check {
	return func(r *Robot) Verdict {
		has := r.Drivers
		if len(has) == 0 {
			has = documentDrivers
		}
		for _, d := range drivers {
			if !slices.Contains(has, d) {
				return Verdict{"DriverMissing", fmt.Sprintf("driver %s is not offered (has %s)", d, strings.Join(has, ", "))}
			}
		}
		return Verdict{}
	}
}

// isolating leaves out who does not say that it has the kinds in force, such as
// document agents.
func isolating(kinds []string) Check {
	return func(r *Robot) Verdict {
		for _, kind := range kinds {
			if r.Attrs[attrIsolation+kind] != "true" {
				return Verdict{"IsolationMissing", "isolation " + kind + " missing"}
			}
		}
		return Verdict{}
	}
}

// fencing leaves out document agents: of a task that they do not stop nobody
// would ever know that another robot may run it.
func fencing(r *Robot) Verdict {
	if !r.Document {
		return Verdict{}
	}
	return Verdict{"NoFence", "its agent cannot stop a task by itself"}
}

// discreet leaves out document agents: they know no secretEnv, and would run the
// task without its variables.
func discreet(r *Robot) Verdict {
	if !r.Document {
		return Verdict{}
	}
	return Verdict{"NoSecrets", "its agent takes no secretEnv"}
}

func notOn(blocked []string) Check {
	return func(r *Robot) Verdict {
		if slices.Contains(blocked, r.Name) {
			return Verdict{"Blocklisted", "blocklisted"}
		}
		return Verdict{}
	}
}

var failedHere = Verdict{"FailedHere", "failed here"}

// Capable tells whether any of the robots could ever take the demand: one that
// is offline, unschedulable or full counts, for that can change.
func Capable(d *Demand, robots []Robot) bool {
	checks, need := meets(d.Rules, d.asks()), d.Needs()
	return slices.ContainsFunc(robots, func(r Robot) bool {
		return (d.Robot == "" || d.Robot == r.Name) && !slices.Contains(d.Failed, r.Name) &&
			need.lacks(&r.Capacity) < 0 && judge(checks, &r).Fits()
	})
}

// Matcher returns what tells whether a robot meets the rules and has the drivers
// and the isolation of these tasks, whatever it holds and whether it is in contact.
func Matcher(rules *Rules, tasks []Task) func(*Robot) bool {
	d := Demand{Tasks: tasks}
	checks := meets(rules, d.asks())
	return func(r *Robot) bool { return judge(checks, r).Fits() }
}
