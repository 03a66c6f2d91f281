package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Task is the part of a Task object that a robot needs. Its JSON has the same form, so that a
// whole object can be decoded.
type Task struct {
	Metadata TaskMeta `json:"metadata"`
	Spec     TaskSpec `json:"spec"`
}

// TaskMeta is the part of the object's metadata that a robot needs.
type TaskMeta struct {
	Name      string            `json:"name,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	UID       string            `json:"uid"`
	Labels    map[string]string `json:"labels,omitempty"`
	Owners    []Owner           `json:"ownerReferences,omitempty"`
}

// Owner is an owner reference.
type Owner struct {
	UID string `json:"uid"`
	// Controller is set for the object that created the Task.
	Controller bool `json:"controller,omitempty"`
}

// The labels of a Task that Job and TaskGroup made it for.
const (
	LabelJob       = "job"
	LabelTaskGroup = "taskgroup"
	LabelTaskIndex = "taskindex"
)

// TaskSpec defines what to run. Its fields are those of the Task kind (docs/reference/kinds/task.md).
type TaskSpec struct {
	Name          string            `json:"name"`
	JobName       string            `json:"jobName,omitempty"`
	TaskGroupName string            `json:"taskGroupName,omitempty"`
	TargetRobot   string            `json:"targetRobot,omitempty"`
	Driver        string            `json:"driver"`
	Config        TaskConfig        `json:"config"`
	Env           map[string]string `json:"env,omitempty"`
	// SecretEnv names the variables whose values are in Dispatch.Secrets.
	SecretEnv map[string]SecretKey `json:"secretEnv,omitempty"`
	// OfflineSecrets is OfflineSecretsSealed if the robot keeps the values of secretEnv for restarts
	// without contact. If empty, it does not.
	OfflineSecrets string `json:"offlineSecrets,omitempty"`
	// Meta has the meta values of the job and the group, for templates.
	Meta      map[string]string `json:"meta,omitempty"`
	Resources *Resources        `json:"resources,omitempty"`
	// User that runs the task. If empty, the agent's --task-user.
	User      string     `json:"user,omitempty"`
	Artifacts []Artifact `json:"artifacts,omitempty"`
	Templates []Template `json:"templates,omitempty"`
	Isolation *Isolation `json:"isolation,omitempty"`
	// Outputs are the names of the values that the task may pass on.
	Outputs []string `json:"outputs,omitempty"`
	// Type is batch, service, system or sysbatch. If empty, batch.
	Type string `json:"type,omitempty"`
	// RestartPolicy defines when the agent starts the task again. If nil, the default of the type.
	RestartPolicy *RestartPolicy `json:"restartPolicy,omitempty"`
	// Timeout bounds a run. If 0, there is no bound.
	Timeout Duration `json:"timeout,omitzero"`
	// KillTimeout is the time between SIGTERM and SIGKILL. If nil, DefaultKillTimeout. If 0,
	// SIGKILL follows at once.
	KillTimeout *Duration `json:"killTimeout,omitempty"`
	// StopOnRobotAfter is how long the task may run after the last acknowledged heartbeat was
	// sent. If 0, there is no bound.
	StopOnRobotAfter Duration `json:"stopOnRobotAfter,omitzero"`
	// EphemeralDisk that the tasks of a replica share. If nil, none.
	EphemeralDisk *EphemeralDisk `json:"ephemeralDisk,omitempty"`
	// Stage is the position of the task in the start order of its replica, from 1. If 0, it has none.
	Stage int32 `json:"stage,omitempty"`
	// Array is what the task runs of an array. Nil for other tasks.
	Array *TaskArray `json:"array,omitempty"`
}

// RestartPolicy defines when a task that has ended starts again on the same robot.
type RestartPolicy struct {
	// Attempts is the number of restarts within Interval. If 0, there are none.
	Attempts int32 `json:"attempts,omitempty"`
	// Interval in which restarts are counted. If 0, all are.
	Interval Duration `json:"interval,omitzero"`
	// Delay before a restart, at least a second.
	Delay Duration `json:"delay,omitzero"`
	// Mode is what follows when Attempts are used up: fail ends the attempt, delay waits for the next
	// interval. If empty, fail.
	Mode string `json:"mode,omitempty"`
	// OnReboot is what follows when the robot was restarted: restart or report. If empty, the default of
	// the type.
	OnReboot string `json:"onReboot,omitempty"`
}

// SecretKey selects the value of a variable.
type SecretKey struct {
	SecretName string `json:"secretName"`
	Key        string `json:"key"`
	// Optional lets the task start without the value if it does not exist.
	Optional bool `json:"optional,omitempty"`
}

// EphemeralDisk is a directory that the tasks of a replica share on a robot.
type EphemeralDisk struct {
	// SizeMB bounds the size in millions of bytes. If 0, there is no bound.
	SizeMB int64 `json:"sizeMB,omitempty"`
	// Sticky keeps the directory for a later attempt.
	Sticky bool `json:"sticky,omitempty"`
}

// DefaultKillTimeout is the kill timeout of tasks without one.
const DefaultKillTimeout = 5 * time.Second

// Resources are what the task may use.
type Resources struct {
	CPU      Quantity  `json:"cpu,omitempty"`
	Memory   Quantity  `json:"memory,omitempty"`
	Networks []Network `json:"networks,omitempty"`
	// Devices are the devices that the task reserves, by name.
	Devices map[string]Quantity `json:"devices,omitempty"`
}

// Network is a set of ports of the robot.
type Network struct {
	Ports []Port `json:"ports,omitempty"`
}

// Port is a named port. If Port is 0, the robot chooses a free one.
type Port struct {
	Name string `json:"name"`
	Port int32  `json:"port,omitempty"`
}

// Artifact is a file or an archive that the task needs.
type Artifact struct {
	GetterSource  string            `json:"getterSource"`
	GetterOptions map[string]string `json:"getterOptions,omitempty"`
	RelativeDest  string            `json:"relativeDest,omitempty"`
	GetterMode    string            `json:"getterMode,omitempty"`
}

// Template is a file that is rendered for the task.
type Template struct {
	SourcePath   string `json:"sourcePath,omitempty"`
	EmbeddedTmpl string `json:"embeddedTmpl,omitempty"`
	DestPath     string `json:"destPath"`
	ChangeMode   string `json:"changeMode,omitempty"`
	ChangeSignal string `json:"changeSignal,omitempty"`
	Perms        string `json:"perms,omitempty"`
	LeftDelim    string `json:"leftDelim,omitempty"`
	RightDelim   string `json:"rightDelim,omitempty"`
}

// Isolation that the task requires.
type Isolation struct {
	Required []string `json:"required,omitempty"`
}

// TaskConfig is the configuration of the driver. Exactly one field is set.
type TaskConfig struct {
	Exec   *ExecConfig   `json:"execConfig,omitempty"`
	Docker *DockerConfig `json:"dockerConfig,omitempty"`
	Java   *JavaConfig   `json:"javaConfig,omitempty"`
}

// ExecConfig is for the drivers exec and raw_exec.
type ExecConfig struct {
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
}

// DockerConfig is for the driver docker.
type DockerConfig struct {
	Image string `json:"image"`
	// Command replaces the image's entry point. If empty, that of the image.
	Command string `json:"command,omitempty"`
	// Args of the command. If empty and Command is empty, those of the image.
	Args []string `json:"args,omitempty"`
	// WorkDir in the container. If empty, that of the image, or else the task's.
	WorkDir string `json:"workDir,omitempty"`
	// Ports to publish, as host:container[/protocol].
	Ports []string `json:"ports,omitempty"`
	// Volumes to mount, as host:container[:ro].
	Volumes []string `json:"volumes,omitempty"`
	// NetworkMode such as host, bridge or none. If empty, the default of the engine.
	NetworkMode string `json:"networkMode,omitempty"`
}

// JavaConfig is for the driver java.
type JavaConfig struct {
	JarPath    string   `json:"jarPath"`
	JVMOptions []string `json:"jvmOptions,omitempty"`
	Args       []string `json:"args,omitempty"`
	// Class to run. If empty, the main class of the jar.
	Class string `json:"class,omitempty"`
	// Classpath in addition to the jar, if Class is set.
	Classpath string `json:"classpath,omitempty"`
}

// Duration is a time.Duration with a JSON form such as "90s".
type Duration time.Duration

// MarshalJSON returns the duration as a string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON parses a string such as "90s". A negative duration is an error.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("duration: %w", err)
	}
	if s == "" {
		*d = 0
		return nil
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("duration: %w", err)
	}
	if v < 0 {
		return errors.New("duration: must not be negative")
	}
	*d = Duration(v)
	return nil
}
