package placement

import (
	"cmp"
	"slices"
	"strings"
)

// byRank: job priority, then age, then the place in the group, then name. Most
// demands differ early, so the long names are compared last and seldom.
func byRank(a, b *Demand) int {
	if c := cmp.Compare(b.Priority, a.Priority); c != 0 {
		return c
	}
	if c := a.Since.Compare(b.Since); c != 0 {
		return c
	}
	if c := strings.Compare(a.Group, b.Group); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Index, b.Index); c != 0 {
		return c
	}
	return strings.Compare(a.Name(), b.Name())
}

// cycle is the working state of one Decide.
type cycle struct {
	*Planner
	bots    []bot          // by name
	byName  map[string]int // index
	holders map[string][]Holder
	classes map[classID]*class
	made    []*class // also those that were given up
	// improving are the classes that must be told when a robot takes tasks.
	improving []*class
	// groups counts the tasks of a group by robot.
	groups map[string]map[int]int
	gangs  map[string][]*Demand
	// reserved are the robots where room is made for a demand.
	reserved map[int]bool
	kindsBy  map[kindID]*kind
	wishes   map[*Wishes]string
	out      Decisions
}

// kindID finds a kind without reading its rules again.
type kindID struct {
	rules *Rules
	asks  abilities
}

func newCycle(p *Planner, s Snapshot) *cycle {
	c := &cycle{
		Planner:  p,
		bots:     make([]bot, len(s.Robots)),
		byName:   make(map[string]int, len(s.Robots)),
		holders:  s.Holders,
		classes:  map[classID]*class{},
		groups:   map[string]map[int]int{},
		gangs:    map[string][]*Demand{},
		reserved: map[int]bool{},
		kindsBy:  map[kindID]*kind{},
		wishes:   map[*Wishes]string{nil: ""},
		out:      Decisions{Refused: make(map[string]*Refusal, len(s.Demands))},
	}
	for i := range s.Robots {
		c.bots[i].Robot = &s.Robots[i]
	}
	slices.SortFunc(c.bots, func(a, b bot) int { return strings.Compare(a.Name, b.Name) })
	for i := range c.bots {
		b := &c.bots[i]
		b.index, b.slot = i, p.slot(b.Name)
		b.hold(b.Held)
		c.byName[b.Name] = i
		for g, n := range b.Groups {
			c.group(g)[i] = n
		}
	}
	return c
}

// group counts the tasks of a group by robot.
func (c *cycle) group(name string) map[int]int {
	g := c.groups[name]
	if g == nil {
		g = map[int]int{}
		c.groups[name] = g
	}
	return g
}

func (c *cycle) placeAll(demands []Demand) {
	ranked := make([]*Demand, len(demands))
	for i := range demands {
		ranked[i] = &demands[i]
	}
	slices.SortFunc(ranked, byRank)
	for _, d := range ranked {
		if d.Gang > 0 {
			c.gangs[d.Group] = append(c.gangs[d.Group], d)
		}
	}
	for _, d := range ranked {
		switch {
		case d.Gang == 0:
			c.place(d)
		case c.gangs[d.Group][0] == d: // the others go with the first
			c.placeGang(c.gangs[d.Group])
		}
	}
}

// place gives one demand a robot, or makes room for it, or says why not.
func (c *cycle) place(d *Demand) {
	b, no := c.find(d)
	if no == nil {
		c.bind(d, b)
		return
	}
	c.out.Refused[d.Name()] = no
	if d.Preempts {
		c.preempt(d)
	}
}

// find looks for the demand's robot. Where there is none the refusal is not
// nil.
func (c *cycle) find(d *Demand) (*bot, *Refusal) {
	if d.Robot != "" {
		return c.findOn(d, d.Robot)
	}
	for _, name := range d.Near {
		if b, no := c.findOn(d, name); no == nil {
			return b, nil
		}
	}
	cl := c.classOf(d)
	if b := cl.take(d.Failed); b != nil {
		return b, nil
	}
	return nil, cl.refuse()
}

