package placement

import (
	"fmt"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

func has(devices map[string]int64) func(*Robot) {
	return func(r *Robot) { r.Capacity.Devices = NewDevices(devices) }
}
func labels(pairs ...string) func(*Robot) {
	return func(r *Robot) {
		r.Labels = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			r.Labels[pairs[i]] = pairs[i+1]
		}
	}
}
func group(name string, tasks int) func(*Robot) {
	return func(r *Robot) { r.Groups = map[string]int{name: tasks}; r.Held.Tasks += int64(tasks) }
}
func isolates(kinds ...string) func(*Robot) {
	return func(r *Robot) {
		r.Attrs = map[string]string{}
		for _, kind := range kinds {
			r.Attrs["isolation."+kind] = "true"
		}
	}
}
func insists(kinds string) func(*Demand)    { return func(d *Demand) { d.Tasks[0].Isolation = kinds } }
func secret(d *Demand)                      { d.Tasks[0].Secrets = true }
func ofArray(d *Demand)                     { d.Tasks[0].Array = true }
func wants(r Room) func(*Demand)            { return func(d *Demand) { d.Tasks[0].Needs = r } }
func prefers(w Preferences) func(*Demand)   { return func(d *Demand) { d.Preferences = &w } }
func failed(robots ...string) func(*Demand) { return func(d *Demand) { d.Failed = robots } }
func beside(robots ...string) func(*Demand) { return func(d *Demand) { d.Near = robots } }
func gang(n int) func(*Demand)              { return func(d *Demand) { d.Gang = n } }
func near(a ...Affinity) func(*Demand)      { return prefers(Preferences{Affinity: a}) }

func arms(n int64) Room { return Room{Devices: NewDevices(map[string]int64{"arm": n})} }

