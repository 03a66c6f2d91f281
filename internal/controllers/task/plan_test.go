package task

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// newInput returns the Input for a Task of a group of a running job, created a minute ago.
func newInput(state lifecycle.TaskState, changes ...func(*Input)) Input {
	yes := true
	w := Input{Task: &v1alpha1.Task{
		ObjectMeta: metav1.ObjectMeta{
			Name: "t", Namespace: "ns", CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute)),
			OwnerReferences: []metav1.OwnerReference{{Kind: "TaskGroup", Name: "g", Controller: &yes}},
		},
		Spec:   v1alpha1.TaskSpec{TaskDefinition: v1alpha1.TaskDefinition{Name: "t", Driver: "exec"}, JobName: "j"},
		Status: v1alpha1.TaskStatus{State: string(state)},
	}, Job: &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}, Status: v1alpha1.JobStatus{State: string(lifecycle.JobRunning)}}}
	if state.IsActive() {
		w.Task.Spec.TargetRobot = "r1"
		w.Task.Status.Attempt = 1
		w.Task.Status.Attempts = []v1alpha1.TaskAttempt{{Attempt: 1, Robot: "r1", State: string(state)}}
		w.Robot = robotIn(lifecycle.RobotOnline)
	}
	for _, f := range changes {
		f(&w)
	}
	return w
}

func robotIn(p lifecycle.RobotPhase) *v1alpha1.Robot { return robotSeenAt(p, noon) }

// robotSeenAt returns robot r1 that was last seen at this time.
func robotSeenAt(p lifecycle.RobotPhase, at time.Time) *v1alpha1.Robot {
	return &v1alpha1.Robot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r1"},
		Status:     v1alpha1.RobotStatus{Phase: string(p), LastHeartbeatTime: &metav1.MicroTime{Time: at}},
	}
}

func reserved(w *Input) { w.ReservedRobot, w.Robot = "r1", robotIn(lifecycle.RobotOnline) }
func byHand(w *Input)   { w.Task.OwnerReferences, w.Task.Spec.JobName = nil, "" }
func placedByManager(w *Input) {
	w.Task.Annotations = map[string]string{taskstate.AnnotationPlacedBy: "k8s4r-manager"}
}
func target(r string) func(*Input) { return func(w *Input) { w.Task.Spec.TargetRobot = r } }

// noPlace is a diagnosis, and noPlaceMessage its message.
var noRobotFits = &placement.Diagnosis{Robots: 1, Rejections: []placement.RejectionCount{{Rejection: placement.Rejection{Check: placement.CheckFreeTasks, Want: "1"}, Robots: 1}}}

const noRobotFitsMessage = "0 of 1 robots: 1: task limit reached"

func rejected(w *Input) { w.Rejected, w.MayExplain = noRobotFits, true }
func explained(w *Input) {
	condition(v1alpha1.ConditionPlaced, 0, noRobotFitsMessage, metav1.ConditionFalse)(w)
	w.Task.Status.Placement = apiconv.PlacementStatusFrom(noRobotFits)
}

func mayExplain(w *Input)    { w.MayExplain = true }
func mayNotExplain(w *Input) { w.MayExplain = false }
func justCreated(w *Input)   { w.Task.CreationTimestamp = metav1.NewTime(noon) }
func robotDeleted(w *Input)  { w.Robot = nil }
func phase(p lifecycle.RobotPhase) func(*Input) {
	return func(w *Input) { w.Robot = robotIn(p) }
}
func legacyAgent(w *Input) {
	w.Robot.Status.Agent = &v1alpha1.AgentInfo{Protocol: v1alpha1.ProtocolV1}
}
func reason(r string) func(*Input) {
	return func(w *Input) { w.Task.Status.Reason, w.Task.Status.Attempts[0].Reason = r, r }
}
func inJob(s lifecycle.JobState) func(*Input) {
	return func(w *Input) {
		w.Job = &v1alpha1.Job{Status: v1alpha1.JobStatus{State: string(s), StatusDescription: "why"}}
	}
}
func jobDeleted(w *Input) { w.Job = nil }
func jobDeleting(w *Input) {
	now := metav1.NewTime(noon)
	w.Job.DeletionTimestamp = &now
}
func timeout(d time.Duration) func(*Input) {
	return func(w *Input) { w.Task.Spec.Timeout = v1alpha1.NewDuration(d) }
}
func killTimeoutOf(d v1alpha1.Duration) func(*Input) {
	return func(w *Input) { w.Task.Spec.KillTimeout = &d }
}
func started(ago time.Duration) func(*Input) {
	return func(w *Input) {
		t := metav1.NewMicroTime(noon.Add(-ago))
		w.Task.Status.StartedAt, w.Running = &t, ago
	}
}
func condition(kind string, ago time.Duration, message string, is metav1.ConditionStatus) func(*Input) {
	return func(w *Input) {
		w.Task.Status.Conditions = append(w.Task.Status.Conditions, metav1.Condition{
			Type: kind, Status: is, Reason: "R", Message: message, LastTransitionTime: metav1.NewTime(noon.Add(-ago)),
		})
	}
}
func stopping(ago time.Duration) func(*Input) {
	return func(w *Input) {
		w.Task.Status.Reason, w.Stopping = v1alpha1.ReasonStopping, ago
		condition(ConditionStopping, ago, "why", metav1.ConditionTrue)(w)
	}
}

func capable(w *Input) { w.HasCapableRobot = true }
func failedOn(robots ...string) func(*Input) {
	return func(w *Input) { w.Task.Status.FailedRobots = robots }
}
func blocks(robots ...string) func(*Input) {
	return func(w *Input) { w.Group = &v1alpha1.TaskGroup{Status: v1alpha1.TaskGroupStatus{BlockedRobots: robots}} }
}

