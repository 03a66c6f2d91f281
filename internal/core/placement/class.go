package placement

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
)

// cycleRobot is a robot during one cycle.
type cycleRobot struct {
	*Robot
	index int // in the order of names
	held  Room
	free  Room
	load  int64 // of its most loaded part, in thousandths
}

// setHeld updates the room that the robot holds.
func (b *cycleRobot) setHeld(held Room) {
	b.held, b.free = held, b.Capacity.Minus(held)
	b.load = held.loadShare(&b.Capacity)
}

// robotSummary has what most classes read of a robot, apart from it: a class looks at all robots, most
// of which are full, and would otherwise load all their memory.
type robotSummary struct {
	slot    uint32 // in the results of kinds
	version uint32 // of the offer
	// isFull is set if the robot has room for tasks and holds as many, and no policy.
	isFull bool
}

// isFullOfTasks reports whether the robot lacks nothing but places for tasks, for a demand of one.
func (b *cycleRobot) isFullOfTasks() bool {
	return b.free.Tasks < 1 && b.Capacity.Tasks >= 1 && b.Policy == nil
}

// classID is equal for demands that are equal for every check and score, except for the robots on
// which they failed.
type classID struct {
	kind        *kind
	subjects    string // empty if no robot has a policy
	preferences string
	group       string
	parts       [partDevices]int64
	devices     string
}

// class places demands with the same classID.
type class struct {
	kind        *kind
	need        Room
	preferences preferences
	fitting     candidates
	// diagnosis is filled in when the cycle ends, if a demand was rejected with it.
	diagnosis *Diagnosis
	rejected  bool
	// byRejection counts robots by the number of their rejection, byPolicy by the rejection of their
	// policy. lackingPart counts them by the part of room that they lack: at index 0 if it is in use,
	// at 1 if the capacity is too small.
	byRejection []int
	byPolicy    map[Rejection]int
	lackingPart [][2]int
	// preemptionFailed is set when no robot can make room for its demands in this cycle.
	preemptionFailed bool
}

// newClass checks every robot once. rejectByPolicy is the check of its policy.
func newClass(k *kind, need Room, t preferences, bots []cycleRobot, summaries []robotSummary, rejectByPolicy Check) *class {
	cl := &class{
		kind: k, need: need, preferences: t, byPolicy: map[Rejection]int{},
		lackingPart: make([][2]int, need.partCount()),
		diagnosis:   &Diagnosis{Robots: len(bots)},
	}
	cl.fitting.trackRobots(t.canImprove(), len(bots))
	for i, at := range summaries {
		b := &bots[i]
		if n := k.rejectionOf(b, at); n != 0 {
			cl.countRejection(n)
			continue
		}
		if at.isFull && need.Tasks == 1 {
			cl.lackingPart[partTasks][0]++
			continue
		}
		switch no := rejectByPolicy(b.Robot); {
		case !no.IsZero():
			cl.byPolicy[no]++
		case cl.hasRoom(b):
			cl.fitting.appendCandidate(candidate{b, t.scoreRobot(b)})
		}
	}
	heap.Init(&cl.fitting)
	return cl
}

// countRejection counts a robot that does not meet the rules.
func (cl *class) countRejection(number int) {
	for len(cl.byRejection) <= number {
		cl.byRejection = append(cl.byRejection, 0)
	}
	cl.byRejection[number]++
}

// hasRoom reports whether the robot has room, and counts it if not.
func (cl *class) hasRoom(b *cycleRobot) bool {
	part := cl.need.lackingPartOf(&b.free)
	if part < 0 {
		return true
	}
	tooSmall := 0
	if cl.need.lackingPartOf(&b.Capacity) == part {
		tooSmall = 1
	}
	cl.lackingPart[part][tooSmall]++
	return false
}

// bestRobot returns the best robot that has room, or nil. If scores only get worse within a
// cycle, a candidate with an outdated score sinks in the heap, and the first candidate with a
// current score is the best. If scores may get better, updateScore must be called.
func (cl *class) bestRobot(d *Demand) *cycleRobot {
	var aside []candidate // excluded only for this demand
	defer func() {
		for _, c := range aside {
			heap.Push(&cl.fitting, c)
		}
	}()
	for cl.fitting.Len() > 0 {
		top := &cl.fitting.list[0]
		if now := cl.preferences.scoreRobot(top.robot); now != top.score {
			top.score = now
			heap.Fix(&cl.fitting, 0)
			continue
		}
		b := top.robot
		switch {
		case !cl.hasRoom(b):
			heap.Pop(&cl.fitting)
		case !d.rejectRobot(b.Name).IsZero():
			aside = append(aside, heap.Pop(&cl.fitting).(candidate))
		default:
			return b
		}
	}
	return nil
}

