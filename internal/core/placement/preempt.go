package placement

import (
	"cmp"
	"slices"
	"strings"
)

// maxPreempt bounds the number of demands that may preempt in one cycle: each is compared with
// every holder, and each stops running tasks.
const maxPreempt = 16

// eviction is a way to make room on a robot.
type eviction struct {
	robot   *cycleRobot
	victims []Holder // lowest priority first, then youngest first
}

// planPreemption chooses holders to evict so that the demand fits on a robot, and reserves the
// room against demands of lower rank. If enough holders are already leaving, it only reserves the
// room.
func (c *cycle) planPreemption(d *Demand) {
	usual := d.Robot == "" && len(d.Failed)+len(d.Stopped) == 0
	if len(c.reserved) == maxPreempt || usual && c.classOf(d).preemptionFailed {
		return
	}
	best := c.cheapestEviction(d)
	if best == nil {
		if usual {
			c.classOf(d).preemptionFailed = true
		}
		return
	}
	c.reserved[best.robot.index] = true
	c.reserveRoom(d, best.robot, 1)
	if len(best.victims) == 0 {
		return
	}
	p := Preemption{Demand: d.Name(), Robot: best.robot.Name}
	for _, v := range best.victims {
		p.Victims = append(p.Victims, v.Name)
	}
	c.out.Preempt = append(c.out.Preempt, p)
}

// cheapestEviction returns the eviction with the fewest victims, then those of the lowest
// priority, then the youngest.
func (c *cycle) cheapestEviction(d *Demand) *eviction {
	var best *eviction
	for i := range c.robots {
		b := &c.robots[i]
		if c.reserved[i] || d.Robot != "" && d.Robot != b.Name || !c.fitsEmptyRobot(d, b) {
			continue
		}
		if e := c.planEviction(d, b); e != nil && (best == nil || e.isCheaperThan(best)) {
			best = e
		}
	}
	return best
}

// fitsEmptyRobot reports whether the demand would fit on the robot if it held nothing.
func (c *cycle) fitsEmptyRobot(d *Demand, b *cycleRobot) bool {
	need := d.Needs()
	return c.kindFor(d).rejectionOf(b, c.summaries[b.index]) == 0 && c.rejectDemand(d, b.Robot).IsZero() && d.rejectRobot(b.Name).IsZero() && need.lackingPartOf(&b.Capacity) < 0
}

// planEviction returns a way to make room on one robot, or nil.
func (c *cycle) planEviction(d *Demand, b *cycleRobot) *eviction {
	need, free := d.Needs(), b.free
	var weaker []Holder
	for _, h := range c.holders[b.Name] {
		switch {
		case h.Leaving:
			free = free.Plus(h.Room)
		case h.Priority < d.Priority && !h.Protected:
			weaker = append(weaker, h)
		}
	}
	slices.SortFunc(weaker, compareVictims)
	if need.lackingPartOf(&free) < 0 {
		return &eviction{robot: b}
	}
	for _, h := range weaker { // one victim is the minimum
		if with := free.Plus(h.Room); need.lackingPartOf(&with) < 0 {
			return &eviction{b, []Holder{h}}
		}
	}
	n := 0
	for ; n < len(weaker) && need.lackingPartOf(&free) >= 0; n++ {
		free = free.Plus(weaker[n].Room)
	}
	if need.lackingPartOf(&free) >= 0 {
		return nil
	}
	return &eviction{b, keepUnneeded(weaker[:n], need, free)}
}

// keepUnneeded removes victims that do not have to leave, highest priority first.
func keepUnneeded(victims []Holder, need, free Room) []Holder {
	out := slices.Clone(victims)
	for i := len(victims) - 1; i >= 0; i-- {
		if without := free.Minus(victims[i].Room); need.lackingPartOf(&without) < 0 {
			free, out = without, slices.Delete(out, i, i+1)
		}
	}
	return out
}

// compareVictims orders by priority, lowest first, then by age, youngest first, because the
// youngest task loses the least work.
func compareVictims(a, b Holder) int {
	return cmp.Or(
		cmp.Compare(a.Priority, b.Priority),
		b.Since.Compare(a.Since),
		strings.Compare(a.Name, b.Name),
	)
}

func (e *eviction) isCheaperThan(o *eviction) bool {
	return cmp.Or(
		cmp.Compare(len(e.victims), len(o.victims)),
		slices.CompareFunc(e.victims, o.victims, func(a, b Holder) int {
			return cmp.Or(cmp.Compare(a.Priority, b.Priority), b.Since.Compare(a.Since))
		}),
		cmp.Compare(e.robot.index, o.robot.index),
	) < 0
}