// retriedAfterBlock is a task that is retried because its group has blocked the robot on
// which it failed.
func retriedAfterBlock(w *Input) {
	attempted(2, "r1")(w)
	w.Task.Status.Reason, w.Task.Status.Attempts[0].Reason = ReasonRobotBlocked, wire.ReasonSignaled
}
func softFailLimit(n int32) func(*Input) {
	return func(w *Input) { w.Job.Spec.FailurePolicy = &v1alpha1.FailurePolicy{SoftFailLimit: &n} }
}
func reschedule(p v1alpha1.ReschedulePolicy) func(*Input) {
	return func(w *Input) {
		w.Group = &v1alpha1.TaskGroup{Spec: v1alpha1.TaskGroupSpec{TaskGroupTemplate: v1alpha1.TaskGroupTemplate{ReschedulePolicy: &p}}}
	}
}

// attempted sets a history of one attempt.
func attempted(n int32, robot string) func(*Input) {
	return func(w *Input) {
		w.Task.Status.Attempt = n
		w.Task.Status.Attempts = []v1alpha1.TaskAttempt{{Attempt: n, Robot: robot}}
	}
}
func retry(in time.Duration) func(*Input) {
	return func(w *Input) { t := metav1.NewMicroTime(noon.Add(in)); w.Task.Status.RetryAt = &t }
}

// restarts sets a restartPolicy, and how many restarts are used up on the robot.
func restarts(attempts, used int32, delay time.Duration) func(*Input) {
	return func(w *Input) {
		w.Task.Spec.RestartPolicy = &v1alpha1.RestartPolicy{Attempts: attempts, Delay: v1alpha1.NewDuration(delay)}
		if used > 0 {
			w.Task.Status.Restarts = &v1alpha1.Restarts{Robot: "r1", Count: used, Since: metav1.NewMicroTime(noon)}
		}
	}
}

// restartDue is a Task whose restart is due now.
func restartDue(attempts, used int32) func(*Input) {
	return func(w *Input) { restarts(attempts, used, 0)(w); retry(0)(w) }
}
func restartsOn(robot string) func(*Input) {
	return func(w *Input) { w.Task.Status.Restarts.Robot = robot }
}
func interval(d, ago time.Duration) func(*Input) {
	return func(w *Input) {
		w.Task.Spec.RestartPolicy.Interval = v1alpha1.NewDuration(d)
		w.Task.Status.Restarts.Since = metav1.NewMicroTime(noon.Add(-ago))
	}
}
func modeDelay(w *Input) { w.Task.Spec.RestartPolicy.Mode = v1alpha1.RestartDelay }
func requeueing(r v1alpha1.RequeueStatus) func(*Input) {
	return func(w *Input) {
		inJob(lifecycle.JobRequeueing)(w)
		w.Job.Status.Requeue = &r
	}
}

// ofType sets the type of the job.
func ofType(kind string) func(*Input) { return func(w *Input) { w.Task.Spec.Type = kind } }

// ran sets how long the attempt took.
func ran(d time.Duration) func(*Input) {
	return func(w *Input) {
		a := &w.Task.Status.Attempts[0]
		start, end := metav1.NewMicroTime(noon.Add(-d)), metav1.NewMicroTime(noon)
		a.StartedAt, a.FinishedAt = &start, &end
	}
}

// used sets the restarts on its robot, and how long ago the first was.
func used(n int32, ago time.Duration) func(*Input) {
	return func(w *Input) {
		w.Task.Status.Restarts = &v1alpha1.Restarts{Robot: "r1", Count: n, Since: metav1.NewMicroTime(noon.Add(-ago))}
	}
}

// inGroup sets a group with a number of replicas and the wanted revision of the task.
func inGroup(count int32, revision string) func(*Input) {
	return func(w *Input) {
		w.Group = &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Name: "g", Generation: 2}}
		w.Group.Spec.Count = &count
		w.Group.Status.ObservedGeneration, w.Group.Status.Revisions = 2, map[string]string{"t": revision}
	}
}

// changing is a group that was changed since its status was written.
func changing(w *Input) { w.Group.Generation++ }

// ofReplica sets the replica and revision of the task.
func ofReplica(index, revision string) func(*Input) {
	return func(w *Input) {
		w.Task.Labels = map[string]string{v1alpha1.LabelTaskIndex: index, v1alpha1.LabelRevision: revision}
	}
}

// followed sets a group that has followed requeues up to a generation.
func followed(generation int64) func(*Input) {
	return func(w *Input) {
		w.Group = &v1alpha1.TaskGroup{Status: v1alpha1.TaskGroupStatus{ObservedRequeue: generation}}
	}
}

func mustLeave(w *Input) { w.EvictionReason = "why" }
func evicting(ago time.Duration) func(*Input) {
	return func(w *Input) {
		w.Task.Status.Reason, w.Stopping = v1alpha1.ReasonEvicting, ago
		condition(ConditionStopping, ago, "why", metav1.ConditionTrue)(w)
	}
}

// stopRequested is a Task whose robot was asked to stop it and was then disconnected.
func stopRequested(reason string) func(*Input) {
	return func(w *Input) {
		w.Task.Status.Reason = reason
		condition(ConditionStopping, time.Hour, "the robot is disconnected", metav1.ConditionFalse)(w)
		w.Task.Status.Conditions[0].Reason = reason
	}
}

// interrupted is a Task whose last n attempts were interrupted.
func interrupted(n int, ago time.Duration) func(*Input) {
	return func(w *Input) {
		for i := range n {
			w.Task.Status.Attempts = append(w.Task.Status.Attempts, v1alpha1.TaskAttempt{Attempt: int32(i + 1), Reason: wire.ReasonAgentRestarted})
		}
		condition(v1alpha1.ConditionPlaced, ago, "Interrupted", metav1.ConditionFalse)(w)
	}
}
func deleted(w *Input) { now := metav1.NewTime(noon); w.Task.DeletionTimestamp = &now }