func TestRules(t *testing.T) {
	for _, c := range []struct {
		name         string
		inRobots     []Robot
		inDemands    []Demand
		wantRobots   map[string]string
		wantRejected map[string]string
	}{
		{
			name:         "a robot is in one of the datacenters",
			inRobots:     []Robot{robot("a", labels("datacenter", "hall-1")), robot("b"), robot("c", labels("datacenter", "hall-2"))},
			inDemands:    []Demand{one("t", rules(Rules{Datacenters: []string{"hall-2", "hall-3"}})), one("u", rules(Rules{Datacenters: []string{"hall-9"}}))},
			wantRobots:   map[string]string{"t": "c"},
			wantRejected: map[string]string{"u": "0 of 3 robots: 3: not in datacenter hall-9"},
		},
		{
			name:         "robots with other tasks of the replica are preferred, and others are used if they are full",
			inRobots:     []Robot{robot("a"), robot("b", group("x", 1)), robot("c", group("x", 2), func(r *Robot) { r.Capacity.Tasks = 3 })},
			inDemands:    []Demand{one("t", beside("c", "b")), one("u", beside("c")), one("v", beside("c", "b"), failed("c", "b")), one("w", beside("gone"))},
			wantRobots:   map[string]string{"t": "c", "u": "a", "v": "a", "w": "b"},
			wantRejected: nil,
		},
		{
			name:         "a legacy agent gets no task with a self-stop deadline",
			inRobots:     []Robot{robot("a", func(r *Robot) { r.LegacyAgent = true })},
			inDemands:    []Demand{one("t", rules(Rules{SelfStop: true})), one("u")},
			wantRobots:   map[string]string{"u": "a"},
			wantRejected: map[string]string{"t": "0 of 1 robots: 1: its agent cannot stop a task by itself"},
		},
		{
			name:     "a legacy agent gets no replica with a secretEnv",
			inRobots: []Robot{robot("a", func(r *Robot) { r.LegacyAgent = true })},
			inDemands: []Demand{
				one("t", secret), one("u"),
				one("v", func(d *Demand) { d.Tasks = append(d.Tasks, Task{Name: "w", Driver: "exec", Secrets: true}) }),
			},
			wantRobots: map[string]string{"u": "a"},
			wantRejected: map[string]string{
				"t": "0 of 1 robots: 1: its agent does not support secretEnv", "v": "0 of 1 robots: 1: its agent does not support secretEnv",
			},
		},
		{
			name: "only an agent that runs arrays gets a task of one",
			inRobots: []Robot{
				robot("a"), robot("b", func(r *Robot) { r.LegacyAgent, r.RunsArrays = true, true }), robot("c", func(r *Robot) { r.RunsArrays = true }),
			},
			inDemands:    []Demand{one("t", ofArray), one("u", ofArray, failed("c"))},
			wantRobots:   map[string]string{"t": "c"},
			wantRejected: map[string]string{"u": "0 of 3 robots: 2: its agent does not run arrays; 1: the task failed on it"},
		},
		{
			name:     "required isolation must be in force",
			inRobots: []Robot{robot("a", isolates("cgroup")), robot("b", isolates("cgroup", "seccomp"))},
			inDemands: []Demand{
				one("t", insists("cgroup,seccomp")), one("u", insists("user")),
				one("v", rules(Rules{Constraints: []Constraint{{"${robot.attr.isolation.seccomp}", "=", "true"}}})),
			},
			wantRobots:   map[string]string{"t": "b", "v": "b"},
			wantRejected: map[string]string{"u": "0 of 2 robots: 2: isolation user missing"},
		},
		{
			name:         "every constraint must be met",
			inRobots:     []Robot{robot("a", labels("env", "prod")), robot("b", labels("env", "prod", "gpu", "yes"))},
			inDemands:    []Demand{one("t", rules(Rules{Constraints: []Constraint{{"${robot.labels.env}", "=", "prod"}, {"${robot.labels.gpu}", "=", "yes"}}}))},
			wantRobots:   map[string]string{"t": "b"},
			wantRejected: nil,
		},
		{
			name:         "an invalid constraint is a rejection by every robot",
			inRobots:     []Robot{robot("a"), robot("b")},
			inDemands:    []Demand{one("t", rules(Rules{Constraints: []Constraint{{"a", "regexp", "("}}}))},
			wantRejected: map[string]string{"t": "0 of 2 robots: 2: constraint a regexp ( is invalid: error parsing regexp: missing closing ): `(`"},
		},
		{
			name:         "disk, iops and mbits must be free",
			inRobots:     []Robot{robot("a", func(r *Robot) { r.Capacity.Disk, r.Held.Disk = 1<<30, 1<<29 }), robot("b", func(r *Robot) { r.Capacity.IOPS, r.Held.IOPS = 100, 80 }), robot("c", func(r *Robot) { r.Capacity.MBits, r.Held.MBits = 100, 80 })},
			inDemands:    []Demand{one("t", wants(Room{Disk: 1 << 30, IOPS: 50, MBits: 50}))},
			wantRejected: map[string]string{"t": "0 of 3 robots: 1: disk 1Gi is not free; 1: iops 50 is not free; 1: mbits 50 is not free"},
		},
		{
			name: "a device in use and a missing device are different rejections",
			inRobots: []Robot{
				robot("a", has(map[string]int64{"arm": 1}), func(r *Robot) { r.Held = arms(1) }),
				robot("b", has(map[string]int64{"arm": 1, "camera": 2}), func(r *Robot) { r.Held = arms(1) }),
				robot("c", has(map[string]int64{"camera": 1})),
			},
			inDemands:    []Demand{one("t", wants(arms(1))), one("u", wants(arms(2)))},
			wantRejected: map[string]string{"t": "0 of 3 robots: 2: arm in use; 1: arm missing", "u": "0 of 3 robots: 3: 2 of arm missing"},
		},
		{
			name:       "one arm serves one task at a time",
			inRobots:   []Robot{robot("a", has(map[string]int64{"arm": 1})), robot("b", has(map[string]int64{"arm": 1}))},
			inDemands:  []Demand{one("t", wants(arms(1))), one("u", wants(arms(1))), one("v", wants(arms(1)))},
			wantRobots: map[string]string{"t": "a", "u": "b"}, wantRejected: map[string]string{"v": "0 of 2 robots: 2: arm in use"},
		},
		{
			name:       "an overcommitted part does not matter if the demand does not need it",
			inRobots:   []Robot{robot("a", func(r *Robot) { r.Capacity.CPU, r.Held.CPU = 1000, 2000 })},
			inDemands:  []Demand{one("t")},
			wantRobots: map[string]string{"t": "a"},
		},
		{
			name:       "pack fills one robot before the next",
			inRobots:   []Robot{robot("a"), robot("b", holds(2)), robot("c")},
			inDemands:  []Demand{one("t", prefers(Preferences{Pack: true})), one("u", prefers(Preferences{Pack: true})), one("v", prefers(Preferences{Pack: true}))},
			wantRobots: map[string]string{"t": "b", "u": "b", "v": "a"},
		},
		{
			name:       "pack prefers robots of its group over the most loaded one",
			inRobots:   []Robot{robot("a", group("g", 1)), robot("b", holds(3))},
			inDemands:  []Demand{one("t", inGroup("g", 1), prefers(Preferences{Pack: true}))},
			wantRobots: map[string]string{"t": "a"},
		},
		{
			name:       "pack prefers a robot that another class has filled",
			inRobots:   []Robot{robot("a"), robot("b")},
			inDemands:  []Demand{one("t", prefers(Preferences{Pack: true}), wants(Room{CPU: 1})), one("u", on("b")), one("v", prefers(Preferences{Pack: true}), wants(Room{CPU: 1}))},
			wantRobots: map[string]string{"t": "a", "u": "b", "v": "a"},
		},
		{
			name:       "affinity to labels counts more than load",
			inRobots:   []Robot{robot("a"), robot("b", holds(3), labels("zone", "1"))},
			inDemands:  []Demand{one("t", near(Affinity{Labels: map[string]string{"zone": "1"}, Weight: 10}))},
			wantRobots: map[string]string{"t": "b"},
		},
		{
			name:       "affinity is a preference: without such a robot, another one is used",
			inRobots:   []Robot{robot("a")},
			inDemands:  []Demand{one("t", near(Affinity{Labels: map[string]string{"zone": "1"}, Weight: 10}))},
			wantRobots: map[string]string{"t": "a"},
		},
		{
			name:     "weights add up",
			inRobots: []Robot{robot("a", labels("x", "1", "y", "1")), robot("b", labels("z", "1")), robot("c")},
			inDemands: []Demand{one("t", near(
				Affinity{Labels: map[string]string{"x": "1"}, Weight: 30}, Affinity{Labels: map[string]string{"y": "1"}, Weight: 30},
				Affinity{Labels: map[string]string{"z": "1"}, Weight: 50},
			))},
			wantRobots: map[string]string{"t": "a"},
		},
		{
			name:       "anti-affinity avoids labels",
			inRobots:   []Robot{robot("a", labels("old", "yes")), robot("b", holds(3))},
			inDemands:  []Demand{one("t", near(Affinity{Labels: map[string]string{"old": "yes"}, Weight: -1}))},
			wantRobots: map[string]string{"t": "b"},
		},
		{
			name:       "affinity to another group counts tasks of this cycle",
			inRobots:   []Robot{robot("a"), robot("b"), robot("c")},
			inDemands:  []Demand{one("t", inGroup("db", 0), on("b")), one("u", inGroup("web", 0), near(Affinity{Group: "db", Weight: 50}))},
			wantRobots: map[string]string{"t": "b", "u": "b"},
		},
		{
			name:     "a class counts tasks that another group gets later in the cycle",
			inRobots: []Robot{robot("a"), robot("b"), robot("c")},
			inDemands: []Demand{
				one("t", inGroup("a", 0), near(Affinity{Group: "db", Weight: 50})),
				one("u", inGroup("a", 1), func(d *Demand) { d.Group = "db" }, on("c")),
				one("v", inGroup("e", 0), near(Affinity{Group: "db", Weight: 50})),
			},
			wantRobots: map[string]string{"t": "a", "u": "c", "v": "c"},
		},
		{
			name:       "anti-affinity avoids another group",
			inRobots:   []Robot{robot("a", group("db", 1)), robot("b", holds(3))},
			inDemands:  []Demand{one("t", inGroup("web", 0), near(Affinity{Group: "db", Weight: -50}))},
			wantRobots: map[string]string{"t": "b"},
		},
		{
			name:         "a blocked robot gets no tasks of the group",
			inRobots:     []Robot{robot("a"), robot("b")},
			inDemands:    []Demand{one("t", rules(Rules{Blocked: []string{"a", "b"}})), one("u", rules(Rules{Blocked: []string{"a"}}))},
			wantRobots:   map[string]string{"u": "b"},
			wantRejected: map[string]string{"t": "0 of 2 robots: 2: blocked for the task group"},
		},
		{
			name:       "a task avoids robots on which it failed, equal tasks use them",
			inRobots:   []Robot{robot("a"), robot("b", holds(3))},
			inDemands:  []Demand{one("t", failed("a")), one("u")},
			wantRobots: map[string]string{"t": "b", "u": "a"},
		},
		{
			name:         "a task that failed on every robot with room",
			inRobots:     []Robot{robot("a"), robot("b"), robot("c", holds(4))},
			inDemands:    []Demand{one("t", failed("a", "b"))},
			wantRejected: map[string]string{"t": "0 of 3 robots: 2: the task failed on it; 1: task limit reached"},
		},
		{
			name:         "a fixed robot on which it failed",
			inRobots:     []Robot{robot("a")},
			inDemands:    []Demand{one("t", failed("a"), on("a"))},
			wantRejected: map[string]string{"t": "robot a: the task failed on it"},
		},
		{
			name:       "a gang that fits starts",
			inRobots:   []Robot{robot("a", holds(3)), robot("b", holds(3))},
			inDemands:  []Demand{one("t0", inGroup("g", 0), gang(2)), one("t1", inGroup("g", 1), gang(2))},
			wantRobots: map[string]string{"t0": "a", "t1": "b"},
		},
		{
			name:     "if one replica of a gang gets no robot, none starts, and the next demand takes the room",
			inRobots: []Robot{robot("a", holds(2))},
			inDemands: []Demand{
				one("t0", inGroup("g", 0), gang(3)), one("t1", inGroup("g", 1), gang(3)), one("t2", inGroup("g", 2), gang(3)),
				one("u", inGroup("h", 0)), one("v", inGroup("h", 1)),
			},
			wantRobots: map[string]string{"u": "a", "v": "a"},
			wantRejected: map[string]string{
				"t0": "gang needs robots for all 3 replicas and found 2; next replica: 0 of 1 robots: 1: task limit reached",
				"t1": "gang needs robots for all 3 replicas and found 2; next replica: 0 of 1 robots: 1: task limit reached",
				"t2": "gang needs robots for all 3 replicas and found 2; next replica: 0 of 1 robots: 1: task limit reached",
			},
		},
		{
			name:       "an incomplete gang waits for the missing replicas",
			inRobots:   []Robot{robot("a")},
			inDemands:  []Demand{one("t0", inGroup("g", 0), gang(3)), one("t1", inGroup("g", 1), gang(3))},
			wantRobots: nil,
			wantRejected: map[string]string{
				"t0": "gang needs 3 replicas and only 2 exist", "t1": "gang needs 3 replicas and only 2 exist",
			},
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

func TestCanAnyRun(t *testing.T) {
	for _, c := range []struct {
		name     string
		inRobot  Robot
		inDemand Demand
		want     bool
	}{
		{"a robot that has room", robot("a"), one("t"), true},
		{"a full one, for it empties", robot("a", holds(4)), one("t"), true},
		{"one that is offline, for it comes back", robot("a", func(r *Robot) { r.Phase = lifecycle.RobotOffline }), one("t"), true},
		{"one that is unschedulable, for that can be undone", robot("a", func(r *Robot) { r.Unschedulable = true }), one("t"), true},
		{"one that does not answer, for it may recover", robot("a", func(r *Robot) { r.Impairment = CheckResponsive }), one("t"), true},
		{"one that is too small", robot("a"), one("t", wants(arms(1))), false},
		{"one with another label", robot("a"), one("t", rules(Rules{Selector: map[string]string{"env": "prod"}})), false},
		{"one that meets no constraint", robot("a"), one("t", rules(Rules{Constraints: []Constraint{{"a", "=", "b"}}})), false},
		{"one without the driver", robot("a"), one("t", func(d *Demand) { d.Tasks[0].Driver = "java" }), false},
		{"one on the blocklist", robot("a"), one("t", rules(Rules{Blocked: []string{"a"}})), false},
		{"one that it failed on", robot("a"), one("t", failed("a")), false},
		{"another than the chosen one", robot("a"), one("t", on("b")), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := CanAnyRun(&c.inDemand, []Robot{c.inRobot}); got != c.want {
				t.Errorf("capable %v", got)
			}
		})
	}
	if d := one("t"); CanAnyRun(&d, nil) {
		t.Error("no robot is capable where there is none")
	}
}

func TestDecide_Preempts(t *testing.T) {
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	holder := func(name string, priority int32, change ...func(*Holder)) Holder {
		h := Holder{Name: name, Priority: priority, Since: noon, Room: Room{Tasks: 1}}
		for _, f := range change {
			f(&h)
		}
		return h
	}
	young := func(h *Holder) { h.Since = noon.Add(time.Hour) }
	big := func(h *Holder) { h.Room.CPU = 1000 }
	leaving := func(h *Holder) { h.Leaving = true }
	protected := func(h *Holder) { h.Protected = true }
	full := func(name string) Robot {
		return robot(name, holds(4), func(r *Robot) { r.Capacity.CPU, r.Held.CPU = 1000, 1000 })
	}
	urgent := func(change ...func(*Demand)) Demand {
		d := one("t", change...)
		d.Preempts, d.Priority = true, 80
		return d
	}
	for _, c := range []struct {
		name      string
		inHolders map[string][]Holder
		inDemand  Demand
		want      string // robot and victims; empty: none
	}{
		{"who may not preempt waits", map[string][]Holder{"a": {holder("x", 10)}}, one("t"), ""},
		{"equal priority stays", map[string][]Holder{"a": {holder("x", 80)}}, urgent(), ""},
		{"lower priority leaves", map[string][]Holder{"a": {holder("x", 79)}}, urgent(), "a [x]"},
		{"a task that may not be interrupted stays", map[string][]Holder{"a": {holder("x", 10, protected)}}, urgent(), ""},
		{"another one leaves instead", map[string][]Holder{"a": {holder("x", 10, protected), holder("y", 20)}}, urgent(), "a [y]"},
		{"one that is leaving already counts", map[string][]Holder{"a": {holder("x", 10, protected, leaving)}}, urgent(), ""},
		{"the lowest priority leaves", map[string][]Holder{"a": {holder("x", 20), holder("y", 10)}, "b": {holder("z", 15)}}, urgent(), "a [y]"},
		{"of equal ones the youngest leaves", map[string][]Holder{"a": {holder("x", 10), holder("y", 10, young)}}, urgent(), "a [y]"},
		{"one that is enough leaves rather than two that are less", map[string][]Holder{"a": {holder("x", 10), holder("y", 10), holder("z", 50, big)}}, urgent(needs(500, 0)), "a [z]"},
		{"two leave where one is not enough", map[string][]Holder{"a": {holder("x", 10), holder("y", 20), holder("z", 30)}},
			urgent(func(d *Demand) { d.Tasks = append(d.Tasks, task("u", "exec")) }), "a [x y]"},
		{"a robot with fewer victims is better", map[string][]Holder{
			"a": {holder("x", 10), holder("y", 10)}, "b": {holder("z", 70, func(h *Holder) { h.Room.Tasks = 2 })},
		}, urgent(func(d *Demand) { d.Tasks = append(d.Tasks, task("u", "exec")) }), "b [z]"},
		{"no more victims where enough is leaving", map[string][]Holder{"a": {holder("x", 10)}, "b": {holder("y", 90, leaving)}}, urgent(), ""},
		{"no victims on a robot that does not fit", map[string][]Holder{"a": {holder("x", 10)}}, urgent(failed("a")), ""},
		{"no victims for a demand that never fits", map[string][]Holder{"a": {holder("x", 10)}}, urgent(needs(5000, 0)), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Decide(Snapshot{Robots: []Robot{full("a"), full("b")}, Demands: []Demand{c.inDemand}, Holders: c.inHolders})
			said := ""
			for _, p := range got.Preempt {
				said += p.Robot + " " + fmt.Sprint(p.Victims)
			}
			if said != c.want {
				t.Errorf("%q, want %q", said, c.want)
			}
			if len(got.Rejected) != 1 {
				t.Error("a demand is bound while victims hold its room")
			}
		})
	}
}

func TestPreempt_ReservesTheRoomAgainstLowerRanks(t *testing.T) {
	low, urgent := one("low"), one("urgent")
	urgent.Preempts, urgent.Priority, urgent.Tasks = true, 80, append(urgent.Tasks, task("urgent-b", "exec"))
	s := Snapshot{
		Robots:  []Robot{robot("a", holds(3))},
		Demands: []Demand{low, urgent},
		Holders: map[string][]Holder{"a": {{Name: "x", Priority: 10, Room: Room{Tasks: 1}}}},
	}
	got := Decide(s)
	if len(got.Preempt) != 1 || len(got.Bind) != 0 {
		t.Errorf("%+v", got)
	}
}
