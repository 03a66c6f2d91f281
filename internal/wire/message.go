package wire

import "time"

// Register asks to be known, and says what the robot is. Document agents send
// it on TopicRegister, where RobotID is all that names them.
type Register struct {
	RobotID    string      `json:"robotId"`
	Token      string      `json:"token,omitempty"`
	DeviceInfo *DeviceInfo `json:"deviceInfo,omitempty"`
	// AgentVersion is ours: the version of the agent's program.
	AgentVersion string `json:"agentVersion,omitempty"`
	// Address is ours: where the robot can be reached, for people.
	Address string `json:"address,omitempty"`
	// Labels are ours: what the robot says of itself. They fill what the
	// Robot object does not set, and never replace what a person wrote there.
	Labels map[string]string `json:"labels,omitempty"`
}

// Response answers Register once the robot is approved, or refused.
type Response struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	RobotID string `json:"robotId"`
}

// Heartbeat says that the robot lives. Document agents fill RobotID, Token and
// DeviceInfo each time; ours send only a number, and DeviceInfo from
// when it changed until a heartbeat that carried it was acknowledged.
type Heartbeat struct {
	RobotID    string      `json:"robotId,omitempty"`
	Token      string      `json:"token,omitempty"`
	DeviceInfo *DeviceInfo `json:"deviceInfo,omitempty"`
	// N numbers the heartbeats of a robot: it rises as long as the robot is not
	// booted anew. Zero: a document agent, which wants no ack.
	N uint64 `json:"n,omitempty"`
	// Use is ours: what tasks use, of those where it has changed much. A task that
	// is not named uses what it did.
	Use []TaskUse `json:"use,omitempty"`
}

// Presence is the agent's last word: its will, or a goodbye.
type Presence struct {
	// Online false: the connection broke or was closed.
	Online bool `json:"online"`
	// Graceful: the agent said so itself.
	Graceful bool `json:"graceful,omitempty"`
}

// Ack names what the server has written down, so that the agent stops
// repeating it.
type Ack struct {
	// Heartbeat is the number of the last one taken in. Zero: none.
	Heartbeat uint64    `json:"heartbeat,omitempty"`
	Tasks     []TaskAck `json:"tasks,omitempty"`
	Logs      []LogAck  `json:"logs,omitempty"`
}

// TaskAck says that the reports of one attempt are written up to Seq.
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

// Dispatch gives a robot a task, or takes it away.
type Dispatch struct {
	Action string `json:"action"`
	Task   Task   `json:"task"`
	// Attempt is ours: the fencing token. An agent never runs an attempt older
	// than one it has seen. Zero reads as 1.
	Attempt int32 `json:"attempt,omitempty"`
	// Epoch is ours: the resource version of the Task as dispatched. A
	// TaskList of an older epoch says nothing about this attempt.
	Epoch uint64 `json:"epoch,omitempty"`
	// Era is ours: the UID of the Robot object. Epochs compare only within
	// one era, because those of another cluster, or of one that was set up
	// anew, have nothing to do with each other.
	Era string `json:"era,omitempty"`
	// Started is ours, as in TaskRef.
	Started bool `json:"started,omitempty"`
	// Robot is ours: what the server knows of the robot, for a task that asks for
	// it. Nil: it does not.
	Robot *RobotFacts `json:"robot,omitempty"`
	// Secrets are ours: what the Task's secretEnv names. They stand beside the Task,
	// because that is written down on both sides.
	Secrets Secrets `json:"secrets,omitempty"`
	// Traceparent is ours, and stands beside the payload, as a user property: where in a
	// trace the attempt belongs. Empty: it is in none.
	Traceparent string `json:"-"`
}

// RobotFacts are what a task may read of its robot, by the words of constraints.
type RobotFacts struct {
	Labels map[string]string `json:"labels,omitempty"`
	Attrs  map[string]string `json:"attrs,omitempty"`
}

// TaskList is the retained word about what should be running on one robot.
// Whole Tasks stand in it for document agents, only Refs for ours.
type TaskList struct {
	Tasks []Task `json:"tasks"`
	// Refs is ours. A list of ours always carries an Epoch.
	Refs []TaskRef `json:"refs,omitempty"`
	// Over is ours: attempts that count no more and whose end nobody has heard. The
	// agent answers each with its end, or with the word that it will never run.
	Over []TaskRef `json:"over,omitempty"`
	// Epoch is ours: a resource version that the list holds at. Zero: a list
	// for a document agent.
	Epoch uint64 `json:"epoch,omitempty"`
	// Era is ours, as in Dispatch.
	Era string `json:"era,omitempty"`
}

// TaskRef names one attempt of one task.
type TaskRef struct {
	UID     string `json:"uid"`
	Attempt int32  `json:"attempt"`
	// Started: the server has it in writing that this attempt ran. An agent
	// that does not know it has lost its memory, and must not run it again.
	Started bool `json:"started,omitempty"`
	// Asked: the server wants to hear whether it still runs. It has been out of
	// contact, be it because of the robot or of itself.
	Asked bool `json:"asked,omitempty"`
}

