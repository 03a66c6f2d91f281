// Package interpolate replaces references such as ${meta.team} in the commands, arguments and
// variables of a task. The agent does it for a task, the manager checks the length of what the
// steps of a workflow hand on.
package interpolate

import (
	"fmt"
	"strings"
)

// MaxLength is the longest result of Expand in bytes. Linux accepts no longer argument or
// environment variable.
const MaxLength = 128<<10 - 1

// Expand replaces each ${name} in s that refers to a value of the task:
//
//   - A name that begins with "meta." or "robot." always does, because no shell has such
//     variables. If lookup does not find it, Expand returns an error that contains the name.
//   - Any other name does if lookup finds it. If not, the text is kept, as are $name,
//     ${name:-default} and other forms of shells, so that a script in an argument keeps its
//     own variables.
//
// $${name} stands for the text ${name}. Replaced values are not expanded again. A result
// longer than MaxLength is an error.
func Expand(s string, lookup func(name string) (value string, found bool)) (string, error) {
	var out strings.Builder
	for out.Len() <= MaxLength {
		before, rest, found := strings.Cut(s, "${")
		if !found {
			out.WriteString(s)
			break
		}
		if text, escaped := strings.CutSuffix(before, "$"); escaped {
			out.WriteString(text + "${")
			s = rest
			continue
		}
		value, after, err := resolveName(rest, lookup)
		if err != nil {
			return "", err
		}
		out.WriteString(before + value)
		s = after
	}
	if out.Len() > MaxLength {
		return "", fmt.Errorf("is longer than %d bytes with its variables filled in", MaxLength)
	}
	return out.String(), nil
}

// resolveName takes the text after "${" and returns the replacement and the text that follows
// it. An unknown name is kept as text without its closing brace, because another reference may
// follow inside, as in ${A:-${B}}.
func resolveName(rest string, lookup func(string) (string, bool)) (value, after string, err error) {
	name, after, closed := strings.Cut(rest, "}")
	if !closed {
		return "${", rest, nil
	}
	if value, found := lookup(name); found {
		return value, after, nil
	}
	if strings.HasPrefix(name, "meta.") || strings.HasPrefix(name, "robot.") {
		return "", "", fmt.Errorf("${%.100s} is not known; $${%.100s} stands for that text itself", name, name)
	}
	return "${", rest, nil
}
