package stepjob

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/internal/render"
)

// reference is what stands in $(…): a param where step is empty, else an output.
type reference struct{ step, name string }

func (r reference) String() string {
	if r.step == "" {
		return "$(params." + r.name + ")"
	}
	return "$(flows." + r.step + ".outputs." + r.name + ")"
}

// expander fills in references.
type expander struct {
	lookup func(reference) (string, error)
	// literal writes a value so that whoever reads the text later takes it as it is.
	literal func(string) string
}

// The ways to write a value.
func asItIs(s string) string { return s }

// forKubelet doubles dollars, which the kubelet halves.
func forKubelet(s string) string { return strings.ReplaceAll(s, "$", "$$") }

// forAgent keeps the agent from taking a value for a variable of its own.
func forAgent(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// expand fills in the references of a text. It reads dollars as the kubelet does: two
// of them are one that begins nothing.
func (e expander) expand(s string) (string, error) {
	var out strings.Builder
	for out.Len() <= render.MaxInterpolated {
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
		value, err := e.value(name)
		if err != nil {
			return "", err
		}
		out.WriteString(e.literal(value))
		s = behind
	}
	return "", fmt.Errorf("is longer than %d bytes with its references filled in; hand on what is so long in a file", render.MaxInterpolated)
}

// value is what a name in $(…) stands for.
func (e expander) value(name string) (string, error) {
	if param, ok := strings.CutPrefix(name, "params."); ok {
		return e.lookup(reference{name: param})
	}
	rest := strings.TrimPrefix(name, "flows.")
	// The name of a step may have dots, that of an output should not.
	i := strings.LastIndex(rest, ".outputs.")
	if i < 1 {
		return "", fmt.Errorf("$(%.200s) is no reference: write $(flows.STEP.outputs.NAME), or $$(%.200s) for that text itself", name, name)
	}
	return e.lookup(reference{step: rest[:i], name: rest[i+len(".outputs."):]})
}

// cutReference takes the name in parentheses that a text begins with, if it is ours
// to fill in.
func cutReference(s string) (name, behind string, ours bool) {
	inside, open := strings.CutPrefix(s, "(")
	name, behind, closed := strings.Cut(inside, ")")
	ours = open && closed && (strings.HasPrefix(name, "params.") || strings.HasPrefix(name, "flows."))
	return name, behind, ours
}

// all fills in each of the texts, which stand at path.
func (e expander) all(path string, texts []string) error {
	for i := range texts {
		if err := e.in(fmt.Sprintf("%s[%d]", path, i), &texts[i]); err != nil {
			return err
		}
	}
	return nil
}

// in fills in one text, which stands at path.
func (e expander) in(path string, text *string) error {
	expanded, err := e.expand(*text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	*text = expanded
	return nil
}

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
