package template

import "strings"

// Lookup returns the value of ${name} in a task's definition, for interpolate.Expand: of meta.X,
// robot.labels.X or robot.attr.X, for which attr.X is another spelling, or else of a variable of the
// task's environment.
func (d Data) Lookup(name string) (value string, found bool) {
	for prefix, from := range map[string]map[string]string{
		"meta.": d.Meta, "robot.labels.": d.Labels, "robot.attr.": d.Attrs, "attr.": d.Attrs,
	} {
		if key, is := strings.CutPrefix(name, prefix); is {
			value, found = from[key]
			return value, found
		}
	}
	value, found = d.Env[name]
	return value, found
}
