package render

import (
	"fmt"
	"strings"
)

// MaxInterpolated is the longest result of Interpolate in bytes: Linux takes
// no longer argument or variable.
const MaxInterpolated = 128<<10 - 1

// Lookup finds what ${name} stands for, for Interpolate.
func (d Data) Lookup(name string) (value string, found bool) {
	for prefix, from := range map[string]map[string]string{
		"meta.": d.Meta, "robot.labels.": d.Labels, "robot.attr.": d.Attrs,
	} {
		if key, is := strings.CutPrefix(name, prefix); is {
			value, found = from[key]
			return value, found
		}
	}
	value, found = d.Env[name]
	return value, found
}

// Interpolate replaces each ${name} that is ours to replace:
//
//   - names that begin with meta. or robot. always are: no shell has such
//     variables. One that lookup does not find is an error that names it.
//   - any other name is ours when lookup finds it. What it does not find stays
//     as it stands, and so do $name, ${name:-word} and all other words of
//     shells: a script in an argument keeps its own variables.
//
// $${name} stands for the text ${name}. What a value contains is not
// replaced again.
func Interpolate(s string, lookup func(name string) (value string, found bool)) (string, error) {
	var out strings.Builder
	for out.Len() <= MaxInterpolated {
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
		value, after, err := resolve(rest, lookup)
		if err != nil {
			return "", err
		}
		out.WriteString(before + value)
		s = after
	}
	if out.Len() > MaxInterpolated {
		return "", fmt.Errorf("is longer than %d bytes with its variables filled in", MaxInterpolated)
	}
	return out.String(), nil
}

// resolve takes what follows a ${, and returns what stands for the name in
// there and what is left behind it. Of a name that is not ours nothing is
// taken: there may be one that is in the middle of it, as in ${A:-${B}}.
func resolve(rest string, lookup func(string) (string, bool)) (value, after string, err error) {
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
