package placement

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// robot is Online with room for four tasks.
func robot(name string, change ...func(*Robot)) Robot {
	r := Robot{Name: name, Offer: &Offer{Phase: lifecycle.RobotOnline}}
	r.Capacity = Room{Tasks: 4, CPU: Unlimited, Memory: Unlimited, Disk: Unlimited, IOPS: Unlimited, MBits: Unlimited}
	for _, f := range change {
		f(&r)
	}
	return r
}

func holds(tasks int64) func(*Robot) { return func(r *Robot) { r.Held.Tasks = tasks } }

func task(name, driver string) Task { return Task{Name: name, Driver: driver} }

// one is a demand of one exec task.
func one(name string, change ...func(*Demand)) Demand {
	d := Demand{Tasks: []Task{task(name, "exec")}, Priority: 50}
	for _, f := range change {
		f(&d)
	}
	return d
}

func needs(cpu, memory int64) func(*Demand) {
	return func(d *Demand) { d.Tasks[0].Needs.CPU, d.Tasks[0].Needs.Memory = cpu, memory }
}

func TestDecide(t *testing.T) {
	long := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	prod := rules(Rules{Selector: map[string]string{"env": "prod"}})
	for _, c := range []struct {
		name         string
		inRobots     []Robot
		inDemands    []Demand
		wantRobots   map[string]string
		wantRejected map[string]string
	}{
		{
			name:         "no robots",
			inDemands:    []Demand{one("t")},
			wantRejected: map[string]string{"t": "0 of 0 robots: none is in this namespace or shared with it"},
		},
		{
			name:       "the least loaded robot takes it",
			inRobots:   []Robot{robot("a", holds(2)), robot("b", holds(1)), robot("c", holds(3))},
			inDemands:  []Demand{one("t")},
			wantRobots: map[string]string{"t": "b"},
		},
		{
			name: "a robot that is half full takes it before one that is nearly full with fewer tasks",
			inRobots: []Robot{robot("a", holds(2)), robot("b", holds(1), func(r *Robot) {
				r.Capacity.CPU, r.Held.CPU = 4000, 3000
			})},
			inDemands:  []Demand{one("t")},
			wantRobots: map[string]string{"t": "a"},
		},
		{
			name:       "equal robots are ordered by name",
			inRobots:   []Robot{robot("b"), robot("a")},
			inDemands:  []Demand{one("t")},
			wantRobots: map[string]string{"t": "a"},
		},
		{
			name:     "replicas of one group spread while there are enough robots",
			inRobots: []Robot{robot("a", holds(1)), robot("b"), robot("c")},
			inDemands: []Demand{
				one("t0", inGroup("g", 0)), one("t1", inGroup("g", 1)), one("t2", inGroup("g", 2)), one("t3", inGroup("g", 3)),
			},
			wantRobots: map[string]string{"t0": "b", "t1": "c", "t2": "a", "t3": "b"},
		},
		{
			name:       "a replica avoids robots of its group",
			inRobots:   []Robot{robot("a", holds(1), func(r *Robot) { r.Groups = map[string]int{"g": 1} }), robot("b", holds(3))},
			inDemands:  []Demand{one("t", inGroup("g", 1))},
			wantRobots: map[string]string{"t": "b"},
		},
		{
			name:         "higher priority goes first, regardless of age",
			inRobots:     []Robot{robot("a", holds(3))},
			inDemands:    []Demand{one("old", since(long)), one("urgent", since(long.Add(time.Hour)), func(d *Demand) { d.Priority = 90 })},
			wantRobots:   map[string]string{"urgent": "a"},
			wantRejected: map[string]string{"old": "0 of 1 robots: 1: task limit reached"},
		},
		{
			name:         "with equal priority, older goes first, regardless of name",
			inRobots:     []Robot{robot("a", holds(3))},
			inDemands:    []Demand{one("a-young", since(long.Add(time.Hour))), one("old", since(long))},
			wantRobots:   map[string]string{"old": "a"},
			wantRejected: map[string]string{"a-young": "0 of 1 robots: 1: task limit reached"},
		},
		{
			name:         "with equal priority and age, the name decides, regardless of the input order",
			inRobots:     []Robot{robot("a", holds(3))},
			inDemands:    []Demand{one("b", since(long)), one("a", since(long))},
			wantRobots:   map[string]string{"a": "a"},
			wantRejected: map[string]string{"b": "0 of 1 robots: 1: task limit reached"},
		},
		{
			name:         "replica 2 goes before replica 10",
			inRobots:     []Robot{robot("a", holds(3))},
			inDemands:    []Demand{one("t10", inGroup("g", 10)), one("t2", inGroup("g", 2))},
			wantRobots:   map[string]string{"t2": "a"},
			wantRejected: map[string]string{"t10": "0 of 1 robots: 1: task limit reached"},
		},
		{
			name: "rejections of each robot, the most frequent first",
			inRobots: []Robot{
				robot("a"), robot("b"),
				robot("c", func(r *Robot) { r.Labels, r.Drivers = map[string]string{"env": "prod"}, []string{"java"} }),
			},
			inDemands:    []Demand{one("t", prod)},
			wantRejected: map[string]string{"t": "0 of 3 robots: 2: label env=prod missing; 1: driver exec is not offered (has java)"},
		},
		{
			name:         "a legacy agent has only the exec drivers",
			inRobots:     []Robot{robot("a")},
			inDemands:    []Demand{one("t", func(d *Demand) { d.Tasks[0].Driver = "docker" })},
			wantRejected: map[string]string{"t": "0 of 1 robots: 1: driver docker is not offered (has exec, raw_exec)"},
		},
		{
			name: "robots that are not online or are unschedulable get no tasks",
			inRobots: []Robot{
				robot("a", func(r *Robot) { r.Phase = lifecycle.RobotUnknown }),
				robot("b", func(r *Robot) { r.Unschedulable = true }),
			},
			inDemands:    []Demand{one("t")},
			wantRejected: map[string]string{"t": "0 of 2 robots: 1: phase is Unknown; 1: unschedulable"},
		},
		{
			name:         "a robot in maintenance gets no tasks",
			inRobots:     []Robot{robot("a", func(r *Robot) { r.Impairment = CheckMaintenance })},
			inDemands:    []Demand{one("t")},
			wantRejected: map[string]string{"t": "0 of 1 robots: 1: in maintenance"},
		},
		{
			name:       "a task that was stopped at a robot goes to another one",
			inRobots:   []Robot{robot("a"), robot("b")},
			inDemands:  []Demand{one("t", func(d *Demand) { d.Stopped = map[string]string{"a": "alice (uid 1000)"} })},
			wantRobots: map[string]string{"t": "b"},
		},
		{
			name:     "a task that was stopped at a robot does not return there, and others of its class may use it",
			inRobots: []Robot{robot("a"), robot("b")},
			inDemands: []Demand{
				one("t", func(d *Demand) {
					d.Stopped, d.Failed = map[string]string{"a": "alice (uid 1000)"}, []string{"b"}
				}),
				one("u"),
			},
			wantRobots:   map[string]string{"u": "a"},
			wantRejected: map[string]string{"t": "0 of 2 robots: 1: the task failed on it; 1: the task was stopped at the robot by alice (uid 1000)"},
		},
		{
			name:     "a task that is tied to a robot waits while it is stopped there",
			inRobots: []Robot{robot("a"), robot("b")},
			inDemands: []Demand{one("t", func(d *Demand) {
				d.Robot, d.Stopped = "a", map[string]string{"a": "alice (uid 1000)"}
			})},
			wantRejected: map[string]string{"t": "robot a: the task was stopped at the robot by alice (uid 1000)"},
		},
		{
			name: "robots that do not answer, or have a full disk, get no tasks",
			inRobots: []Robot{
				robot("a", func(r *Robot) { r.Impairment = CheckResponsive }),
				robot("b", func(r *Robot) { r.Impairment = CheckDiskPressure }),
				robot("c", func(r *Robot) { r.Impairment = CheckJournalReadOnly }),
				robot("d", func(r *Robot) { r.Impairment, r.Phase = CheckResponsive, lifecycle.RobotOffline }),
			},
			inDemands:    []Demand{one("t")},
			wantRejected: map[string]string{"t": "0 of 4 robots: 1: its disk is almost full; 1: its agent cannot write its journal; 1: phase is Offline; 1: does not answer dispatches"},
		},
		{
			name: "a revoked robot gets no tasks, and that rejection comes first",
			inRobots: []Robot{
				robot("a", func(r *Robot) { r.Revoked, r.Unschedulable, r.Phase = true, true, lifecycle.RobotOffline }),
				robot("b", func(r *Robot) { r.Revoked = true }),
			},
			inDemands:    []Demand{one("t")},
			wantRejected: map[string]string{"t": "0 of 2 robots: 2: revoked"},
		},
		{
			name:         "cpu must be free",
			inRobots:     []Robot{robot("a", func(r *Robot) { r.Capacity.CPU, r.Held.CPU = 2000, 1600 })},
			inDemands:    []Demand{one("t", needs(500, 0)), one("u", needs(400, 0))},
			wantRobots:   map[string]string{"u": "a"},
			wantRejected: map[string]string{"t": "0 of 1 robots: 1: cpu 500m is not free"},
		},
		{
			name:         "memory must be free",
			inRobots:     []Robot{robot("a", func(r *Robot) { r.Capacity.Memory = 1 << 30 })},
			inDemands:    []Demand{one("t", needs(0, 2<<30))},
			wantRejected: map[string]string{"t": "0 of 1 robots: 1: memory 2Gi is more than it has"},
		},
		{
			name:     "the tasks of a replica need room together",
			inRobots: []Robot{robot("a", holds(3)), robot("b", holds(2))},
			inDemands: []Demand{{Tasks: []Task{
				task("t-x", "exec"), task("t-y", "exec"),
			}}},
			wantRobots: map[string]string{"t-x": "b"},
		},
		{
			name:         "a fixed robot is checked, too",
			inRobots:     []Robot{robot("a"), robot("b", holds(4))},
			inDemands:    []Demand{one("t", on("b"))},
			wantRejected: map[string]string{"t": "robot b: task limit reached"},
		},
		{
			name:       "a fixed robot is used even if others are less loaded",
			inRobots:   []Robot{robot("a"), robot("b", holds(3))},
			inDemands:  []Demand{one("t", on("b"))},
			wantRobots: map[string]string{"t": "b"},
		},
		{
			name:         "a fixed robot that does not exist",
			inRobots:     []Robot{robot("a")},
			inDemands:    []Demand{one("t", on("z"))},
			wantRejected: map[string]string{"t": "robot z: is neither in this namespace nor shared with it"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Decide(Snapshot{Robots: c.inRobots, Demands: c.inDemands})
			robots, rejected := read(got)
			if !alike(robots, c.wantRobots) || !alike(rejected, c.wantRejected) {
				t.Errorf("bound %v, want %v\nrefused %v, want %v", robots, c.wantRobots, rejected, c.wantRejected)
			}
		})
	}
}

