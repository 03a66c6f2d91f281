package placement

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// world draws robots and demands that compete for room.
func world(t *rapid.T) Snapshot {
	s := Snapshot{Holders: map[string][]Holder{}}
	for i := range rapid.IntRange(0, 8).Draw(t, "robots") {
		r := drawRobot(t, fmt.Sprintf("r%d", i))
		for n := range r.Held.Tasks {
			h := Holder{Name: fmt.Sprintf("%s-%d", r.Name, n), Priority: rapid.Int32Range(0, 60).Draw(t, "priority"), Room: Room{Tasks: 1}}
			h.Leaving = rapid.IntRange(0, 4).Draw(t, "leaving") == 0
			h.Protected = rapid.IntRange(0, 4).Draw(t, "protected") == 0
			s.Holders[r.Name] = append(s.Holders[r.Name], h)
		}
		s.Robots = append(s.Robots, r)
	}
	rules := []*Rules{nil, drawRules(t), drawRules(t)}
	preferences := []*Preferences{nil, {Pack: true}, drawPreferences(t)}
	preempts := rapid.Bool().Draw(t, "some preempt")
	for i := range rapid.IntRange(0, 40).Draw(t, "demands") {
		d := drawDemand(t, i)
		d.Preempts = preempts && rapid.Bool().Draw(t, "preempts")
		d.Rules = rapid.SampledFrom(rules).Draw(t, "rules")
		d.Preferences = rapid.SampledFrom(preferences).Draw(t, "preferences")
		s.Demands = append(s.Demands, d)
	}
	for i, size := 0, rapid.IntRange(0, 5).Draw(t, "gang"); i < size; i++ {
		d := drawDemand(t, 100+i)
		d.Group, d.Gang, d.Priority = "gang", max(size-rapid.IntRange(0, 1).Draw(t, "gone"), 1), 50
		d.Rules = rapid.SampledFrom(rules).Draw(t, "rules")
		d.Preferences = rapid.SampledFrom(preferences).Draw(t, "preferences")
		s.Demands = append(s.Demands, d)
	}
	return s
}

func drawRobot(t *rapid.T, name string) Robot {
	r := robot(name)
	r.Phase = rapid.SampledFrom(append(slices.Repeat([]lifecycle.RobotPhase{lifecycle.RobotOnline}, 6), lifecycle.RobotPhases...)).Draw(t, "phase")
	r.Unschedulable = rapid.IntRange(0, 5).Draw(t, "unschedulable") == 0
	r.Impairment = rapid.SampledFrom([]CheckName{"", "", "", "", CheckResponsive, CheckDiskPressure}).Draw(t, "impairment")
	r.Labels = map[string]string{"env": rapid.SampledFrom([]string{"prod", "test"}).Draw(t, "label")}
	r.Drivers = rapid.SampledFrom([][]string{nil, {"docker"}, {"exec", "docker"}}).Draw(t, "drivers")
	r.Capacity = Room{
		Tasks: rapid.Int64Range(0, 6).Draw(t, "tasks"), CPU: rapid.Int64Range(0, 4000).Draw(t, "cpu"),
		Memory: Unlimited, Disk: Unlimited, IOPS: Unlimited, MBits: Unlimited,
		Devices: NewDevices(map[string]int64{"arm": rapid.Int64Range(0, 2).Draw(t, "arms")}),
	}
	r.Attrs = rapid.SampledFrom([]map[string]string{nil, {"isolation.cgroup": "true"}}).Draw(t, "isolation")
	r.Held = Room{Tasks: rapid.Int64Range(0, r.Capacity.Tasks).Draw(t, "held"), CPU: rapid.Int64Range(0, r.Capacity.CPU).Draw(t, "held cpu")}
	r.Groups = map[string]int{"g": rapid.IntRange(0, 3).Draw(t, "of group")}
	return r
}