func TestPlan(t *testing.T) {
	const pending, dispatching, running = lifecycle.TaskPending, lifecycle.TaskDispatching, lifecycle.TaskRunning
	const unknown, exited, soft = lifecycle.TaskUnknown, lifecycle.TaskExited, lifecycle.TaskSoftFailed
	for _, c := range []struct {
		name       string
		in         Input
		wantState  lifecycle.TaskState // empty: no status is written
		wantReason string
		wantTo     *RobotBinding
		wantWake   time.Duration // from now; zero: none
	}{
		{name: "a task without a robot that was not considered yet waits", in: newInput(pending)},
		{name: "a task that was created bound and has its reservation is dispatched with one write",
			in: newInput(pending, target("r1"), reserved), wantState: dispatching},
		{name: "a task that was created unbound is bound first",
			in: newInput(pending, reserved), wantState: dispatching, wantTo: &RobotBinding{TargetRobot: "r1", ChosenByManager: true}},
		{name: "the empty state reads as pending", in: newInput("", target("r1"), reserved), wantState: dispatching},
		{name: "a soft-failed task is placed like a pending one", in: newInput(soft, target("r1"), reserved), wantState: dispatching},
		{name: "on a robot with a legacy agent the task is held until the robot was notified",
			in: newInput(pending, reserved, legacyAgent), wantState: dispatching, wantTo: &RobotBinding{TargetRobot: "r1", ChosenByManager: true, NotifiesRobot: true}},
		{name: "a robot that a user chose stays",
			in: newInput(pending, byHand, target("r1"), reserved, legacyAgent), wantState: dispatching, wantTo: &RobotBinding{TargetRobot: "r1", NotifiesRobot: true}},
		{name: "a robot that the manager chose is unbound when it is rejected", in: newInput(pending, target("r1"), rejected), wantTo: &RobotBinding{}},
		{name: "so is one that the manager chose for a task without a job",
			in: newInput(pending, byHand, placedByManager, target("r1"), rejected), wantTo: &RobotBinding{}},
		{name: "a rejected robot that a user chose is waited for",
			in: newInput(pending, byHand, target("r1"), rejected), wantState: pending},
		{name: "a task that waits shows why", in: newInput(pending, rejected), wantState: pending},
		{name: "a task that has waited less than a second shows nothing yet",
			in: newInput(pending, rejected, justCreated), wantWake: explainDelay},
		{name: "what is shown is not written again",
			in: newInput(pending, rejected, explained, mayNotExplain)},
		{name: "an explanation that may not be written now is written later",
			in: newInput(pending, rejected, mayNotExplain), wantWake: recheckInterval},
		{name: "a task too large for a message fails", in: newInput(pending, reserved, func(w *Input) {
			w.Task.Spec.Env = map[string]string{"X": strings.Repeat("x", apiconv.MaxMessage)}
		}), wantState: lifecycle.TaskFailed, wantReason: apiconv.ReasonTaskTooLarge},
		{name: "a task that is being deleted is not placed", in: newInput(pending, reserved, deleted)},

		{name: "a task whose job was deleted is not dispatched, and shows why",
			in: newInput(pending, target("r1"), reserved, jobDeleted, mayExplain), wantState: pending, wantWake: recheckInterval},
		{name: "a task whose job is being deleted is not dispatched, and shows why",
			in: newInput(pending, target("r1"), reserved, jobDeleting, mayExplain), wantState: pending, wantWake: recheckInterval},
		{name: "a task that names no job needs none", in: newInput(pending, byHand, jobDeleted, target("r1"), reserved), wantState: dispatching},
		{name: "a running task whose job was deleted is left alone", in: newInput(running, jobDeleted)},

		{name: "an interrupted task is placed again at once", in: newInput(pending, target("r1"), reserved, interrupted(1, 0)), wantState: dispatching},
		{name: "a task that was interrupted twice waits a second", in: newInput(pending, target("r1"), reserved, interrupted(2, 0)), wantWake: time.Second},
		{name: "each further interruption doubles the wait", in: newInput(pending, target("r1"), reserved, interrupted(5, 0)), wantWake: 8 * time.Second},
		{name: "no wait is longer than five minutes", in: newInput(pending, target("r1"), reserved, interrupted(v1alpha1.MaxAttempts+1, 0)), wantWake: taskstate.MaxBackoff},
		{name: "an interrupted task that has waited is placed", in: newInput(pending, target("r1"), reserved, interrupted(5, 8*time.Second)), wantState: dispatching},

		{name: "a running task without a timeout is left alone", in: newInput(running)},
		{name: "a robot that is disconnected for a moment is waited for", in: newInput(running, phase(lifecycle.RobotUnknown)), wantWake: defaultLostAfter},
		{name: "an offline robot makes its task unknown", in: newInput(running, phase(lifecycle.RobotOffline)), wantState: unknown, wantReason: ReasonLost},
		{name: "a deleted robot makes its task unknown", in: newInput(dispatching, robotDeleted), wantState: unknown, wantReason: ReasonLost},
		{name: "an unknown task stays unknown while no robot could take it", in: newInput(unknown, phase(lifecycle.RobotOffline)), wantWake: lostRecheckInterval},
		{name: "an unknown task whose robot reconnects waits for its report", in: newInput(unknown)},
		{name: "a task with a timeout is planned again after its timeout",
			in: newInput(running, timeout(time.Minute), started(0)), wantWake: time.Minute + wire.DefaultKillTimeout + stopMargin},
		{name: "killTimeout 0 shortens that wait",
			in: newInput(running, timeout(time.Minute), started(0), killTimeoutOf("0s")), wantWake: time.Minute + stopMargin},
		{name: "an attempt that its robot does not end in time is timed out",
			in:        newInput(running, timeout(time.Minute), started(time.Minute+wire.DefaultKillTimeout+stopMargin)),
			wantState: exited, wantReason: wire.ReasonTimeout},
		{name: "the timeout is not enforced on a disconnected robot", in: newInput(running, timeout(time.Second), started(time.Hour), phase(lifecycle.RobotUnknown)), wantWake: defaultLostAfter},

		{name: "a task that no other robot could ever run fails with its first failure", in: newInput(exited, reason(wire.ReasonExited)),
			wantState: lifecycle.TaskFailed, wantReason: ReasonNoCapableRobot},
		{name: "a task that failed is soft-failed, and tried on another robot", in: newInput(exited, reason(wire.ReasonExited), capable),
			wantState: soft, wantReason: ReasonRescheduled, wantTo: &RobotBinding{}},
		{name: "softFailLimit: the third robot that fails a task is the last", in: newInput(exited, reason(wire.ReasonExited), capable, failedOn("r8", "r9")),
			wantState: lifecycle.TaskFailed, wantReason: wire.ReasonExited},
		{name: "a job may allow more robots", in: newInput(exited, reason(wire.ReasonExited), capable, failedOn("r8", "r9"), softFailLimit(4)),
			wantState: soft, wantReason: ReasonRescheduled, wantTo: &RobotBinding{}},
		{name: "a robot that fails a task twice counts once", in: newInput(exited, reason(wire.ReasonExited), capable, failedOn("r1", "r9")),
			wantState: soft, wantReason: ReasonRescheduled, wantTo: &RobotBinding{}},
		{name: "a robot whose policy does not allow a task is left without a restart", in: newInput(exited, reason(wire.ReasonPolicyViolation), restarts(2, 0, 0), capable),
			wantState: pending, wantReason: ReasonInterrupted, wantTo: &RobotBinding{}},
		{name: "also if the job allows no failure", in: newInput(exited, reason(wire.ReasonPolicyViolation), capable, softFailLimit(1), reschedule(v1alpha1.ReschedulePolicy{})),
			wantState: pending, wantReason: ReasonInterrupted, wantTo: &RobotBinding{}},
		{name: "a system task waits for another policy of its robot", in: newInput(exited, reason(wire.ReasonPolicyViolation), ofType("system")),
			wantState: pending, wantReason: ReasonInterrupted},
		{name: "a reschedulePolicy without attempts allows none", in: newInput(exited, reason(wire.ReasonExited), capable, reschedule(v1alpha1.ReschedulePolicy{})),
			wantState: lifecycle.TaskFailed, wantReason: wire.ReasonExited},
		{name: "a soft-failed task waits for its next robot for the delay of its policy", in: newInput(soft, target("r1"), reserved, capable, retry(30*time.Second)),
			wantWake: 30 * time.Second},
		{name: "a soft-failed task without another capable robot fails", in: newInput(soft, failedOn("r1")),
			wantState: lifecycle.TaskFailed, wantReason: ReasonNoCapableRobot},
		{name: "a waiting task of a group that has blocked every robot fails", in: newInput(pending, blocks("r1")),
			wantState: lifecycle.TaskFailed, wantReason: ReasonNoCapableRobot},
		{name: "but not while its job is being requeued, which clears the blocklist",
			in: newInput(pending, blocks("r1"), requeueing(v1alpha1.RequeueStatus{FromState: "failed"})), wantWake: recheckInterval},
		{name: "a waiting task that never failed waits for new robots", in: newInput(pending, rejected), wantState: pending},
		{name: "a task that failed on robots which its group has blocked since is retried",
			in: newInput(lifecycle.TaskFailed, failedOn("r1", "r2"), blocks("r1"), capable, target("r1")), wantState: pending, wantReason: ReasonRobotBlocked, wantTo: &RobotBinding{}},
		{name: "if its job fails before it runs again, it has failed, so that a requeue of failed tasks includes it",
			in: newInput(pending, retriedAfterBlock, inJob(lifecycle.JobFailed)), wantState: lifecycle.TaskFailed, wantReason: wire.ReasonSignaled},
		{name: "if its job is canceled before it runs again, it is canceled",
			in: newInput(pending, retriedAfterBlock, inJob(lifecycle.JobCancelRequested)), wantState: lifecycle.TaskCanceled, wantReason: v1alpha1.ReasonCanceled},
		{name: "so is one that never ran, because its init task had failed",
			in: newInput(pending, func(w *Input) { w.Task.Status.Reason = ReasonRobotBlocked }, inJob(lifecycle.JobFailed)), wantState: lifecycle.TaskFailed, wantReason: ReasonInitFailed},
		{name: "it stays failed when its job has", in: newInput(lifecycle.TaskFailed, failedOn("r1"), blocks("r1"), inJob(lifecycle.JobFailed))},
		{name: "a task that failed elsewhere stays failed", in: newInput(lifecycle.TaskFailed, failedOn("r2"), blocks("r1"))},

		{name: "a task with restarts left runs again on its robot", in: newInput(exited, reason(wire.ReasonExited), restartDue(2, 0)), wantState: dispatching},
		{name: "a second after its end at the least", in: newInput(exited, reason(wire.ReasonExited), restarts(2, 0, 0)),
			wantState: exited, wantReason: wire.ReasonExited, wantWake: time.Second},
		{name: "a restart waits for its delay", in: newInput(exited, reason(wire.ReasonExited), restarts(2, 0, time.Minute)),
			wantState: exited, wantReason: wire.ReasonExited, wantWake: time.Minute},
		{name: "a delayed restart is not delayed again", in: newInput(exited, reason(wire.ReasonExited), restarts(2, 0, time.Minute), retry(10*time.Second)),
			wantWake: 10 * time.Second},
		{name: "a restart happens after its delay", in: newInput(exited, reason(wire.ReasonExited), restarts(2, 0, time.Minute), retry(0)), wantState: dispatching},
		{name: "after its last restart the task is rescheduled", in: newInput(exited, reason(wire.ReasonExited), restarts(2, 2, 0), capable),
			wantState: soft, wantReason: ReasonRescheduled, wantTo: &RobotBinding{}},
		{name: "restarts on another robot do not count", in: newInput(exited, reason(wire.ReasonExited), restartDue(2, 2), restartsOn("r9")), wantState: dispatching},
		{name: "a new interval has new restarts", in: newInput(exited, reason(wire.ReasonExited), restartDue(2, 2), interval(time.Minute, time.Minute)), wantState: dispatching},
		{name: "mode delay waits for the next interval", in: newInput(exited, reason(wire.ReasonExited), restarts(2, 2, 0), interval(time.Minute, 20*time.Second), modeDelay),
			wantState: exited, wantReason: wire.ReasonExited, wantWake: 40 * time.Second},
		{name: "mode delay without an interval never runs out", in: newInput(exited, reason(wire.ReasonExited), restarts(2, 7, time.Minute), modeDelay, capable),
			wantState: exited, wantReason: wire.ReasonExited, wantWake: time.Minute},
		{name: "and waits a second at the least", in: newInput(exited, reason(wire.ReasonExited), restarts(2, 7, 0), modeDelay, capable),
			wantState: exited, wantReason: wire.ReasonExited, wantWake: time.Second},
		{name: "and is then restarted", in: newInput(exited, reason(wire.ReasonExited), restarts(2, 7, 0), modeDelay, capable, retry(0)), wantState: dispatching},
		{name: "mode delay without any attempts restarts nothing", in: newInput(exited, reason(wire.ReasonExited), restarts(0, 0, 0), modeDelay, capable),
			wantState: soft, wantReason: ReasonRescheduled, wantTo: &RobotBinding{}},
		{name: "a restart waits for a robot that is disconnected for a moment", in: newInput(exited, reason(wire.ReasonExited), restartDue(2, 0), phase(lifecycle.RobotUnknown))},
		{name: "a task is not restarted on a lost robot", in: newInput(exited, reason(wire.ReasonExited), restarts(2, 0, 0), phase(lifecycle.RobotOffline), capable),
			wantState: soft, wantReason: ReasonRescheduled, wantTo: &RobotBinding{}},
		{name: "a job that pauses restarts no tasks", in: newInput(exited, reason(wire.ReasonExited), restarts(2, 0, 0), inJob(lifecycle.JobPauseRequested)),
			wantState: pending, wantReason: ReasonInterrupted, wantTo: &RobotBinding{}},
		{name: "a restart waits for a lost robot if no other can run the task", in: newInput(exited, reason(wire.ReasonExited), restartDue(2, 0), phase(lifecycle.RobotOffline))},

		{name: "a service without a policy of its own is restarted after the default delay", in: newInput(exited, reason(wire.ReasonExited), ofType("service")),
			wantState: exited, wantReason: wire.ReasonExited, wantWake: 15 * time.Second},
		{name: "and is then restarted", in: newInput(exited, reason(wire.ReasonExited), ofType("service"), retry(0)), wantState: dispatching},
		{name: "the third end within half an hour reschedules it", in: newInput(exited, reason(wire.ReasonExited), ofType("service"), used(2, 29*time.Minute), capable),
			wantState: soft, wantReason: ReasonRescheduled, wantTo: &RobotBinding{}},
		{name: "later it has its restarts again", in: newInput(exited, reason(wire.ReasonExited), ofType("service"), used(2, 30*time.Minute)),
			wantState: exited, wantReason: wire.ReasonExited, wantWake: 15 * time.Second},
		{name: "a service with a policy of its own follows it", in: newInput(exited, reason(wire.ReasonExited), ofType("service"), restartDue(5, 4)), wantState: dispatching},
		{name: "a service that failed on three robots in a row has failed", in: newInput(exited, reason(wire.ReasonExited), ofType("service"), used(2, time.Minute), failedOn("r8", "r9"), ran(time.Minute), capable),
			wantState: lifecycle.TaskFailed, wantReason: wire.ReasonExited},
		{name: "a service that ran well for an hour has not", in: newInput(exited, reason(wire.ReasonExited), ofType("service"), used(2, time.Minute), failedOn("r8", "r9"), ran(time.Hour), capable),
			wantState: soft, wantReason: ReasonRescheduled, wantTo: &RobotBinding{}},
		{name: "its policy may set how long that is", in: newInput(exited, reason(wire.ReasonExited), ofType("service"), used(2, time.Minute), failedOn("r8", "r9"), ran(time.Minute), capable,
			reschedule(v1alpha1.ReschedulePolicy{Attempts: 1, Interval: v1alpha1.NewDuration(time.Minute)})),
			wantState: soft, wantReason: ReasonRescheduled, wantTo: &RobotBinding{}},
		{name: "a batch task that ran for an hour keeps its failures", in: newInput(exited, reason(wire.ReasonExited), failedOn("r8", "r9"), ran(time.Hour), capable),
			wantState: lifecycle.TaskFailed, wantReason: wire.ReasonExited},
		{name: "a system task waits for its next interval", in: newInput(exited, reason(wire.ReasonExited), ofType("system"), used(2, 10*time.Minute), capable),
			wantState: exited, wantReason: wire.ReasonExited, wantWake: 20 * time.Minute},
		{name: "a system task is never rescheduled", in: newInput(exited, reason(wire.ReasonExited), ofType("system"), restarts(1, 1, 0), capable),
			wantState: lifecycle.TaskFailed, wantReason: wire.ReasonExited},
		{name: "a system task waits for its robot that is lost", in: newInput(exited, reason(wire.ReasonExited), ofType("system"), phase(lifecycle.RobotOffline), capable)},
		{name: "also if it was deleted", in: newInput(exited, reason(wire.ReasonExited), ofType("system"), robotDeleted, capable)},
		{name: "and returns to pending when its job pauses meanwhile", in: newInput(exited, reason(wire.ReasonExited), ofType("system"), phase(lifecycle.RobotOffline), inJob(lifecycle.JobPauseRequested)),
			wantState: pending, wantReason: ReasonInterrupted},
		{name: "a sysbatch task fails when its restartPolicy allows no restart", in: newInput(exited, reason(wire.ReasonExited), ofType("sysbatch"), restarts(0, 0, 0), capable),
			wantState: lifecycle.TaskFailed, wantReason: wire.ReasonExited},
		{name: "and waits for its robot that is lost", in: newInput(exited, reason(wire.ReasonExited), ofType("sysbatch"), restarts(0, 0, 0), phase(lifecycle.RobotOffline), capable)},
		{name: "a system task whose robot rejects it is not unbound", in: newInput(pending, ofType("system"), target("r1"), rejected), wantState: pending},
		{name: "a system task that is evicted stays bound to its robot", in: newInput(exited, reason(wire.ReasonStopped), ofType("system"), mustLeave),
			wantState: pending, wantReason: ReasonInterrupted},

		{name: "a task with the current definition is dispatched", in: newInput(pending, target("r1"), reserved, inGroup(1, "new"), ofReplica("0", "new")), wantState: dispatching},
		{name: "a task with an older definition is not, and shows why", in: newInput(pending, target("r1"), reserved, inGroup(1, "new"), ofReplica("0", "old"), mayExplain), wantState: pending},
		{name: "nor is a surplus replica", in: newInput(pending, target("r1"), reserved, inGroup(2, "new"), ofReplica("2", "new"), mayExplain), wantState: pending},
		{name: "of a system job every replica is wanted whose robot matches", in: newInput(pending, ofType("system"), target("r1"), reserved, inGroup(1, "new"), ofReplica("2", "new")), wantState: dispatching},
		{name: "while a group's change was not observed its tasks wait", in: newInput(pending, target("r1"), reserved, inGroup(1, "new"), ofReplica("0", "new"), changing), wantWake: recheckInterval},
		{name: "so they do if the group has no status yet",
			in: newInput(pending, target("r1"), reserved, inGroup(1, "new"), ofReplica("0", "old"), func(w *Input) { w.Group.Status = v1alpha1.TaskGroupStatus{} }), wantWake: recheckInterval},
		{name: "a task with an older definition that no robot could run does not fail: the new definition may fit", in: newInput(pending, failedOn("r1"), inGroup(1, "new"), ofReplica("0", "old"), mayExplain), wantState: pending},
		{name: "an older definition is not restarted", in: newInput(exited, reason(wire.ReasonExited), restarts(2, 0, 0), inGroup(1, "new"), ofReplica("0", "old")),
			wantState: pending, wantReason: ReasonInterrupted, wantTo: &RobotBinding{}},
		{name: "a running task with an older definition is left alone", in: newInput(running, inGroup(1, "new"), ofReplica("0", "old"))},

		{name: "a job that pauses pauses its waiting tasks", in: newInput(pending, reserved, inJob(lifecycle.JobPauseRequested)), wantState: lifecycle.TaskPaused, wantReason: v1alpha1.ReasonPaused},
		{name: "a paused job pauses soft-failed tasks", in: newInput(soft, inJob(lifecycle.JobPaused)), wantState: lifecycle.TaskPaused, wantReason: v1alpha1.ReasonPaused},
		{name: "a job that pauses leaves running tasks alone", in: newInput(running, inJob(lifecycle.JobPauseRequested))},
		{name: "a resumed job returns its tasks to pending", in: newInput(lifecycle.TaskPaused, inJob(lifecycle.JobPending)), wantState: pending, wantReason: v1alpha1.ReasonResumed},
		{name: "a paused task whose job was deleted waits again", in: newInput(lifecycle.TaskPaused, jobDeleted), wantState: pending, wantReason: v1alpha1.ReasonResumed},
		{name: "a job with desiredState Paused starts no tasks", in: newInput(pending, target("r1"), reserved, mayExplain, func(w *Input) { w.Job.Spec.DesiredState = v1alpha1.DesiredPaused }),
			wantState: pending, wantWake: recheckInterval},

		{name: "a requeued job requeues its failed tasks", in: newInput(lifecycle.TaskFailed, target("r1"), failedOn("r1"), requeueing(v1alpha1.RequeueStatus{})),
			wantState: pending, wantReason: v1alpha1.ReasonRequeued, wantTo: &RobotBinding{}},
		{name: "a requeued job keeps completed tasks", in: newInput(lifecycle.TaskCompleted, requeueing(v1alpha1.RequeueStatus{FromState: "failed"}))},
		{name: "a completed job that is requeued requeues all tasks", in: newInput(lifecycle.TaskCompleted, requeueing(v1alpha1.RequeueStatus{FromState: "completed"})),
			wantState: pending, wantReason: v1alpha1.ReasonRequeued},
		{name: "a requeue of the failed tasks keeps canceled ones", in: newInput(lifecycle.TaskCanceled, requeueing(v1alpha1.RequeueStatus{Requeue: v1alpha1.Requeue{Scope: v1alpha1.RequeueFailed}}))},
		{name: "a requeue of one task requeues that task", in: newInput(lifecycle.TaskCompleted, requeueing(v1alpha1.RequeueStatus{Requeue: v1alpha1.Requeue{Tasks: []string{"t"}}})),
			wantState: pending, wantReason: v1alpha1.ReasonRequeued},
		{name: "a requeue of one task of a completed job keeps the others",
			in: newInput(lifecycle.TaskCompleted, requeueing(v1alpha1.RequeueStatus{FromState: "completed", Requeue: v1alpha1.Requeue{Tasks: []string{"other"}}}))},
		{name: "a task that fails after its group has followed the requeue stays failed",
			in: newInput(lifecycle.TaskFailed, requeueing(v1alpha1.RequeueStatus{Requeue: v1alpha1.Requeue{Generation: 3}}), followed(3))},
		{name: "a group that has followed an earlier requeue delays no task",
			in:        newInput(lifecycle.TaskFailed, requeueing(v1alpha1.RequeueStatus{Requeue: v1alpha1.Requeue{Generation: 3}}), followed(2)),
			wantState: pending, wantReason: v1alpha1.ReasonRequeued},
		{name: "a requeued job also clears the failures of completed tasks",
			in: newInput(lifecycle.TaskCompleted, failedOn("r1"), requeueing(v1alpha1.RequeueStatus{FromState: "failed"})), wantState: lifecycle.TaskCompleted},
		{name: "a requeue of another task clears nothing here",
			in: newInput(lifecycle.TaskCompleted, failedOn("r1"), requeueing(v1alpha1.RequeueStatus{Requeue: v1alpha1.Requeue{Tasks: []string{"other"}}}))},
		{name: "a requeue leaves running tasks alone", in: newInput(running, requeueing(v1alpha1.RequeueStatus{}))},
		{name: "an attempt that its agent stopped is interrupted and unbound",
			in: newInput(exited, reason(wire.ReasonAgentStopped)), wantState: pending, wantReason: ReasonInterrupted, wantTo: &RobotBinding{}},
		{name: "an attempt that was stopped although it was not canceled is interrupted",
			in: newInput(exited, reason(wire.ReasonStopped)), wantState: pending, wantReason: ReasonInterrupted, wantTo: &RobotBinding{}},
		{name: "after a crash between the two writes the second one is repeated",
			in: newInput(exited, reason(wire.ReasonAgentRestarted), target("")), wantState: pending, wantReason: ReasonInterrupted},
		{name: "an attempt that ended with a boot of its robot is interrupted and unbound",
			in: newInput(exited, reason(wire.ReasonRobotRebooted)), wantState: pending, wantReason: ReasonInterrupted, wantTo: &RobotBinding{}},
		{name: "an interrupted task keeps the robot that a user chose",
			in: newInput(exited, byHand, reason(wire.ReasonAgentStopped)), wantState: pending, wantReason: ReasonInterrupted},

		{name: "a failed job cancels waiting tasks", in: newInput(pending, reserved, inJob(lifecycle.JobFailed)), wantState: lifecycle.TaskCanceled, wantReason: v1alpha1.ReasonCanceled},
		{name: "a canceled job cancels paused tasks", in: newInput(lifecycle.TaskPaused, inJob(lifecycle.JobCancelRequested)), wantState: lifecycle.TaskCanceled, wantReason: v1alpha1.ReasonCanceled},
		{name: "a failed job cancels exited tasks", in: newInput(exited, inJob(lifecycle.JobFailed)), wantState: lifecycle.TaskCanceled, wantReason: v1alpha1.ReasonCanceled},
		{name: "a task on a robot keeps its state while it is stopped",
			in: newInput(running, inJob(lifecycle.JobFailed)), wantState: running, wantReason: v1alpha1.ReasonStopping, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "the robot has some time for the stop", in: newInput(running, inJob(lifecycle.JobFailed), stopping(5*time.Second)), wantWake: wire.DefaultKillTimeout + stopMargin - 5*time.Second},
		{name: "the wait for a robot that does not confirm the stop ends",
			in: newInput(running, inJob(lifecycle.JobFailed), stopping(time.Minute)), wantState: lifecycle.TaskCanceled, wantReason: v1alpha1.ReasonCanceled},
		{name: "a disconnected robot is not waited for, because it cannot receive the stop",
			in: newInput(running, phase(lifecycle.RobotUnknown), inJob(lifecycle.JobFailed)), wantState: lifecycle.TaskCanceled, wantReason: v1alpha1.ReasonCanceled},
		{name: "a robot that disconnects while it stops the task is waited for no longer",
			in: newInput(running, phase(lifecycle.RobotUnknown), inJob(lifecycle.JobFailed), stopping(time.Second)), wantState: lifecycle.TaskCanceled, wantReason: v1alpha1.ReasonCanceled},
		{name: "the stop is requested again from a robot that reconnects", in: newInput(running, inJob(lifecycle.JobFailed), stopRequested(v1alpha1.ReasonStopping)),
			wantState: running, wantReason: v1alpha1.ReasonStopping, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "an earlier stop does not shorten the time of this one",
			in:        newInput(running, inJob(lifecycle.JobFailed), condition(ConditionStopping, time.Hour, "why", metav1.ConditionTrue)),
			wantState: running, wantReason: v1alpha1.ReasonStopping, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "a lost robot is not waited for", in: newInput(unknown, phase(lifecycle.RobotOffline), inJob(lifecycle.JobFailed)), wantState: lifecycle.TaskCanceled, wantReason: v1alpha1.ReasonCanceled},
		{name: "a task that must leave its robot keeps its state while it is stopped", in: newInput(running, mustLeave),
			wantState: running, wantReason: v1alpha1.ReasonEvicting, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "the robot has some time for that", in: newInput(running, mustLeave, evicting(5*time.Second)), wantWake: wire.DefaultKillTimeout + stopMargin - 5*time.Second},
		{name: "a task is not evicted from a robot that cannot receive the stop", in: newInput(running, mustLeave, evicting(time.Minute), phase(lifecycle.RobotUnknown)),
			wantState: running, wantReason: v1alpha1.ReasonEvicting, wantWake: defaultLostAfter},
		{name: "after a crash between the two writes of an eviction the second one is repeated",
			in: newInput(pending, target("r1"), attempted(1, "r1")), wantTo: &RobotBinding{}},
		{name: "the stop is not withdrawn when the drain is over", in: newInput(running, evicting(5*time.Second)), wantWake: wire.DefaultKillTimeout + stopMargin - 5*time.Second},
		{name: "the wait for a robot that does not confirm the eviction ends", in: newInput(running, mustLeave, evicting(time.Minute)),
			wantState: pending, wantReason: ReasonInterrupted, wantTo: &RobotBinding{}},
		{name: "an evicted task that has stopped waits for another robot", in: newInput(exited, reason(wire.ReasonStopped), mustLeave),
			wantState: pending, wantReason: ReasonInterrupted, wantTo: &RobotBinding{}},
		{name: "a failed task that would be restarted on a robot that is drained goes elsewhere, and its robot does not count as failed",
			in: newInput(exited, reason(wire.ReasonExited), mustLeave, restarts(3, 0, 0), capable), wantState: pending, wantReason: ReasonInterrupted, wantTo: &RobotBinding{}},
		{name: "an evicted task whose job is canceled is canceled", in: newInput(running, evicting(5*time.Second), inJob(lifecycle.JobFailed)),
			wantState: running, wantReason: v1alpha1.ReasonStopping, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "a task on a lost robot is not evicted", in: newInput(unknown, mustLeave)},
		{name: "a running job stops no tasks", in: newInput(running, inJob(lifecycle.JobRunning))},
		{name: "a completed task stays completed when its job fails", in: newInput(lifecycle.TaskCompleted, inJob(lifecycle.JobFailed))},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, c.in)
			var state lifecycle.TaskState
			var why string
			if got.Status != nil {
				state, why = lifecycle.TaskState(got.Status.State).OrPending(), got.Status.Reason
			}
			if state != c.wantState || why != c.wantReason {
				t.Errorf("state %q reason %q, want %q %q", state, why, c.wantState, c.wantReason)
			}
			if to := got.binding(); (to == nil) != (c.wantTo == nil) || to != nil && *to != *c.wantTo {
				t.Errorf("binding %+v, want %+v", to, c.wantTo)
			}
			if wake := got.RequeueAt; c.wantWake == 0 && !wake.IsZero() || c.wantWake != 0 && !wake.Equal(noon.Add(c.wantWake)) {
				t.Errorf("requeue at %s, want after %s", wake, c.wantWake)
			}
			if got.RejectedSignal != "" {
				t.Errorf("rejected signal %s", got.RejectedSignal)
			}
		})
	}
}

