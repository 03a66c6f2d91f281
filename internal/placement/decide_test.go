package placement

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/internal/lifecycle"
)

// robot is Online with room for four tasks.
func robot(name string, change ...func(*Robot)) Robot {
	r := Robot{Name: name, Phase: lifecycle.RobotOnline, Capacity: Room{Tasks: 4, CPU: Unlimited, Memory: Unlimited}}
	for _, f := range change {
		f(&r)
	}
	return r
}

func holds(tasks int64) func(*Robot) { return func(r *Robot) { r.Held.Tasks = tasks } }

// one is a demand of one exec task.
func one(name string, change ...func(*Demand)) Demand {
	d := Demand{Tasks: []Task{{Name: name, Driver: "exec"}}, Priority: 50}
	for _, f := range change {
		f(&d)
	}
	return d
}

func needs(cpu, memory int64) func(*Demand) {
	return func(d *Demand) { d.Tasks[0].CPU, d.Tasks[0].Memory = cpu, memory }
}

func TestDecide(t *testing.T) {
	long := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	prod := func(d *Demand) { d.Selector = map[string]string{"env": "prod"} }
	for _, c := range []struct {
		name        string
		inRobots    []Robot
		inDemands   []Demand
		wantRobots  map[string]string
		wantRefused map[string]string
	}{
		{
			name:        "no robot is there",
			inDemands:   []Demand{one("t")},
			wantRefused: map[string]string{"t": "0 of 0 robots: none is registered"},
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
			name:       "equal robots are taken by name",
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
			name:       "a replica keeps away from where its group already is",
			inRobots:   []Robot{robot("a", holds(1), func(r *Robot) { r.Groups = map[string]int{"g": 1} }), robot("b", holds(3))},
			inDemands:  []Demand{one("t", inGroup("g", 1))},
			wantRobots: map[string]string{"t": "b"},
		},
		{
			name:        "the higher priority goes first, whatever its age",
			inRobots:    []Robot{robot("a", holds(3))},
			inDemands:   []Demand{one("old", since(long)), one("urgent", since(long.Add(time.Hour)), func(d *Demand) { d.Priority = 90 })},
			wantRobots:  map[string]string{"urgent": "a"},
			wantRefused: map[string]string{"old": "0 of 1 robots: 1: no place left"},
		},
		{
			name:        "of equal priority the older goes first, whatever its name",
			inRobots:    []Robot{robot("a", holds(3))},
			inDemands:   []Demand{one("a-young", since(long.Add(time.Hour))), one("old", since(long))},
			wantRobots:  map[string]string{"old": "a"},
			wantRefused: map[string]string{"a-young": "0 of 1 robots: 1: no place left"},
		},
		{
			name:        "replica 2 goes before replica 10",
			inRobots:    []Robot{robot("a", holds(3))},
			inDemands:   []Demand{one("t10", inGroup("g", 10)), one("t2", inGroup("g", 2))},
			wantRobots:  map[string]string{"t2": "a"},
			wantRefused: map[string]string{"t10": "0 of 1 robots: 1: no place left"},
		},
		{
			name: "each robot says why not, the most frequent reason first",
			inRobots: []Robot{
				robot("a"), robot("b"),
				robot("c", func(r *Robot) { r.Labels, r.Drivers = map[string]string{"env": "prod"}, []string{"java"} }),
			},
			inDemands:   []Demand{one("t", prod)},
			wantRefused: map[string]string{"t": "0 of 3 robots: 2: label env=prod missing; 1: driver exec is not offered (has java)"},
		},
		{
			name:        "a document agent offers commands only",
			inRobots:    []Robot{robot("a")},
			inDemands:   []Demand{one("t", func(d *Demand) { d.Tasks[0].Driver = "docker" })},
			wantRefused: map[string]string{"t": "0 of 1 robots: 1: driver docker is not offered (has exec, raw_exec)"},
		},
		{
			name: "robots that are not online or unschedulable take nothing",
			inRobots: []Robot{
				robot("a", func(r *Robot) { r.Phase = lifecycle.RobotUnknown }),
				robot("b", func(r *Robot) { r.Unschedulable = true }),
			},
			inDemands:   []Demand{one("t")},
			wantRefused: map[string]string{"t": "0 of 2 robots: 1: phase is Unknown; 1: unschedulable"},
		},
		{
			name:        "cpu must be free",
			inRobots:    []Robot{robot("a", func(r *Robot) { r.Capacity.CPU, r.Held.CPU = 2000, 1600 })},
			inDemands:   []Demand{one("t", needs(500, 0)), one("u", needs(400, 0))},
			wantRobots:  map[string]string{"u": "a"},
			wantRefused: map[string]string{"t": "0 of 1 robots: 1: cpu 500m is not free"},
		},
		{
			name:        "memory must be free",
			inRobots:    []Robot{robot("a", func(r *Robot) { r.Capacity.Memory = 1 << 30 })},
			inDemands:   []Demand{one("t", needs(0, 2<<30))},
			wantRefused: map[string]string{"t": "0 of 1 robots: 1: memory 2Gi is not free"},
		},
		{
			name:     "the tasks of a replica need room together",
			inRobots: []Robot{robot("a", holds(3)), robot("b", holds(2))},
			inDemands: []Demand{{Tasks: []Task{
				{Name: "t-x", Driver: "exec"}, {Name: "t-y", Driver: "exec"},
			}}},
			wantRobots: map[string]string{"t-x": "b"},
		},
		{
			name:        "a chosen robot is checked all the same",
			inRobots:    []Robot{robot("a"), robot("b", holds(4))},
			inDemands:   []Demand{one("t", on("b"))},
			wantRefused: map[string]string{"t": "robot b: no place left"},
		},
		{
			name:       "a chosen robot is taken though others are less loaded",
			inRobots:   []Robot{robot("a"), robot("b", holds(3))},
			inDemands:  []Demand{one("t", on("b"))},
			wantRobots: map[string]string{"t": "b"},
		},
		{
			name:        "a chosen robot that is not there",
			inRobots:    []Robot{robot("a")},
			inDemands:   []Demand{one("t", on("z"))},
			wantRefused: map[string]string{"t": "robot z: does not exist"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Decide(Snapshot{Robots: c.inRobots, Demands: c.inDemands})
			robots, refused := read(got)
			if !same(robots, c.wantRobots) || !same(refused, c.wantRefused) {
				t.Errorf("bound %v, want %v\nrefused %v, want %v", robots, c.wantRobots, refused, c.wantRefused)
			}
		})
	}
}

