package placement

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// class serves demands that are alike.
type class struct {
	fit     candidates
	group   map[*Robot]int // nil: no spreading
	refusal *Refusal
}

// newClass judges every robot once.
func newClass(d *Demand, robots []Robot, group map[*Robot]int) *class {
	cl := &class{refusal: &Refusal{Robots: len(robots), verdicts: map[Verdict]int{}}}
	if d.Group != "" {
		cl.group = group
	}
	for i := range robots {
		r := &robots[i]
		v := judge(standing, d, r)
		if v.Fits() {
			v = judge(room, d, r)
		}
		if !v.Fits() {
			cl.refusal.verdicts[v]++
			continue
		}
		cl.fit = append(cl.fit, candidate{r, cl.score(r)})
	}
	heap.Init(&cl.fit)
	return cl
}

// take returns the best robot that has room, or nil. Scores only get worse
// within a cycle, so a candidate whose score is out of date sinks, and the
// first one that is up to date is the best.
func (cl *class) take(d *Demand) *Robot {
	for len(cl.fit) > 0 {
		top := &cl.fit[0]
		if now := cl.score(top.robot); now != top.score {
			top.score = now
			heap.Fix(&cl.fit, 0)
			continue
		}
		if v := judge(room, d, top.robot); !v.Fits() {
			cl.refusal.verdicts[v]++
			heap.Pop(&cl.fit)
			continue
		}
		return top.robot
	}
	return nil
}

func (cl *class) score(r *Robot) score {
	return score{group: cl.group[r], load: load(r), tasks: r.Held.Tasks}
}

// score of a robot for a class: the smaller is the better.
type score struct {
	group int   // tasks of the same group: spread
	load  int64 // least loaded first
	tasks int64
}

// load is the fullest of places, cpu and memory, in thousandths.
func load(r *Robot) int64 {
	return max(
		share(r.Held.Tasks, r.Capacity.Tasks),
		share(r.Held.CPU, r.Capacity.CPU),
		share(r.Held.Memory, r.Capacity.Memory),
	)
}

func share(held, capacity int64) int64 {
	if held <= 0 || capacity <= 0 || capacity == Unlimited {
		return 0
	}
	return int64(float64(held) / float64(capacity) * 1000)
}

type candidate struct {
	robot *Robot
	score score
}

// candidates is a heap with the best robot first.
type candidates []candidate

func (c candidates) Len() int      { return len(c) }
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }

// Push is for the heap.
func (c *candidates) Push(x any) { *c = append(*c, x.(candidate)) }

// Pop is for the heap.
func (c *candidates) Pop() any {
	old := *c
	last := old[len(old)-1]
	*c = old[:len(old)-1]
	return last
}

func (c candidates) Less(i, j int) bool {
	a, b := c[i], c[j]
	return cmp.Or(
		cmp.Compare(a.score.group, b.score.group),
		cmp.Compare(a.score.load, b.score.load),
		cmp.Compare(a.score.tasks, b.score.tasks),
		cmp.Compare(a.robot.Name, b.robot.Name),
	) < 0
}

// classKey is equal for demands that every check and score treats alike.
func classKey(d *Demand) string {
	var b strings.Builder
	field := func(s string) {
		b.WriteString(strconv.Itoa(len(s)))
		b.WriteByte(':')
		b.WriteString(s)
	}
	field(d.Group)
	for _, k := range slices.Sorted(maps.Keys(d.Selector)) {
		field(k)
		field(d.Selector[k])
	}
	b.WriteByte('|')
	for _, t := range d.Tasks {
		field(t.Driver)
	}
	n := d.Needs()
	for _, v := range []int64{n.Tasks, n.CPU, n.Memory} {
		b.WriteByte('/')
		b.WriteString(strconv.FormatInt(v, 10))
	}
	return b.String()
}
