package apiconv

import (
	"encoding/json"
	"fmt"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// MaxMessage is the largest size of a Task, in bytes, in a message to a robot.
const MaxMessage = 200 << 10

// DescribeOversize returns an error text for a task that does not fit into a message. It is empty
// if the task fits.
func DescribeOversize(spec *v1alpha1.TaskSpec) string {
	b, err := json.Marshal(spec)
	if err != nil {
		return fmt.Sprintf("task %s cannot be encoded as a message to a robot: %v", spec.Name, err)
	}
	if len(b) <= MaxMessage {
		return ""
	}
	return fmt.Sprintf("task %s is too large for a message to a robot: %d KiB, at most %d KiB are allowed; pass large data as a file or an artifact",
		spec.Name, (len(b)+1023)>>10, MaxMessage>>10)
}

// ReasonArrayInvalid is the reason of a task group whose array, or what it has beside it, is not possible.
const ReasonArrayInvalid = "ArrayInvalid"

// ReasonTaskTooLarge is the reason of a task that does not fit into a message.
const ReasonTaskTooLarge = "TaskTooLarge"
