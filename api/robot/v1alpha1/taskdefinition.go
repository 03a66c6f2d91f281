package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
)

// The drivers that run tasks.
const (
	DriverExec    = "exec"
	DriverRawExec = "raw_exec"
	DriverDocker  = "docker"
	DriverJava    = "java"
)

// TaskDefinition says what one task runs and what it needs for that.
//
// +kubebuilder:validation:XValidation:rule="!(self.driver in ['exec', 'raw_exec']) || (has(self.config.execConfig) && !has(self.config.dockerConfig) && !has(self.config.javaConfig))",message="drivers exec and raw_exec need config.execConfig with a command, and no other config"
// +kubebuilder:validation:XValidation:rule="self.driver != 'docker' || (has(self.config.dockerConfig) && !has(self.config.execConfig) && !has(self.config.javaConfig))",message="driver docker needs config.dockerConfig with an image, and no other config"
// +kubebuilder:validation:XValidation:rule="self.driver != 'java' || (has(self.config.javaConfig) && !has(self.config.execConfig) && !has(self.config.dockerConfig))",message="driver java needs config.javaConfig with a jarPath, and no other config"
type TaskDefinition struct {
	// Name of the task, unique within its group; a part of the Task object's
	// name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Driver that runs the task on the robot: exec runs a command, raw_exec
	// the same without any isolation, docker a container, java a jar. A robot
	// gets only tasks whose driver it offers.
	// +kubebuilder:validation:Enum=exec;raw_exec;docker;java
	Driver string `json:"driver"`

	// Config of the driver: the field that belongs to it, and no other.
	Config TaskConfig `json:"config"`

	// Resources that the task needs on its robot. A task that names none
	// fits every robot that has a place left.
	// +optional
	Resources *Resources `json:"resources,omitempty"`

	// Env sets environment variables of the task. Nothing of the agent's own
	// environment reaches the task.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	Env map[string]string `json:"env,omitempty"`

	// SecretEnv sets environment variables from Secrets in the same
	// namespace, read anew for each attempt. The values travel to the robot
	// beside the Task and never stand in the object. A name of env cannot be
	// used again.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	SecretEnv map[string]SecretKey `json:"secretEnv,omitempty"`

	// User to run the task as. Empty: the user that the agent runs as.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	User string `json:"user,omitempty"`

	// Timeout of one attempt, from the start of the process. Empty: none.
	// When it is over the task gets SIGTERM, after killTimeout SIGKILL, and
	// has failed with reason Timeout.
	// +optional
	Timeout *Duration `json:"timeout,omitempty"`

	// KillTimeout is the time that the task has between SIGTERM and SIGKILL.
	// 0s: none, SIGKILL follows at once.
	// +optional
	// +kubebuilder:default="5s"
	KillTimeout *Duration `json:"killTimeout,omitempty"`

	// Artifacts are fetched into the task's directory before it starts.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Artifacts []Artifact `json:"artifacts,omitempty"`

	// Templates are rendered into the task's directory before it starts.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Templates []Template `json:"templates,omitempty"`

	// Daemon marks a task that runs beside the others of its replica: it is kept
	// running, and stopped when they have ended.
	// +optional
	Daemon bool `json:"daemon,omitempty"`

	// Isolation that the task insists on.
	// +optional
	Isolation *Isolation `json:"isolation,omitempty"`

	// Outputs names the values that the task hands on by writing NAME=VALUE
	// lines to the file named in K8S4R_OUTPUTS.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Outputs []string `json:"outputs,omitempty"`
}

// TaskConfig holds the configuration of one driver.
type TaskConfig struct {
	// ExecConfig is for the drivers exec and raw_exec.
	// +optional
	ExecConfig *ExecConfig `json:"execConfig,omitempty"`
	// DockerConfig is for the driver docker.
	// +optional
	DockerConfig *DockerConfig `json:"dockerConfig,omitempty"`
	// JavaConfig is for the driver java.
	// +optional
	JavaConfig *JavaConfig `json:"javaConfig,omitempty"`
}

