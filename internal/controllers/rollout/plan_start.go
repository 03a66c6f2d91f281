package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// maxListedRevisions is how many revisions a message lists.
const maxListedRevisions = 10

// start finds the revision of a Rollout, or sets why that is not possible yet.
func (p *plan) start() {
	if p.endsBeforeStart() {
		return
	}
	p.s.Phase = v1alpha1.RolloutPending
	if p.s.Message = p.obstacle(); p.s.Message != "" {
		return
	}
	if p.r.Spec.DesiredState == v1alpha1.RolloutDesiredPaused {
		p.s.Phase, p.s.Message = v1alpha1.RolloutPaused, "desiredState is paused; the Rollout starts when it is running"
		return
	}
	p.s.Phase, p.s.Message = v1alpha1.RolloutProgressing, "starting"
	if p.isOfAgents() {
		p.s.Version = p.r.Spec.Target.Agent.Version
	} else {
		p.s.Revision, p.s.FromRevision, p.s.TargetUID = wantedRevision(p.r, p.Job), p.Job.Status.CurrentRevision, p.Job.UID
	}
	p.requeueAt(p.now)
}

// endsBeforeStart ends a Rollout that must not start, and reports whether it has ended.
func (p *plan) endsBeforeStart() bool {
	switch p.r.Spec.DesiredState {
	case v1alpha1.RolloutDesiredAborted:
		p.abort(ReasonAbortRequested, "desiredState was aborted before the Rollout started")
		return true
	case v1alpha1.RolloutDesiredReverted:
		p.setFailed(ReasonRevertRequested, "desiredState was reverted before the Rollout started")
		p.end(v1alpha1.RolloutReverted, "desiredState was reverted before the Rollout started")
		return true
	}
	if p.s.Phase == v1alpha1.RolloutAborted || p.s.Phase == v1alpha1.RolloutReverted {
		p.s.Message = "the Rollout ended before it started; create another one"
		return true
	}
	if p.Newer != "" {
		p.supersede(fmt.Sprintf("Rollout %s is newer", p.Newer))
		return true
	}
	return false
}

// wantedRevision returns the revision that a Rollout changes to. It returns 0 if the Job has none yet.
func wantedRevision(r *v1alpha1.Rollout, j *v1alpha1.Job) int64 {
	switch {
	case r.Status.Revision != 0:
		return r.Status.Revision
	case r.Spec.Target.Revision != 0:
		return r.Spec.Target.Revision
	}
	return j.Status.UpdateRevision
}

// mayChangeTo reports whether a Rollout may change tasks to its revision. One that has not started may only go to
// the definition of the Job or to what its tasks run: admission has checked an older one for a user who may have
// lost the right since then. A rollback of the Job checks it again.
func mayChangeTo(r *v1alpha1.Rollout, j *v1alpha1.Job) bool {
	n := wantedRevision(r, j)
	return r.Status.Revision != 0 || n == j.Status.UpdateRevision || n == j.Status.CurrentRevision
}

// obstacle returns why the Rollout cannot start, and what to do. It returns "" if it can.
func (p *plan) obstacle() string {
	name := p.r.Spec.Target.Name
	switch {
	case p.isOfAgents():
		return "" // robots are units, whatever they run
	case p.Job == nil:
		return fmt.Sprintf("Job %s not found in namespace %s; create it, or create a Rollout of another Job", name, p.r.Namespace)
	case p.Job.DeletionTimestamp != nil:
		return fmt.Sprintf("Job %s is being deleted; create a Rollout of another Job", name)
	case !jobrevision.KeepsRevisions(p.Job.Spec.Type):
		return fmt.Sprintf("Job %s is of type batch, which has no revisions; create a Rollout of a Job of type service, system or sysbatch", name)
	case !rollout.IsUsedBy(p.Job):
		return fmt.Sprintf("Job %s changes its tasks by itself; set its spec.update.strategy to Rollout", name)
	case !v1alpha1.RunsOnEveryRobot(p.Job.Spec.Type) && p.selectsRobots():
		return fmt.Sprintf("Job %s is of type service, whose waves are of replicas; create a Rollout whose waves have percent or count instead of robotSelector", name)
	case p.hasTooManyUnits():
		return p.describeTooManyUnits()
	case p.Job.Status.CurrentRevision == 0 || wantedRevision(p.r, p.Job) == 0:
		return fmt.Sprintf("Job %s has no revisions yet; wait for the manager to write them", name)
	case !mayChangeTo(p.r, p.Job):
		n := wantedRevision(p.r, p.Job)
		return fmt.Sprintf("revision %d is not the definition of Job %s, which is revision %d; run k8s4r job rollback %s --to-revision %d, and create a Rollout to the revision that this makes",
			n, name, p.Job.Status.UpdateRevision, name, n)
	case p.Target == nil:
		return p.describeMissingRevision()
	}
	return p.describeOtherGroups()
}

func (p *plan) describeTooManyUnits() string {
	return fmt.Sprintf("spec.taskGroups[].count of Job %s: %d replicas in all groups, and a Rollout counts at most %d; reduce the counts",
		p.Job.Name, rollout.CountReplicas(p.Job), rollout.MaxReplicas)
}

func (p *plan) selectsRobots() bool {
	return slices.ContainsFunc(p.r.Spec.Waves, func(w v1alpha1.RolloutWave) bool { return len(w.RobotSelector) > 0 })
}

// describeMissingRevision returns which revision does not exist, and which ones do.
func (p *plan) describeMissingRevision() string {
	missing := wantedRevision(p.r, p.Job)
	if p.Target != nil {
		missing = p.Job.Status.CurrentRevision
	}
	var numbers []string
	for _, n := range p.Revisions[max(0, len(p.Revisions)-maxListedRevisions):] {
		numbers = append(numbers, strconv.FormatInt(n, 10))
	}
	has := "none"
	if len(numbers) > 0 {
		has = strings.Join(numbers, ", ")
	}
	return fmt.Sprintf("revision %d of Job %s not found; it has %s: create a Rollout to one of them", missing, p.Job.Name, has)
}

// describeOtherGroups returns why a revision with other groups than the Job cannot be used. It returns "" if
// they are the same.
func (p *plan) describeOtherGroups() string {
	var has []string
	for i := range p.Job.Spec.TaskGroups {
		has = append(has, p.Job.Spec.TaskGroups[i].Name)
	}
	slices.Sort(has)
	if wants := slices.Sorted(maps.Keys(p.Target)); !slices.Equal(has, wants) {
		return fmt.Sprintf("revision %d has the groups %s, Job %s has %s; create a Rollout to a revision with the same groups",
			wantedRevision(p.r, p.Job), strings.Join(wants, ", "), p.Job.Name, strings.Join(has, ", "))
	}
	return ""
}
