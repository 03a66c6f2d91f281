package placement

import (
	"cmp"
	"slices"
	"sort"
	"strings"
)

// compareRank orders by priority of the job, then age, then group, index and name. Most demands
// differ early, so the long names are seldom compared.
func compareRank(a, b *Demand) int {
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

// cycle is the state of one call of Decide.
type cycle struct {
	*Planner
	robots    []cycleRobot   // by name
	summaries []robotSummary // of robots
	holders   map[string][]Holder
	classes   map[classID]*class
	// allClasses includes classes that dropClass removed.
	allClasses []*class
	// improving are the classes whose scores may improve when a robot takes tasks.
	improving []*class
	// groups counts the tasks of a group by robot.
	groups map[string]map[int]int
	gangs  map[string][]*Demand
	// gangDiagnoses are completed when the cycle ends.
	gangDiagnoses []*Diagnosis
	// reserved are the robots that are reserved for a preempting demand.
	reserved map[int]bool
	kindsBy  map[kindID]*kind
	// hasPolicies is set if a robot has a policy. Only then are demands distinguished by
	// what policies evaluate.
	hasPolicies bool
	// preferenceKeys caches the cache keys of preferences.
	preferenceKeys map[*Preferences]string
	// isExpired is asked before each demand. Once it returns true, no other is decided.
	isExpired func() bool
	out       Decisions
}

// kindID finds a kind without comparing its rules again.
type kindID struct {
	rules    *Rules
	required capabilities
}

func newCycle(p *Planner, s Snapshot) *cycle {
	c := &cycle{
		Planner:        p,
		robots:         make([]cycleRobot, len(s.Robots)),
		summaries:      make([]robotSummary, len(s.Robots)),
		holders:        s.Holders,
		classes:        map[classID]*class{},
		groups:         map[string]map[int]int{},
		gangs:          map[string][]*Demand{},
		reserved:       map[int]bool{},
		kindsBy:        map[kindID]*kind{},
		hasPolicies:    hasPolicies(s.Robots),
		preferenceKeys: map[*Preferences]string{nil: ""},
		isExpired:      func() bool { return false },
		out:            Decisions{Rejected: make(map[string]*Diagnosis, len(s.Demands))},
	}
	for i := range s.Robots {
		c.robots[i].Robot = &s.Robots[i]
	}
	slices.SortFunc(c.robots, func(a, b cycleRobot) int { return strings.Compare(a.Name, b.Name) })
	for i := range c.robots {
		b := &c.robots[i]
		b.index = i
		b.setHeld(b.Held)
		slot, version := p.observeOffer(b.Robot)
		c.summaries[i] = robotSummary{slot: uint32(slot), version: version, isFull: b.isFullOfTasks()}
		for g, n := range b.Groups {
			c.groupCounts(g)[i] = n
		}
	}
	return c
}

// groupCounts returns the number of tasks of a group by robot.
func (c *cycle) groupCounts(name string) map[int]int {
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
	slices.SortFunc(ranked, compareRank)
	for _, d := range ranked {
		if d.Gang > 0 {
			c.gangs[d.Group] = append(c.gangs[d.Group], d)
		}
	}
	for _, d := range ranked {
		if c.isExpired() {
			return
		}
		switch {
		case d.Gang == 0:
			c.placeDemand(d)
		case c.gangs[d.Group][0] == d: // places the whole gang
			c.placeGang(c.gangs[d.Group])
		}
	}
}

// placeDemand binds one demand to a robot, or records a diagnosis and plans a preemption.
func (c *cycle) placeDemand(d *Demand) {
	b, no := c.findRobot(d)
	if no == nil {
		c.bindDemand(d, b)
		return
	}
	c.out.Rejected[d.Name()] = no
	if d.Preempts {
		c.planPreemption(d)
	}
}

// findRobot returns the demand's robot, or a diagnosis if there is none.
func (c *cycle) findRobot(d *Demand) (*cycleRobot, *Diagnosis) {
	if d.Robot != "" {
		return c.checkPinned(d, d.Robot)
	}
	for _, name := range d.Near {
		if b, no := c.checkPinned(d, name); no == nil {
			return b, nil
		}
	}
	cl := c.classOf(d)
	if b := cl.bestRobot(d); b != nil {
		return b, nil
	}
	return nil, cl.diagnose(d)
}

// checkPinned runs all checks for a demand whose robot is fixed.
func (c *cycle) checkPinned(d *Demand, name string) (*cycleRobot, *Diagnosis) {
	i, ok := sort.Find(len(c.robots), func(i int) int { return strings.Compare(name, c.robots[i].Name) })
	if !ok {
		return nil, diagnoseRobot(name, Rejection{Check: CheckRobotExists})
	}
	b := &c.robots[i]
	if no := c.rejectionBy(d, b); !no.IsZero() {
		return nil, diagnoseRobot(name, no)
	}
	return b, nil
}

// rejectionBy returns the rejection of a demand by one robot, after all checks.
func (c *cycle) rejectionBy(d *Demand, b *cycleRobot) Rejection {
	k, need := c.kindFor(d), d.needsOn(b.Name)
	if n := k.rejectionOf(b, c.summaries[b.index]); n != 0 {
		return k.rejections[n]
	}
	if no := c.rejectDemand(d, b.Robot); !no.IsZero() {
		return no
	}
	if no := d.rejectRobot(b.Name); !no.IsZero() {
		return no
	}
	if part := need.lackingPartOf(&b.free); part >= 0 {
		return need.rejectPart(part, need.lackingPartOf(&b.Capacity) == part)
	}
	return Rejection{}
}

func (c *cycle) bindDemand(d *Demand, b *cycleRobot) {
	c.reserveRoom(d, b, 1)
	c.out.Bind = append(c.out.Bind, Binding{Demand: *d, Robot: b.Name})
}

// reserveRoom takes room on a robot for a demand; with sign -1 it releases the room.
func (c *cycle) reserveRoom(d *Demand, b *cycleRobot, sign int64) {
	need := d.Needs()
	b.setHeld(b.held.addScaled(need, sign))
	c.summaries[b.index].isFull = b.isFullOfTasks()
	if d.Group != "" {
		c.groupCounts(d.Group)[b.index] += int(sign) * len(d.Tasks)
	}
	for _, cl := range c.improving {
		cl.updateScore(b)
	}
}

func (c *cycle) kindFor(d *Demand) *kind {
	id := kindID{d.Rules, d.requiredCapabilities()}
	k := c.kindsBy[id]
	if k == nil {
		k = c.kindOf(id.rules, id.required)
		k.growResults(len(c.slots))
		c.kindsBy[id] = k
	}
	return k
}

// idOf returns the identity of the demand's class.
func (c *cycle) idOf(d *Demand) classID {
	key, ok := c.preferenceKeys[d.Preferences]
	if !ok {
		key = d.Preferences.cacheKey()
		c.preferenceKeys[d.Preferences] = key
	}
	need := d.Needs()
	id := classID{kind: c.kindFor(d), preferences: key, group: d.Group, devices: need.Devices.cacheKey()}
	if c.hasPolicies {
		id.subjects = d.subjects()
	}
	id.parts = [...]int64{need.Tasks, need.CPU, need.Memory, need.Disk, need.IOPS, need.MBits}
	return id
}

func (c *cycle) classOf(d *Demand) *class {
	id := c.idOf(d)
	cl := c.classes[id]
	if cl == nil {
		cl = newClass(id.kind, d.Needs(), c.preferencesOf(d), c.robots, c.summaries, c.checkFor(d))
		c.classes[id] = cl
		c.allClasses = append(c.allClasses, cl)
		if cl.fitting.position != nil {
			c.improving = append(c.improving, cl)
		}
	}
	return cl
}

// dropClass makes the next demand of the class create a new class, because the old one has
// dropped robots that have room again.
func (c *cycle) dropClass(d *Demand) {
	id := c.idOf(d)
	if cl := c.classes[id]; cl != nil {
		delete(c.classes, id)
		c.improving = slices.DeleteFunc(c.improving, func(x *class) bool { return x == cl })
	}
}

func (c *cycle) preferencesOf(d *Demand) preferences {
	var t preferences
	if d.Group != "" {
		t.groupTasks = c.groupCounts(d.Group)
	}
	if w := d.Preferences; w != nil {
		t.pack = w.Pack
		for i := range w.Affinity {
			a := &w.Affinity[i]
			l := groupAffinity{Affinity: a}
			if a.Group != "" {
				l.groupTasks = c.groupCounts(a.Group)
			}
			t.affinities = append(t.affinities, l)
		}
	}
	return t
}

// completeDiagnoses fills in the diagnoses that were returned before all robots were counted.
func (c *cycle) completeDiagnoses() {
	for _, cl := range c.allClasses {
		if cl.rejected {
			cl.diagnosis.Rejections = sortRejections(cl.countRejections())
		}
	}
	for _, no := range c.gangDiagnoses {
		no.resolveCause()
	}
}
