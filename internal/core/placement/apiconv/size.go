package apiconv

import (
	"encoding/json"
	"fmt"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// MaxMessage is the largest size of a Task, in bytes, in a message to a robot.
const MaxMessage = 200 << 10

// DescribeOversize returns an error text for a task that does not fit into a message. Empty: it
// fits.
func DescribeOversize(spec *v1alpha1.TaskSpec) string {
	b, err := json.Marshal(spec)
	if err != nil {
		return fmt.Sprintf("task %s cannot be written as a message: %v", spec.Name, err)
	}
	if len(b) <= MaxMessage {
		return ""
	}
	return fmt.Sprintf("task %s is %d KiB as a message to a robot, more than %d KiB; hand large data on as a file or an artifact",
		spec.Name, (len(b)+1023)>>10, MaxMessage>>10)
}

// ReasonTaskTooLarge is the reason of a task that does not fit into a message.
const ReasonTaskTooLarge = "TaskTooLarge"
