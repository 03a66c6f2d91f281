package wire

import (
	"time"

	"k8s4r.io/k8s4r/internal/protocol/policy"
)

// Register registers a robot and describes it. Legacy agents publish it to TopicRegister; only
// RobotID identifies them.
type Register struct {
	RobotID    string      `json:"robotId"`
	Token      string      `json:"token,omitempty"`
	DeviceInfo *DeviceInfo `json:"deviceInfo,omitempty"`
	// AgentVersion (v2) is the version of the agent.
	AgentVersion string `json:"agentVersion,omitempty"`
	// Address (v2) is where people can reach the robot.
	Address string `json:"address,omitempty"`
	// Labels (v2) of the robot. They fill labels that the Robot object does not set, and never
	// replace a label that a person has set.
	Labels map[string]string `json:"labels,omitempty"`
	// AnswersDispatches (v2) is set by agents that report ReportPending as soon as their journal
	// has an accepted attempt. The silence of other agents does not count.
	AnswersDispatches bool `json:"answersDispatches,omitempty"`
	// RunsArrays (v2) is set by agents that run TaskSpec.Array. Others get no such task.
	RunsArrays bool `json:"runsArrays,omitempty"`
	// RestartsTasks (v2) is set by agents that restart tasks by TaskSpec.RestartPolicy, also after a restart
	// of the robot, and number the runs of an attempt. For others the manager restarts tasks.
	RestartsTasks bool `json:"restartsTasks,omitempty"`
	// RefusesInterruptions (v2) is set by agents that act by Dispatch.Interruption. Others stop what they are
	// asked to.
	RefusesInterruptions bool `json:"refusesInterruptions,omitempty"`
	// Policy (v2) is the robot's own policy. If nil, it has none. The robot enforces it; the server
	// needs it to send no tasks that the robot would refuse.
	Policy *policy.Policy `json:"policy,omitempty"`
	// Local (v2) is what people at the robot have decided. If nil, nothing. Registering again replaces it.
	Local *LocalState `json:"local,omitempty"`
	// UpdatesItself (v2) is set by agents that act by Response.AgentOrder. Others get none.
	UpdatesItself bool `json:"updatesItself,omitempty"`
	// AgentUpdate (v2) is what the agent reports about the last AgentOrder. If nil, it has none. An agent
	// registers again when the state changes.
	AgentUpdate *AgentUpdate `json:"agentUpdate,omitempty"`
	// Prefetches (v2) is set by agents that act on Response.Prefetch.
	Prefetches bool `json:"prefetches,omitempty"`
	// Prefetch (v2) are reports about prefetch orders. Registering again replaces them.
	Prefetch []PrefetchReport `json:"prefetch,omitempty"`
	// ConnectionID (v2) identifies the connection that carries the registration. It is different for
	// each connection. Empty from agents that do not send it.
	ConnectionID string `json:"connectionId,omitempty"`
}

// Response answers Register when the robot is approved, pending or refused.
type Response struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	RobotID string `json:"robotId"`
	// StoresRuns (v2) is set by servers that store the records of runs (KindRuns). Agents send none to
	// others.
	StoresRuns bool `json:"storesRuns,omitempty"`
	// UnlockMaintenance (v2) is the ID of the Maintenance that a user of the cluster has ended. Empty:
	// none.
	UnlockMaintenance string `json:"unlockMaintenance,omitempty"`
	// AgentOrder (v2) asks the agent to replace its program. If nil, there is nothing to do.
	AgentOrder *AgentOrder `json:"agentOrder,omitempty"`
	// Prefetch (v2) is what the robot should fetch. If nil, nothing new.
	Prefetch *PrefetchOrder `json:"prefetch,omitempty"`
}

