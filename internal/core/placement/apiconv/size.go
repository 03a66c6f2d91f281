package demand

import (
	"encoding/json"
	"fmt"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// MaxMessage bounds, in bytes, what a Task may take in a message to a robot.
const MaxMessage = 200 << 10

// TooLarge is a sentence about a task that no message can carry. Empty: the
// task fits.
func TooLarge(spec *v1alpha1.TaskSpec) string {
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

// ReasonTooLarge is the reason of a task that is TooLarge.
const ReasonTooLarge = "TaskTooLarge"