func drawRules(t *rapid.T) *Rules {
	return &Rules{
		Selector: map[string]string{"env": rapid.SampledFrom([]string{"prod", "test"}).Draw(t, "selector")},
		Blocked:  rapid.SliceOfN(rapid.SampledFrom([]string{"r0", "r3"}), 0, 1).Draw(t, "blocked"),
	}
}

func drawPreferences(t *rapid.T) *Preferences {
	weight := rapid.SampledFrom([]int{-50, 50})
	return &Preferences{Pack: rapid.Bool().Draw(t, "pack"), Affinity: []Affinity{
		{Labels: map[string]string{"env": "prod"}, Weight: weight.Draw(t, "weight")},
		{Group: "g", Weight: weight.Draw(t, "weight")},
	}}
}

func drawDemand(t *rapid.T, i int) Demand {
	d := one(fmt.Sprintf("t%d", i), needs(rapid.Int64Range(0, 1500).Draw(t, "needs"), 0))
	if rapid.Bool().Draw(t, "two tasks") {
		d.Tasks = append(d.Tasks, task(d.Name()+"-b", "docker"))
	}
	if rapid.IntRange(0, 3).Draw(t, "arm") == 0 {
		d.Tasks[0].Needs.Devices = Devices{{"arm", 1}}
	}
	d.Tasks[0].Secrets = rapid.Bool().Draw(t, "secrets")
	d.Tasks[0].Isolation = rapid.SampledFrom([]string{"", "", "cgroup"}).Draw(t, "isolation")
	d.Group = rapid.SampledFrom([]string{"", "g", "h"}).Draw(t, "group")
	d.Index, d.Priority = i, rapid.SampledFrom([]int32{10, 50}).Draw(t, "priority")
	d.Robot = rapid.SampledFrom([]string{"", "", "", "r1", "r9"}).Draw(t, "robot")
	d.Near = rapid.SampledFrom([][]string{nil, nil, {"r2"}, {"r3", "r9"}}).Draw(t, "near")
	d.Failed = rapid.SliceOfN(rapid.SampledFrom([]string{"r1", "r2"}), 0, 2).Draw(t, "failed")
	return d
}

// fits reports whether all checks let the demand onto the robot.
func fits(d *Demand, r *Robot) bool {
	need, free := d.Needs(), r.Capacity.Minus(r.Held)
	return firstRejection(append(slices.Clone(availabilityChecks), ruleChecks(d.Rules, d.requiredCapabilities())...), r).IsZero() &&
		!slices.Contains(d.Failed, r.Name) && (d.Robot == "" || d.Robot == r.Name) && need.lackingPartOf(&free) < 0
}

func TestDecide_KeepsEveryRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := world(t)
		got := Decide(s)
		if len(got.Bind)+len(got.Rejected) != len(s.Demands) {
			t.Fatalf("%d bound and %d rejected of %d", len(got.Bind), len(got.Rejected), len(s.Demands))
		}
		after := map[string]*Robot{}
		for _, r := range s.Robots {
			after[r.Name] = &r
		}
		once, gang := map[string]bool{}, 0
		for _, b := range got.Bind {
			r := after[b.Robot]
			switch {
			case once[b.Demand.Name()]:
				t.Fatalf("%s is placed twice", b.Demand.Name())
			case !fits(&b.Demand, r):
				t.Fatalf("%s does not fit %+v", b.Demand.Name(), r)
			case b.Demand.Gang > 0:
				gang++
			}
			once[b.Demand.Name()] = true
			r.Held = r.Held.Plus(b.Demand.Needs())
		}
		keeps := keepsRoom(s, got)
		for i := range s.Demands {
			d := &s.Demands[i]
			if no := got.Rejected[d.Name()]; no != nil {
				if !keeps {
					mustNotFit(t, d, after)
				}
				countsAll(t, no, len(s.Robots))
			}
		}
		if all := members(s); gang != 0 && gang != all {
			t.Fatalf("%d of a gang of %d are bound", gang, all)
		}
		mayPreempt(t, s, got)
	})
}

