package cli

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// columns are the columns of a kind after the name.
type columns struct {
	header, wideHeader []string
	cells              func(o client.Object, now time.Time) (cells, wide []string)
}

var columnsOf = map[string]columns{
	jobKind.resourceName(): {
		header:     []string{"TYPE", "STATE", "TOTAL", "SUCCEEDED", "FAILED", "RUNNING", "AGE"},
		wideHeader: []string{"UNCONFIRMED", "REASON"},
		cells:      jobCells,
	},
	groupKind.resourceName(): {
		header: []string{"JOB", "STATE", "TOTAL", "RUNNING", "SUCCEEDED", "FAILED", "AGE"},
		cells:  groupCells,
	},
	taskKind.resourceName(): {
		header:     []string{"JOB", "ROBOT", "DRIVER", "STATE", "EXITCODE", "RESTARTS", "AGE"},
		wideHeader: []string{"ATTEMPT", "REASON", "INDEXES"},
		cells:      taskCells,
	},
	robotKind.resourceName(): {
		header:     []string{"PHASE", "HOSTNAME", "OS", "CPUS", "RUNNING", "LASTHEARTBEAT", "AGE"},
		wideHeader: []string{"VERSION", "ADDRESS"},
		cells:      robotCells,
	},
	rolloutKind.resourceName(): {
		header:     []string{"TARGET", "REVISION", "PHASE", "WAVE", "TOTAL", "UPDATED", "FAILED", "AGE"},
		wideHeader: []string{"REASON"},
		cells:      rolloutCells,
	},
	flowKind.resourceName(): {
		header:     []string{"STATE", "STEPS", "DURATION", "AGE"},
		wideHeader: []string{"NOTE"},
		cells:      flowCells,
	},
	cronFlowKind.resourceName(): {
		header:     []string{"SCHEDULE", "TIMEZONE", "SUSPENDED", "ACTIVE", "LASTSCHEDULE", "AGE"},
		wideHeader: []string{"VALID"},
		cells:      cronFlowCells,
	},
	podJobKind.resourceName(): {
		header:     []string{"STATE", "RUNNING", "SUCCEEDED", "FAILED", "AGE"},
		wideHeader: []string{"QUEUE", "REASON"},
		cells:      podJobCells,
	},
	rayKind.resourceName(): {
		header:     []string{"STATE", "WORKERS", "READY", "CPUS", "MEMORY", "GPUS", "AGE"},
		wideHeader: []string{"HEADIP", "REASON"},
		cells:      rayCells,
	},
	templateKind.resourceName(): {header: []string{"AGE"}, cells: ageCells},
	podKind.resourceName(): {
		header:     []string{"READY", "STATE", "RESTARTS", "AGE"},
		wideHeader: []string{"IP", "NODE", "REASON"},
		cells:      podCells,
	},
}

func jobCells(o client.Object, now time.Time) (cells, wide []string) {
	j := o.(*robotv1.Job)
	s := j.Status
	return []string{j.Spec.Type, orDash(s.State), formatCount(s.TotalTasks), formatCount(s.SucceededTasks), formatCount(s.FailedTasks), formatCount(s.RunningTasks), ageText(j, now)},
		[]string{formatCount(s.UnconfirmedStops), s.StatusDescription}
}

func groupCells(o client.Object, now time.Time) (cells, wide []string) {
	g := o.(*robotv1.TaskGroup)
	s := g.Status
	return []string{g.Spec.JobName, orDash(s.State), formatCount(s.TotalTasks), formatCount(s.RunningTasks), formatCount(s.SucceededTasks), formatCount(s.FailedTasks), ageText(g, now)}, nil
}

func taskCells(o client.Object, now time.Time) (cells, wide []string) {
	t := o.(*robotv1.Task)
	s := t.Status
	return []string{orDash(t.Spec.JobName), orDash(t.Spec.TargetRobot), t.Spec.Driver, markedState(t), exitText(s.ExitCode, s.Signal), formatCount(taskstate.CountRestarts(&s)), ageText(t, now)},
		[]string{formatCount(s.Attempt), orDash(s.Reason), indexesText(t)}
}

// indexesText returns the index that a task runs, or its indexes and how many of them have ended.
func indexesText(t *robotv1.Task) string {
	switch a := t.Spec.Array; {
	case a == nil:
		return "-"
	case a.Index != nil:
		return formatCount(*a.Index)
	default:
		p := array.CountIndexes(t)
		return fmt.Sprintf("%s (%d/%d)", shortenText(a.Indexes, maxIndexesText), p.Succeeded+p.Failed, p.Total)
	}
}

// maxIndexesText bounds the set that a table shows.
const maxIndexesText = 24

