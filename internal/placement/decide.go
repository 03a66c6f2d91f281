package placement

import (
	"cmp"
	"slices"
)

// Decide gives robots to demands, in the order of their rank, and says why the
// others got none. The order of the input does not matter.
//
// Demands that are alike form a class. A class judges every robot once and
// keeps those that fit in a heap, so a cycle costs robots times classes plus
// the demands, not robots times demands.
func Decide(s Snapshot) Decisions {
	c := newCycle(s)
	demands := slices.Clone(s.Demands)
	slices.SortFunc(demands, byRank)
	for i := range demands {
		c.place(&demands[i])
	}
	return c.out
}

// byRank: job priority, then age, then the place in the group, then name.
func byRank(a, b Demand) int {
	return cmp.Or(
		cmp.Compare(b.Priority, a.Priority),
		a.Since.Compare(b.Since),
		cmp.Compare(a.Group, b.Group),
		cmp.Compare(a.Index, b.Index),
		cmp.Compare(a.Name(), b.Name()),
	)
}

// cycle is the working state of Decide. It owns its robots.
type cycle struct {
	robots  []Robot
	byName  map[string]*Robot
	classes map[string]*class
	// groups counts the tasks of a group on each robot.
	groups map[string]map[*Robot]int
	out    Decisions
}

func newCycle(s Snapshot) *cycle {
	c := &cycle{
		robots:  slices.Clone(s.Robots),
		byName:  make(map[string]*Robot, len(s.Robots)),
		classes: map[string]*class{},
		groups:  map[string]map[*Robot]int{},
		out:     Decisions{Refused: map[string]*Refusal{}},
	}
	for i := range c.robots {
		c.byName[c.robots[i].Name] = &c.robots[i]
	}
	return c
}

func (c *cycle) place(d *Demand) {
	if d.Robot != "" {
		c.placeOn(d, d.Robot)
		return
	}
	cl := c.classOf(d)
	if r := cl.take(d); r != nil {
		c.bind(d, r)
		return
	}
	c.out.Refused[d.Name()] = cl.refusal
}

// placeOn serves a demand whose robot is fixed. It is checked all the same.
func (c *cycle) placeOn(d *Demand, name string) {
	r, ok := c.byName[name]
	if !ok {
		c.out.Refused[d.Name()] = &Refusal{Robot: name, verdicts: map[Verdict]int{{"NoSuchRobot", "does not exist"}: 1}}
		return
	}
	v := judge(standing, d, r)
	if v.Fits() {
		v = judge(room, d, r)
	}
	if v.Fits() {
		c.bind(d, r)
		return
	}
	c.out.Refused[d.Name()] = &Refusal{Robot: name, verdicts: map[Verdict]int{v: 1}}
}

func (c *cycle) bind(d *Demand, r *Robot) {
	r.Held = r.Held.Plus(d.Needs())
	if d.Group != "" {
		c.group(d.Group)[r] += len(d.Tasks)
	}
	c.out.Bind = append(c.out.Bind, Binding{Demand: *d, Robot: r.Name})
}

// group counts the tasks of a group by robot.
func (c *cycle) group(name string) map[*Robot]int {
	g, ok := c.groups[name]
	if !ok {
		g = map[*Robot]int{}
		for i := range c.robots {
			if n := c.robots[i].Groups[name]; n > 0 {
				g[&c.robots[i]] = n
			}
		}
		c.groups[name] = g
	}
	return g
}

func (c *cycle) classOf(d *Demand) *class {
	key := classKey(d)
	cl, ok := c.classes[key]
	if !ok {
		cl = newClass(d, c.robots, c.group(d.Group))
		c.classes[key] = cl
	}
	return cl
}
