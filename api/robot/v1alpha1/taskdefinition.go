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

// TaskDefinition defines what one task runs and what it needs.
//
// +kubebuilder:validation:XValidation:rule="!(self.driver in ['exec', 'raw_exec']) || (has(self.config.execConfig) && !has(self.config.dockerConfig) && !has(self.config.javaConfig))",message="drivers exec and raw_exec need config.execConfig with a command, and no other config"
// +kubebuilder:validation:XValidation:rule="self.driver != 'docker' || (has(self.config.dockerConfig) && !has(self.config.javaConfig))",message="driver docker needs config.dockerConfig with an image, and no javaConfig"
// +kubebuilder:validation:XValidation:rule="self.driver != 'java' || (has(self.config.javaConfig) && !has(self.config.execConfig) && !has(self.config.dockerConfig))",message="driver java needs config.javaConfig with a jarPath, and no other config"
// +kubebuilder:validation:XValidation:rule="!has(self.offlineSecrets) || (has(self.secretEnv) && size(self.secretEnv) > 0)",message="offlineSecrets: the task has no secretEnv; set it, or omit offlineSecrets"
type TaskDefinition struct {
	// Name of the task, unique within its group. It becomes a part of the name of the Task
	// object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Driver that runs the task: exec runs a command, raw_exec a command without isolation,
	// docker a container, java a jar. The task is placed only on robots that support the driver.
	// +kubebuilder:validation:Enum=exec;raw_exec;docker;java
	Driver string `json:"driver"`

	// Config of the driver. Only the field of the chosen driver may be set.
	Config TaskConfig `json:"config"`

	// Resources to reserve on the robot. If empty, the task fits every robot whose task limit is
	// not reached.
	// +optional
	Resources *Resources `json:"resources,omitempty"`

	// Env sets environment variables. The environment of the agent is not passed on.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	Env map[string]string `json:"env,omitempty"`

	// SecretEnv sets environment variables from Secrets in the same namespace, read for each
	// attempt. The values are sent to the robot beside the Task and are not stored in the object.
	// Names must not occur in env.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	SecretEnv map[string]SecretKey `json:"secretEnv,omitempty"`

	// OfflineSecrets lets the robot restart the task without contact after its agent or the robot
	// itself was restarted: if sealed, the robot keeps the values of secretEnv until the attempt
	// ends, encrypted with a key of its own. If empty, they are in the memory of the agent alone, and
	// such a task waits for contact.
	// +optional
	// +kubebuilder:validation:Enum=sealed
	OfflineSecrets string `json:"offlineSecrets,omitempty"`

	// User is the user that runs the task: an account of the robot, or for a container a user of
	// its image. Needs a privilege, except for a user of an image other than root. If empty, the
	// agent's --task-user; for a container the image's user unless that is root.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	User string `json:"user,omitempty"`

	// Timeout bounds an attempt from the start of the process. When it is exceeded the task gets
	// SIGTERM, after killTimeout SIGKILL, and the attempt fails with the reason Timeout. If
	// empty, there is no bound.
	// +optional
	Timeout *Duration `json:"timeout,omitempty"`

	// KillTimeout is the time between SIGTERM and SIGKILL when the task is stopped. If 0s,
	// SIGKILL follows at once.
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

	// Daemon marks a task that runs beside the others of its replica: it is restarted whenever it
	// exits, and stopped when the others have ended.
	// +optional
	Daemon bool `json:"daemon,omitempty"`

	// Isolation that the task requires.
	// +optional
	Isolation *Isolation `json:"isolation,omitempty"`

	// Services are accepted for older manifests, with a warning: they are registered nowhere.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Services []Service `json:"services,omitempty"`

	// Outputs are the names of values that the task passes on by writing lines NAME=VALUE to the
	// file whose path is in K8S4R_OUTPUTS.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Outputs []string `json:"outputs,omitempty"`
}

// TaskConfig holds the configuration of one driver.
type TaskConfig struct {
	// ExecConfig is for the drivers exec and raw_exec. With the driver docker it is another
	// spelling of command and args in dockerConfig.
	// +optional
	ExecConfig *ExecConfig `json:"execConfig,omitempty"`
	// DockerConfig is for the driver docker.
	// +optional
	DockerConfig *DockerConfig `json:"dockerConfig,omitempty"`
	// JavaConfig is for the driver java.
	// +optional
	JavaConfig *JavaConfig `json:"javaConfig,omitempty"`
}

// InterpolatedTexts returns the texts of the config in which the robot replaces references.
func (c *TaskConfig) InterpolatedTexts() (texts []string) {
	if e := c.ExecConfig; e != nil {
		texts = append(append(texts, e.Command), e.Args...)
	}
	if d := c.DockerConfig; d != nil {
		texts = append(append(texts, d.Command), d.Args...)
	}
	if j := c.JavaConfig; j != nil {
		texts = append(append(texts, j.JVMOptions...), j.Args...)
	}
	return texts
}