// binding returns the binding that is written, before or after the status.
func (s Actions) binding() *RobotBinding {
	if s.Bind != nil {
		return s.Bind
	}
	return s.Rebind
}

// TestPlan_NumbersAttemptsAboveThoseBeforeARestore shows that a number which may have been used since the
// restored backup is not used again, and that it does not count as restarts.
func TestPlan_NumbersAttemptsAboveThoseBeforeARestore(t *testing.T) {
	const first = 1<<20 + 1
	for _, c := range []struct {
		name                    string
		attempt, restarts       int32
		wantAttempt, wantResult int32
	}{
		{"the first attempt", 0, 0, first, 0},
		{"an attempt after those of the backup", 3, 2, first, 3},
		{"an attempt after one since the restore", first + 4, 6, first + 5, 7},
	} {
		w := newInput(lifecycle.TaskPending, target("r1"), reserved)
		w.FirstAttempt, w.Task.Status.Attempt, w.Task.Status.RestartCount = first, c.attempt, c.restarts
		if s := Plan(noon, w).Status; s == nil || s.Attempt != c.wantAttempt || s.RestartCount != c.wantResult {
			t.Errorf("%s: %+v, want attempt %d and %d restarts", c.name, s, c.wantAttempt, c.wantResult)
		}
	}
}