func members(s Snapshot) (n int) {
	for _, d := range s.Demands {
		n += min(d.Gang, 1)
	}
	return n
}

// mustNotFit checks that rejected demands fit nowhere, even after the cycle, unless the
// rest of its gang does not, or room is reserved for another demand.
func mustNotFit(t *rapid.T, d *Demand, after map[string]*Robot) {
	if d.Gang > 0 {
		return
	}
	for _, r := range after {
		if fits(d, r) {
			t.Fatalf("%s was rejected and fits %s", d.Name(), r.Name)
		}
	}
}

// keepsRoom reports whether a demand that may preempt found no robot.
func keepsRoom(s Snapshot, got Decisions) bool {
	return slices.ContainsFunc(s.Demands, func(d Demand) bool { return d.Preempts && got.Rejected[d.Name()] != nil })
}

// countsAll requires one rejection of each robot.
func countsAll(t *rapid.T, no *Diagnosis, robots int) {
	sum := 0
	for _, r := range no.Rejections {
		sum += r.Robots
	}
	if no.Robot == "" && no.Gang == nil && sum != robots {
		t.Fatalf("%d of %d robots have a rejection: %s", sum, robots, no)
	}
	_ = no.String()
}

// mayPreempt: only weaker ones leave, only for those who may, only as many as
// are needed, and none twice.
func mayPreempt(t *rapid.T, s Snapshot, got Decisions) {
	gone := map[string]bool{}
	for _, p := range got.Preempt {
		d := s.Demands[slices.IndexFunc(s.Demands, func(d Demand) bool { return d.Name() == p.Demand })]
		if !d.Preempts || got.Rejected[p.Demand] == nil {
			t.Fatalf("%s preempts", p.Demand)
		}
		for _, victim := range p.Victims {
			h := s.Holders[p.Robot][slices.IndexFunc(s.Holders[p.Robot], func(h Holder) bool { return h.Name == victim })]
			if gone[victim] || h.Leaving || h.Protected || h.Priority >= d.Priority {
				t.Fatalf("%s of priority %d must leave for %s", victim, h.Priority, p.Demand)
			}
			gone[victim] = true
		}
	}
}

func TestDecide_IgnoresTheOrderOfTheInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := world(t)
		want := Decide(s)
		seed := rapid.Uint64().Draw(t, "seed")
		r := rand.New(rand.NewPCG(seed, seed))
		r.Shuffle(len(s.Robots), func(i, j int) { s.Robots[i], s.Robots[j] = s.Robots[j], s.Robots[i] })
		r.Shuffle(len(s.Demands), func(i, j int) { s.Demands[i], s.Demands[j] = s.Demands[j], s.Demands[i] })
		for _, h := range s.Holders {
			r.Shuffle(len(h), func(i, j int) { h[i], h[j] = h[j], h[i] })
		}
		mustDecide(t, Decide(s), want)
	})
}

// What a Planner remembers makes it faster and nothing else.
func TestPlanner_CacheDoesNotChangeDecisions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := NewPlanner()
		s := world(t)
		for range 3 {
			mustDecide(t, p.Decide(s), Decide(s))
			for i := range s.Robots { // some offer something else now
				if rapid.Bool().Draw(t, "changes") {
					s.Robots[i].Offer = drawRobot(t, "").Offer
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "another world") == 0 {
				s = world(t)
			}
		}
	})
}

func mustDecide(t *rapid.T, got, want Decisions) {
	robots, rejected := read(got)
	wantRobots, wantRejected := read(want)
	if !alike(robots, wantRobots) || !alike(rejected, wantRejected) || !reflect.DeepEqual(got.Preempt, want.Preempt) {
		t.Fatalf("bound %v, want %v\nrefused %v, want %v\npreempt %v, want %v",
			robots, wantRobots, rejected, wantRejected, got.Preempt, want.Preempt)
	}
}
