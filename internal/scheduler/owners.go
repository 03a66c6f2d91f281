package scheduler

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

// jobInfo is what tasks inherit from their Job.
type jobInfo struct {
	priority  int32
	preempts  bool
	rules     placement.Rules // without constraints, which belong to the groups
	createdAt time.Time
	starts    bool // its tasks may start
	// blocklistAfter is the number of failed tasks of a group that block their robot.
	blocklistAfter int
}

func newJobInfo(obj *v1alpha1.Job) jobInfo {
	j := jobInfo{
		priority:  apiconv.DefaultPriority,
		preempts:  obj.Spec.Preemption,
		rules:     *apiconv.RulesFrom(obj, nil),
		createdAt: obj.CreationTimestamp.Time,
		starts:    taskcounts.CanStartTasks(obj) && obj.DeletionTimestamp == nil,

		blocklistAfter: taskcounts.BlocklistAfter(obj),
	}
	if p := obj.Spec.Priority; p != nil {
		j.priority = *p
	}
	return j
}

// Equal reports whether two versions mean the same for placement. It distinguishes a Job from a
// later one of the same name, whose deletion an interrupted watch may not show.
func (j jobInfo) Equal(o jobInfo) bool {
	return j.priority == o.priority && j.preempts == o.preempts && j.starts == o.starts && j.blocklistAfter == o.blocklistAfter &&
		j.createdAt.Equal(o.createdAt) && reflect.DeepEqual(j.rules, o.rules)
}

// groupInfo is what replicas inherit from their TaskGroup.
type groupInfo struct {
	uid         types.UID
	job, name   string // name within the job
	constraints []placement.Constraint
	placement   *v1alpha1.Placement
	blocked     []string // robots that failed too many of its tasks
	gang        int      // number of replicas of a gang; 0: it is none
	size        int      // number of tasks of a replica
}

func newGroupInfo(obj *v1alpha1.TaskGroup) groupInfo {
	return groupInfo{
		uid: obj.UID, job: obj.Spec.JobName, name: obj.Spec.GroupName,
		constraints: apiconv.ConstraintsFrom(obj.Spec.Constraints), placement: obj.Spec.Placement, gang: apiconv.GangSize(obj),
		blocked: obj.Status.BlockedRobots,
		size:    len(obj.Spec.InitTasks) + len(obj.Spec.Tasks),
	}
}

// groupRef is a TaskGroup by its name within a Job.
type groupRef struct {
	job  key
	name string
}

func (g *groupInfo) ref(namespace string) groupRef {
	return groupRef{key{Namespace: namespace, Name: g.job}, g.name}
}

// ownerIndex holds the Jobs and TaskGroups from which tasks inherit. It is guarded by
// Scheduler.mu.
type ownerIndex struct {
	jobs        map[key]jobInfo
	groups      map[key]groupInfo
	groupsByRef map[groupRef]key
}

func newOwnerIndex() *ownerIndex {
	return &ownerIndex{jobs: map[key]jobInfo{}, groups: map[key]groupInfo{}, groupsByRef: map[groupRef]key{}}
}

// updateGroup stores a TaskGroup and reports whether anything changed.
func (x *ownerIndex) updateGroup(k key, g groupInfo) (changed bool) {
	if old, ok := x.groups[k]; ok && reflect.DeepEqual(old, g) {
		return false
	}
	x.groups[k] = g
	x.groupsByRef[g.ref(k.Namespace)] = k
	return true
}

func (x *ownerIndex) removeGroup(k key) {
	g := x.groups[k]
	if ref := g.ref(k.Namespace); x.groupsByRef[ref] == k {
		delete(x.groupsByRef, ref)
	}
	delete(x.groups, k)
}

// isComplete reports whether a TaskGroup and its Job were observed. A task placed
// earlier would ignore the group's affinity or the Job's robotSelector.
func (x *ownerIndex) isComplete(group key) bool {
	g, ok := x.groups[group]
	_, hasJob := x.jobs[key{Namespace: group.Namespace, Name: g.job}]
	return ok && hasJob
}

// priorityOf returns the priority of a job's tasks.
func (x *ownerIndex) priorityOf(job key) int32 {
	if j, ok := x.jobs[job]; ok {
		return j.priority
	}
	return apiconv.DefaultPriority
}
