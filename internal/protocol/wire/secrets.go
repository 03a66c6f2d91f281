package wire

import (
	"fmt"
	"io"
)

// OfflineSecretsSealed is the value of TaskSpec.OfflineSecrets with which a robot keeps the secrets on its disk,
// encrypted, until the attempt ends.
const OfflineSecretsSealed = "sealed"

// Secrets are the values of a task's secretEnv, by the names of its variables. They are sent to
// one robot in a message that is not retained, and are not stored in plain text.
type Secrets map[string]string

// Format writes no values, so that printing a message does not put them into a log.
func (s Secrets) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[secrets]") }