func inGroup(name string, index int) func(*Demand) {
	return func(d *Demand) { d.Group, d.Index = name, index }
}
func since(at time.Time) func(*Demand) { return func(d *Demand) { d.Since = at } }
func on(robot string) func(*Demand)    { return func(d *Demand) { d.Robot = robot } }
func rules(r Rules) func(*Demand)      { return func(d *Demand) { d.Rules = &r } }

func alike(a, b map[string]string) bool {
	return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b))
}

// read puts decisions into words.
func read(d Decisions) (robots, rejected map[string]string) {
	robots, rejected = map[string]string{}, map[string]string{}
	for _, b := range d.Bind {
		robots[b.Demand.Name()] = b.Robot
	}
	for name, r := range d.Rejected {
		rejected[name] = r.String()
	}
	return robots, rejected
}

func TestDecide_DoesNotChangeTheSnapshot(t *testing.T) {
	s := Snapshot{
		Robots:  []Robot{robot("a", func(r *Robot) { r.Groups = map[string]int{"g": 1} })},
		Demands: []Demand{one("b", inGroup("g", 1)), one("a", inGroup("g", 0))},
	}
	Decide(s)
	if s.Robots[0].Held.Tasks != 0 || s.Robots[0].Groups["g"] != 1 || s.Demands[0].Name() != "b" {
		t.Errorf("changed: %+v", s)
	}
}

func TestDiagnosis_ListsAtMostFiveRejections(t *testing.T) {
	var robots []Robot
	for i := range 9 {
		robots = append(robots, robot(fmt.Sprint("r", i), func(r *Robot) { r.Drivers = []string{fmt.Sprint("d", i)} }))
	}
	got := Decide(Snapshot{Robots: robots, Demands: []Demand{one("t")}}).Rejected["t"].String()
	want := "0 of 9 robots: 1: driver exec is not offered (has d0); 1: driver exec is not offered (has d1); " +
		"1: driver exec is not offered (has d2); 1: driver exec is not offered (has d3); 1: driver exec is not offered (has d4); and 4 more reasons"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestDecideUntil_LeavesTheRestUndecided(t *testing.T) {
	s := Snapshot{Robots: []Robot{robot("r")}, Demands: []Demand{one("a"), one("b"), one("c")}}
	for asked, want := range []int{0, 1, 2, 3} {
		left := asked
		got, isPartial := DecideUntil(func() bool { left--; return left < 0 }, s)
		if len(got.Bind) != want || len(got.Rejected) != 0 || isPartial != (want < len(s.Demands)) {
			t.Errorf("expired at demand %d: %+v, partial %v", asked, got, isPartial)
		}
	}
}
