package wire

import (
	"fmt"
	"io"
)

// Secrets are the values of a task's secretEnv, by the names of its variables. They
// go to one robot in one message, which is not retained, and are written down
// nowhere.
type Secrets map[string]string

// Format writes no value, whatever the verb: a message that somebody prints does
// not put them into a log.
func (s Secrets) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[secrets]") }