// Heartbeat reports that the agent is connected. Legacy agents set RobotID, Token and DeviceInfo
// each time. Agents of v2 set Seq, and DeviceInfo from a change of it until a heartbeat that
// carried it is acknowledged.
type Heartbeat struct {
	RobotID    string      `json:"robotId,omitempty"`
	Token      string      `json:"token,omitempty"`
	DeviceInfo *DeviceInfo `json:"deviceInfo,omitempty"`
	// Seq numbers the heartbeats of a robot. It increases until the machine is rebooted. It is 0
	// from legacy agents, which need no acknowledgement.
	Seq uint64 `json:"seq,omitempty"`
	// Usage (v2) is the resource usage of the tasks for which it has changed much.
	Usage []TaskUsage `json:"usage,omitempty"`
	// DiskPressure (v2): the disk of the agent's state directory is almost full.
	DiskPressure bool `json:"diskPressure,omitempty"`
	// JournalReadOnly (v2): the agent cannot write its journal, so it accepts no tasks.
	JournalReadOnly bool `json:"journalReadOnly,omitempty"`
	// Journal (v2) is a part of the agent's journal, on request. Such a message has no other
	// field.
	Journal *Journal `json:"journal,omitempty"`
}

// Presence is the agent's last will, or its message before an orderly disconnect.
type Presence struct {
	// Online is false: the connection broke or was closed.
	Online bool `json:"online"`
	// Graceful is set if the agent disconnected in order.
	Graceful bool `json:"graceful,omitempty"`
	// ConnectionID (v2) is that of the registration over the connection that has ended, so that the
	// server ignores the late last will of an earlier one. Empty from agents that do not send it.
	ConnectionID string `json:"connectionId,omitempty"`
}

// Ack acknowledges what the server has written, so that the agent stops repeating it.
type Ack struct {
	// Heartbeat is the Seq of the last one received; 0 if none.
	Heartbeat uint64 `json:"heartbeat,omitempty"`
	// DevicePending is set if the device that a heartbeat has carried is not stored yet, because it
	// changes too often. The robot sends it again with the next heartbeat.
	DevicePending bool      `json:"devicePending,omitempty"`
	Tasks         []TaskAck `json:"tasks,omitempty"`
	Logs          []LogAck  `json:"logs,omitempty"`
	// Runs (v2) acknowledge the records of runs, which are sent as the logs are.
	Runs []LogAck `json:"runs,omitempty"`
}

// TaskAck acknowledges the reports of one attempt up to Seq.
type TaskAck struct {
	UID     string `json:"uid"`
	Attempt int32  `json:"attempt"`
	Seq     uint64 `json:"seq"`
}

// The actions of Dispatch.
const (
	ActionCreate = "create"
	ActionDelete = "delete"
)

// Dispatch gives a task to a robot, or stops it.
type Dispatch struct {
	Action string `json:"action"`
	Task   Task   `json:"task"`
	// Attempt (v2) is the fencing token: an agent never runs an attempt older than one it knows.
	// 0 counts as 1.
	Attempt int32 `json:"attempt,omitempty"`
	// Epoch (v2) is the resource version of the Task. A TaskList with a lower epoch does not
	// apply to this attempt.
	Epoch uint64 `json:"epoch,omitempty"`
	// RobotUID (v2) is the UID of the Robot object. Epochs compare only for the same UID, because
	// those of another or a new cluster are unrelated.
	RobotUID string `json:"robotUID,omitempty"`
	// Started (v2) as in TaskReference.
	Started bool `json:"started,omitempty"`
	// Robot (v2) has the robot's labels and attributes, if the task refers to them.
	Robot *RobotAttributes `json:"robot,omitempty"`
	// Secrets (v2) are the values of the Task's secretEnv. They are not in the Task, because both
	// sides store that. If nil, the dispatch has none: it is about an attempt that has started.
	Secrets Secrets `json:"secrets,omitzero"`
	// Interruption (v2) is set in a delete that the agent may refuse. If nil, it always acts.
	Interruption *Interruption `json:"interruption,omitempty"`
	// Traceparent (v2) is a user property beside the payload: the position of the attempt in a
	// trace, or empty.
	Traceparent string `json:"-"`
	// ReceivedAt is the time since boot at which the agent received the message. It is not sent.
	ReceivedAt time.Duration `json:"-"`
}