// The states that a robot reports.
const (
	// ReportPending acknowledges a dispatch; nothing runs yet.
	ReportPending = "pending"
	// ReportRunning: the process runs.
	ReportRunning = "running"
	// ReportCompleted: the attempt ended with exit code 0.
	ReportCompleted = "completed"
	// ReportFailed: the attempt ended in any other way.
	ReportFailed = "failed"
)

// Status is a robot's word about one attempt of one task.
type Status struct {
	TaskUID   string `json:"taskUid"`
	RobotName string `json:"robotName"`
	// State is one of the Report constants.
	State     string       `json:"state"`
	ExitCode  int32        `json:"exitCode"`
	Message   string       `json:"message,omitempty"`
	Event     string       `json:"event,omitempty"`
	Resources *ResourceUse `json:"resources,omitempty"`
	UpdatedAt time.Time    `json:"updatedAt"`

	// Attempt is ours. Zero: a document agent.
	Attempt int32 `json:"attempt,omitempty"`
	// Seq numbers the reports of one attempt, from 1.
	Seq uint64 `json:"seq,omitempty"`
	// Signal is the number of the signal that ended the process, else 0.
	Signal int32 `json:"signal,omitempty"`
	// Reason is a word for programs, such as Timeout.
	Reason string `json:"reason,omitempty"`
	// StartedAt and FinishedAt are by the robot's clock. Nil: not yet, or not
	// said.
	StartedAt  *time.Time        `json:"startedAt,omitempty"`
	FinishedAt *time.Time        `json:"finishedAt,omitempty"`
	Outputs    map[string]string `json:"outputs,omitempty"`
	// Traceparent is ours, beside the payload: what the dispatch had.
	Traceparent string `json:"-"`
}

// Terminal tells whether the report ends its attempt.
func (s Status) Terminal() bool { return s.State == ReportCompleted || s.State == ReportFailed }

// ResourceUse is what a task used when last seen, or in all when it has ended.
type ResourceUse struct {
	// CPUPercent is of one core: 250 is two and a half cores.
	CPUPercent float64 `json:"cpuPercent,omitempty"`
	// MemoryBytes is what it has in memory.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	// CPUSeconds and MemoryPeakBytes are ours: the time that it has used, and the
	// most memory that it had. They come with its end.
	CPUSeconds      float64 `json:"cpuSeconds,omitempty"`
	MemoryPeakBytes uint64  `json:"memoryPeakBytes,omitempty"`
}

// TaskUse is what one live attempt uses.
type TaskUse struct {
	UID     string `json:"uid"`
	Attempt int32  `json:"attempt"`
	ResourceUse
}

// The reasons of a report that mean something to the manager. Others pass
// through as they are.
const (
	// ReasonTimeout: the task ran longer than its timeout.
	ReasonTimeout = "Timeout"
	// ReasonStartFailed: the process could not be started.
	ReasonStartFailed = "StartFailed"
	// ReasonOOMKilled: the kernel has ended the task, because it used more memory
	// than its resources say.
	ReasonOOMKilled = "OOMKilled"
	// ReasonDiskQuotaExceeded: the robot has stopped the task, because its replica
	// had more on the disk than its ephemeralDisk says.
	ReasonDiskQuotaExceeded = "DiskQuotaExceeded"
	// ReasonExited: the process ended by itself, not with 0.
	ReasonExited = "Exited"
	// ReasonSignaled: a signal that the agent did not send ended the process.
	ReasonSignaled = "Signaled"
	// ReasonRejected: the agent cannot run such a task (its driver is missing,
	// its config is not whole).
	ReasonRejected = "Rejected"
	// ReasonStopped: ended because the server asked for it, or because no list
	// named it. No fault of the task.
	ReasonStopped = "Stopped"
	// ReasonAgentStopped: the agent was told to stop and ended the task. No
	// fault of the task.
	ReasonAgentStopped = "AgentStopped"
	// ReasonAgentRestarted: the robot went down while the task ran, or what
	// watched over it was killed, so nobody can say how it ended. No fault of
	// the task.
	ReasonAgentRestarted = "AgentRestarted"
	// ReasonSuperseded: a newer attempt of the same task took its place, or was
	// there before it. No fault of the task.
	ReasonSuperseded = "Superseded"
	// ReasonOutOfContact: the robot has stopped the task by itself, because it
	// was out of contact for as long as the job lets it. No fault of the task.
	ReasonOutOfContact = "OutOfContact"
	// ReasonTemplateChanged: the robot has stopped the task, because a template of
	// it has changed that asks for that. No fault of the task.
	ReasonTemplateChanged = "TemplateChanged"
)

// NoFault tells whether an attempt that ended for this reason says nothing
// against the task, so that it goes back instead of counting as failed.
func NoFault(reason string) bool {
	switch reason {
	case ReasonStopped, ReasonAgentStopped, ReasonAgentRestarted, ReasonSuperseded, ReasonOutOfContact, ReasonTemplateChanged:
		return true
	}
	return false
}
