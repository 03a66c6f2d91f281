package agent

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The keys of a configuration file are the flags in camel case, except for notInFile, which
// are not allowed, and labelsKey, which is a map.
var notInFile = []string{"config", "version", "parent-fd", "token", outputFlag, followFlag, stderrFlag, reasonFlag, manifestFlag, fromFlag}

const labelsKey = "labels"

// setFromFile sets the flags that are neither in the command line nor in the environment from
// the file of --config.
func (f *flags) setFromFile() error {
	if f.file == "" {
		return nil
	}
	text, err := os.ReadFile(f.file)
	if err != nil {
		return fmt.Errorf("%s: %w", f.sourceOf("config"), err)
	}
	keys, err := parsePairs(text)
	if err != nil {
		return fmt.Errorf("%s: %w", f.file, err)
	}
	given, seen := f.givenFlags(), map[string]int{}
	var errs []error
	for _, k := range keys {
		if first, twice := seen[k.name.Value]; twice {
			errs = append(errs, f.keyError(k.name, fmt.Errorf("is already set in line %d, remove one of the two", first)))
			continue
		}
		seen[k.name.Value] = k.name.Line
		errs = append(errs, f.setKey(k, given))
	}
	return errors.Join(errs...)
}

// pair is a key and its value.
type pair struct{ name, value *yaml.Node }

// parsePairs returns the keys and values of a file, which may be empty.
func parsePairs(text []byte) ([]pair, error) {
	var document, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if !errors.Is(decoder.Decode(&more), io.EOF) {
		return nil, errors.New("there is a second document after ---, or an invalid one; the file must contain one document")
	}
	return mappingPairs(document.Content[0])
}

func mappingPairs(n *yaml.Node) ([]pair, error) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d must be like key: value", n.Line)
	}
	var all []pair
	for i := 0; i < len(n.Content); i += 2 {
		all = append(all, pair{n.Content[i], n.Content[i+1]})
	}
	return all, nil
}

// keyError returns an error about a key of the file.
func (f *flags) keyError(key *yaml.Node, err error) error {
	return fmt.Errorf("%s:%d: %s %w", f.file, key.Line, key.Value, err)
}

// setKey sets one flag, unless it is in given.
func (f *flags) setKey(k pair, given map[string]bool) error {
	name := f.flagForKey(k.name.Value)
	switch {
	case k.name.Value == "token":
		return f.keyError(k.name, errors.New("is a secret: write it to a file that only the agent's user can read, and set tokenFile to its path"))
	case name == "":
		return f.keyError(k.name, fmt.Errorf("is not a key; the keys are %s", strings.Join(f.fileKeys(), ", ")))
	case given[name]:
		return nil
	}
	f.sources[name] = fmt.Sprintf("%s:%d: %s", f.file, k.name.Line, k.name.Value)
	if k.name.Value == labelsKey {
		return f.setLabels(k)
	}
	value, err := scalarValue(k.value)
	if err == nil {
		err = f.setValue(name, value)
	}
	if err != nil {
		return f.keyError(k.name, fmt.Errorf("has an invalid value: %w", err))
	}
	return nil
}

func (f *flags) setLabels(k pair) error {
	all, err := mappingPairs(k.value)
	if err != nil {
		return f.keyError(k.name, err)
	}
	var errs []error
	for _, l := range all {
		value, err := scalarValue(l.value)
		if err == nil {
			err = f.addLabel(l.name.Value, value)
		}
		if err != nil {
			errs = append(errs, f.keyError(k.name, fmt.Errorf("in line %d: %w", l.name.Line, err)))
		}
	}
	return errors.Join(errs...)
}

// scalarValue returns the text of a single value: YAML would convert labels such as 1.10 or yes.
func scalarValue(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return "", errors.New("it must be a single value, such as 30s")
	}
	return n.Value, nil
}

// fileKeys returns the keys that a file may have, sorted.
func (f *flags) fileKeys() []string {
	var keys []string
	f.VisitAll(func(g *flag.Flag) {
		if !slices.Contains(notInFile, g.Name) {
			keys = append(keys, keyForFlag(g.Name))
		}
	})
	slices.Sort(keys)
	return keys
}

// flagForKey returns the flag of a key. It is empty if there is none.
func (f *flags) flagForKey(key string) (name string) {
	f.VisitAll(func(g *flag.Flag) {
		if keyForFlag(g.Name) == key && !slices.Contains(notInFile, g.Name) {
			name = g.Name
		}
	})
	return name
}

// keyForFlag returns the key of a flag: robotId for robot-id.
func keyForFlag(name string) string {
	if name == "label" {
		return labelsKey
	}
	words := strings.Split(name, "-")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}
