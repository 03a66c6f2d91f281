package placement

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/lifecycle"
)

// Snapshot is what one cycle decides on for a namespace: the robots that it may use,
// with all that they hold, and what waits there.
type Snapshot struct {
	Robots  []Robot
	Demands []Demand
	// Holders by robot are those who hold its room. They are read only for
	// demands that preempt; without one they may be left out.
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

// Offer is what a robot is. An Offer is never changed, only replaced: a
// Planner takes the same Offer for the same robot.
type Offer struct {
	Phase lifecycle.RobotPhase
	// Revoked robots take nothing: an operator has refused them.
	Revoked bool
	// Unschedulable robots take nothing new.
	Unschedulable bool
	Labels        map[string]string
	// Attrs is what the robot says of itself, by the names in Attributes.
	Attrs map[string]string
	// Drivers that the robot offers. Empty: those of a document agent.
	Drivers []string
	// Document tells that the robot's agent speaks the document's protocol.
	Document bool
	Capacity Room
}

// Equal tells whether placement sees no difference between the two.
func (o *Offer) Equal(b *Offer) bool {
	return o.Phase == b.Phase && o.Revoked == b.Revoked && o.Unschedulable == b.Unschedulable && o.Document == b.Document &&
		o.Capacity.Equal(b.Capacity) && maps.Equal(o.Labels, b.Labels) && maps.Equal(o.Attrs, b.Attrs) && slices.Equal(o.Drivers, b.Drivers)
}

// Task is one task of a demand.
type Task struct {
	Name   string
	Driver string
	// Isolation are the kinds that it insists on, in order and with commas.
	Isolation string
	// Secrets tells that values of Secrets travel to its robot beside it.
	Secrets bool
	// Needs is the room that it takes beside its own place.
	Needs Room
	// Shared is the disk, in bytes, that it shares with the others of its replica:
	// they take the largest of theirs, once.
	Shared int64
	// Init tells that it runs before the others of its replica, in their place.
	Init bool
}

// Room is what the task takes on a robot.
func (t *Task) Room() Room {
	r := t.Needs
	if !t.Init {
		r.Tasks = 1
	}
	return r
}

// Demand is what wants one robot: the tasks of one replica, or one task by
// itself.
type Demand struct {
	// Tasks, at least one. The name of the first names the demand.
	Tasks []Task
	// Group that the replica belongs to. Empty: the demand stands by itself.
	Group string
	// Index of the replica in its group.
	Index int
	// Gang is the number of demands of the group that find a robot in the same
	// cycle, or none of them does. 0: each goes by itself.
	Gang int
	// Priority of its job: the higher goes first.
	Priority int32
	// Preempts lets it push away holders of strictly lower priority.
	Preempts bool
	// Since orders demands of equal priority: the older goes first.
	Since time.Time
	// Rules that the robot must meet. Nil: none. Demands that share one are
	// cheaper.
	Rules *Rules
	// Wishes among the robots that will do. Nil: spread, least loaded first.
	Wishes *Wishes
	// Failed are the robots that it failed on: they do not get it again.
	Failed []string
	// Robot that it must be, because somebody chose it or because another
	// task of the replica is there. Empty: any.
	Robot string
	// Near are robots that will do before all others, the best first, because other
	// tasks of the replica are there, or what it left on its disk.
	Near []string
	// Spare is the room that must be free beside what the tasks take, on any other
	// robot than those of Near: other tasks of the replica would run there again.
	Spare Room
}

// Rules are what a robot must meet.
type Rules struct {
	// Selector names labels that it must carry.
	Selector map[string]string
	// Datacenters that it may be in, by its label datacenter. Empty: any.
	Datacenters []string
	Constraints []Constraint
	// Blocked are the names of robots that failed too many tasks of the group.
	Blocked []string
	// Fenced asks for a robot that stops a task by itself when it is out of contact.
	Fenced bool
}

// Wishes are what makes one robot better than another.
type Wishes struct {
	// Pack takes as few robots as possible. False: as many as there are.
	Pack     bool
	Affinity []Affinity
}

// Affinity makes robots better or worse: those that carry all of Labels, or
// those that hold tasks of Group.
type Affinity struct {
	Labels map[string]string
	Group  string
	// Weight beside the others. Below zero: the robots are avoided.
	Weight int
}

// Holder is a task that holds room on a robot.
type Holder struct {
	Name     string
	Priority int32
	Since    time.Time
	Room     Room
	// Leaving tells that it is being stopped already: nobody else need go for
	// the same room.
	Leaving bool
}

// Name is the name of the first task, which is unique in a snapshot.
func (d *Demand) Name() string { return d.Tasks[0].Name }

// Needs is the room that the demand takes on a robot that is not near.
func (d *Demand) Needs() Room {
	n := d.Spare
	var shared int64
	for i := range d.Tasks {
		n = n.Plus(d.Tasks[i].Room())
		shared = max(shared, d.Tasks[i].Shared)
	}
	n.Disk += shared
	return n
}

// needsOn is the room that the demand takes on a robot.
func (d *Demand) needsOn(robot string) Room {
	if slices.Contains(d.Near, robot) {
		return d.Needs().Minus(d.Spare)
	}
	return d.Needs()
}

// abilities are what tasks ask of a robot beside what their job does.
type abilities struct {
	drivers, isolation string // names in order, none twice, with commas
	secrets            bool
}

// asks is what its tasks ask.
func (d *Demand) asks() abilities {
	if len(d.Tasks) == 1 {
		return abilities{d.Tasks[0].Driver, d.Tasks[0].Isolation, d.Tasks[0].Secrets}
	}
	var drivers, isolation []string
	secrets := false
	for i := range d.Tasks {
		drivers = append(drivers, d.Tasks[i].Driver)
		secrets = secrets || d.Tasks[i].Secrets
		if kinds := d.Tasks[i].Isolation; kinds != "" {
			isolation = append(isolation, strings.Split(kinds, ",")...)
		}
	}
	slices.Sort(drivers)
	slices.Sort(isolation)
	return abilities{strings.Join(slices.Compact(drivers), ","), strings.Join(slices.Compact(isolation), ","), secrets}
}

// Decisions is what came of a snapshot. Each demand stands in exactly one of
// Bind and Refused.
type Decisions struct {
	Bind []Binding
	// Refused by the demand's name. Demands that are alike share a Refusal.
	Refused map[string]*Refusal
	// Preempt is for some of those refused: it makes room for them.
	Preempt []Preemption
}

// Binding gives a robot to a demand.
type Binding struct {
	Demand Demand
	Robot  string
}

// Preemption names who must leave a robot so that a demand fits there. It is
// bound in a later cycle, when they have left.
type Preemption struct {
	// Demand by its name.
	Demand string
	Robot  string
	// Victims by their names, in the order in which they were chosen.
	Victims []string
}
