package placement

import (
	"cmp"
	"container/heap"
	"slices"
)

// bot is a robot in a cycle.
type bot struct {
	*Robot
	index int // its place by name
	slot  int // its place in what kinds remember
	held  Room
	free  Room
	load  int64 // of its fullest part, in thousandths
}

// hold books what the robot holds.
func (b *bot) hold(held Room) {
	b.held, b.free = held, b.Capacity.Minus(held)
	b.load = held.load(&b.Capacity)
}

// classID is equal for demands that every check and score treats alike, but
// for the robots that they failed on.
type classID struct {
	kind    *kind
	wishes  string
	group   string
	parts   [partDevices]int64
	devices string
}

// class serves demands that are alike.
type class struct {
	kind    *kind
	need    Room
	taste   taste
	fit     candidates
	refusal *Refusal
	// met counts the robots by the kind's verdict, short those by the part that
	// they lack: for now, and for ever.
	met   []int
	short [][2]int
	// hopeless tells that nobody can make room for its demands in this cycle.
	hopeless bool
}

// newClass looks at every robot once.
func newClass(k *kind, need Room, t taste, bots []bot) *class {
	cl := &class{
		kind: k, need: need, taste: t,
		short:   make([][2]int, need.parts()),
		refusal: &Refusal{Robots: len(bots)},
	}
	cl.fit.track(t.improves(), len(bots))
	for i := range bots {
		b := &bots[i]
		switch n := cl.kind.judge(b.Robot, b.slot); {
		case n != 0:
			cl.count(n)
		case cl.hasRoom(b):
			cl.fit.add(candidate{b, t.score(b)})
		}
	}
	heap.Init(&cl.fit)
	return cl
}

// count counts a robot that does not meet the rules.
func (cl *class) count(verdict int) {
	for len(cl.met) <= verdict {
		cl.met = append(cl.met, 0)
	}
	cl.met[verdict]++
}

// hasRoom counts the robot if it has none.
func (cl *class) hasRoom(b *bot) bool {
	part := cl.need.lacks(&b.free)
	if part < 0 {
		return true
	}
	ever := 0
	if cl.need.lacks(&b.Capacity) == part {
		ever = 1
	}
	cl.short[part][ever]++
	return false
}

// take returns the best robot that has room, or nil. Where scores only get
// worse within a cycle, a candidate whose score is out of date sinks, and the
// first one that is up to date is the best. Where they may get better, touch
// is told.
func (cl *class) take(failed []string) *bot {
	var aside []candidate // for others they will do
	defer func() {
		for _, c := range aside {
			heap.Push(&cl.fit, c)
		}
	}()
	for cl.fit.Len() > 0 {
		top := &cl.fit.list[0]
		if now := cl.taste.score(top.bot); now != top.score {
			top.score = now
			heap.Fix(&cl.fit, 0)
			continue
		}
		b := top.bot
		switch {
		case !cl.hasRoom(b):
			heap.Pop(&cl.fit)
		case slices.Contains(failed, b.Name):
			aside = append(aside, heap.Pop(&cl.fit).(candidate))
		default:
			return b
		}
	}
	return nil
}

// touch puts a robot in its place whose score may have become better.
func (cl *class) touch(b *bot) {
	if at := cl.fit.at[b.index] - 1; at >= 0 {
		cl.fit.list[at].score = cl.taste.score(b)
		heap.Fix(&cl.fit, at)
	}
}

// refuse is the refusal of a demand that take had no robot for. All robots
// that are left are such that it failed there, which concerns it alone.
func (cl *class) refuse() *Refusal {
	if cl.fit.Len() == 0 {
		return cl.refusal
	}
	no := &Refusal{Robots: cl.refusal.Robots, verdicts: cl.verdicts()}
	no.verdicts[failedHere] += cl.fit.Len()
	return no
}

// verdicts puts into words what was counted.
func (cl *class) verdicts() map[Verdict]int {
	out := map[Verdict]int{}
	for n, count := range cl.met {
		if count > 0 {
			out[cl.kind.verdicts[n]] += count
		}
	}
	for part, counts := range cl.short {
		for ever, count := range counts {
			if count > 0 {
				out[cl.need.lack(part, ever == 1)] += count
			}
		}
	}
	return out
}

// taste is what makes one robot better than another for a class.
type taste struct {
	pack  bool
	likes []like
	own   map[int]int // tasks of its own group, by robot
}

// like is an Affinity in a cycle.
type like struct {
	*Affinity
	group map[int]int // tasks of the group, by robot
}

func (l *like) holds(b *bot) bool {
	if l.Group != "" {
		return l.group[b.index] > 0
	}
	for k, want := range l.Labels {
		if got, ok := b.Labels[k]; !ok || got != want {
			return false
		}
	}
	return true
}

// improves tells whether a robot may become better when it is given tasks.
func (t *taste) improves() bool {
	return t.pack || slices.ContainsFunc(t.likes, func(l like) bool { return l.Group != "" && l.Weight > 0 })
}

func (t *taste) score(b *bot) score {
	s := score{group: t.own[b.index], load: b.load, tasks: b.held.Tasks}
	if t.pack {
		s.group, s.load, s.tasks = -s.group, -s.load, -s.tasks
	}
	for i := range t.likes {
		if t.likes[i].holds(b) {
			s.dislike -= t.likes[i].Weight
		}
	}
	return s
}

// score of a robot for a class: the smaller is the better. What somebody
// wished for counts first, then distinct robots for a group, then load.
type score struct {
	dislike int
	group   int   // tasks of the same group
	load    int64 // least loaded first
	tasks   int64
}

type candidate struct {
	bot   *bot
	score score
}

// candidates is a heap with the best robot first.
type candidates struct {
	list []candidate
	at   []int // by robot, one more than its place in the list; nil: nobody asks
}

// track makes the heap know where each robot is.
func (c *candidates) track(yes bool, robots int) {
	if yes {
		c.at = make([]int, robots)
	}
}

func (c *candidates) add(x candidate) {
	c.list = append(c.list, x)
	c.note(len(c.list) - 1)
}

func (c *candidates) note(i int) {
	if c.at != nil {
		c.at[c.list[i].bot.index] = i + 1
	}
}

// Len is for the heap.
func (c *candidates) Len() int { return len(c.list) }

// Swap is for the heap.
func (c *candidates) Swap(i, j int) {
	c.list[i], c.list[j] = c.list[j], c.list[i]
	c.note(i)
	c.note(j)
}

// Push is for the heap.
func (c *candidates) Push(x any) { c.add(x.(candidate)) }

// Pop is for the heap.
func (c *candidates) Pop() any {
	end := len(c.list) - 1
	last := c.list[end]
	if c.at != nil {
		c.at[last.bot.index] = 0
	}
	c.list = c.list[:end]
	return last
}

// Less is for the heap. Of equal robots the first by name is the better.
func (c *candidates) Less(i, j int) bool {
	a, b := &c.list[i], &c.list[j]
	return cmp.Or(
		cmp.Compare(a.score.dislike, b.score.dislike),
		cmp.Compare(a.score.group, b.score.group),
		cmp.Compare(a.score.load, b.score.load),
		cmp.Compare(a.score.tasks, b.score.tasks),
		cmp.Compare(a.bot.index, b.bot.index),
	) < 0
}