func robotCells(o client.Object, now time.Time) (cells, wide []string) {
	r := o.(*robotv1.Robot)
	var info robotv1.DeviceInfo
	var platform robotv1.Platform
	var cpu robotv1.CPU
	var agent robotv1.AgentInfo
	copyReported(&info, r.Status.DeviceInfo)
	copyReported(&platform, info.Platform)
	copyReported(&cpu, info.CPU)
	copyReported(&agent, r.Status.Agent)
	return []string{orDash(r.Status.Phase), orDash(info.Hostname), orDash(platform.OS), formatCount(cpu.LogicalCores), formatCount(r.Status.RunningTasks), sinceText(r.Status.LastHeartbeatTime, now), ageText(r, now)},
		[]string{orDash(agent.Version), orDash(agent.Address)}
}

// copyReported copies a value that the robot reported. If it reported none, to stays zero.
func copyReported[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func rolloutCells(o client.Object, now time.Time) (cells, wide []string) {
	r := o.(*robotv1.Rollout)
	s := r.Status
	revision := "-"
	if s.Revision > 0 {
		revision = fmt.Sprint(s.Revision)
	}
	target := r.Spec.Target.Name
	if t := &r.Spec.Target; t.IsAgent() {
		target, revision = "(agents)", t.Agent.Version
	}
	return []string{target, revision, actions.RolloutPhase(r), orDash(s.CurrentWave), formatCount(s.Counts.Total), formatCount(s.Counts.Updated), formatCount(s.Counts.Failed), ageText(r, now)},
		[]string{orDash(s.Message)}
}

func flowCells(o client.Object, now time.Time) (cells, wide []string) {
	v := viewFlow(o.(*flowv1.JobFlow), now)
	return []string{v.Phase, fmt.Sprintf("%d/%d", v.CountDone(), len(v.Steps)), v.formatDuration(), ageText(o, now)}, []string{v.Note}
}

func cronFlowCells(o client.Object, now time.Time) (cells, wide []string) {
	f := o.(*cronv1.CronJobFlow)
	zone, last, valid := "-", "never", "-"
	if f.Spec.TimeZone != nil {
		zone = *f.Spec.TimeZone
	}
	if f.Status.LastScheduleTime != nil {
		last = formatSince(f.Status.LastScheduleTime.Time, now)
	}
	if c := meta.FindStatusCondition(f.Status.Conditions, flowv1.ConditionValid); c != nil {
		valid = orDash(c.Message)
	}
	return []string{f.Spec.Schedule, zone, formatYes(f.Spec.Suspend), formatCount(f.Status.ActiveCount), last, ageText(f, now)}, []string{valid}
}

func podJobCells(o client.Object, now time.Time) (cells, wide []string) {
	j := o.(*batchv1.Job)
	s := j.Status
	return []string{cmp.Or(string(s.State.Phase), string(batchv1.JobPending)), formatCount(s.Running), formatCount(s.Succeeded), formatCount(s.Failed), ageText(j, now)},
		[]string{orDash(j.Spec.Queue), orDash(s.State.Reason)}
}

func rayCells(o client.Object, now time.Time) (cells, wide []string) {
	c := o.(*rayv1.RayCluster)
	s := c.Status
	return []string{orDash(string(s.State)), formatCount(s.DesiredWorkerReplicas), formatCount(s.ReadyWorkerReplicas), s.DesiredCPU.String(), s.DesiredMemory.String(), s.DesiredGPU.String(), ageText(c, now)},
		[]string{orDash(s.Head.PodIP), orDash(s.Reason)}
}

func ageCells(o client.Object, now time.Time) (cells, wide []string) {
	return []string{ageText(o, now)}, nil
}

func podCells(o client.Object, now time.Time) (cells, wide []string) {
	p := o.(*corev1.Pod)
	ready, restarts := 0, int32(0)
	for i := range p.Status.ContainerStatuses {
		restarts += p.Status.ContainerStatuses[i].RestartCount
		if p.Status.ContainerStatuses[i].Ready {
			ready++
		}
	}
	state := string(p.Status.Phase)
	if p.DeletionTimestamp != nil {
		state = "Terminating"
	}
	return []string{fmt.Sprintf("%d/%d", ready, len(p.Spec.Containers)), orDash(state), formatCount(restarts), ageText(p, now)},
		[]string{orDash(p.Status.PodIP), orDash(p.Spec.NodeName), orDash(podReason(p))}
}

// podReason returns why a container of the Pod waits or how it ended.
func podReason(p *corev1.Pod) string {
	if p.Status.Reason != "" {
		return p.Status.Reason
	}
	for i := range p.Status.ContainerStatuses {
		s := p.Status.ContainerStatuses[i].State
		switch {
		case s.Waiting != nil && s.Waiting.Reason != "":
			return s.Waiting.Reason
		case s.Terminated != nil && s.Terminated.Reason != "":
			return s.Terminated.Reason
		}
	}
	return ""
}

func formatYes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
