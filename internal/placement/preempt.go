package placement

import (
	"cmp"
	"slices"
	"strings"
)

// maxPreempt bounds the demands for which a cycle makes room: each of them
// looks at every holder, and each stops work that was going well.
const maxPreempt = 16

// eviction is a way to make room on a robot.
type eviction struct {
	bot     *bot
	victims []Holder // lowest priority first, of equal ones the youngest
}

// preempt names who must leave so that the demand fits somewhere, and keeps
// the room for it against those that rank below. Where enough is leaving
// already it only keeps the room.
func (c *cycle) preempt(d *Demand) {
	usual := d.Robot == "" && len(d.Failed) == 0
	if len(c.reserved) == maxPreempt || usual && c.classOf(d).hopeless {
		return
	}
	best := c.cheapest(d)
	if best == nil {
		if usual {
			c.classOf(d).hopeless = true
		}
		return
	}
	c.reserved[best.bot.index] = true
	c.book(d, best.bot, 1)
	if len(best.victims) == 0 {
		return
	}
	p := Preemption{Demand: d.Name(), Robot: best.bot.Name}
	for _, v := range best.victims {
		p.Victims = append(p.Victims, v.Name)
	}
	c.out.Preempt = append(c.out.Preempt, p)
}

// cheapest has the fewest victims, then those of the lowest priority, then the
// youngest.
func (c *cycle) cheapest(d *Demand) *eviction {
	var best *eviction
	for i := range c.bots {
		b := &c.bots[i]
		if c.reserved[i] || d.Robot != "" && d.Robot != b.Name || !c.mayBecome(d, b) {
			continue
		}
		if e := c.evict(d, b); e != nil && (best == nil || e.cheaper(best)) {
			best = e
		}
	}
	return best
}

// mayBecome tells whether the demand would fit the empty robot.
func (c *cycle) mayBecome(d *Demand, b *bot) bool {
	need := d.Needs()
	return c.kindFor(d).judge(b.Robot, b.slot) == 0 && !slices.Contains(d.Failed, b.Name) && need.lacks(&b.Capacity) < 0
}

// evict looks for a way to make room on one robot, or nil.
func (c *cycle) evict(d *Demand, b *bot) *eviction {
	need, free := d.Needs(), b.free
	var weaker []Holder
	for _, h := range c.holders[b.Name] {
		switch {
		case h.Leaving:
			free = free.Plus(h.Room)
		case h.Priority < d.Priority:
			weaker = append(weaker, h)
		}
	}
	slices.SortFunc(weaker, byWorth)
	if need.lacks(&free) < 0 {
		return &eviction{bot: b}
	}
	for _, h := range weaker { // one is the fewest
		if with := free.Plus(h.Room); need.lacks(&with) < 0 {
			return &eviction{b, []Holder{h}}
		}
	}
	n := 0
	for ; n < len(weaker) && need.lacks(&free) >= 0; n++ {
		free = free.Plus(weaker[n].Room)
	}
	if need.lacks(&free) >= 0 {
		return nil
	}
	return &eviction{b, spare(weaker[:n], need, free)}
}

// spare leaves those where they are, the most worthy first, that need not go.
func spare(victims []Holder, need, free Room) []Holder {
	out := slices.Clone(victims)
	for i := len(victims) - 1; i >= 0; i-- {
		if without := free.Minus(victims[i].Room); need.lacks(&without) < 0 {
			free, out = without, slices.Delete(out, i, i+1)
		}
	}
	return out
}

// byWorth puts the lowest priority first, then the youngest: it loses least.
func byWorth(a, b Holder) int {
	return cmp.Or(
		cmp.Compare(a.Priority, b.Priority),
		b.Since.Compare(a.Since),
		strings.Compare(a.Name, b.Name),
	)
}

func (e *eviction) cheaper(o *eviction) bool {
	return cmp.Or(
		cmp.Compare(len(e.victims), len(o.victims)),
		slices.CompareFunc(e.victims, o.victims, func(a, b Holder) int {
			return cmp.Or(cmp.Compare(a.Priority, b.Priority), b.Since.Compare(a.Since))
		}),
		cmp.Compare(e.bot.index, o.bot.index),
	) < 0
}
