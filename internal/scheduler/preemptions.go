package scheduler

// preemptions holds the tasks that are preempted, and the shared robots that are reserved for the
// tasks that preempt them. It is guarded by Scheduler.mu.
type preemptions struct {
	victims map[key]*taskEntry
	// reservedFor is the namespace for which tasks on a shared robot are preempted, by robot.
	// Without it a task of another namespace could get the room first.
	reservedFor map[string]string
}

func newPreemptions() *preemptions {
	return &preemptions{victims: map[key]*taskEntry{}, reservedFor: map[string]string{}}
}

// addVictim marks a task as preempted by a demand.
func (p *preemptions) addVictim(e *taskEntry, demand string) {
	e.victimOf, p.victims[e.key] = demand, e
}

// cancelPreemption lets a task stay on its robot, if it was preempted.
func (p *preemptions) cancelPreemption(e *taskEntry) {
	e.victimOf = ""
	delete(p.victims, e.key)
}

// cancelUnneeded lets victims stay whose demand no longer waits, or which may not be interrupted any more, unless
// their stop was requested already: their robots may have stopped them.
func (p *preemptions) cancelUnneeded(isWaiting func(namespace, demand string) bool, isProtected func(*taskEntry) bool) {
	for k, e := range p.victims {
		if !e.leaving && (!isWaiting(k.Namespace, e.victimOf) || isProtected(e)) {
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
