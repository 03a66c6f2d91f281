package scheduler

import (
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// claim is a TaskGroup's request for robots for replicas that do not exist yet.
type claim struct {
	demands map[int]placement.Demand // by replica index
	// group and job are the caller's versions, because the informers may be behind. If the
	// claim waited for the informers, the first tasks of every job would be created without
	// a robot, which costs one more write.
	group groupInfo
	job   jobInfo
}

// claimIndex holds the claims by TaskGroup. It is guarded by Scheduler.mu.
type claimIndex map[key]*claim

// replaceClaim replaces the claim of a group and reports whether a cycle has something new
// to decide. Without demands it removes the claim.
func (x claimIndex) replaceClaim(g *v1alpha1.TaskGroup, j *v1alpha1.Job, demands []placement.Demand) (changed bool) {
	k := keyOf(g)
	if len(demands) == 0 {
		delete(x, k)
		return false
	}
	c := &claim{group: newGroupInfo(g), job: newJobInfo(j), demands: make(map[int]placement.Demand, len(demands))}
	for i := range demands {
		c.demands[demands[i].Index] = demands[i]
	}
	x[k] = c
	return true
}

// removeReplicaOf removes the demand of a replica of which a Task exists now. Otherwise the
// replica would get a second reservation when the Task has ended.
func (x claimIndex) removeReplicaOf(t *v1alpha1.Task) {
	if c := x[taskstate.ReplicaOf(t).Group]; c != nil {
		delete(c.demands, taskstate.ReplicaIndex(t))
	}
}

// hasDemand reports whether a group of the namespace claims a robot for a demand of this name.
func (x claimIndex) hasDemand(namespace, name string) bool {
	for group, c := range x {
		for _, d := range c.demands {
			if group.Namespace == namespace && d.Name() == name {
				return true
			}
		}
	}
	return false
}
