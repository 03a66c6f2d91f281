package console

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// unitState is the progress of a unit.
type unitState string

// The states of units.
const (
	unitFailed       unitState = "failed"
	unitUpdating     unitState = "updating"
	unitOutOfContact unitState = "outOfContact"
	unitWaiting      unitState = "waiting"
	unitUpdated      unitState = "updated"
)

// unitStates are all states of units, those first that need attention.
var unitStates = []unitState{unitFailed, unitUpdating, unitOutOfContact, unitWaiting, unitUpdated}

var unitSeverities = map[unitState]row.Severity{
	unitFailed: row.Bad, unitUpdating: row.Running, unitOutOfContact: row.Gone, unitWaiting: row.Waiting, unitUpdated: row.Good,
}

type unitsIn struct {
	Namespace string      `path:"namespace"`
	Name      string      `path:"name"`
	State     []unitState `query:"state" doc:"Any of these states"`
	Wave      string      `query:"wave" maxLength:"63" doc:"Units of this wave, which has started"`
	Limit     int         `query:"limit" minimum:"1" maximum:"1000" default:"500"`
}

// unitList has the first units of a Rollout, by state and name.
type unitList struct {
	Items []rolloutUnit `json:"items"`
	// Total counts the units that match the filters. Items has the first of them.
	Total int `json:"total"`
	// Complete is false if Items has only failures that the Rollout has recorded, at most 100: it changes units
	// no more, or the caller may not list tasks.
	Complete bool `json:"complete"`
}

