package interpolate

import (
	"strings"
	"testing"
)

func lookupIn(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, found := values[name]
		return value, found
	}
}

func TestExpand(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"nothing", "plain $HOME ${} }", "plain $HOME ${} }"},
		{"a variable of the task", "--port=${PORT}", "--port=8080"},
		{"several", "${PORT}${PORT}-${EMPTY}-", "80808080--"},
		{"meta", "${meta.team}", "blue"},
		{"a label with dots and a slash", "${robot.labels.robot.k8s4r.io/arm}", "left"},
		{"an attribute", "${robot.attr.cpu.cores} cores", "4 cores"},
		{"a shell's own variable", "for f in *; do echo ${f} $f; done", "for f in *; do echo ${f} $f; done"},
		{"a shell's words", "${PORT:-1} ${#PORT} ${PORT%0} $(PORT) $$ $${", "${PORT:-1} ${#PORT} ${PORT%0} $(PORT) $$ ${"},
		{"one in a shell's word", "${X:-${PORT}}", "${X:-8080}"},
		{"a name that another language has", "${process.version}", "${process.version}"},
		{"escaped", "$${PORT} $${meta.none} $$${PORT}", "${PORT} ${meta.none} $${PORT}"},
		{"not closed", "${PORT ${PORT", "${PORT ${PORT"},
		{"not closed, then closed", "${a ${PORT}", "${a 8080"},
		{"a value that looks like a name", "${NESTED}", "${PORT}"},
	}
	lookup := lookupIn(map[string]string{
		"PORT": "8080", "EMPTY": "", "NESTED": "${PORT}",
		"meta.team": "blue", "robot.labels.robot.k8s4r.io/arm": "left", "robot.attr.cpu.cores": "4",
	})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Expand(tt.text, lookup)
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestExpand_RejectsUnknownNamesAndLongResults(t *testing.T) {
	for text, want := range map[string]string{
		"a ${meta.none}":            "${meta.none} is not known; $${meta.none} stands for that text itself",
		"${robot.labels.none}":      "${robot.labels.none} is not known",
		"${robot.attr.none}":        "${robot.attr.none} is not known",
		"${robot.label.zone}":       "${robot.label.zone} is not known",
		"${meta.${PORT}}":           "${meta.${PORT} is not known",
		strings.Repeat("${BIG}", 3): "is longer than 131071 bytes with its variables filled in",
		strings.Repeat("x", 131072): "is longer than 131071 bytes",
	} {
		lookup := lookupIn(map[string]string{"PORT": "1", "BIG": strings.Repeat("x", 65536)})
		if got, err := Expand(text, lookup); err == nil || !strings.Contains(err.Error(), want) || got != "" {
			t.Errorf("got %.50q, %v, want %q", got, err, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"", "${", "${A}", "$${A}", "$$${A}}", "${meta.a}", "${robot.labels.a/b.c}", "${A:-${B}}", "sh -c 'echo $$ ${HOME}'", "$${${A}"} {
		f.Add(s, "v")
	}
	nothing := func(string) (string, bool) { return "", false }
	f.Fuzz(func(t *testing.T, s, v string) {
		// Escaped text stands for itself, whatever it is.
		escaped := strings.ReplaceAll(s, "${", "$${")
		if got, err := Expand(escaped, nothing); len(s) < MaxLength/2 && (err != nil || got != s) {
			t.Errorf("%q became %q, %v", escaped, got, err)
		}
		// Text without names of ours stays as it is.
		if !strings.Contains(s, "$${") && !strings.Contains(s, "${meta.") && !strings.Contains(s, "${robot.") && len(s) < MaxLength {
			if got, err := Expand(s, nothing); err != nil || got != s {
				t.Errorf("%q became %q, %v", s, got, err)
			}
		}
		// What a value says is not looked at.
		one := func(name string) (string, bool) { return v, name == "A" }
		if got, err := Expand("<${A}>", one); len(v) < MaxLength/2 && (err != nil || got != "<"+v+">") {
			t.Errorf("%q became %q, %v", v, got, err)
		}
		_, _ = Expand(s, one)
	})
}