func inGroup(name string, index int) func(*Demand) {
	return func(d *Demand) { d.Group, d.Index = name, index }
}
func since(at time.Time) func(*Demand) { return func(d *Demand) { d.Since = at } }
func on(robot string) func(*Demand)    { return func(d *Demand) { d.Robot = robot } }

func same(a, b map[string]string) bool {
	return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b))
}

// read puts decisions into words.
func read(d Decisions) (robots, refused map[string]string) {
	robots, refused = map[string]string{}, map[string]string{}
	for _, b := range d.Bind {
		robots[b.Demand.Name()] = b.Robot
	}
	for name, r := range d.Refused {
		refused[name] = r.String()
	}
	return robots, refused
}

// world draws robots and demands that compete for room.
func world(t *rapid.T) Snapshot {
	var s Snapshot
	label := rapid.SampledFrom([]string{"prod", "test"})
	for i := range rapid.IntRange(0, 8).Draw(t, "robots") {
		r := robot(fmt.Sprintf("r%d", i))
		r.Phase = rapid.SampledFrom(lifecycle.RobotPhases).Draw(t, "phase")
		r.Unschedulable = rapid.Bool().Draw(t, "unschedulable")
		r.Labels = map[string]string{"env": label.Draw(t, "label")}
		r.Drivers = rapid.SampledFrom([][]string{nil, {"docker"}, {"exec", "docker"}}).Draw(t, "drivers")
		r.Capacity = Room{Tasks: rapid.Int64Range(0, 6).Draw(t, "tasks"), CPU: rapid.Int64Range(0, 4000).Draw(t, "cpu"), Memory: Unlimited}
		r.Held = Room{Tasks: rapid.Int64Range(0, r.Capacity.Tasks).Draw(t, "held"), CPU: rapid.Int64Range(0, r.Capacity.CPU).Draw(t, "held cpu")}
		r.Groups = map[string]int{"g": rapid.IntRange(0, 3).Draw(t, "of group")}
		s.Robots = append(s.Robots, r)
	}
	for i := range rapid.IntRange(0, 40).Draw(t, "demands") {
		d := one(fmt.Sprintf("t%d", i), needs(rapid.Int64Range(0, 1500).Draw(t, "needs"), 0))
		if rapid.Bool().Draw(t, "two tasks") {
			d.Tasks = append(d.Tasks, Task{Name: d.Name() + "-b", Driver: "docker", CPU: 10})
		}
		d.Group = rapid.SampledFrom([]string{"", "g", "h"}).Draw(t, "group")
		d.Index, d.Priority = i, rapid.SampledFrom([]int32{10, 50}).Draw(t, "priority")
		d.Robot = rapid.SampledFrom([]string{"", "", "", "r1", "r9"}).Draw(t, "robot")
		if rapid.Bool().Draw(t, "selects") {
			d.Selector = map[string]string{"env": label.Draw(t, "selector")}
		}
		s.Demands = append(s.Demands, d)
	}
	return s
}

func TestDecisionsKeepEveryRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := world(t)
		got := Decide(s)
		if len(got.Bind)+len(got.Refused) != len(s.Demands) {
			t.Fatalf("%d bound and %d refused of %d", len(got.Bind), len(got.Refused), len(s.Demands))
		}
		held := map[string]Room{}
		byName := map[string]*Robot{}
		for i := range s.Robots {
			byName[s.Robots[i].Name] = &s.Robots[i]
			held[s.Robots[i].Name] = s.Robots[i].Held
		}
		for _, b := range got.Bind {
			r := byName[b.Robot]
			if v := judge(standing, &b.Demand, r); !v.Fits() {
				t.Fatalf("%s is on %s: %s", b.Demand.Name(), b.Robot, v.Message)
			}
			if b.Demand.Robot != "" && b.Demand.Robot != b.Robot {
				t.Fatalf("%s is on %s, chosen was %s", b.Demand.Name(), b.Robot, b.Demand.Robot)
			}
			now := held[b.Robot].Plus(b.Demand.Needs())
			if now.Tasks > r.Capacity.Tasks || now.CPU > r.Capacity.CPU && b.Demand.Needs().CPU > 0 {
				t.Fatalf("%s overbooks %s: %+v of %+v", b.Demand.Name(), b.Robot, now, r.Capacity)
			}
			held[b.Robot] = now
		}
		for name := range got.Refused {
			mustNotFit(t, s, name, held)
		}
	})
}

// mustNotFit: what was refused fits nowhere, even after the cycle.
func mustNotFit(t *rapid.T, s Snapshot, name string, held map[string]Room) {
	i := slices.IndexFunc(s.Demands, func(d Demand) bool { return d.Name() == name })
	d := &s.Demands[i]
	for _, r := range s.Robots {
		r.Held = held[r.Name]
		if d.Robot != "" && d.Robot != r.Name {
			continue
		}
		if judge(standing, d, &r).Fits() && judge(room, d, &r).Fits() {
			t.Fatalf("%s was refused and fits %s", name, r.Name)
		}
	}
}

func TestTheOrderOfTheInputDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := world(t)
		robots, refused := read(Decide(s))
		seed := rapid.Uint64().Draw(t, "seed")
		r := rand.New(rand.NewPCG(seed, seed))
		r.Shuffle(len(s.Robots), func(i, j int) { s.Robots[i], s.Robots[j] = s.Robots[j], s.Robots[i] })
		r.Shuffle(len(s.Demands), func(i, j int) { s.Demands[i], s.Demands[j] = s.Demands[j], s.Demands[i] })
		robots2, refused2 := read(Decide(s))
		if !same(robots, robots2) || !same(refused, refused2) {
			t.Fatalf("%v and %v\n%v and %v", robots, robots2, refused, refused2)
		}
	})
}

func TestTheSnapshotIsNotChanged(t *testing.T) {
	s := Snapshot{
		Robots:  []Robot{robot("a", func(r *Robot) { r.Groups = map[string]int{"g": 1} })},
		Demands: []Demand{one("b", inGroup("g", 1)), one("a", inGroup("g", 0))},
	}
	Decide(s)
	if s.Robots[0].Held.Tasks != 0 || s.Robots[0].Groups["g"] != 1 || s.Demands[0].Name() != "b" {
		t.Errorf("changed: %+v", s)
	}
}

func TestARefusalNamesFiveKindsAtMost(t *testing.T) {
	var robots []Robot
	for i := range 9 {
		robots = append(robots, robot(fmt.Sprint("r", i), func(r *Robot) { r.Drivers = []string{fmt.Sprint("d", i)} }))
	}
	got := Decide(Snapshot{Robots: robots, Demands: []Demand{one("t")}}).Refused["t"].String()
	want := "0 of 9 robots: 1: driver exec is not offered (has d0); 1: driver exec is not offered (has d1); " +
		"1: driver exec is not offered (has d2); 1: driver exec is not offered (has d3); 1: driver exec is not offered (has d4); and 4 more kinds of reasons"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// BenchmarkDecide is one cycle that finds room for a hundred of ten thousand
// waiting tasks of a hundred kinds.
func BenchmarkDecide(b *testing.B) {
	for _, robots := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("%d robots", robots), func(b *testing.B) {
			s := crowd(robots)
			for b.Loop() {
				if got := Decide(s); len(got.Bind) != 100 {
					b.Fatalf("bound %d", len(got.Bind))
				}
			}
		})
	}
}

func crowd(robots int) Snapshot {
	var s Snapshot
	for i := range robots {
		r := robot(fmt.Sprintf("r%05d", i), holds(4))
		if i < 100 {
			r.Held.Tasks = 3
		}
		r.Labels = map[string]string{"zone": "a"}
		s.Robots = append(s.Robots, r)
	}
	for i := range 10000 {
		s.Demands = append(s.Demands, one(fmt.Sprintf("t%05d", i), inGroup(fmt.Sprintf("g%02d", i%100), i/100), func(d *Demand) {
			d.Selector = map[string]string{"zone": "a"}
		}))
	}
	return s
}