// FixedTexts returns the arguments of java in which nothing is replaced.
func (c *JavaConfig) FixedTexts() []string {
	path := c.JarPath
	if c.Classpath != "" {
		path += ":" + c.Classpath // as java gets both
	}
	return []string{path, c.Class}
}

// ExecConfig runs a command on the robot.
type ExecConfig struct {
	// Command to run: a path, or a name that is looked up in the task's PATH.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Command string `json:"command"`
	// Args of the command. They are not interpreted by a shell.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	Args []string `json:"args,omitempty"`
}

// DockerConfig runs a container on the robot.
type DockerConfig struct {
	// Image to run. It is pulled if the robot does not have it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`
	// Command replaces the image's entry point. If empty, that of the image. In a list, the items
	// after the first precede args.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Command string `json:"command,omitempty"`
	// Args of the command. If empty and command is empty, those of the image.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	Args []string `json:"args,omitempty"`
	// WorkDir is the working directory in the container. If empty, that of the image, or else the
	// task's directory.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	WorkDir string `json:"workDir,omitempty"`
	// Ports to publish, as host:container or host:container/udp, or as an object with hostPort,
	// containerPort and protocol.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Ports []PortMapping `json:"ports,omitempty"`
	// Volumes to mount, as host:container[:ro], both absolute paths, or as an object with
	// hostPath, containerPath and readOnly.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Volumes []VolumeMount `json:"volumes,omitempty"`
	// NetworkMode of the container, such as bridge or none. The modes host and container:NAME need
	// a privilege. If empty, the default of the engine.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NetworkMode string `json:"networkMode,omitempty"`
}

// JavaConfig runs a Java program on the robot.
type JavaConfig struct {
	// JarPath is the jar to run, absolute or relative to the task's directory.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	JarPath string `json:"jarPath"`
	// JVMOptions are passed to the Java virtual machine, such as -Xmx512m.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	JVMOptions []string `json:"jvmOptions,omitempty"`
	// Args of the program.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	Args []string `json:"args,omitempty"`
	// Class to run. If empty, the main class of the jar.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Class string `json:"class,omitempty"`
	// Classpath in addition to the jar, if class is set: a text with colons, or a list.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Classpath string `json:"classpath,omitempty"`
}

// Resources to reserve for a task on its robot. If a resource is not set, none is reserved.
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
	// IOPS is the number of disk operations per second.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	IOPS int64 `json:"iops,omitempty"`
	// Devices are countable devices of the robot, by their names in spec.capacity of the Robot,
	// such as arm: 1.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Devices map[string]resource.Quantity `json:"devices,omitempty"`
	// Networks lists the ports that the task listens on.
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
	// ReservedPorts is another spelling of ports with a number.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	ReservedPorts []LabeledPort `json:"reservedPorts,omitempty"`
	// DynamicPorts is another spelling of ports without a number.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	DynamicPorts []LabeledPort `json:"dynamicPorts,omitempty"`
	// MBits is the bandwidth that the task needs, in megabits per second. The sum over a robot's
	// tasks does not exceed mbits in its spec.capacity; a robot without that value is unlimited.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	MBits int64 `json:"mbits,omitempty"`
}

