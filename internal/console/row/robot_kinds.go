package row

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/robotattr"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// DescribeJob returns the row of a job.
func DescribeJob(j *v1alpha1.Job) *Row {
	r := newRow(Jobs, j)
	r.setFlow(j)
	r.Job = j.Name
	state := lifecycle.JobState(cmp.Or(j.Status.State, string(lifecycle.JobUnderConstruction)))
	r.State, r.Severity, r.Message = string(state), jobSeverity(state), j.Status.StatusDescription
	r.Reason = trueReason(j.Status.Conditions, v1alpha1.ConditionFailed, v1alpha1.ConditionSuspended)
	r.Started, r.Progress, r.Priority = j.Status.StartedAt, newProgress(j.Status.TaskCounts), j.Spec.Priority
	r.Revision = j.Status.CurrentRevision
	if state.IsTerminal() {
		r.Finished = j.Status.CompletedAt
	}
	return r
}

// DescribeRollout returns the row of a Rollout. Its progress counts units.
func DescribeRollout(o *v1alpha1.Rollout) *Row {
	r := newRow(Rollouts, o)
	s := &o.Status
	r.State, r.Message, r.Job = cmp.Or(s.Phase, v1alpha1.RolloutPending), s.Message, o.Spec.Target.Name
	r.Severity = rolloutSeverities[r.State]
	r.Revision, r.FromRevision = cmp.Or(s.Revision, o.Spec.Target.Revision), s.FromRevision
	r.Started, r.Finished = s.StartedAt, s.CompletedAt
	c := &s.Counts
	r.Progress = &Progress{Total: c.Total, Running: c.Updating, Done: c.Updated, Failed: c.Failed, Waiting: c.Waiting + c.OutOfContact + c.OutsideWindow + c.Held}
	return r
}

var rolloutSeverities = map[string]Severity{
	v1alpha1.RolloutPending: Waiting, v1alpha1.RolloutProgressing: Running, v1alpha1.RolloutPausing: Running,
	v1alpha1.RolloutWaitingForApproval: Paused, v1alpha1.RolloutPaused: Paused, v1alpha1.RolloutComplete: Good,
	v1alpha1.RolloutAborted: Bad, v1alpha1.RolloutReverting: Bad, v1alpha1.RolloutReverted: Bad, v1alpha1.RolloutSuperseded: Gone,
}

// DescribeTaskGroup returns the row of a task group.
func DescribeTaskGroup(g *v1alpha1.TaskGroup) *Row {
	r := newRow(TaskGroups, g)
	r.Job, r.Group = g.Spec.JobName, g.Spec.GroupName
	state := lifecycle.JobState(cmp.Or(g.Status.State, string(lifecycle.JobPending)))
	r.State, r.Severity, r.Message = string(state), jobSeverity(state), g.Status.StatusDescription
	r.Reason = trueReason(g.Status.Conditions, v1alpha1.ConditionFailed, v1alpha1.ConditionSuspended)
	r.Started, r.Progress = g.Status.StartedAt, newProgress(g.Status.TaskCounts)
	if state.IsTerminal() {
		r.Finished = g.Status.CompletedAt
	}
	return r
}

// DescribeTask returns the row of a task. While the task is pending, reason and message are those
// of its placement.
func DescribeTask(t *v1alpha1.Task) *Row {
	r := newRow(Tasks, t)
	state := lifecycle.TaskState(t.Status.State).OrPending()
	r.Job, r.Robot, r.Attempt = t.Spec.JobName, t.CurrentRobot(), t.Status.Attempt
	// The name of the TaskGroup is the job's and the group's, unless that would be too long.
	r.Group = strings.TrimPrefix(t.Spec.TaskGroupName, t.Spec.JobName+"-")
	r.State, r.Severity, r.Reason, r.Message = string(state), taskSeverity(state), t.Status.Reason, t.Status.Message
	r.Started, r.Finished, r.Progress = t.Status.StartedAt, t.Status.FinishedAt, rangeProgress(t)
	r.Restarts = taskstate.CountRestarts(&t.Status)
	if placed := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionPlaced); state.IsPlaceable() && placed != nil && placed.Status != metav1.ConditionTrue {
		r.Reason, r.Message = placed.Reason, placed.Message
	}
	return r
}