// ExecConfig is a command on the robot.
type ExecConfig struct {
	// Command to run: a path, or a name that is looked up in the task's PATH.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Command string `json:"command"`
	// Args of the command. No shell reads them.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	Args []string `json:"args,omitempty"`
}

// DockerConfig is a container on the robot.
type DockerConfig struct {
	// Image to run. It is pulled if the robot does not have it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`
	// Command replaces the image's entry point.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Command string `json:"command,omitempty"`
	// Args of the command.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	Args []string `json:"args,omitempty"`
	// WorkDir is the directory in the container that the command starts in.
	// Empty: the image's own, else the task's.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	WorkDir string `json:"workDir,omitempty"`
	// Ports to publish, as host:container or host:container/udp.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Ports []string `json:"ports,omitempty"`
	// Volumes to mount, as host:container[:ro], both absolute paths.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Volumes []string `json:"volumes,omitempty"`
	// NetworkMode of the container, such as host or bridge.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NetworkMode string `json:"networkMode,omitempty"`
}

// JavaConfig is a Java program on the robot.
type JavaConfig struct {
	// JarPath is the jar to run, absolute or relative to the task's directory.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	JarPath string `json:"jarPath"`
	// JVMOptions go to the virtual machine, such as -Xmx512m.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	JVMOptions []string `json:"jvmOptions,omitempty"`
	// Args of the program.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	Args []string `json:"args,omitempty"`
	// Class to run instead of the jar's main class.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Class string `json:"class,omitempty"`
	// Classpath beside the jar, for a class.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Classpath string `json:"classpath,omitempty"`
}

// Resources that a task needs on its robot.
type Resources struct {
	// CPU in cores, such as 500m or 2.
	// +optional
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// Memory in bytes, such as 128Mi.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
	// Disk in bytes, such as 1Gi.
	// +optional
	Disk *resource.Quantity `json:"disk,omitempty"`
	// IOPS are input and output operations a second.
	// +optional
	// +kubebuilder:validation:Minimum=0
	IOPS int64 `json:"iops,omitempty"`
	// Devices are countable things of the robot, by their names in its
	// spec.capacity, such as arm: 1.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Devices map[string]resource.Quantity `json:"devices,omitempty"`
	// Networks hold the ports that the task listens on.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	Networks []Network `json:"networks,omitempty"`
}

// Network is a set of named ports on the robot.
type Network struct {
	// Ports that the task listens on.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	Ports []NamedPort `json:"ports,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
}

