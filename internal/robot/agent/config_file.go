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

// The keys of a configuration file are the flags in camel case, but for these:
// notInFile stand in no file, and labelsKey is a map.
var notInFile = []string{"config", "version", "parent-fd", "token", outputFlag}

const labelsKey = "labels"

// fromFile sets the flags that neither the command line nor the environment has,
// from the file of --config.
func (f *flags) fromFile() error {
	if f.file == "" {
		return nil
	}
	text, err := os.ReadFile(f.file)
	if err != nil {
		return fmt.Errorf("%s: %w", f.source("config"), err)
	}
	keys, err := pairs(text)
	if err != nil {
		return fmt.Errorf("%s: %w", f.file, err)
	}
	given, seen := f.given(), map[string]int{}
	var errs []error
	for _, k := range keys {
		if first, twice := seen[k.name.Value]; twice {
			errs = append(errs, f.at(k.name, fmt.Errorf("is in line %d already, remove one of the two", first)))
			continue
		}
		seen[k.name.Value] = k.name.Line
		errs = append(errs, f.setKey(k, given))
	}
	return errors.Join(errs...)
}

// pair is a key and its value.
type pair struct{ name, value *yaml.Node }

// pairs are the keys and values of a file, which may be empty.
func pairs(text []byte) ([]pair, error) {
	var document, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if !errors.Is(decoder.Decode(&more), io.EOF) {
		return nil, errors.New("there is a second document behind ---, or a mistake there: keep to one")
	}
	return mapping(document.Content[0])
}

func mapping(n *yaml.Node) ([]pair, error) {
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

// at is an error about a key of the file.
func (f *flags) at(key *yaml.Node, err error) error {
	return fmt.Errorf("%s:%d: %s %w", f.file, key.Line, key.Value, err)
}

// setKey sets one flag, if it is not among the given.
func (f *flags) setKey(k pair, given map[string]bool) error {
	name := f.flagOf(k.name.Value)
	switch {
	case k.name.Value == "token":
		return f.at(k.name, errors.New("is a secret: write it to a file of its own that only the agent's user can read, and name that as tokenFile"))
	case name == "":
		return f.at(k.name, fmt.Errorf("is no key; the keys are %s", strings.Join(f.fileKeys(), ", ")))
	case given[name]:
		return nil
	}
	f.sources[name] = fmt.Sprintf("%s:%d: %s", f.file, k.name.Line, k.name.Value)
	if k.name.Value == labelsKey {
		return f.setLabels(k)
	}
	value, err := scalar(k.value)
	if err == nil {
		err = f.Set(name, value)
	}
	if err != nil {
		return f.at(k.name, fmt.Errorf("has a value that is not valid: %w", err))
	}
	return nil
}

func (f *flags) setLabels(k pair) error {
	all, err := mapping(k.value)
	if err != nil {
		return f.at(k.name, err)
	}
	var errs []error
	for _, l := range all {
		value, err := scalar(l.value)
		if err == nil {
			err = f.addLabel(l.name.Value, value)
		}
		if err != nil {
			errs = append(errs, f.at(k.name, fmt.Errorf("in line %d: %w", l.name.Line, err)))
		}
	}
	return errors.Join(errs...)
}

// scalar is a single value as it stands in the file: a label that is 1.10 or yes is
// not what YAML makes of it.
func scalar(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return "", errors.New("it must be a single value, such as 30s")
	}
	return n.Value, nil
}

// fileKeys are the keys that a file may have, sorted.
func (f *flags) fileKeys() []string {
	var keys []string
	f.VisitAll(func(g *flag.Flag) {
		if !slices.Contains(notInFile, g.Name) {
			keys = append(keys, keyOf(g.Name))
		}
	})
	slices.Sort(keys)
	return keys
}

// flagOf is the flag of a key. Empty: there is none.
func (f *flags) flagOf(key string) (name string) {
	f.VisitAll(func(g *flag.Flag) {
		if keyOf(g.Name) == key && !slices.Contains(notInFile, g.Name) {
			name = g.Name
		}
	})
	return name
}

// keyOf writes robot-id as robotId.
func keyOf(name string) string {
	if name == "label" {
		return labelsKey
	}
	words := strings.Split(name, "-")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}
