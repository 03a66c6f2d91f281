package placement

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// Snapshot is the input of one cycle for a namespace: the robots that it may use, the room that is
// taken on them, and the pending demands.
type Snapshot struct {
	Robots  []Robot
	Demands []Demand
	// Holders are the tasks that hold room, by robot. They are read only for demands that
	// preempt. If there are none of those, Holders may be nil.
	Holders map[string][]Holder
}

// Robot is one robot as placement sees it.
type Robot struct {
	Name string
	*Offer
	Held Room
	// Groups counts the held tasks of the namespace by Demand.Group.
	Groups map[string]int
}

// Offer holds the properties of a robot. It is replaced, never changed: a Planner compares the
// pointer.
type Offer struct {
	Phase lifecycle.RobotPhase
	// Revoked robots take no tasks: an operator has rejected their key.
	Revoked bool
	// Unschedulable robots take no new tasks.
	Unschedulable bool
	// Impairment is the check that a connected robot fails because of its own condition:
	// CheckMaintenance, CheckJournalReadOnly, CheckResponsive or CheckDiskPressure. Empty: none.
	Impairment CheckName
	Labels     map[string]string
	// Attrs are the attributes that the robot reports, by the names in Attributes.
	Attrs map[string]string
	// Drivers that the robot offers. If empty, it offers those of a legacy agent.
	Drivers []string
	// LegacyAgent is set if the robot's agent speaks protocol v1.
	LegacyAgent bool
	// RunsArrays is set if the robot's agent runs tasks of arrays.
	RunsArrays bool
	// Policy is the robot's own. If nil, it allows everything.
	Policy   *Policy
	Capacity Room
}

// Equal reports whether both offers are equal for placement.
func (o *Offer) Equal(b *Offer) bool {
	return o.Phase == b.Phase && o.Revoked == b.Revoked && o.Unschedulable == b.Unschedulable && o.Impairment == b.Impairment && o.LegacyAgent == b.LegacyAgent && o.RunsArrays == b.RunsArrays &&
		o.Policy.Equal(b.Policy) && o.Capacity.Equal(b.Capacity) && maps.Equal(o.Labels, b.Labels) && maps.Equal(o.Attrs, b.Attrs) && slices.Equal(o.Drivers, b.Drivers)
}

// Task is one task of a demand.
type Task struct {
	Name   string
	Driver string
	// Isolation lists the kinds that the task requires, sorted and separated by commas.
	Isolation string
	// Secrets is set if the task has values of Secrets in its environment.
	Secrets bool
	// Array is set if the task runs indexes of an array.
	Array bool
	// Subject is what the policies of robots evaluate of the task, as the Key of a policy.Subject.
	Subject string
	// Needs is the room that the task takes beside its slot.
	Needs Room
	// Shared is the disk, in bytes, that it shares with the other tasks of its replica. The replica
	// takes the largest value, once.
	Shared int64
	// Init is set if the task runs before the other tasks of its replica, in their room.
	Init bool
}

// Room returns the room that the task takes on a robot.
func (t *Task) Room() Room {
	r := t.Needs
	if !t.Init {
		r.Tasks = 1
	}
	return r
}

// Demand requests one robot for the tasks of one replica, or for a single task.
type Demand struct {
	// Tasks, at least one. The name of the first names the demand.
	Tasks []Task
	// Group of the replica. It is empty for a single task.
	Group string
	// Index of the replica in its group.
	Index int
	// Gang is the number of demands of the group that must get a robot in the same cycle, all or
	// none. If zero, each is placed on its own.
	Gang int
	// Priority of its job. Higher priorities are placed first.
	Priority int32
	// Preempts allows it to evict holders of strictly lower priority.
	Preempts bool
	// Since orders demands of equal priority: older ones are placed first.
	Since time.Time
	// Rules that the robot must meet, or nil. Demands that share a pointer are placed faster.
	Rules *Rules
	// Preferences among the robots that fit. If nil: spread, least loaded first.
	Preferences *Preferences
	// Failed are the robots on which it failed. They are not used again.
	Failed []string
	// Stopped has, by robot, the person who has stopped one of the tasks there. They do not run there until
	// they are restarted there.
	Stopped map[string]string
	// Robot that must be used, because the user selected it or because another task of the replica
	// is there. If empty, any robot may be used.
	Robot string
	// Near are robots to prefer over all others, best first: other tasks or files of the replica
	// are there.
	Near []string
	// ExtraRoom must be free beside the needs of the tasks on any robot that is not in Near,
	// because other tasks of the replica would run there again.
	ExtraRoom Room
}