// NamedPort is a port on the robot. The task reads its number from the variable K8S4R_PORT_NAME,
// where NAME is the name in upper case.
type NamedPort struct {
	// Name of the port.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Port number. If 0, the robot chooses a free one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// SecretKey selects a value of a Secret in the same namespace.
type SecretKey struct {
	// SecretName is the name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`
	// Key within the Secret's data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
	// Optional lets the task start without the variable if the Secret or the key does not exist.
	// If false, the task waits for it.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// Artifact is a file or an archive that a task needs.
type Artifact struct {
	// GetterSource is the URL of the artifact, with the scheme http, https or file.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	GetterSource string `json:"getterSource"`
	// GetterOptions of the download, such as checksum: sha256:….
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	GetterOptions map[string]string `json:"getterOptions,omitempty"`
	// RelativeDest is the destination, relative to the task's directory. If empty, that
	// directory.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	RelativeDest string `json:"relativeDest,omitempty"`
	// GetterMode file keeps the source as a file, dir unpacks it, any decides by its type.
	// +optional
	// +kubebuilder:validation:Enum=any;file;dir
	// +kubebuilder:default=any
	GetterMode string `json:"getterMode,omitempty"`
}

// Template is a file that is rendered for a task.
//
// +kubebuilder:validation:XValidation:rule="has(self.sourcePath) != has(self.embeddedTmpl)",message="set exactly one of sourcePath and embeddedTmpl"
type Template struct {
	// SourcePath of the template, relative to the task's directory.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	SourcePath *string `json:"sourcePath,omitempty"`
	// EmbeddedTmpl is the text of the template, in the language of Go's text/template.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	EmbeddedTmpl *string `json:"embeddedTmpl,omitempty"`
	// DestPath of the result, relative to the task's directory.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	DestPath string `json:"destPath"`
	// ChangeMode defines what happens to the running task when the result changes: restart runs
	// it again, signal sends it changeSignal, noop does nothing.
	// +optional
	// +kubebuilder:validation:Enum=restart;noop;signal
	// +kubebuilder:default=restart
	ChangeMode string `json:"changeMode,omitempty"`
	// ChangeSignal is the signal for changeMode signal, such as SIGHUP.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	ChangeSignal string `json:"changeSignal,omitempty"`
	// Perms are the permissions of the file in octal.
	// +optional
	// +kubebuilder:validation:Pattern=`^0?[0-7]{3}$`
	// +kubebuilder:default="0644"
	Perms string `json:"perms,omitempty"`
	// LeftDelim replaces the opening delimiter. If empty, {{.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	LeftDelim string `json:"leftDelim,omitempty"`
	// RightDelim replaces the closing delimiter. If empty, }}.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	RightDelim string `json:"rightDelim,omitempty"`
}

// Isolation that a task requires.
type Isolation struct {
	// Required are the kinds of isolation that the robot must support.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Required []string `json:"required,omitempty"`
}

// Constraint restricts the robots that may run a task.
//
// +kubebuilder:validation:XValidation:rule="has(self.lTarget) != has(self.ltarget)",message="set lTarget (or ltarget, not both): a literal or ${robot.labels.NAME} or ${robot.attr.NAME}"
// +kubebuilder:validation:XValidation:rule="!(has(self.rTarget) && has(self.rtarget))",message="set rTarget or rtarget, not both"
type Constraint struct {
	// LTarget is the left operand: a literal, ${robot.labels.NAME}, or ${robot.attr.NAME}, for
	// which ${attr.NAME} is another spelling.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LTarget *string `json:"lTarget,omitempty"`
	// LTargetLower is another spelling of lTarget.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LTargetLower *string `json:"ltarget,omitempty"`
	// Operand is the operator that compares the two targets. A = in quotes is another spelling
	// of =.
	// +kubebuilder:validation:Enum="=";"!=";">";">=";"<";"<=";regexp;set_contains;version;"\"=\""
	Operand string `json:"operand"`
	// RTarget is the right operand, in the same forms.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	RTarget *string `json:"rTarget,omitempty"`
	// RTargetLower is another spelling of rTarget.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	RTargetLower *string `json:"rtarget,omitempty"`
}

// RestartPolicy defines when a failed task runs again on the same robot.
type RestartPolicy struct {
	// Attempts is the number of restarts within interval.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Attempts int32 `json:"attempts,omitempty"`
	// Interval in which attempts are counted. If empty, all restarts are counted.
	// +optional
	Interval *Duration `json:"interval,omitempty"`
	// Delay before a restart, at least a second. If empty, a second.
	// +optional
	Delay *Duration `json:"delay,omitempty"`
	// Mode defines what follows when the attempts of the interval are used up: fail continues
	// with the reschedulePolicy, delay waits for the next interval. Mode delay without an
	// interval restarts without limit. Without contact, fail acts like delay.
	// +optional
	// +kubebuilder:validation:Enum=fail;delay
	// +kubebuilder:default=fail
	Mode string `json:"mode,omitempty"`
	// OnReboot defines what follows when the robot is restarted while the task runs: restart starts
	// it again without contact, report ends the attempt without fault, and the manager decides. If
	// empty: restart for service and system; for batch and sysbatch restart while restarts are left,
	// then report. An array always reports.
	// +optional
	// +kubebuilder:validation:Enum=restart;report
	OnReboot string `json:"onReboot,omitempty"`
}

// ReschedulePolicy defines when a task that failed on one robot runs again on another.
type ReschedulePolicy struct {
	// Attempts is the number of attempts on other robots within interval.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Attempts int32 `json:"attempts,omitempty"`
	// Interval in which attempts are counted. If empty, all attempts are counted.
	// +optional
	Interval *Duration `json:"interval,omitempty"`
	// Delay before the first attempt. If empty, there is none.
	// +optional
	Delay *Duration `json:"delay,omitempty"`
	// DelayFunction defines how the delay grows from one attempt to the next.
	// +optional
	// +kubebuilder:validation:Enum=constant;exponential;fibonacci
	// +kubebuilder:default=exponential
	DelayFunction string `json:"delayFunction,omitempty"`
	// MaxDelay bounds the delay. If empty, it is not bounded.
	// +optional
	MaxDelay *Duration `json:"maxDelay,omitempty"`
	// Unlimited allows any number of attempts; attempts and interval then have no effect.
	// +optional
	Unlimited bool `json:"unlimited,omitempty"`
}