// findOn serves a demand whose robot is fixed. It is checked all the same.
func (c *cycle) findOn(d *Demand, name string) (*bot, *Refusal) {
	i, ok := c.byName[name]
	if !ok {
		return nil, only(name, Verdict{"NoSuchRobot", "is neither in this namespace nor shared with it"})
	}
	b := &c.bots[i]
	if v := c.verdict(d, b); !v.Fits() {
		return nil, only(name, v)
	}
	return b, nil
}

// verdict over one robot, with all checks.
func (c *cycle) verdict(d *Demand, b *bot) Verdict {
	k, need := c.kindFor(d), d.needsOn(b.Name)
	if n := k.judge(b.Robot, b.slot); n != 0 {
		return k.verdicts[n]
	}
	if slices.Contains(d.Failed, b.Name) {
		return failedHere
	}
	if part := need.lacks(&b.free); part >= 0 {
		return need.lack(part, need.lacks(&b.Capacity) == part)
	}
	return Verdict{}
}

func (c *cycle) bind(d *Demand, b *bot) {
	c.book(d, b, 1)
	c.out.Bind = append(c.out.Bind, Binding{Demand: *d, Robot: b.Name})
}

// book takes room on a robot for a demand; with sign -1 it gives it back.
func (c *cycle) book(d *Demand, b *bot, sign int64) {
	need := d.Needs()
	b.hold(b.held.add(need, sign))
	if d.Group != "" {
		c.group(d.Group)[b.index] += int(sign) * len(d.Tasks)
	}
	for _, cl := range c.improving {
		cl.touch(b)
	}
}

func (c *cycle) kindFor(d *Demand) *kind {
	id := kindID{d.Rules, d.asks()}
	k := c.kindsBy[id]
	if k == nil {
		k = c.kindOf(id.rules, id.asks)
		k.grow(len(c.slots))
		c.kindsBy[id] = k
	}
	return k
}

// idOf names the demand's class.
func (c *cycle) idOf(d *Demand) classID {
	wishes, ok := c.wishes[d.Wishes]
	if !ok {
		wishes = d.Wishes.key()
		c.wishes[d.Wishes] = wishes
	}
	need := d.Needs()
	id := classID{kind: c.kindFor(d), wishes: wishes, group: d.Group, devices: need.Devices.key()}
	id.parts = [...]int64{need.Tasks, need.CPU, need.Memory, need.Disk, need.IOPS}
	return id
}

func (c *cycle) classOf(d *Demand) *class {
	id := c.idOf(d)
	cl := c.classes[id]
	if cl == nil {
		cl = newClass(id.kind, d.Needs(), c.taste(d), c.bots)
		c.classes[id] = cl
		c.made = append(c.made, cl)
		if cl.fit.at != nil {
			c.improving = append(c.improving, cl)
		}
	}
	return cl
}

// giveUp lets the demand's class be made anew: it has let robots go that have
// room again.
func (c *cycle) giveUp(d *Demand) {
	id := c.idOf(d)
	if cl := c.classes[id]; cl != nil {
		delete(c.classes, id)
		c.improving = slices.DeleteFunc(c.improving, func(x *class) bool { return x == cl })
	}
}

func (c *cycle) taste(d *Demand) taste {
	var t taste
	if d.Group != "" {
		t.own = c.group(d.Group)
	}
	if w := d.Wishes; w != nil {
		t.pack = w.Pack
		for i := range w.Affinity {
			a := &w.Affinity[i]
			l := like{Affinity: a}
			if a.Group != "" {
				l.group = c.group(a.Group)
			}
			t.likes = append(t.likes, l)
		}
	}
	return t
}

// close puts into words why demands were refused.
func (c *cycle) close() {
	for _, cl := range c.made {
		cl.refusal.verdicts = cl.verdicts()
	}
}