// Rules are what a robot must meet.
type Rules struct {
	// Selector lists labels that the robot must have.
	Selector map[string]string
	// Datacenters that the robot may be in, by its label datacenter. If empty, any is allowed.
	Datacenters []string
	Constraints []Constraint
	// Blocked are the names of robots that failed too many tasks of the group.
	Blocked []string
	// SelfStop requires a robot that stops a task by itself when it is disconnected.
	SelfStop bool
}

// Preferences make one robot better than another.
type Preferences struct {
	// Pack uses as few robots as possible. If false, tasks are spread over all robots.
	Pack     bool
	Affinity []Affinity
}

// Affinity makes robots better or worse: those with all of Labels, or those that hold tasks of
// Group.
type Affinity struct {
	Labels map[string]string
	Group  string
	// Weight relative to other affinities. If negative, the robots are avoided.
	Weight int
}

// Holder is a task that holds room on a robot.
type Holder struct {
	Name     string
	Priority int32
	Since    time.Time
	Room     Room
	// Leaving is set if the task is already being stopped: no other task needs to be evicted for
	// the same room.
	Leaving bool
	// Protected is set if the task may not be interrupted now.
	Protected bool
}

// Name returns the name of the first task, which is unique in a snapshot.
func (d *Demand) Name() string { return d.Tasks[0].Name }

// Needs returns the room that the demand takes on a robot that is not in Near.
func (d *Demand) Needs() Room {
	n := d.ExtraRoom
	var shared int64
	for i := range d.Tasks {
		n = n.Plus(d.Tasks[i].Room())
		shared = max(shared, d.Tasks[i].Shared)
	}
	n.Disk += shared
	return n
}

// needsOn returns the room that the demand takes on a robot.
func (d *Demand) needsOn(robot string) Room {
	if slices.Contains(d.Near, robot) {
		return d.Needs().Minus(d.ExtraRoom)
	}
	return d.Needs()
}

// capabilities are requirements of tasks on a robot beside the rules of their job.
type capabilities struct {
	drivers, isolation string // names, sorted, without duplicates, separated by commas
	secrets, arrays    bool
}

// requiredCapabilities returns the capabilities that any of the tasks requires.
func (d *Demand) requiredCapabilities() capabilities {
	if len(d.Tasks) == 1 {
		return capabilities{d.Tasks[0].Driver, d.Tasks[0].Isolation, d.Tasks[0].Secrets, d.Tasks[0].Array}
	}
	var drivers, isolation []string
	secrets, arrays := false, false
	for i := range d.Tasks {
		drivers = append(drivers, d.Tasks[i].Driver)
		secrets, arrays = secrets || d.Tasks[i].Secrets, arrays || d.Tasks[i].Array
		if kinds := d.Tasks[i].Isolation; kinds != "" {
			isolation = append(isolation, strings.Split(kinds, ",")...)
		}
	}
	slices.Sort(drivers)
	slices.Sort(isolation)
	return capabilities{strings.Join(slices.Compact(drivers), ","), strings.Join(slices.Compact(isolation), ","), secrets, arrays}
}

// subjects returns what policies evaluate of the demand. It is equal for demands that every policy
// evaluates equally.
func (d *Demand) subjects() string {
	if len(d.Tasks) == 1 {
		return d.Tasks[0].Subject
	}
	var all []string
	for i := range d.Tasks {
		all = append(all, d.Tasks[i].Subject)
	}
	return strings.Join(all, "\n")
}

// Decisions are the result of a cycle. Each demand is in exactly one of Bind and Rejected.
type Decisions struct {
	Bind []Binding
	// Rejected holds diagnoses by the demand's name. Equal demands share a Diagnosis.
	Rejected map[string]*Diagnosis
	// Preempt lists preemptions that make room for some of the rejected demands.
	Preempt []Preemption
}

// Binding assigns a robot to a demand.
type Binding struct {
	Demand Demand
	Robot  string
}

// Preemption names the tasks that must leave a robot so that a demand fits there. The demand is
// bound in a later cycle, when they have left.
type Preemption struct {
	// Demand is the name of the demand.
	Demand string
	Robot  string
	// Victims are the names of the tasks, in the order in which they were selected.
	Victims []string
}
