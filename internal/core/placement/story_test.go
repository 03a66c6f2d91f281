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

// stage runs one Planner over a changing set of robots and demands, and records each event.
type stage struct {
	planner *Planner
	robots  map[string]*Robot
	demands map[string]Demand
	held    map[string]Holder // by task
	on      map[string]string // robot by task
	groups  map[string]string // group by task
	now     time.Time
	story   strings.Builder
}

func newStage() *stage {
	return &stage{
		planner: NewPlanner(), robots: map[string]*Robot{}, demands: map[string]Demand{},
		held: map[string]Holder{}, on: map[string]string{}, groups: map[string]string{},
		now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC),
	}
}

func (g *stage) record(format string, args ...any) { fmt.Fprintf(&g.story, format+"\n", args...) }

// setRobot adds a robot, or replaces its offer.
func (g *stage) setRobot(what, name string, changes ...func(*Robot)) {
	g.record("> robot %s %s", name, what)
	r := robot(name, changes...)
	if old := g.robots[name]; old != nil {
		r.Held, r.Groups = old.Held, old.Groups
	} else {
		r.Groups = map[string]int{}
	}
	g.robots[name] = &r
	g.runCycle()
}

// addDemands adds demands, newer than the previous ones.
func (g *stage) addDemands(what string, demands ...Demand) {
	g.record("> %s", what)
	g.now = g.now.Add(time.Minute)
	for _, d := range demands {
		d.Since = g.now
		g.demands[d.Name()] = d
	}
	g.runCycle()
}

// endTasks removes tasks from their robots.
func (g *stage) endTasks(tasks ...string) {
	g.record("> %s ended", strings.Join(tasks, ", "))
	for _, t := range tasks {
		r := g.robots[g.on[t]]
		r.Held = r.Held.Minus(g.held[t].Room)
		r.Groups[g.groups[t]]--
		delete(g.held, t)
		delete(g.on, t)
	}
	g.runCycle()
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

func (g *stage) runCycle() {
	got := g.planner.Decide(g.snapshot())
	for i := range got.Bind {
		b := &got.Bind[i]
		g.record("%s -> %s", b.Demand.Name(), b.Robot)
		g.bindDemand(&b.Demand, g.robots[b.Robot])
	}
	for _, name := range slices.Sorted(maps.Keys(got.Rejected)) {
		g.record("%s waits: %s", name, got.Rejected[name])
	}
	for _, p := range got.Preempt {
		g.record("%s is preempted on %s for %s", strings.Join(p.Victims, ", "), p.Robot, p.Demand)
		for _, v := range p.Victims {
			h := g.held[v]
			h.Leaving = true
			g.held[v] = h
		}
	}
}

func (g *stage) bindDemand(d *Demand, r *Robot) {
	for i := range d.Tasks {
		t := &d.Tasks[i]
		r.Held = r.Held.Plus(t.Room())
		r.Groups[d.Group]++
		g.on[t.Name], g.groups[t.Name] = r.Name, d.Group
		g.held[t.Name] = Holder{Name: t.Name, Priority: d.Priority, Since: d.Since, Room: t.Room()}
	}
	delete(g.demands, d.Name())
}

// replicas returns the demands of a group with one task per replica.
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
	for name, play := range map[string]func(*stage){
		"rejections-of-each-robot": func(g *stage) {
			g.setRobot("is in the lab, without an arm", "r1", labels("env", "lab"))
			g.setRobot("is in production, without an arm", "r2", labels("env", "prod"))
			g.setRobot("is in production, with an arm", "r3", labels("env", "prod"), arm)
			weld := func(name string) Demand {
				return one(name, wants(arms(1)), rules(Rules{Selector: map[string]string{"env": "prod"}}))
			}
			g.addDemands("task weld-1 needs an arm in production", weld("weld-1"))
			g.addDemands("task weld-2 needs the same", weld("weld-2"))
			g.setRobot("gets an arm", "r2", labels("env", "prod"), arm)
			g.addDemands("task weld-3 needs the same", weld("weld-3"))
			g.setRobot("goes offline with its arm", "r3", labels("env", "prod"), arm, offline)
			g.endTasks("weld-2")
		},
		"spread-uses-many-robots-pack-uses-few": func(g *stage) {
			for _, r := range []string{"r1", "r2", "r3"} {
				g.setRobot("is added", r, places(2))
			}
			g.addDemands("three replicas that spread", replicas("spread", 3)...)
			g.endTasks("spread-0", "spread-1", "spread-2")
			g.addDemands("three replicas that pack", replicas("pack", 3, prefers(Preferences{Pack: true}))...)
		},
		"affinity-and-anti-affinity-to-groups": func(g *stage) {
			for _, r := range []string{"r1", "r2", "r3"} {
				g.setRobot("is added", r)
			}
			g.addDemands("a batch task", replicas("batch", 1)...)
			g.addDemands("a cache with anti-affinity to batch", replicas("cache", 1, near(Affinity{Group: "batch", Weight: -50}))...)
			g.addDemands("web, with a strong affinity to the cache and a weak anti-affinity to batch", replicas("web", 2,
				near(Affinity{Group: "cache", Weight: 80}, Affinity{Group: "batch", Weight: -20}))...)
			g.endTasks("cache-0")
			g.addDemands("another replica of web", one("web-2", inGroup("web", 2), near(Affinity{Group: "cache", Weight: 80}, Affinity{Group: "batch", Weight: -20})))
		},
		"a-gang-waits-for-all-its-robots": func(g *stage) {
			g.setRobot("is added", "r1", places(1))
			g.setRobot("is added", "r2", places(1))
			g.addDemands("a gang of three", replicas("gang", 3, gang(3))...)
			g.addDemands("a single task, which does not wait for the gang", one("single"))
			g.setRobot("is added", "r3", places(1))
			g.endTasks("single")
		},
		"preemption-of-the-fewest-tasks": func(g *stage) {
			g.setRobot("is added", "r1", places(2))
			low := func(name string, priority int32) Demand {
				return one(name, func(d *Demand) { d.Priority = priority })
			}
			g.addDemands("a survey", low("survey", 20))
			g.addDemands("a later survey", low("survey-2", 20))
			g.addDemands("a rescue that may not preempt", low("rescue", 90))
			g.addDemands("a rescue that may preempt", one("rescue-2", func(d *Demand) { d.Priority, d.Preempts = 90, true }))
			g.addDemands("a later survey waits behind them", low("survey-3", 20))
			g.endTasks("survey-2")
			g.endTasks("survey")
		},
		"no-robot-on-which-the-task-failed": func(g *stage) {
			g.setRobot("is added", "r1")
			g.setRobot("is added", "r2", places(1))
			g.addDemands("a task that failed on r1", one("t1", failed("r1")))
			g.addDemands("a task that failed on both", one("t2", failed("r1", "r2")))
			g.addDemands("a task whose group has blocked r1", one("t3", rules(Rules{Blocked: []string{"r1"}})))
			g.setRobot("is added", "r3")
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newStage()
			play(g)
			golden.Equal(t, name, g.story.String())
		})
	}
}
