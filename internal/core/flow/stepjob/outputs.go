package stepjob

import (
	"fmt"
	"strings"
)

// Bounds of a step's outputs, so that the API server accepts the status of a flow with
// many steps. Outputs beyond them are omitted.
const (
	// MaxOutputs bounds the outputs of a step.
	MaxOutputs = 64
	// MaxOutputsBytes bounds their names and values together.
	MaxOutputsBytes = 8 << 10
	// maxOmittedNames bounds the omitted outputs that a message names.
	maxOmittedNames = 5
)

// Outputs are the outputs of a step.
type Outputs struct {
	// Values by name. Nil if there are none.
	Values map[string]string
	// Omission names the outputs that are beyond the bounds, and what to do. Empty if there are
	// none.
	Omission string
}

// ParseOutputs parses NAME=VALUE lines, the format of K8S4R_OUTPUTS on robots, from the
// termination messages of a step's containers, ordered by task and index. The last value
// of a name counts. Lines without = are ignored.
func ParseOutputs(messages ...string) Outputs {
	var c outputCollector
	for _, message := range messages {
		for line := range strings.Lines(message) {
			name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
			if ok && name != "" {
				c.addOutput(name, value)
			}
		}
	}
	return c.toOutputs()
}

// MergeOutputs merges the outputs of a step's tasks within the same bounds. The last value
// of a name counts.
func MergeOutputs(tasks ...map[string]string) Outputs {
	var c outputCollector
	for _, outputs := range tasks {
		for _, name := range sortedKeys(outputs) {
			c.addOutput(name, outputs[name])
		}
	}
	return c.toOutputs()
}

// outputCollector collects outputs within the bounds.
type outputCollector struct {
	values map[string]string
	bytes  int // of the values and their names
	// omitted has the names whose last value did not fit.
	omitted map[string]string
}

// addOutput sets an output if it fits.
func (c *outputCollector) addOutput(name, value string) {
	if c.values == nil {
		c.values, c.omitted = map[string]string{}, map[string]string{}
	}
	was, had := c.values[name]
	size := c.bytes + len(value) - len(was)
	if !had {
		size += len(name)
	}
	if size > MaxOutputsBytes || !had && len(c.values) >= MaxOutputs {
		c.omitted[name] = ""
		return
	}
	c.values[name], c.bytes = value, size
	delete(c.omitted, name)
}

// toOutputs returns what was collected.
func (c *outputCollector) toOutputs() Outputs {
	out := Outputs{Values: c.values}
	if n := len(c.omitted); n > 0 {
		names := strings.Join(sortedKeys(c.omitted)[:min(n, maxOmittedNames)], ", ")
		if n > maxOmittedNames {
			names += fmt.Sprintf(" and %d more", n-maxOmittedNames)
		}
		out.Omission = fmt.Sprintf("%d of its outputs are omitted: %s; a step has at most %d outputs of %d KiB in total: reduce them, and pass large values in files", n, names, MaxOutputs, MaxOutputsBytes>>10)
	}
	return out
}