func TestPlan_DispatchOpensAttempt(t *testing.T) {
	w := newInput(lifecycle.TaskPending, target("r1"), reserved, started(time.Minute))
	one := int32(1)
	w.Task.Status.Attempt, w.Task.Status.RestartCount, w.Task.Status.ExitCode = 12, 11, &one
	for n := range int32(10) {
		w.Task.Status.Attempts = append(w.Task.Status.Attempts, v1alpha1.TaskAttempt{Attempt: n + 3})
	}
	s := Plan(noon, w).Status
	if s.Attempt != 13 || s.RestartCount != 12 || !s.LastRestartTime.Time.Equal(noon) || s.StartedAt != nil || s.ExitCode != nil {
		t.Errorf("status %+v", s)
	}
	if len(s.Attempts) != 10 || s.Attempts[0].Attempt != 4 || s.Attempts[9].Attempt != 13 || s.Attempts[9].Robot != "r1" {
		t.Errorf("attempts %+v", s.Attempts)
	}
	if s.Message != "Dispatching to r1" || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionPlaced) {
		t.Errorf("message %q, conditions %+v", s.Message, s.Conditions)
	}
	if w.Task.Status.Attempt != 12 {
		t.Error("the plan changed its input")
	}
}

// It is not known whether its process has ended.
func TestPlan_KeepsTimedOutAttemptOpen(t *testing.T) {
	got := Plan(noon, newInput(lifecycle.TaskRunning, timeout(time.Second), started(time.Hour))).Status
	a := got.Attempts[0]
	if got.Message != "Task terminated: Task timeout" || a.Reason != wire.ReasonTimeout || a.FinishedAt != nil || a.State != string(lifecycle.TaskFailed) ||
		a.ExitCode != nil || got.ExitCode != nil {
		t.Errorf("%q, %+v", got.Message, a)
	}
}