// rolloutUnit is a robot or a replica that a Rollout changes.
type rolloutUnit struct {
	// Unit is the name of the robot, or the group and the index of the replica.
	Unit     string       `json:"unit"`
	State    unitState    `json:"state"`
	Severity row.Severity `json:"severity"`
	// Wave is empty if no wave that has started includes the unit.
	Wave string `json:"wave,omitempty"`
	// Robot and RobotNamespace are empty for a replica without a robot, and for robots that the caller may not list.
	Robot          string `json:"robot,omitempty"`
	RobotNamespace string `json:"robotNamespace,omitempty"`
	// Task is the task that has failed, or one that is not healthy yet.
	Task    string `json:"task,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// listUnits derives the states of units as the manager does, but from what this console sees now: they may differ
// from the counts of the Rollout for moments.
func (s *Server) listUnits(ctx context.Context, in *unitsIn) (*unitList, error) {
	r, err := readLive[*v1alpha1.Rollout](ctx, s, row.Rollouts, &whyIn{in.Namespace, in.Name})
	if err != nil {
		return nil, err
	}
	all := listRecordedFailures(r)
	d, err := s.newUnitDeriver(ctx, r)
	if err != nil {
		return nil, err
	}
	if d != nil {
		all = d.deriveAll()
	}
	out := in.selectUnits(all)
	out.Complete = d != nil
	return out, nil
}

// selectUnits returns the first units that match the filters.
func (in *unitsIn) selectUnits(all []rolloutUnit) *unitList {
	all = slices.DeleteFunc(all, func(u rolloutUnit) bool {
		return len(in.State) > 0 && !slices.Contains(in.State, u.State) || in.Wave != "" && u.Wave != in.Wave
	})
	slices.SortFunc(all, func(a, b rolloutUnit) int {
		return cmp.Or(cmp.Compare(slices.Index(unitStates, a.State), slices.Index(unitStates, b.State)), cmp.Compare(a.Unit, b.Unit))
	})
	return &unitList{Items: all[:min(len(all), in.Limit)], Total: len(all)}
}

// listRecordedFailures returns the failures in the status of a Rollout.
func listRecordedFailures(r *v1alpha1.Rollout) []rolloutUnit {
	out := []rolloutUnit{}
	for i := range r.Status.FailedUnits {
		f := &r.Status.FailedUnits[i]
		out = append(out, rolloutUnit{Unit: f.Unit, State: unitFailed, Severity: row.Bad, Wave: f.Wave, Task: f.Task, Reason: f.Reason, Message: f.Message})
	}
	return out
}

// unitDeriver derives the states of the units of a Rollout.
type unitDeriver struct {
	now     time.Time
	rollout *v1alpha1.Rollout
	job     *v1alpha1.Job
	// target has the hashes of the Rollout's revision, by group and task.
	target   map[string]map[string]string
	units    map[string]*observedUnit
	recorded map[string]*v1alpha1.RolloutFailure
}

// newUnitDeriver returns nil if the states of units cannot be derived: the Rollout changes no units anymore, or the
// caller may not list tasks.
func (s *Server) newUnitDeriver(ctx context.Context, r *v1alpha1.Rollout) (*unitDeriver, error) {
	j, ok := findObject[*v1alpha1.Job](s, row.Jobs, r.Namespace, r.Spec.Target.Name)
	ended := r.Status.Phase == v1alpha1.RolloutSuperseded || r.Status.Phase == v1alpha1.RolloutReverted
	if !ok || ended || r.Status.TargetUID != "" && r.Status.TargetUID != j.UID {
		return nil, nil
	}
	if ok, err := s.isAllowed(ctx, "list", row.Tasks, r.Namespace, ""); err != nil || !ok {
		return nil, err
	}
	if err := checkReplicas(j); err != nil {
		return nil, err
	}
	sees, err := s.findScope(ctx, row.Robots, "")
	if err != nil {
		return nil, err
	}
	d := &unitDeriver{now: s.now(), rollout: r, job: j, recorded: map[string]*v1alpha1.RolloutFailure{}}
	d.target, d.units = s.findTargetHashes(r, j), s.observeUnits(j, sees)
	for i := range r.Status.FailedUnits {
		d.recorded[r.Status.FailedUnits[i].Unit] = &r.Status.FailedUnits[i]
	}
	return d, nil
}

// findTargetHashes returns the hashes of the revision of a Rollout, as the groups of its Job have them. It returns
// none if another Rollout decides for the Job: then no task has the revision because of this one.
func (s *Server) findTargetHashes(r *v1alpha1.Rollout, j *v1alpha1.Job) map[string]map[string]string {
	var all []v1alpha1.Rollout
	for _, o := range findObjects(s, row.Rollouts, j.Namespace, func(o *v1alpha1.Rollout) bool { return o.Spec.Target.Name == j.Name }) {
		all = append(all, *o)
	}
	if e := rollout.FindEffective(all, j); e == nil || e.UID != r.UID {
		return nil
	}
	out := map[string]map[string]string{}
	for _, i := range s.store.Owned(j.UID) {
		if g, ok := i.Object.(*v1alpha1.TaskGroup); ok {
			out[g.Spec.GroupName] = g.Status.RolloutRevisions
			if len(g.Status.RolloutRevisions) == 0 { // the group is the same in both revisions
				out[g.Spec.GroupName] = g.Status.Revisions
			}
		}
	}
	return out
}

func (d *unitDeriver) deriveAll() []rolloutUnit {
	out := make([]rolloutUnit, 0, len(d.units))
	for _, u := range d.units {
		out = append(out, d.derive(u))
	}
	return out
}

// derive returns the state of a unit, in the same order of checks as the manager.
func (d *unitDeriver) derive(u *observedUnit) rolloutUnit {
	out := rolloutUnit{Unit: u.Name, State: unitWaiting}
	if u.robot != nil {
		out.Robot, out.RobotNamespace = u.robot.Name, u.robot.Namespace
	}
	if wave := rollout.FindWave(d.rollout, u.Unit); wave >= 0 {
		out.Wave = d.rollout.Spec.Waves[wave].Name
		d.deriveState(&out, u, wave)
	}
	out.Severity = unitSeverities[out.State]
	return out
}

func (d *unitDeriver) deriveState(out *rolloutUnit, u *observedUnit, wave int) {
	if f := d.recorded[u.Name]; f != nil {
		out.State, out.Task, out.Reason, out.Message = unitFailed, f.Task, f.Reason, f.Message
		return
	}
	if t := d.findFailed(u, wave); t != nil {
		out.State, out.Task, out.Reason, out.Message = unitFailed, t.Name, t.Status.Reason, t.Status.Message
		return
	}
	open, isUpdated := d.findUnfinished(u, wave)
	switch {
	case isUpdated:
		out.State = unitUpdated
		return
	case !u.isInContact(d.job):
		out.State = unitOutOfContact
	case d.isChanging(u):
		out.State = unitUpdating
	}
	if open != nil {
		described := row.DescribeTask(open)
		out.Task, out.Reason, out.Message = open.Name, described.Reason, described.Message
	}
}

// has reports whether a task has the revision of the Rollout.
func (d *unitDeriver) has(t groupTask) bool {
	hash := revision.TaskRevision(t.Task)
	return hash != "" && d.target[t.group][t.Spec.Name] == hash
}

// findFailed returns a task of the new revision that has failed since the last retry, or nil. One that failed only
// because of its init task is returned last.
func (d *unitDeriver) findFailed(u *observedUnit, wave int) (found *v1alpha1.Task) {
	retried := d.rollout.Status.Waves[wave].RetriedAt
	for _, t := range u.tasks {
		if stateOf(t) != lifecycle.TaskFailed || !d.has(t) || retried != nil && revision.RevisedAt(t.Task).Before(retried.Time) {
			continue
		}
		if found == nil || found.Status.Reason == v1alpha1.ReasonInitTaskFailed {
			found = t.Task
		}
	}
	return found
}

// findUnfinished returns a task that is not updated, if there is one, and whether all that the unit should have are.
func (d *unitDeriver) findUnfinished(u *observedUnit, wave int) (open *v1alpha1.Task, isUpdated bool) {
	healthy, wanted := 0, 0
	for _, t := range u.tasks {
		if !d.has(t) || !d.isHealthy(u, t, wave) {
			open = t.Task
			continue
		}
		healthy++
	}
	for _, group := range u.groups {
		wanted += len(d.target[group])
	}
	return open, open == nil && wanted > 0 && healthy >= wanted
}

// isHealthy reports whether a task has completed, or its run has lasted long enough until the last contact with its
// robot. A run that does not need to last, or of a robot that the caller may not list, counts until now.
func (d *unitDeriver) isHealthy(u *observedUnit, t groupTask, wave int) bool {
	until, needs := u.lastContact, rollout.HealthyTime(d.job, t.group, &d.rollout.Spec.Waves[wave])
	switch state := stateOf(t); {
	case state == lifecycle.TaskCompleted:
		return true
	case state == lifecycle.TaskRunning && (u.robot == nil || needs == 0):
		until = d.now
	case state != lifecycle.TaskRunning && state != lifecycle.TaskUnknown:
		return false
	}
	if !v1alpha1.IsKeptRunning(t.Spec.Type) && !t.Spec.Daemon {
		return false
	}
	a := t.Status.FindAttempt(t.Status.Attempt)
	if a == nil {
		return false
	}
	start := taskstate.LastRunStart(a)
	return start != nil && until.Sub(start.Time) >= needs
}

// isChanging reports whether a unit has a task of the new revision, or one that is being stopped.
func (d *unitDeriver) isChanging(u *observedUnit) bool {
	return slices.ContainsFunc(u.tasks, func(t groupTask) bool {
		return d.has(t) || t.Spec.EvictAttempt != 0 && t.Spec.EvictAttempt == t.Status.Attempt
	})
}

func stateOf(t groupTask) lifecycle.TaskState { return lifecycle.TaskState(t.Status.State).OrPending() }