// rangeProgress counts the indexes of a range of an array. Nil for other tasks.
func rangeProgress(t *v1alpha1.Task) *Progress {
	if !t.IsRange() {
		return nil
	}
	n := array.CountIndexes(t)
	p := &Progress{Total: int32(n.Total), Done: int32(n.Succeeded), Failed: int32(n.Failed)}
	if state := lifecycle.TaskState(t.Status.State).OrPending(); !state.IsTerminal() {
		p.Waiting = int32(n.Left())
		if state.IsActive() && p.Waiting > 0 {
			p.Running, p.Waiting = 1, p.Waiting-1
		}
	}
	return p
}

// DescribeRobot returns the row of a robot.
func DescribeRobot(o *v1alpha1.Robot) *Row {
	r := newRow(Robots, o)
	phase := apiconv.EffectivePhase(o)
	r.Robot, r.State, r.Message = o.Name, string(phase), o.Status.Message
	r.Heartbeat, r.RunningTasks = o.Status.LastHeartbeatTime, o.Status.RunningTasks
	r.Cordoned = o.Spec.Unschedulable || o.Spec.Drain
	r.Labels, r.Capacity = robotattr.TaskVisibleLabels(o), robotCapacity(o)
	r.Severity = robotSeverity(phase, r.Cordoned)
	switch {
	case o.IsRevoked():
		r.Reason = "Revoked"
	case o.Spec.Drain:
		r.Reason = "Draining"
	case r.Cordoned:
		r.Reason = "Unschedulable"
	case phase == lifecycle.RobotOnline && apiconv.Impairment(o) != nil:
		c := apiconv.Impairment(o)
		r.Reason, r.Message = c.Reason, c.Message
	}
	return r
}

func newProgress(c v1alpha1.TaskCounts) *Progress {
	return &Progress{
		Total:   c.TotalTasks,
		Waiting: c.PendingTasks + c.SoftFailedTasks + c.PausedTasks,
		Running: c.DispatchingTasks + c.RunningTasks + c.UnknownTasks + c.ExitedTasks,
		Done:    c.SucceededTasks, Failed: c.FailedTasks,
	}
}

func jobSeverity(s lifecycle.JobState) Severity {
	switch s {
	case lifecycle.JobRunning:
		return Running
	case lifecycle.JobCompleted:
		return Good
	case lifecycle.JobFailed:
		return Bad
	case lifecycle.JobPaused, lifecycle.JobPauseRequested:
		return Paused
	case lifecycle.JobCanceled, lifecycle.JobCancelRequested:
		return Gone
	default:
		return Waiting
	}
}

func taskSeverity(s lifecycle.TaskState) Severity {
	switch s {
	case lifecycle.TaskDispatching, lifecycle.TaskRunning:
		return Running
	case lifecycle.TaskCompleted:
		return Good
	case lifecycle.TaskFailed, lifecycle.TaskExited:
		return Bad
	case lifecycle.TaskPaused:
		return Paused
	case lifecycle.TaskCanceled, lifecycle.TaskUnknown:
		return Gone
	default:
		return Waiting
	}
}

func robotSeverity(p lifecycle.RobotPhase, cordoned bool) Severity {
	switch {
	case p == lifecycle.RobotOnline && cordoned:
		return Paused
	case p == lifecycle.RobotOnline:
		return Good
	case p == lifecycle.RobotOffline:
		return Bad
	case p == lifecycle.RobotUnknown:
		return Gone
	}
	return Waiting
}

// robotCapacity returns spec.capacity, falling back to what the agent reported. It is nil if both
// are empty.
func robotCapacity(o *v1alpha1.Robot) map[string]string {
	out := map[string]string{}
	if d := o.Status.DeviceInfo; d != nil {
		if d.CPU != nil && d.CPU.LogicalCores > 0 {
			out[v1alpha1.CapacityCPU] = formatInt(int64(d.CPU.LogicalCores))
		}
		if d.Memory != nil && d.Memory.Total > 0 {
			out[v1alpha1.CapacityMemory] = formatInt(d.Memory.Total)
		}
		if n := robotattr.LargestDisk(d); n > 0 {
			out[v1alpha1.CapacityDisk] = formatInt(n)
		}
	}
	for name, q := range o.Spec.Capacity {
		out[name] = q.String()
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// trueReason returns the reason of the first condition of these types that is True.
func trueReason(all []metav1.Condition, types ...string) string {
	for _, kind := range types {
		if c := meta.FindStatusCondition(all, kind); c != nil && c.Status == metav1.ConditionTrue {
			return c.Reason
		}
	}
	return ""
}
