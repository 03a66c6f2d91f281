package placement

import (
	"math"
	"time"

	"k8s4r.io/k8s4r/internal/lifecycle"
)

// Snapshot is what one cycle decides on: the robots of one namespace with what
// they hold, and all that waits there.
type Snapshot struct {
	Robots  []Robot
	Demands []Demand
}

// Robot is one robot as placement sees it.
type Robot struct {
	Name  string
	Phase lifecycle.RobotPhase
	// Unschedulable robots take nothing new.
	Unschedulable bool
	Labels        map[string]string
	// Drivers that the robot offers. Empty: those of a document agent.
	Drivers []string
	// Document tells that the robot's agent speaks the document's protocol.
	Document bool
	Capacity Room
	Held     Room
	// Groups counts the held tasks by Demand.Group.
	Groups map[string]int
}

// Room is an amount of what tasks share on a robot.
type Room struct {
	Tasks  int64
	CPU    int64 // in thousandths of a core
	Memory int64 // in bytes
}

// Unlimited is the capacity of a robot that does not say what it has.
const Unlimited = math.MaxInt64

// Plus is r and o together.
func (r Room) Plus(o Room) Room {
	return Room{Tasks: r.Tasks + o.Tasks, CPU: r.CPU + o.CPU, Memory: r.Memory + o.Memory}
}

// Minus is r without o.
func (r Room) Minus(o Room) Room {
	return Room{Tasks: r.Tasks - o.Tasks, CPU: r.CPU - o.CPU, Memory: r.Memory - o.Memory}
}

// Task is one task of a demand.
type Task struct {
	Name   string
	Driver string
	CPU    int64 // in thousandths of a core
	Memory int64 // in bytes
}

// Demand is what wants one robot: the tasks of one replica, or one task by
// itself.
type Demand struct {
	// Tasks, at least one. The name of the first names the demand.
	Tasks []Task
	// Group spreads its demands over distinct robots while there are enough.
	// Empty: the demand stands by itself.
	Group string
	// Index of the replica in its group.
	Index int
	// Priority of its job: the higher goes first.
	Priority int32
	// Since orders demands of equal priority: the older goes first.
	Since time.Time
	// Selector names labels that the robot must carry.
	Selector map[string]string
	// Robot that it must be, because somebody chose it or because another
	// task of the replica is there. Empty: any.
	Robot string
}

// Name is the name of the first task, which is unique in a snapshot.
func (d *Demand) Name() string { return d.Tasks[0].Name }

// Needs is the room that the demand takes.
func (d *Demand) Needs() Room {
	n := Room{Tasks: int64(len(d.Tasks))}
	for _, t := range d.Tasks {
		n.CPU += t.CPU
		n.Memory += t.Memory
	}
	return n
}

// Decisions is what came of a snapshot. Each demand stands in exactly one of
// the two.
type Decisions struct {
	Bind []Binding
	// Refused by the demand's name. Demands that are alike share a Refusal.
	Refused map[string]*Refusal
}

// Binding gives a robot to a demand.
type Binding struct {
	Demand Demand
	Robot  string
}
