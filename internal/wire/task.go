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
	// Timeout bounds an attempt. Zero: no bound.
	Timeout Duration `json:"timeout,omitzero"`
	// KillTimeout is the time between SIGTERM and SIGKILL. Nil:
	// DefaultKillTimeout. Zero is a wish of its own: SIGKILL follows at once.
	KillTimeout *Duration `json:"killTimeout,omitempty"`
}

// DefaultKillTimeout stands in for a kill timeout that is not given.
const DefaultKillTimeout = 5 * time.Second

// TaskConfig is the driver's own part: exactly one of its fields is set.
type TaskConfig struct {
	Exec *ExecConfig `json:"execConfig,omitempty"`
}

// ExecConfig is what the exec and raw_exec drivers run.
type ExecConfig struct {
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
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
