package stepjob

import "strings"

// Bounds of a step's outputs, so that the API server accepts the status of a flow with
// many steps. Outputs beyond them are dropped.
const (
	// MaxOutputs bounds the outputs of a step.
	MaxOutputs = 64
	// MaxOutputsBytes bounds their names and values together.
	MaxOutputsBytes = 8 << 10
)

// ParseOutputs parses NAME=VALUE lines, the format of K8S4R_OUTPUTS on robots, from the
// termination messages of a step's containers, ordered by task and index. The last value
// of a name counts. Lines without = are ignored. Nil if there are no outputs.
func ParseOutputs(messages ...string) map[string]string {
	var out map[string]string
	for _, message := range messages {
		for line := range strings.Lines(message) {
			name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
			if ok && name != "" {
				out = addOutput(out, name, value)
			}
		}
	}
	return out
}

// MergeOutputs merges the outputs of a step's tasks within the same bounds. The last value
// of a name counts.
func MergeOutputs(tasks ...map[string]string) map[string]string {
	var out map[string]string
	for _, outputs := range tasks {
		for _, name := range sortedKeys(outputs) {
			out = addOutput(out, name, outputs[name])
		}
	}
	return out
}

// addOutput sets an output if it fits.
func addOutput(out map[string]string, name, value string) map[string]string {
	if out == nil {
		out = map[string]string{}
	}
	size := len(name) + len(value)
	for n, v := range out {
		if n != name {
			size += len(n) + len(v)
		}
	}
	if _, had := out[name]; size <= MaxOutputsBytes && (had || len(out) < MaxOutputs) {
		out[name] = value
	}
	return out
}
