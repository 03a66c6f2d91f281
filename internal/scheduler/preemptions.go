package scheduler

// preemptions holds the tasks that must leave their robots for others, and the shared robots
// on which they make room. It is guarded by Scheduler.mu.
type preemptions struct {
	victims map[key]*taskEntry
	// reservedFor is the namespace for which tasks make room on a shared robot, by robot.
	// Without it a task of another namespace would take the room first.
	reservedFor map[string]string
}

func newPreemptions() *preemptions {
	return &preemptions{victims: map[key]*taskEntry{}, reservedFor: map[string]string{}}
}

// addVictim makes a task leave its robot for a demand.
func (p *preemptions) addVictim(e *taskEntry, demand string) {
	e.victimOf, p.victims[e.key] = demand, e
}

// cancelPreemption lets a victim stay, if it is one.
func (p *preemptions) cancelPreemption(e *taskEntry) {
	e.victimOf = ""
	delete(p.victims, e.key)
}

// cancelUnneeded lets victims stay whose demand no longer waits. Those that were asked to
// leave are not spared: their robots may have stopped them already.
func (p *preemptions) cancelUnneeded(isWaiting func(namespace, demand string) bool) {
	for k, e := range p.victims {
		if !e.leaving && !isWaiting(k.Namespace, e.victimOf) {
			p.cancelPreemption(e)
		}
	}
}

// vacatedRobots returns the reserved robots on which no victim is left.
func (p *preemptions) vacatedRobots() (robots []string) {
	occupied := map[string]bool{}
	for _, e := range p.victims {
		occupied[e.robot] = true
	}
	for id := range p.reservedFor {
		if !occupied[id] {
			robots = append(robots, id)
		}
	}
	return robots
}