// Every state and every Input leads along edges of the table.
func TestPlan_FollowsTableOfStates(t *testing.T) {
	reach := func(from, to lifecycle.TaskState) bool {
		for _, g := range lifecycle.TaskSignals {
			if next, ok := lifecycle.StepTask(from, g); ok {
				if next == to {
					return true
				}
				for _, h := range lifecycle.TaskSignals { // timed out, then given up
					if last, ok := lifecycle.StepTask(next, h); ok && last == to && next == lifecycle.TaskExited {
						return true
					}
				}
			}
		}
		return from == to
	}
	for _, state := range lifecycle.TaskStates {
		for _, p := range append(slices.Clone(lifecycle.RobotPhases), "gone") {
			for _, j := range append(slices.Clone(lifecycle.JobStates), "none") {
				w := newInput(state, timeout(time.Second), started(time.Hour), rejected)
				w.Robot, w.Job = nil, nil
				if p != "gone" {
					phase(p)(&w)
				}
				if j != "none" {
					inJob(j)(&w)
				}
				for _, s := range []string{"", "r1"} {
					w.ReservedRobot = s
					got := Plan(noon, w)
					if got.RejectedSignal != "" || got.Status != nil && !reach(state, lifecycle.TaskState(got.Status.State)) {
						t.Errorf("%s, robot %s, job %s, reserved %q: %+v", state, p, j, s, got)
					}
				}
			}
		}
	}
}

func TestPlan_ClearingFailuresChangesNothingElse(t *testing.T) {
	w := newInput(lifecycle.TaskCompleted, failedOn("r1"), requeueing(v1alpha1.RequeueStatus{FromState: "failed"}))
	w.Task.Status.Attempt, w.Task.Status.Message = 2, "done"
	want := w.Task.Status.DeepCopy()
	want.FailedRobots = nil
	got := Plan(noon, w)
	if got.Status == nil || !equality.Semantic.DeepEqual(got.Status, want) || got.Rebind != nil {
		t.Errorf("status %+v, want %+v", got.Status, want)
	}
}