// updateScore moves a robot whose score may have improved.
func (cl *class) updateScore(b *cycleRobot) {
	if at := cl.fitting.position[b.index] - 1; at >= 0 {
		cl.fitting.list[at].score = cl.preferences.scoreRobot(b)
		heap.Fix(&cl.fitting, at)
	}
}

// diagnose returns the diagnosis of a demand for which bestRobot returned nil. The robots that
// are left in the heap are those on which this demand failed or was stopped. They are no rejections for
// other demands of the class.
func (cl *class) diagnose(d *Demand) *Diagnosis {
	if cl.fitting.Len() == 0 {
		cl.rejected = true
		return cl.diagnosis
	}
	counts := cl.countRejections()
	for _, c := range cl.fitting.list {
		counts[d.rejectRobot(c.robot.Name)]++
	}
	return &Diagnosis{Robots: cl.diagnosis.Robots, Rejections: sortRejections(counts)}
}

// countRejections returns the number of robots by rejection.
func (cl *class) countRejections() map[Rejection]int {
	out := map[Rejection]int{}
	for n, count := range cl.byRejection {
		if count > 0 {
			out[cl.kind.rejections[n]] += count
		}
	}
	maps.Copy(out, cl.byPolicy)
	for part, counts := range cl.lackingPart {
		for tooSmall, count := range counts {
			if count > 0 {
				out[cl.need.rejectPart(part, tooSmall == 1)] += count
			}
		}
	}
	return out
}

// preferences make one robot better than another for a class.
type preferences struct {
	pack       bool
	affinities []groupAffinity
	groupTasks map[int]int // tasks of its own group, by robot
}

// groupAffinity is an Affinity with the counts of this cycle.
type groupAffinity struct {
	*Affinity
	groupTasks map[int]int // tasks of the group, by robot
}

func (l *groupAffinity) appliesTo(b *cycleRobot) bool {
	if l.Group != "" {
		return l.groupTasks[b.index] > 0
	}
	for k, want := range l.Labels {
		if got, ok := b.Labels[k]; !ok || got != want {
			return false
		}
	}
	return true
}

// canImprove reports whether a robot's score may improve when the robot is given tasks.
func (t *preferences) canImprove() bool {
	return t.pack || slices.ContainsFunc(t.affinities, func(l groupAffinity) bool { return l.Group != "" && l.Weight > 0 })
}

func (t *preferences) scoreRobot(b *cycleRobot) score {
	s := score{group: t.groupTasks[b.index], load: b.load, tasks: b.held.Tasks}
	if t.pack {
		s.group, s.load, s.tasks = -s.group, -s.load, -s.tasks
	}
	for i := range t.affinities {
		if t.affinities[i].appliesTo(b) {
			s.dislike -= t.affinities[i].Weight
		}
	}
	return s
}

// score of a robot for a class; smaller is better. Affinities count first, then the spread of a
// group over robots, then load.
type score struct {
	dislike int
	group   int   // tasks of the same group
	load    int64 // in thousandths
	tasks   int64
}

type candidate struct {
	robot *cycleRobot
	score score
}

// candidates is a heap with the best robot first.
type candidates struct {
	list     []candidate
	position []int // by robot, index in the list plus one; nil if not recorded
}

// trackRobots makes the heap record the index of each robot.
func (c *candidates) trackRobots(yes bool, robots int) {
	if yes {
		c.position = make([]int, robots)
	}
}

func (c *candidates) appendCandidate(x candidate) {
	c.list = append(c.list, x)
	c.recordIndex(len(c.list) - 1)
}

func (c *candidates) recordIndex(i int) {
	if c.position != nil {
		c.position[c.list[i].robot.index] = i + 1
	}
}

// Len implements heap.Interface.
func (c *candidates) Len() int { return len(c.list) }

// Swap implements heap.Interface.
func (c *candidates) Swap(i, j int) {
	c.list[i], c.list[j] = c.list[j], c.list[i]
	c.recordIndex(i)
	c.recordIndex(j)
}

// Push implements heap.Interface.
func (c *candidates) Push(x any) { c.appendCandidate(x.(candidate)) }

// Pop implements heap.Interface.
func (c *candidates) Pop() any {
	end := len(c.list) - 1
	last := c.list[end]
	if c.position != nil {
		c.position[last.robot.index] = 0
	}
	c.list = c.list[:end]
	return last
}

// Less implements heap.Interface. Robots with equal scores are ordered by name.
func (c *candidates) Less(i, j int) bool {
	a, b := &c.list[i], &c.list[j]
	return cmp.Or(
		cmp.Compare(a.score.dislike, b.score.dislike),
		cmp.Compare(a.score.group, b.score.group),
		cmp.Compare(a.score.load, b.score.load),
		cmp.Compare(a.score.tasks, b.score.tasks),
		cmp.Compare(a.robot.index, b.robot.index),
	) < 0
}