// Interruption is an order to stop a task that can wait: an eviction for a changed definition, or for a task
// of higher priority. The agent refuses it while the task is held, and after the maintenance window.
type Interruption struct {
	// WindowSeconds is for how long the agent may act, from the receipt of the order. 0: no window limits it.
	WindowSeconds int64 `json:"windowSeconds,omitempty"`
}

// MaxWindowSeconds bounds Interruption.WindowSeconds: a window is open for at most a week, and windows may
// follow each other.
const MaxWindowSeconds = 7 * 24 * 60 * 60

// RobotAttributes are the labels and attributes of the robot that a task may read, with the names
// of constraints.
type RobotAttributes struct {
	Labels map[string]string `json:"labels,omitempty"`
	Attrs  map[string]string `json:"attrs,omitempty"`
}

// TaskList is the retained message with everything that should run on one robot: whole Tasks for
// legacy agents, Refs for v2.
type TaskList struct {
	Tasks []Task `json:"tasks"`
	// Refs (v2). Such a list always has an Epoch.
	Refs []TaskReference `json:"refs,omitempty"`
	// Canceled (v2) are attempts that no longer count and whose end was not reported. The agent
	// answers each with its end, or that it will never run.
	Canceled []TaskReference `json:"canceled,omitempty"`
	// Epoch (v2) is a resource version at which the list is complete. It is 0 for legacy agents.
	Epoch uint64 `json:"epoch,omitempty"`
	// RobotUID (v2) as in Dispatch.
	RobotUID string `json:"robotUID,omitempty"`
	// JournalRequest (v2) is not 0 after the server was restored from a backup, until it has the
	// robot's journal. Until then the list lacks what the robot ran since the backup: the agent
	// stops nothing because of it, and publishes its whole journal with this number.
	JournalRequest uint64 `json:"journalRequest,omitempty"`
	// ServerConnectionID (v2) is different for each connection of a server to the broker. After a
	// change the agent repeats what is not acknowledged: the earlier server may have lost it.
	ServerConnectionID string `json:"serverConnectionId,omitempty"`
	// SendsSecrets (v2) is set by servers that act on Status.NeedsSecrets.
	SendsSecrets bool `json:"sendsSecrets,omitempty"`
}

// TaskReference names one attempt of one task.
type TaskReference struct {
	UID     string `json:"uid"`
	Attempt int32  `json:"attempt"`
	// Started is set if the server has recorded that this attempt ran. An agent that does not
	// know the attempt has lost its journal and must not run it again.
	Started bool `json:"started,omitempty"`
	// Query asks the agent to report whether the attempt still runs, because the robot or the
	// server was disconnected.
	Query bool `json:"query,omitempty"`
	// StartsNoIndex asks the agent to start no more indexes of a range: it lets the running index
	// end, and then ends the attempt with ReasonPaused.
	StartsNoIndex bool `json:"startsNoIndex,omitempty"`
	// StartsNoRun asks the agent to start no further run: in place of a restart the attempt ends with
	// ReasonPaused. An attempt that waits for its next run ends at once.
	StartsNoRun bool `json:"startsNoRun,omitempty"`
}

// The states that a robot reports.
const (
	// ReportPending acknowledges a dispatch; no process runs yet. Agents with
	// Register.AnswersDispatches send it once their journal has the attempt.
	ReportPending = "pending"
	// ReportRunning: the process runs.
	ReportRunning = "running"
	// ReportCompleted: the attempt ended with exit code 0.
	ReportCompleted = "completed"
	// ReportFailed: the attempt ended in any other way.
	ReportFailed = "failed"
)

