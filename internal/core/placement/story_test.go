package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// stage lets one Planner decide over robots and demands that come and go, and
// writes down what happens.
type stage struct {
	planner *Planner
	robots  map[string]*Robot
	demands map[string]Demand
	held    map[string]Holder // by task
	on      map[string]string // robot by task
	groups  map[string]string // group by task
	now     time.Time
	said    strings.Builder
}

func newStage() *stage {
	return &stage{
		planner: NewPlanner(), robots: map[string]*Robot{}, demands: map[string]Demand{},
		held: map[string]Holder{}, on: map[string]string{}, groups: map[string]string{},
		now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC),
	}
}

func (g *stage) say(format string, args ...any) { fmt.Fprintf(&g.said, format+"\n", args...) }

// joins adds a robot, or replaces what it offers.
func (g *stage) joins(what, name string, changes ...func(*Robot)) {
	g.say("> robot %s %s", name, what)
	r := robot(name, changes...)
	if old := g.robots[name]; old != nil {
		r.Held, r.Groups = old.Held, old.Groups
	} else {
		r.Groups = map[string]int{}
	}
	g.robots[name] = &r
	g.cycle()
}

func (g *stage) asks(what string, demands ...Demand) {
	g.say("> %s", what)
	g.now = g.now.Add(time.Minute)
	for _, d := range demands {
		d.Since = g.now
		g.demands[d.Name()] = d
	}
	g.cycle()
}

// ends takes tasks off their robots.
func (g *stage) ends(tasks ...string) {
	g.say("> %s ended", strings.Join(tasks, ", "))
	for _, t := range tasks {
		r := g.robots[g.on[t]]
		r.Held = r.Held.Minus(g.held[t].Room)
		r.Groups[g.groups[t]]--
		delete(g.held, t)
		delete(g.on, t)
	}
	g.cycle()
}

func (g *stage) snapshot() Snapshot {
	s := Snapshot{Holders: map[string][]Holder{}}
	for _, r := range g.robots {
		s.Robots = append(s.Robots, *r)
	}
	for _, d := range g.demands {
		s.Demands = append(s.Demands, d)
	}
	for t, h := range g.held {
		s.Holders[g.on[t]] = append(s.Holders[g.on[t]], h)
	}
	return s
}

func (g *stage) cycle() {
	got := g.planner.Decide(g.snapshot())
	for i := range got.Bind {
		b := &got.Bind[i]
		g.say("%s -> %s", b.Demand.Name(), b.Robot)
		g.enter(&b.Demand, g.robots[b.Robot])
	}
	for _, name := range slices.Sorted(maps.Keys(got.Rejected)) {
		g.say("%s waits: %s", name, got.Rejected[name])
	}
	for _, p := range got.Preempt {
		g.say("%s must leave %s for %s", strings.Join(p.Victims, ", "), p.Robot, p.Demand)
		for _, v := range p.Victims {
			h := g.held[v]
			h.Leaving = true
			g.held[v] = h
		}
	}
}

func (g *stage) enter(d *Demand, r *Robot) {
	for i := range d.Tasks {
		t := &d.Tasks[i]
		r.Held = r.Held.Plus(t.Room())
		r.Groups[d.Group]++
		g.on[t.Name], g.groups[t.Name] = r.Name, d.Group
		g.held[t.Name] = Holder{Name: t.Name, Priority: d.Priority, Since: d.Since, Room: t.Room()}
	}
	delete(g.demands, d.Name())
}

// replicas of a group of one task.
func replicas(name string, n int, change ...func(*Demand)) []Demand {
	var out []Demand
	for i := range n {
		out = append(out, one(fmt.Sprintf("%s-%d", name, i), append(change, inGroup(name, i))...))
	}
	return out
}

func places(n int64) func(*Robot) { return func(r *Robot) { r.Capacity.Tasks = n } }
func offline(r *Robot)            { r.Phase = lifecycle.RobotOffline }

func TestStories(t *testing.T) {
	arm := has(map[string]int64{"arm": 1})
	for name, tell := range map[string]func(*stage){
		"each-robot-says-why-not": func(g *stage) {
			g.joins("is in the lab, without an arm", "r1", labels("env", "lab"))
			g.joins("is in production, without an arm", "r2", labels("env", "prod"))
			g.joins("is in production, with an arm", "r3", labels("env", "prod"), arm)
			weld := func(name string) Demand {
				return one(name, wants(arms(1)), rules(Rules{Selector: map[string]string{"env": "prod"}}))
			}
			g.asks("a weld that needs an arm in production", weld("weld-1"))
			g.asks("another", weld("weld-2"))
			g.joins("gets an arm", "r2", labels("env", "prod"), arm)
			g.asks("a third", weld("weld-3"))
			g.joins("goes offline with its arm", "r3", labels("env", "prod"), arm, offline)
			g.ends("weld-2")
		},
		"spread-takes-many-pack-takes-few": func(g *stage) {
			for _, r := range []string{"r1", "r2", "r3"} {
				g.joins("comes", r, places(2))
			}
			g.asks("three replicas that spread", replicas("spread", 3)...)
			g.ends("spread-0", "spread-1", "spread-2")
			g.asks("three replicas that pack", replicas("pack", 3, wishes(Preferences{Pack: true}))...)
		},
		"web-goes-to-its-cache-and-away-from-batch": func(g *stage) {
			for _, r := range []string{"r1", "r2", "r3"} {
				g.joins("comes", r)
			}
			g.asks("a batch task", replicas("batch", 1)...)
			g.asks("a cache that keeps away from batch", replicas("cache", 1, near(Affinity{Group: "batch", Weight: -50}))...)
			g.asks("web, which is drawn to the cache more than it shuns batch", replicas("web", 2,
				near(Affinity{Group: "cache", Weight: 80}, Affinity{Group: "batch", Weight: -20}))...)
			g.ends("cache-0")
			g.asks("more of web", one("web-2", inGroup("web", 2), near(Affinity{Group: "cache", Weight: 80}, Affinity{Group: "batch", Weight: -20})))
		},
		"a-gang-waits-for-all-its-robots": func(g *stage) {
			g.joins("comes", "r1", places(1))
			g.joins("comes", "r2", places(1))
			g.asks("a gang of three", replicas("gang", 3, gang(3))...)
			g.asks("a single task, which need not wait for the gang", one("single"))
			g.joins("comes", "r3", places(1))
			g.ends("single")
		},
		"the-urgent-one-pushes-away-the-least": func(g *stage) {
			g.joins("comes", "r1", places(2))
			low := func(name string, priority int32) Demand {
				return one(name, func(d *Demand) { d.Priority = priority })
			}
			g.asks("a survey", low("survey", 20))
			g.asks("a later survey", low("survey-2", 20))
			g.asks("a rescue that may not push", low("rescue", 90))
			g.asks("a rescue that may", one("rescue-2", func(d *Demand) { d.Priority, d.Preempts = 90, true }))
			g.asks("a survey that comes later waits behind them", low("survey-3", 20))
			g.ends("survey-2")
			g.ends("survey")
		},
		"a-robot-that-fails-is-left-alone": func(g *stage) {
			g.joins("comes", "r1")
			g.joins("comes", "r2", places(1))
			g.asks("a task that failed on r1", one("t1", failed("r1")))
			g.asks("one that failed on both", one("t2", failed("r1", "r2")))
			g.asks("one whose group has r1 on its blocklist", one("t3", rules(Rules{Blocked: []string{"r1"}})))
			g.joins("comes", "r3")
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newStage()
			tell(g)
			golden.Equal(t, name, g.said.String())
		})
	}
}
