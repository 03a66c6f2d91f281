package stepjob

import "strings"

// The bounds of a step's outputs, so that a flow of many steps stays an object that
// the API server takes. What is beyond them is left out.
const (
	// MaxOutputs is how many outputs a step has.
	MaxOutputs = 64
	// MaxOutputsBytes bounds their names and values together.
	MaxOutputsBytes = 8 << 10
)

// Outputs reads NAME=VALUE lines, the format of the file that a robot's task finds
// under K8S4R_OUTPUTS, out of the termination messages of a step's containers. They
// are to be given in the order of the Pods' tasks and indices: the last one of a name
// counts. Lines without = are no outputs, and nil is none.
func Outputs(messages ...string) map[string]string {
	var out map[string]string
	for _, message := range messages {
		for line := range strings.Lines(message) {
			name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
			if ok && name != "" {
				out = put(out, name, value)
			}
		}
	}
	return out
}

// Merge puts the outputs of a step's tasks together, the last one of a name counting,
// within the same bounds.
func Merge(tasks ...map[string]string) map[string]string {
	var out map[string]string
	for _, outputs := range tasks {
		for _, name := range sorted(outputs) {
			out = put(out, name, outputs[name])
		}
	}
	return out
}

// put sets an output where there is room for it.
func put(out map[string]string, name, value string) map[string]string {
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
