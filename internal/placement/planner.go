package placement

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Planner decides cycle after cycle, and remembers in between which robot
// meets which rules. It is not safe for concurrent use.
type Planner struct {
	cycle int
	slots map[string]int   // by robot
	kinds map[string]*kind // by all that their checks look at
}

// NewPlanner returns one that remembers nothing.
func NewPlanner() *Planner {
	return &Planner{slots: map[string]int{}, kinds: map[string]*kind{}}
}

// Decide gives robots to demands, in the order of their rank, and says why the
// others got none. The order of the input does not matter.
//
// Demands that are alike form a class. A class looks at every robot once and
// keeps those that fit in a heap, so a cycle costs robots times classes plus
// the demands, not robots times demands.
func (p *Planner) Decide(s Snapshot) Decisions {
	p.cycle++
	p.tidy(len(s.Robots))
	c := newCycle(p, s)
	c.placeAll(s.Demands)
	c.close()
	return c.out
}

// Decide is what a Planner decides that remembers nothing.
func Decide(s Snapshot) Decisions { return NewPlanner().Decide(s) }

// memory is for how many cycles a kind is kept that nobody asks for.
const memory = 50

// tidy forgets what is not asked for any more, and everything when most of the
// robots that it knows are gone.
func (p *Planner) tidy(robots int) {
	if len(p.slots) > 2*robots+16 {
		clear(p.slots)
		clear(p.kinds)
	}
	maps.DeleteFunc(p.kinds, func(_ string, k *kind) bool { return p.cycle-k.used > memory })
}

// slot is the robot's place in what kinds remember.
func (p *Planner) slot(robot string) int {
	n, ok := p.slots[robot]
	if !ok {
		n = len(p.slots)
		p.slots[robot] = n
	}
	return n
}

// kind of demands: those with the same rules whose tasks ask the same. It remembers what
// it made of each robot for as long as the robot offers the same.
type kind struct {
	checks   []Check
	verdicts []Verdict // those that were ever given; the first: it fits
	opinions []opinion // by slot
	used     int       // the last cycle
}

// opinion of a robot: the number of the verdict, and the offer that it is
// about.
type opinion struct {
	about   *Offer
	verdict int
}

// kindOf finds the kind of a demand's rules and of what its tasks ask.
func (p *Planner) kindOf(rules *Rules, asks abilities) *kind {
	key := rules.key() + asks.drivers + ";" + asks.isolation + ";" + strconv.FormatBool(asks.secrets)
	k := p.kinds[key]
	if k == nil {
		k = &kind{checks: append(slices.Clone(present), meets(rules, asks)...), verdicts: []Verdict{{}}}
		p.kinds[key] = k
	}
	k.used = p.cycle
	return k
}

// judge is the number of the verdict over a robot.
func (k *kind) judge(r *Robot, slot int) int {
	o := &k.opinions[slot]
	if o.about != r.Offer {
		*o = opinion{r.Offer, k.number(judge(k.checks, r))}
	}
	return o.verdict
}

func (k *kind) number(v Verdict) int {
	n := slices.Index(k.verdicts, v)
	if n < 0 {
		n = len(k.verdicts)
		k.verdicts = append(k.verdicts, v)
	}
	return n
}

// grow makes place for so many robots.
func (k *kind) grow(slots int) {
	if extra := slots - len(k.opinions); extra > 0 {
		k.opinions = append(k.opinions, make([]opinion, extra)...)
	}
}

// words joins texts so that no two lists of texts give the same.
type words struct{ strings.Builder }

func (w *words) add(texts ...string) {
	for _, s := range texts {
		w.WriteString(strconv.Itoa(len(s)))
		w.WriteByte(':')
		w.WriteString(s)
	}
	w.WriteByte('|')
}

func (w *words) addMap(m map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		w.add(k, m[k])
	}
	w.WriteByte('|')
}

// key is equal for rules that say the same.
func (r *Rules) key() string {
	var w words
	if r == nil {
		r = &Rules{}
	}
	w.addMap(r.Selector)
	w.add(r.Datacenters...)
	for _, c := range r.Constraints {
		w.add(c.Left, c.Operand, c.Right)
	}
	w.WriteByte('|')
	w.add(r.Blocked...)
	w.add(strconv.FormatBool(r.Fenced))
	return w.String()
}

// key is equal for devices that are the same.
func (d Devices) key() string {
	if len(d) == 0 {
		return ""
	}
	var w words
	for _, x := range d {
		w.add(x.Name, strconv.FormatInt(x.Count, 10))
	}
	return w.String()
}

// key is equal for wishes that say the same.
func (w *Wishes) key() string {
	if w == nil {
		return ""
	}
	var out words
	out.add(strconv.FormatBool(w.Pack))
	for _, a := range w.Affinity {
		out.add(a.Group, strconv.Itoa(a.Weight))
		out.addMap(a.Labels)
	}
	return out.String()
}
