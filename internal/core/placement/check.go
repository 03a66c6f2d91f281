package placement

import (
	"maps"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// Check tests one property of a robot, independent of the tasks that it holds.
type Check func(*Robot) Rejection

// availabilityChecks test temporary properties: the robot may reconnect or recover, or an operator
// may make it schedulable. checkRevoked comes first, because a revoked robot is also Offline and
// unschedulable.
var availabilityChecks = []Check{checkRevoked, checkOnline, checkSchedulable, checkUnimpaired}

// ruleChecks returns the checks of a robot's properties: first the rules of the job, then the
// required capabilities.
func ruleChecks(rules *Rules, required capabilities) []Check {
	var checks []Check
	if rules != nil {
		checks = append(checks, labelChecks(rules.Selector)...)
		if len(rules.Datacenters) > 0 {
			checks = append(checks, datacenterCheck(rules.Datacenters))
		}
		for _, c := range rules.Constraints {
			checks = append(checks, constraintCheck(c))
		}
	}
	if required.drivers != "" { // empty only without tasks
		checks = append(checks, driverCheck(strings.Split(required.drivers, ",")))
	}
	if required.isolation != "" {
		checks = append(checks, isolationCheck(strings.Split(required.isolation, ",")))
	}
	if required.secrets {
		checks = append(checks, checkSecretEnv)
	}
	if required.arrays {
		checks = append(checks, checkArrays)
	}
	if rules != nil && rules.SelfStop {
		checks = append(checks, checkSelfStop)
	}
	if rules != nil && len(rules.Blocked) > 0 {
		checks = append(checks, blockedCheck(rules.Blocked))
	}
	return checks
}

// firstRejection returns the rejection of the first check that fails.
func firstRejection(checks []Check, r *Robot) Rejection {
	for _, check := range checks {
		if no := check(r); !no.IsZero() {
			return no
		}
	}
	return Rejection{}
}

func checkRevoked(r *Robot) Rejection {
	if !r.Revoked {
		return Rejection{}
	}
	return Rejection{Check: CheckRevoked}
}

func checkOnline(r *Robot) Rejection {
	if r.Phase == lifecycle.RobotOnline {
		return Rejection{}
	}
	return Rejection{Check: CheckPhase, Want: string(lifecycle.RobotOnline), Got: string(r.Phase)}
}

func checkSchedulable(r *Robot) Rejection {
	if !r.Unschedulable {
		return Rejection{}
	}
	return Rejection{Check: CheckUnschedulable}
}

// checkUnimpaired rejects robots that are connected and could not start a task.
func checkUnimpaired(r *Robot) Rejection { return Rejection{Check: r.Impairment} }

// labelChecks returns one check for each label, in the order of their names, so that equal robots
// are rejected for the same label.
func labelChecks(selector map[string]string) []Check {
	var checks []Check
	for _, k := range slices.Sorted(maps.Keys(selector)) {
		want := selector[k]
		no := Rejection{Check: CheckLabel, Want: k + "=" + want}
		checks = append(checks, func(r *Robot) Rejection {
			if got, ok := r.Labels[k]; ok && got == want {
				return Rejection{}
			}
			return no
		})
	}
	return checks
}

// LabelDatacenter is the label that names the robot's datacenter.
const LabelDatacenter = "datacenter"

func datacenterCheck(datacenters []string) Check {
	no := Rejection{Check: CheckDatacenter, Want: strings.Join(datacenters, " or ")}
	return func(r *Robot) Rejection {
		if in, ok := r.Labels[LabelDatacenter]; ok && slices.Contains(datacenters, in) {
			return Rejection{}
		}
		return no
	}
}

func constraintCheck(c Constraint) Check {
	parsed, err := c.parseConstraint()
	if err != nil {
		no := rejectSyntax(c, err)
		return func(*Robot) Rejection { return no }
	}
	return parsed.checkRobot
}

// legacyDrivers are the drivers of an agent that reports none.
var legacyDrivers = []string{"exec", "raw_exec"}

func driverCheck(drivers []string) Check {
	return func(r *Robot) Rejection {
		has := r.Drivers
		if len(has) == 0 {
			has = legacyDrivers
		}
		for _, d := range drivers {
			if !slices.Contains(has, d) {
				return Rejection{Check: CheckDriver, Want: d, Got: strings.Join(has, ", ")}
			}
		}
		return Rejection{}
	}
}

// isolationCheck rejects robots that do not report all kinds of isolation as in force, such as
// those with a legacy agent.
func isolationCheck(kinds []string) Check {
	return func(r *Robot) Rejection {
		for _, kind := range kinds {
			if r.Attrs[attrIsolation+kind] != "true" {
				return Rejection{Check: CheckIsolation, Want: kind}
			}
		}
		return Rejection{}
	}
}

// checkSelfStop rejects legacy agents: they do not stop a task by themselves, so a disconnected
// one would block its task forever.
func checkSelfStop(r *Robot) Rejection {
	if !r.LegacyAgent {
		return Rejection{}
	}
	return Rejection{Check: CheckSelfStop}
}

// checkSecretEnv rejects legacy agents: they ignore secretEnv, and would run the task without its
// variables.
func checkSecretEnv(r *Robot) Rejection {
	if !r.LegacyAgent {
		return Rejection{}
	}
	return Rejection{Check: CheckSecretEnv}
}

// checkArrays rejects agents that would run the task once, without an index.
func checkArrays(r *Robot) Rejection {
	if r.RunsArrays && !r.LegacyAgent {
		return Rejection{}
	}
	return Rejection{Check: CheckArrays}
}

func blockedCheck(blocked []string) Check {
	return func(r *Robot) Rejection {
		if slices.Contains(blocked, r.Name) {
			return Rejection{Check: CheckBlockedRobots}
		}
		return Rejection{}
	}
}

// rejectRobot returns the rejection of a robot on which the demand failed or was stopped.
func (d *Demand) rejectRobot(name string) Rejection {
	if slices.Contains(d.Failed, name) {
		return Rejection{Check: CheckFailedRobots}
	}
	if by, is := d.Stopped[name]; is {
		return Rejection{Check: CheckStoppedAtRobot, Got: by}
	}
	return Rejection{}
}

// CanAnyRun reports whether any of the robots could ever take the demand. Robots that are
// offline, unschedulable or full count, because that can change.
func CanAnyRun(d *Demand, robots []Robot) bool {
	checks, need := append(ruleChecks(d.Rules, d.requiredCapabilities()), policyCheck(d.Tasks)), d.Needs()
	return slices.ContainsFunc(robots, func(r Robot) bool {
		return (d.Robot == "" || d.Robot == r.Name) && !slices.Contains(d.Failed, r.Name) &&
			need.lackingPartOf(&r.Capacity) < 0 && firstRejection(checks, &r).IsZero()
	})
}

// NewMatcher returns a function that reports whether a robot meets the rules, has the drivers and
// the isolation for these tasks, and allows them by its policy, independent of the tasks that it holds and of its phase.
// Without tasks, only the rules count.
func NewMatcher(rules *Rules, tasks []Task) func(*Robot) bool {
	d := Demand{Tasks: tasks}
	checks := append(ruleChecks(rules, d.requiredCapabilities()), policyCheck(tasks))
	return func(r *Robot) bool { return firstRejection(checks, r).IsZero() }
}
