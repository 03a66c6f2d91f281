package scheduler

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// notifications are the objects whose controllers are notified after a cycle: tasks with a new
// reservation or a new rejection, and groups with new reservations.
type notifications struct {
	tasks  []key
	groups map[key]bool
}

// decisionWriter applies the decisions of placement for one namespace to the cluster state. It
// is guarded by Scheduler.mu.
type decisionWriter struct {
	*clusterState
	namespace string
	now       time.Time
	notify    *notifications
	// freedRoom is true if room was released after demands were rejected.
	freedRoom bool
}

func (w *decisionWriter) keyOfTask(name string) key { return key{Namespace: w.namespace, Name: name} }

// applyDecisions applies all decisions and reports whether they free room.
func (w *decisionWriter) applyDecisions(d placement.Decisions) (freedRoom bool) {
	for i := range d.Bind {
		w.applyBinding(&d.Bind[i])
	}
	for name, diagnosis := range d.Rejected {
		if e := w.tasks.waiting[w.keyOfTask(name)]; e != nil {
			w.recordDiagnosis(e.replica, diagnosis)
		}
	}
	for i := range d.Preempt {
		w.applyPreemption(&d.Preempt[i])
	}
	return w.freedRoom
}

// applyBinding reserves the robot for the tasks of a demand. Tasks that do not exist yet are
// created by their group's controller.
func (w *decisionWriter) applyBinding(b *placement.Binding) {
	for _, t := range b.Demand.Tasks {
		k := w.keyOfTask(t.Name)
		e := w.tasks.byKey[k]
		if e == nil {
			group := w.keyOfTask(b.Demand.Group)
			e = &taskEntry{key: k, Task: t, index: b.Demand.Index, replica: taskstate.Replica{Group: group, Index: strconv.Itoa(b.Demand.Index)}}
			w.tasks.addEntry(e)
			w.tasks.unconfirmed[k] = e
			w.notify.groups[group] = true
		} else {
			w.notify.tasks = append(w.notify.tasks, k)
			w.notify.tasks = slices.AppendSeq(w.notify.tasks, maps.Keys(w.initTasks.byReplica[e.replica]))
		}
		e.reservedAt = w.now
		w.reserveRobot(e, b.Robot)
	}
}

// recordDiagnosis stores why a replica has no robot with all its waiting tasks.
func (w *decisionWriter) recordDiagnosis(r taskstate.Replica, d *placement.Diagnosis) {
	for k, e := range w.tasks.byReplica[r] {
		if w.tasks.waiting[k] == nil || e.diagnosis.Equal(d) {
			continue
		}
		e.diagnosis = d
		w.notify.tasks = append(w.notify.tasks, k)
	}
}

// applyPreemption marks the victims as preempted. A victim that was not dispatched yet loses its
// reservation at once.
func (w *decisionWriter) applyPreemption(p *placement.Preemption) {
	if len(w.robots.byID[p.Robot].users) > 1 {
		w.preemptions.reservedFor[p.Robot] = w.namespace
	}
	for _, victim := range p.Victims {
		k := w.keyOfTask(victim)
		e := w.tasks.byKey[k]
		if !e.dispatched {
			w.cancelReservation(e)
			w.freedRoom = true
			continue
		}
		w.preemptions.addVictim(e, p.Demand)
		w.notify.tasks = append(w.notify.tasks, k)
	}
}

// isWaiting reports whether a demand of this name waits for a robot.
func (c *clusterState) isWaiting(namespace, demand string) bool {
	return c.tasks.waiting[key{Namespace: namespace, Name: demand}] != nil || c.claims.hasDemand(namespace, demand)
}
