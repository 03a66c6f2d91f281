package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
)

// PreviewGroup is a group of a Job that may not exist yet, and the replicas for which it would request
// robots.
type PreviewGroup struct {
	Group   *v1alpha1.TaskGroup
	Demands []placement.Demand
}

// Preview is what a cycle would decide now about the demands of a Job. It reserves nothing.
type Preview struct {
	// Robots are the robots of the demands that get one, by the demand's name.
	Robots map[string]string
	// Rejected are the diagnoses of all others, by the demand's name.
	Rejected map[string]*placement.Diagnosis
	// IsPartial reports whether the time ran out: demands may be in neither Robots nor Rejected.
	IsPartial bool
	// Preempted are the names of the tasks that would be evicted to make room, by the demand's name.
	Preempted map[string][]string
}

// PreviewPlacement returns what a cycle would decide now about the groups of a Job, if all other waiting
// tasks of its namespace were placed in the same cycle. A Job without a creation time counts as created
// at now. The groups' names must be those of the Job's TaskGroup objects. It ends early with ctx.
func (s *Scheduler) PreviewPlacement(ctx context.Context, now time.Time, j *v1alpha1.Job, groups []PreviewGroup) Preview {
	snapshot := s.previewSnapshot(now, j, groups)
	// Not the cycle's planner, whose cache is guarded by the lock.
	decisions, isPartial := placement.DecideUntil(func() bool { return ctx.Err() != nil }, snapshot)
	out := Preview{Robots: map[string]string{}, Rejected: map[string]*placement.Diagnosis{}, Preempted: map[string][]string{}, IsPartial: isPartial}
	own := map[string]bool{}
	for i := range groups {
		for n := range groups[i].Demands {
			own[groups[i].Demands[n].Name()] = true
		}
	}
	for i := range decisions.Bind {
		if name := decisions.Bind[i].Demand.Name(); own[name] {
			out.Robots[name] = decisions.Bind[i].Robot
		}
	}
	for name, why := range decisions.Rejected {
		if own[name] {
			out.Rejected[name] = why
		}
	}
	for _, p := range decisions.Preempt {
		if own[p.Demand] {
			out.Preempted[p.Demand] = p.Victims
		}
	}
	return out
}

// previewSnapshot returns the input of a cycle with the demands of the groups. It shares nothing with the
// state that later events change.
func (s *Scheduler) previewSnapshot(now time.Time, j *v1alpha1.Job, groups []PreviewGroup) placement.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	incomplete := maps.Clone(s.state.incomplete) // buildDemands drops entries that the next cycle must see
	defer func() { s.state.incomplete = incomplete }()
	defer s.state.windows.viewAt(now)()
	b := newDemandBuilder(s.state)
	previewed := listPreviewed(groups)
	demands := slices.DeleteFunc(b.buildDemands()[j.Namespace], func(d placement.Demand) bool { return previewed[previewedDemand{d.Group, d.Name()}] })
	for _, g := range groups {
		demands = append(demands, b.previewDemands(now, j, g)...)
	}
	snapshot := s.state.snapshotFor(j.Namespace, demands)
	for i := range snapshot.Robots {
		snapshot.Robots[i].Groups = maps.Clone(snapshot.Robots[i].Groups)
	}
	return snapshot
}

// previewedDemand names a demand of a group.
type previewedDemand struct{ group, name string }

// listPreviewed returns the groups' demands, which replace those that exist.
func listPreviewed(groups []PreviewGroup) map[previewedDemand]bool {
	out := map[previewedDemand]bool{}
	for _, g := range groups {
		for i := range g.Demands {
			out[previewedDemand{g.Group.Name, g.Demands[i].Name()}] = true
		}
	}
	return out
}

// previewDemands returns the demands of a group with its rules, as those of a claim.
func (b *demandBuilder) previewDemands(now time.Time, j *v1alpha1.Job, g PreviewGroup) []placement.Demand {
	info, job := newGroupInfo(g.Group), newJobInfo(j)
	if job.createdAt.IsZero() {
		job.createdAt = now
	}
	info.blocked = b.blockedRobots(keyOf(g.Group))
	t := b.newTermsOf(key{Namespace: j.Namespace, Name: j.Name}, job, &info, info.constraints)
	out := slices.Clone(g.Demands)
	for i := range out {
		t.applyTo(&out[i])
		out[i].Gang = info.gang
	}
	return out
}

// HasSynced reports whether the scheduler knows all tasks and robots. Before, a preview would overbook robots.
func (s *Scheduler) HasSynced() bool {
	return len(s.synced) > 0 && !slices.ContainsFunc(s.synced, func(synced cache.InformerSynced) bool { return !synced() })
}

// PreviewRobots returns the namespaces that have an object of each robot that a namespace may use, by the
// robot's name.
func (s *Scheduler) PreviewRobots(namespace string) map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string][]string, len(s.state.robots.byNamespace[namespace]))
	for _, r := range s.state.robots.byNamespace[namespace] {
		for _, o := range r.objects {
			out[r.id] = append(out[r.id], o.Namespace)
		}
	}
	return out
}
