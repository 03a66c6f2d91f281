package stepjob

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/internal/protocol/interpolate"
)

// reference is a reference in $(…): to a param if step is empty, else to an output.
type reference struct{ step, name string }

func (r reference) String() string {
	if r.step == "" {
		return "$(params." + r.name + ")"
	}
	return "$(flows." + r.step + ".outputs." + r.name + ")"
}

// expander replaces references.
type expander struct {
	lookup func(reference) (string, error)
	// literal escapes a value so that later readers of the text do not expand it.
	literal func(string) string
}

func keepLiteral(s string) string { return s }

// escapeForKubelet doubles dollars, which the kubelet halves.
func escapeForKubelet(s string) string { return strings.ReplaceAll(s, "$", "$$") }

// escapeForAgent escapes ${, which the agent would expand.
func escapeForAgent(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// expandText replaces the references of a text. As in the kubelet, $$ is a dollar that
// starts no reference.
func (e expander) expandText(s string) (string, error) {
	var out strings.Builder
	for out.Len() <= interpolate.MaxLength {
		before, rest, found := strings.Cut(s, "$")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		if after, twice := strings.CutPrefix(rest, "$"); twice {
			text, left := "$$", after
			if name, behind, ours := cutReference(after); ours {
				text, left = e.literal("$("+name+")"), behind
			}
			out.WriteString(text)
			s = left
			continue
		}
		name, behind, ours := cutReference(rest)
		if !ours {
			out.WriteByte('$')
			s = rest
			continue
		}
		value, err := e.resolveName(name)
		if err != nil {
			return "", err
		}
		out.WriteString(e.literal(value))
		s = behind
	}
	return "", fmt.Errorf("is longer than %d bytes after its references are replaced; pass large values in files", interpolate.MaxLength)
}

// resolveName returns the value of a name in $(…).
func (e expander) resolveName(name string) (string, error) {
	if param, ok := strings.CutPrefix(name, "params."); ok {
		return e.lookup(reference{name: param})
	}
	rest := strings.TrimPrefix(name, "flows.")
	// Names of steps may contain dots, names of outputs should not.
	i := strings.LastIndex(rest, ".outputs.")
	if i < 1 {
		return "", fmt.Errorf("$(%.200s) is not a valid reference: use $(flows.STEP.outputs.NAME), or $$(%.200s) for the literal text", name, name)
	}
	return e.lookup(reference{step: rest[:i], name: rest[i+len(".outputs."):]})
}

// cutReference cuts the name in parentheses at the start of a text. ours reports whether
// it is a reference to params or flows.
func cutReference(s string) (name, behind string, ours bool) {
	inside, open := strings.CutPrefix(s, "(")
	name, behind, closed := strings.Cut(inside, ")")
	ours = open && closed && (strings.HasPrefix(name, "params.") || strings.HasPrefix(name, "flows."))
	return name, behind, ours
}

// expandAll replaces the references in texts at path.
func (e expander) expandAll(path string, texts []string) error {
	for i := range texts {
		if err := e.expandField(fmt.Sprintf("%s[%d]", path, i), &texts[i]); err != nil {
			return err
		}
	}
	return nil
}

// expandField replaces the references in the text at path.
func (e expander) expandField(path string, text *string) error {
	expanded, err := e.expandText(*text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	*text = expanded
	return nil
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
