package placement

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Planner runs cycles and caches between them which robot meets which rules. It is not safe for
// concurrent use.
type Planner struct {
	cycle  int
	slots  map[string]int   // by robot
	offers []seenOffer      // by slot
	kinds  map[string]*kind // by the inputs of their checks
	verdicts
}

// seenOffer is the last offer of a robot. Its version changes with the offer, from 1.
type seenOffer struct {
	offer   *Offer
	version uint32
}

// NewPlanner returns a Planner with an empty cache.
func NewPlanner() *Planner {
	return &Planner{slots: map[string]int{}, kinds: map[string]*kind{}, verdicts: verdicts{}}
}

// Decide chooses robots for demands in the order of their rank, and returns a diagnosis for each
// that gets none. The order of the input does not matter.
//
// Demands that are alike form a class. A class checks every robot once and keeps those that fit
// in a heap, so a cycle costs robots times classes plus the demands, not robots times demands.
func (p *Planner) Decide(s Snapshot) Decisions {
	p.cycle++
	p.dropUnused(len(s.Robots))
	c := newCycle(p, s)
	c.placeAll(s.Demands)
	c.completeDiagnoses()
	return c.out
}

// DecideUntil runs one cycle with an empty cache. It asks isExpired before each demand, and leaves all that follow
// undecided once it returns true; isPartial reports whether it did.
func DecideUntil(isExpired func() bool, s Snapshot) (out Decisions, isPartial bool) {
	c := newCycle(NewPlanner(), s)
	c.isExpired = func() bool {
		isPartial = isPartial || isExpired()
		return isPartial
	}
	c.placeAll(s.Demands)
	c.completeDiagnoses()
	return c.out, isPartial
}

// Decide runs one cycle with an empty cache.
func Decide(s Snapshot) Decisions { return NewPlanner().Decide(s) }

// unusedCycles is the number of cycles for which an unused kind is kept.
const unusedCycles = 50

// dropUnused drops kinds that are no longer used, and the whole cache when most of its robots are
// gone.
func (p *Planner) dropUnused(robots int) {
	if len(p.slots) > 2*robots+16 {
		clear(p.slots)
		clear(p.kinds)
		p.offers = nil
	}
	maps.DeleteFunc(p.kinds, func(_ string, k *kind) bool { return p.cycle-k.used > unusedCycles })
}

// observeOffer returns the robot's index in the results of kinds, and the version of its offer.
func (p *Planner) observeOffer(r *Robot) (slot int, version uint32) {
	slot, ok := p.slots[r.Name]
	if !ok {
		slot = len(p.slots)
		p.slots[r.Name] = slot
		p.offers = append(p.offers, seenOffer{})
	}
	seen := &p.offers[slot]
	if seen.version == 0 || seen.offer != r.Offer {
		seen.offer = r.Offer
		seen.version++
	}
	return slot, seen.version
}

// kind holds the checks of demands with the same rules and required capabilities, and caches its
// result for each robot until the robot's offer changes.
type kind struct {
	checks []Check
	// rejections by number. The first is the zero value: no rejection.
	rejections []Rejection
	results    []cachedResult // by slot
	used       int            // the last cycle that used it
}

// cachedResult is the number of the rejection of an offer of this version. Zero: none was checked.
type cachedResult struct{ version, rejection uint32 }

// kindOf returns the kind for rules and required capabilities.
func (p *Planner) kindOf(rules *Rules, required capabilities) *kind {
	key := rules.cacheKey() + required.drivers + ";" + required.isolation + ";" + strconv.FormatBool(required.secrets) + ";" + strconv.FormatBool(required.arrays)
	k := p.kinds[key]
	if k == nil {
		k = &kind{checks: append(slices.Clone(availabilityChecks), ruleChecks(rules, required)...), rejections: []Rejection{{}}}
		p.kinds[key] = k
	}
	k.used = p.cycle
	return k
}

// rejectionOf returns the number of the robot's rejection. It is zero if the robot meets the rules.
func (k *kind) rejectionOf(b *cycleRobot, at robotSummary) int {
	o := &k.results[at.slot]
	if o.version != at.version {
		*o = cachedResult{at.version, uint32(k.rejectionNumber(firstRejection(k.checks, b.Robot)))}
	}
	return int(o.rejection)
}

func (k *kind) rejectionNumber(r Rejection) int {
	n := slices.Index(k.rejections, r)
	if n < 0 {
		n = len(k.rejections)
		k.rejections = append(k.rejections, r)
	}
	return n
}

// growResults extends the results to a number of slots.
func (k *kind) growResults(slots int) {
	if extra := slots - len(k.results); extra > 0 {
		k.results = append(k.results, make([]cachedResult, extra)...)
	}
}

// keyBuilder joins texts so that different lists never give the same key.
type keyBuilder struct{ strings.Builder }

func (w *keyBuilder) addTexts(texts ...string) {
	for _, s := range texts {
		w.WriteString(strconv.Itoa(len(s)))
		w.WriteByte(':')
		w.WriteString(s)
	}
	w.WriteByte('|')
}

func (w *keyBuilder) addMap(m map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		w.addTexts(k, m[k])
	}
	w.WriteByte('|')
}

// cacheKey is equal for equal rules.
func (r *Rules) cacheKey() string {
	var w keyBuilder
	if r == nil {
		r = &Rules{}
	}
	w.addMap(r.Selector)
	w.addTexts(r.Datacenters...)
	for _, c := range r.Constraints {
		w.addTexts(c.Left, c.Operand, c.Right)
	}
	w.WriteByte('|')
	w.addTexts(r.Blocked...)
	w.addTexts(strconv.FormatBool(r.SelfStop))
	return w.String()
}

// cacheKey is equal for equal devices.
func (d Devices) cacheKey() string {
	if len(d) == 0 {
		return ""
	}
	var w keyBuilder
	for _, x := range d {
		w.addTexts(x.Name, strconv.FormatInt(x.Count, 10))
	}
	return w.String()
}

// cacheKey is equal for equal preferences.
func (w *Preferences) cacheKey() string {
	if w == nil {
		return ""
	}
	var out keyBuilder
	out.addTexts(strconv.FormatBool(w.Pack))
	for _, a := range w.Affinity {
		out.addTexts(a.Group, strconv.Itoa(a.Weight))
		out.addMap(a.Labels)
	}
	return out.String()
}
