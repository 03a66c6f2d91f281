package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Task is what a robot needs to know of a Task object. Its JSON is a part of
// the object's own, so that the whole object reads as one.
type Task struct {
	Metadata TaskMeta `json:"metadata"`
	Spec     TaskSpec `json:"spec"`
}

// TaskMeta is what a robot needs of the object's metadata.
type TaskMeta struct {
	Name      string            `json:"name,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	UID       string            `json:"uid"`
	Labels    map[string]string `json:"labels,omitempty"`
	Owners    []Owner           `json:"ownerReferences,omitempty"`
}

// Owner is an object that the Task was made for.
type Owner struct {
	UID string `json:"uid"`
	// Controller: it made the Task.
	Controller bool `json:"controller,omitempty"`
}

// The labels of a Task that Job and TaskGroup made it for.
const (
	LabelJob       = "job"
	LabelTaskGroup = "taskgroup"
	LabelTaskIndex = "taskindex"
)

// TaskSpec says what to run. Its fields are those of the Task kind
// (docs/spec/task.md).
type TaskSpec struct {
	Name          string            `json:"name"`
	JobName       string            `json:"jobName,omitempty"`
	TaskGroupName string            `json:"taskGroupName,omitempty"`
	TargetRobot   string            `json:"targetRobot,omitempty"`
	Driver        string            `json:"driver"`
	Config        TaskConfig        `json:"config"`
	Env           map[string]string `json:"env,omitempty"`
	// SecretEnv names the variables whose values come beside the task, as
	// Dispatch.Secrets.
	SecretEnv map[string]SecretKey `json:"secretEnv,omitempty"`
	// Meta is what the job and its group say of themselves, for templates.
	Meta      map[string]string `json:"meta,omitempty"`
	Resources *Resources        `json:"resources,omitempty"`
	// User that the task runs as. Empty: the agent's.
	User      string     `json:"user,omitempty"`
	Artifacts []Artifact `json:"artifacts,omitempty"`
	Templates []Template `json:"templates,omitempty"`
	Isolation *Isolation `json:"isolation,omitempty"`
	// Outputs are the names of the values that the task may hand on.
	Outputs []string `json:"outputs,omitempty"`
	// Timeout bounds an attempt. Zero: no bound.
	Timeout Duration `json:"timeout,omitzero"`
	// KillTimeout is the time between SIGTERM and SIGKILL. Nil:
	// DefaultKillTimeout. Zero is a wish of its own: SIGKILL follows at once.
	KillTimeout *Duration `json:"killTimeout,omitempty"`
	// StopOnRobotAfter is how long the task may run after the robot has sent the
	// last heartbeat that was acknowledged. Zero: for ever.
	StopOnRobotAfter Duration `json:"stopOnRobotAfter,omitzero"`
	// EphemeralDisk that the tasks of a replica share. Nil: none.
	EphemeralDisk *EphemeralDisk `json:"ephemeralDisk,omitempty"`
}

// SecretKey is where the server finds the value of a variable.
type SecretKey struct {
	SecretName string `json:"secretName"`
	Key        string `json:"key"`
	// Optional: the task does without if it is not there.
	Optional bool `json:"optional,omitempty"`
}

// EphemeralDisk is a directory that the tasks of a replica share on a robot.
type EphemeralDisk struct {
	// SizeMB is how much the replica may have on the disk, in millions of bytes.
	// Zero: any amount.
	SizeMB int64 `json:"sizeMB,omitempty"`
	// Sticky: what it has left there is kept for when it comes back.
	Sticky bool `json:"sticky,omitempty"`
}

// DefaultKillTimeout stands in for a kill timeout that is not given.
const DefaultKillTimeout = 5 * time.Second

// Resources are what the task may use.
type Resources struct {
	CPU      Quantity  `json:"cpu,omitempty"`
	Memory   Quantity  `json:"memory,omitempty"`
	Networks []Network `json:"networks,omitempty"`
}

// Network is a set of ports of the robot.
type Network struct {
	Ports []Port `json:"ports,omitempty"`
}

// Port has a name, and a number that may be zero: any that is free.
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

// Isolation is what the task insists on.
type Isolation struct {
	Required []string `json:"required,omitempty"`
}

// TaskConfig is the driver's own part: exactly one of its fields is set.
type TaskConfig struct {
	Exec   *ExecConfig   `json:"execConfig,omitempty"`
	Docker *DockerConfig `json:"dockerConfig,omitempty"`
	Java   *JavaConfig   `json:"javaConfig,omitempty"`
}

// ExecConfig is what the exec and raw_exec drivers run.
type ExecConfig struct {
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
}

// DockerConfig is what the docker driver runs.
type DockerConfig struct {
	Image string `json:"image"`
	// Command replaces the image's entry point. Empty: it does not.
	Command string `json:"command,omitempty"`
	// Args of the command. Empty, with an empty command: the image's own.
	Args []string `json:"args,omitempty"`
	// WorkDir in the container. Empty: the image's own, else the task's.
	WorkDir string `json:"workDir,omitempty"`
	// Ports to publish, as host:container[/protocol].
	Ports []string `json:"ports,omitempty"`
	// Volumes to mount, as host:container[:ro].
	Volumes []string `json:"volumes,omitempty"`
	// NetworkMode such as host, bridge or none. Empty: the engine's default.
	NetworkMode string `json:"networkMode,omitempty"`
}

// JavaConfig is what the java driver runs.
type JavaConfig struct {
	JarPath    string   `json:"jarPath"`
	JVMOptions []string `json:"jvmOptions,omitempty"`
	Args       []string `json:"args,omitempty"`
	// Class to run. Empty: the jar's main class.
	Class string `json:"class,omitempty"`
	// Classpath beside the jar, for a class.
	Classpath string `json:"classpath,omitempty"`
}

// Duration is a time.Duration that reads and writes as text, such as "90s".
type Duration time.Duration

// MarshalJSON writes the duration as text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads text such as "90s", and refuses what is negative.
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