// Status is a report of a robot about one attempt of one task.
type Status struct {
	TaskUID   string `json:"taskUid"`
	RobotName string `json:"robotName"`
	// State is one of the Report constants.
	State     string         `json:"state"`
	ExitCode  int32          `json:"exitCode"`
	Message   string         `json:"message,omitempty"`
	Event     string         `json:"event,omitempty"`
	Resources *ResourceUsage `json:"resources,omitempty"`
	UpdatedAt time.Time      `json:"updatedAt"`

	// Attempt (v2). It is 0 from legacy agents.
	Attempt int32 `json:"attempt,omitempty"`
	// Seq numbers the reports of one attempt, from 1.
	Seq uint64 `json:"seq,omitempty"`
	// Signal is the number of the signal that ended the process, else 0.
	Signal int32 `json:"signal,omitempty"`
	// Reason is a CamelCase word for programs, such as Timeout.
	Reason string `json:"reason,omitempty"`
	// StartedAt and FinishedAt are by the robot's clock. If nil, the event has not happened or
	// its time is not reported.
	StartedAt  *time.Time        `json:"startedAt,omitempty"`
	FinishedAt *time.Time        `json:"finishedAt,omitempty"`
	Outputs    map[string]string `json:"outputs,omitempty"`
	// Refused (v2) is why the agent refuses the Interruption that it was sent last: RefusedHeld or
	// RefusedWindowClosed. The attempt goes on, as the other fields report. Empty: it refuses none.
	Refused string `json:"refused,omitempty"`
	// Array (v2) has the indexes of a range that have ended. Nil for other tasks.
	Array *ArrayReport `json:"array,omitempty"`
	// Run (v2) is the number of the run, from 1, if the agent restarts tasks. StartedAt is its start.
	Run int64 `json:"run,omitempty"`
	// Runs (v2) are the last MaxRuns runs, oldest first, of an attempt with more than one.
	Runs []Run `json:"runs,omitempty"`
	// NextRunAt (v2) is when the next run starts, by the robot's clock, while the attempt waits for it.
	// State is ReportRunning and Reason is ReasonRestarting then.
	NextRunAt *time.Time `json:"nextRunAt,omitempty"`
	// NeedsSecrets (v2) asks the server to dispatch the attempt again, with the values of its secretEnv:
	// an agent before had them.
	NeedsSecrets bool `json:"needsSecrets,omitempty"`
	// Traceparent (v2) is a user property beside the payload: that of the dispatch.
	Traceparent string `json:"-"`
}

// The values of Status.Refused.
const (
	// RefusedHeld: people at the robot hold the task, or all of its tasks.
	RefusedHeld = "Held"
	// RefusedWindowClosed: the maintenance window was over when the agent would have acted.
	RefusedWindowClosed = "WindowClosed"
)

// MaxRuns bounds Status.Runs.
const MaxRuns = 10

