package hostnode

import "strings"

// expandVariables replaces $(NAME) with the value of a variable, and $$ with $. References to
// unknown variables are left unchanged, as in Kubernetes.
func expandVariables(text string, lookup func(name string) (string, bool)) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, closed := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteString("$")
			text = rest[1:]
		case !strings.HasPrefix(rest, "(") || !closed:
			out.WriteString("$")
			text = rest
		default:
			value, ok := lookup(name)
			if !ok {
				value = "$(" + name + ")"
			}
			out.WriteString(value)
			text = after
		}
	}
}

func expandAll(texts []string, lookup func(string) (string, bool)) []string {
	var out []string
	for _, t := range texts {
		out = append(out, expandVariables(t, lookup))
	}
	return out
}