// NamedPort is a port whose number the task finds in its environment as
// K8S4R_PORT_NAME.
type NamedPort struct {
	// Name of the port.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Port number. Zero: the robot picks a free one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// SecretKey names one value of a Secret in the same namespace.
type SecretKey struct {
	// SecretName is the name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`
	// Key within the Secret's data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
	// Optional lets the task start without the variable where there is no such
	// Secret, or no such key in it. False: the task waits for it.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// Artifact is a file or an archive that a task needs.
type Artifact struct {
	// GetterSource is the address: http, https or file.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	GetterSource string `json:"getterSource"`
	// GetterOptions of the transfer, such as checksum: sha256:….
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	GetterOptions map[string]string `json:"getterOptions,omitempty"`
	// RelativeDest is where it goes, below the task's directory.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	RelativeDest string `json:"relativeDest,omitempty"`
	// GetterMode says what the source is: a file, a directory to unpack, or
	// whichever fits.
	// +optional
	// +kubebuilder:validation:Enum=any;file;dir
	// +kubebuilder:default=any
	GetterMode string `json:"getterMode,omitempty"`
}

// Template is a file that is rendered for a task.
//
// +kubebuilder:validation:XValidation:rule="has(self.sourcePath) != has(self.embeddedTmpl)",message="set exactly one of sourcePath and embeddedTmpl"
type Template struct {
	// SourcePath of the template, below the task's directory.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	SourcePath *string `json:"sourcePath,omitempty"`
	// EmbeddedTmpl is the template itself, in the language of Go's
	// text/template.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	EmbeddedTmpl *string `json:"embeddedTmpl,omitempty"`
	// DestPath is where the result goes, below the task's directory.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	DestPath string `json:"destPath"`
	// ChangeMode says what happens to the task when the result changes.
	// +optional
	// +kubebuilder:validation:Enum=restart;noop;signal
	// +kubebuilder:default=restart
	ChangeMode string `json:"changeMode,omitempty"`
	// ChangeSignal is sent with changeMode signal, such as SIGHUP.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	ChangeSignal string `json:"changeSignal,omitempty"`
	// Perms of the file in octal.
	// +optional
	// +kubebuilder:validation:Pattern=`^0?[0-7]{3}$`
	// +kubebuilder:default="0644"
	Perms string `json:"perms,omitempty"`
	// LeftDelim replaces the opening braces.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	LeftDelim string `json:"leftDelim,omitempty"`
	// RightDelim replaces the closing braces.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	RightDelim string `json:"rightDelim,omitempty"`
}

// Isolation that a task insists on.
type Isolation struct {
	// Required names the kinds of isolation without which the task must not
	// run.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Required []string `json:"required,omitempty"`
}

// Constraint restricts which robots may run a task.
//
// +kubebuilder:validation:XValidation:rule="has(self.lTarget) != has(self.ltarget)",message="set lTarget (or ltarget, not both): a literal or ${robot.labels.NAME} or ${robot.attr.NAME}"
// +kubebuilder:validation:XValidation:rule="!(has(self.rTarget) && has(self.rtarget))",message="set rTarget or rtarget, not both"
type Constraint struct {
	// LTarget is the left side: a literal, ${robot.labels.NAME} or
	// ${robot.attr.NAME}.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LTarget *string `json:"lTarget,omitempty"`
	// LTargetLower is lTarget by its other spelling.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LTargetLower *string `json:"ltarget,omitempty"`
	// Operand compares the two sides.
	// +kubebuilder:validation:Enum="=";"!=";">";">=";"<";"<=";regexp;set_contains;version
	Operand string `json:"operand"`
	// RTarget is the right side: a literal, ${robot.labels.NAME} or
	// ${robot.attr.NAME}.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	RTarget *string `json:"rTarget,omitempty"`
	// RTargetLower is rTarget by its other spelling.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	RTargetLower *string `json:"rtarget,omitempty"`
}

// RestartPolicy says how often a failed task is run again on the same robot.
type RestartPolicy struct {
	// Attempts beyond the first within interval.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts,omitempty"`
	// Interval that attempts are counted in. Empty: for the whole life of the
	// task.
	// +optional
	Interval *Duration `json:"interval,omitempty"`
	// Delay before the next attempt.
	// +optional
	Delay *Duration `json:"delay,omitempty"`
	// Mode when the attempts of the interval are used up: fail hands the task
	// on to its reschedulePolicy, delay waits for the next interval. Without
	// an interval delay never runs out of attempts, a second apart at the least.
	// +optional
	// +kubebuilder:validation:Enum=fail;delay
	// +kubebuilder:default=fail
	Mode string `json:"mode,omitempty"`
}

// ReschedulePolicy says how a task that failed on one robot is tried on
// others.
type ReschedulePolicy struct {
	// Attempts on other robots within interval.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts,omitempty"`
	// Interval that attempts are counted in. Empty: for the whole life of the
	// task.
	// +optional
	Interval *Duration `json:"interval,omitempty"`
	// Delay before the first.
	// +optional
	Delay *Duration `json:"delay,omitempty"`
	// DelayFunction says how the delay grows from one to the next.
	// +optional
	// +kubebuilder:validation:Enum=constant;exponential;fibonacci
	// +kubebuilder:default=exponential
	DelayFunction string `json:"delayFunction,omitempty"`
	// MaxDelay bounds the growth.
	// +optional
	MaxDelay *Duration `json:"maxDelay,omitempty"`
	// Unlimited tries for ever; attempts and interval are then of no effect.
	// +optional
	Unlimited bool `json:"unlimited,omitempty"`
}