// Run is one process of an attempt, from its start to its end.
type Run struct {
	Run int64 `json:"run"`
	// StartedAt and FinishedAt are by the robot's clock. FinishedAt is nil while the process runs.
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	ExitCode   int32      `json:"exitCode,omitempty"`
	Signal     int32      `json:"signal,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	// NoContactSince is set if the robot had no contact with the server when the run ended: since when, by
	// the robot's clock, as far as the agent knows.
	NoContactSince *time.Time `json:"noContactSince,omitempty"`
}

// IsTerminal reports whether the report ends its attempt.
func (s Status) IsTerminal() bool { return s.State == ReportCompleted || s.State == ReportFailed }

// ResourceUsage is the resource usage of a task, or its total if the task has ended.
type ResourceUsage struct {
	// CPUPercent of one core: 250 is two and a half cores.
	CPUPercent float64 `json:"cpuPercent,omitempty"`
	// MemoryBytes is the memory in use.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	// CPUSeconds and MemoryPeakBytes (v2) are totals, reported with the end of the attempt.
	CPUSeconds      float64 `json:"cpuSeconds,omitempty"`
	MemoryPeakBytes uint64  `json:"memoryPeakBytes,omitempty"`
}

// TaskUsage is the resource usage of one running attempt.
type TaskUsage struct {
	UID     string `json:"uid"`
	Attempt int32  `json:"attempt"`
	ResourceUsage
}

// The reasons of a report that the manager acts on. Others are stored as they are.
const (
	// ReasonTimeout: the task ran longer than its timeout.
	ReasonTimeout = "Timeout"
	// ReasonStartFailed: the process could not be started.
	ReasonStartFailed = "StartFailed"
	// ReasonOOMKilled: the kernel killed the task, because it used more memory than its resources
	// allow.
	ReasonOOMKilled = "OOMKilled"
	// ReasonDiskQuotaExceeded: the robot stopped the task, because its replica used more disk
	// than its ephemeralDisk allows.
	ReasonDiskQuotaExceeded = "DiskQuotaExceeded"
	// ReasonExited: the process exited with a code other than 0.
	ReasonExited = "Exited"
	// ReasonSignaled: the process was killed by a signal that the agent did not send, and the robot was
	// not shutting down.
	ReasonSignaled = "Signaled"
	// ReasonRejected: the agent cannot run the task, for example because it does not support the
	// driver.
	ReasonRejected = "Rejected"
	// ReasonPolicyViolation: the robot's own policy does not allow the task. Without fault: the task
	// is not placed on that robot again.
	ReasonPolicyViolation = "PolicyViolation"
	// ReasonPolicyUnusable: the robot cannot use its policy file, and allows nothing until it can.
	// Without fault.
	ReasonPolicyUnusable = "PolicyUnusable"
	// ReasonStopped: the server requested the stop, or the task list does not name the attempt.
	// Without fault.
	ReasonStopped = "Stopped"
	// ReasonAgentStopped: the agent was stopped and ended the task, or the robot shut down: the task was
	// ended by SIGTERM, or exited with 143, up to 2 s before its shim got SIGTERM. Without fault.
	ReasonAgentStopped = "AgentStopped"
	// ReasonAgentRestarted: the shim was killed, or the robot has lost its journal, before the end of the
	// task was recorded, so its end is unknown. Without fault.
	ReasonAgentRestarted = "AgentRestarted"
	// ReasonRobotRebooted: the robot was restarted while the task ran or was to start. Without fault.
	ReasonRobotRebooted = "RobotRebooted"
	// ReasonSuperseded: a newer attempt of the same task replaced it. Without fault.
	ReasonSuperseded = "Superseded"
	// ReasonSelfStopped: the robot stopped the task itself at its self-stop deadline. Without
	// fault.
	ReasonSelfStopped = "SelfStopped"
	// ReasonTemplateChanged: the robot stopped the task because the result of a template with
	// changeMode restart changed. Without fault.
	ReasonTemplateChanged = "TemplateChanged"
	// ReasonStoppedAtRobot: a person at the robot has stopped the task, which does not run there until it
	// is restarted there. Without fault.
	ReasonStoppedAtRobot = "StoppedAtRobot"
	// ReasonRestartedAtRobot: a person at the robot has restarted the task. It ends a run, and not the
	// attempt. Without fault.
	ReasonRestartedAtRobot = "RestartedAtRobot"
	// ReasonMaintenance: the robot is in maintenance, in which it starts nothing. Without fault.
	ReasonMaintenance = "Maintenance"
	// ReasonRestarting: the process has ended, and the agent starts it again. The attempt goes on.
	ReasonRestarting = "Restarting"
	// ReasonPaused: the agent was asked to start no further run, and a restart was due, or no more indexes
	// of a range, and some are left. Without fault.
	ReasonPaused = "Paused"
)

// IsWithoutFault reports whether an attempt that ended for this reason does not count as a
// failure of the task, so that the task waits for a robot again.
func IsWithoutFault(reason string) bool {
	switch reason {
	case ReasonStopped, ReasonAgentStopped, ReasonAgentRestarted, ReasonRobotRebooted, ReasonSuperseded, ReasonSelfStopped, ReasonTemplateChanged, ReasonPaused, ReasonPolicyViolation, ReasonPolicyUnusable,
		ReasonStoppedAtRobot, ReasonRestartedAtRobot, ReasonMaintenance:
		return true
	}
	return false
}
