package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Subject is what a policy evaluates of a task.
type Subject struct {
	Namespace string `json:"namespace,omitempty"`
	Driver    string `json:"driver,omitempty"`
	// User is the user that the task names. If empty, it names none.
	User string `json:"user,omitempty"`
	// Command of a task that is no container.
	Command string `json:"command,omitempty"`
	// IsResolved is set if the references in Command were replaced. If not, a command with
	// references is not evaluated: the robot evaluates it before it starts the task.
	IsResolved bool `json:"isResolved,omitempty"`
	// LoaderVariables are the variables of the task that decide which code its programs load,
	// as LoaderVariables returns them.
	LoaderVariables []string `json:"loaderVariables,omitempty"`
	// Image, Network and Volumes of a container.
	Image   string   `json:"image,omitempty"`
	Network string   `json:"network,omitempty"`
	Volumes []string `json:"volumes,omitempty"`
	// Devices are the names of the devices that the task reserves, sorted.
	Devices []string `json:"devices,omitempty"`
}

// The drivers with rules of their own.
const (
	driverDocker = "docker"
	driverJava   = "java"
)

// javaCommand is the command of tasks of the driver java.
const javaCommand = "java"

// IsContainer reports whether the task runs in a container.
func (s *Subject) IsContainer() bool { return s.Driver == driverDocker }

// SetCommand sets the command of a task that is no container.
func (s *Subject) SetCommand(command string) {
	if s.Driver == driverJava {
		command = javaCommand
	}
	s.Command = command
}

// HasReferences reports whether Command has references that were not replaced yet.
func (s *Subject) HasReferences() bool { return !s.IsResolved && strings.Contains(s.Command, "${") }

// LoaderVariables returns, sorted, those of some environment variables that decide which code a
// program loads before it does what its author meant.
func LoaderVariables(names []string) []string {
	var out []string
	for _, name := range names {
		if name == "PATH" || name == "GCONV_PATH" || strings.HasPrefix(name, "LD_") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Key returns the subject as text, which is equal for equal subjects.
func (s *Subject) Key() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // texts can always be encoded
	}
	return string(b)
}

// ParseKey returns the subject of a Key.
func ParseKey(key string) (s Subject, err error) {
	if err := json.Unmarshal([]byte(key), &s); err != nil {
		return s, fmt.Errorf("subject of a policy: %w", err)
	}
	return s, nil
}
