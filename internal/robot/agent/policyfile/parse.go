package policyfile

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
	"k8s4r.io/k8s4r/internal/protocol/policy"
)

// maxUpdateKeys bounds File.UpdateKeys: the present key, the next one, and some of others.
const maxUpdateKeys = 8

// File is the content of a policy file.
type File struct {
	// Policy is what the robot allows. If nil, the file has no rules, and everything is allowed.
	Policy *policy.Policy
	// UpdateKeys are the keys that sign versions of the agent, at most maxUpdateKeys. If empty, the agent does
	// not update itself. They stay on the robot: the server gets the Policy alone.
	UpdateKeys []ed25519.PublicKey
}

// Parse parses the content of a policy file. It accepts nothing that could be meant in another way:
// no unknown or repeated keys, no empty values and no second document.
func Parse(content []byte) (*File, error) {
	if len(content) > policy.MaxSize {
		return nil, fmt.Errorf("is longer than %d KiB", policy.MaxSize>>10)
	}
	var document, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, errors.New("is empty")
	} else if err != nil {
		return nil, err
	}
	if !errors.Is(decoder.Decode(&more), io.EOF) {
		return nil, errors.New("has a second document after ---, or an invalid one; it must contain one document")
	}
	return parseFile(document.Content[0])
}

func parseFile(n *yaml.Node) (*File, error) {
	f, p := &File{}, &policy.Policy{}
	header := map[string]string{}
	err := eachKey(n, "", []string{"apiVersion", "kind", "allow", "update"}, func(key string, value *yaml.Node) (err error) {
		switch key {
		case "allow":
			f.Policy = p
			return parseRules(&p.Allow, value)
		case "update":
			return parseUpdate(f, value)
		}
		header[key], err = scalar(value, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	if header["apiVersion"] != policy.APIVersion || header["kind"] != policy.Kind {
		return nil, fmt.Errorf("must begin with apiVersion: %s and kind: %s", policy.APIVersion, policy.Kind)
	}
	if f.Policy == nil && f.UpdateKeys != nil {
		return f, nil
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return f, nil
}

func parseUpdate(f *File, node *yaml.Node) error {
	err := eachKey(node, "update.", []string{"publicKeys"}, func(_ string, value *yaml.Node) error {
		texts, err := parseList(value, "update.publicKeys")
		if err != nil {
			return err
		}
		if len(texts) == 0 || len(texts) > maxUpdateKeys {
			return fmt.Errorf("line %d: update.publicKeys: must have 1 to %d keys; remove update if the agent must not update itself", value.Line, maxUpdateKeys)
		}
		for i, text := range texts {
			key, err := agentupdate.ParsePublicKey(text)
			if err != nil {
				return fmt.Errorf("line %d: update.publicKeys[%d]: %w", value.Content[i].Line, i, err)
			}
			f.UpdateKeys = append(f.UpdateKeys, key)
		}
		return nil
	})
	if err == nil && f.UpdateKeys == nil {
		return fmt.Errorf("line %d: update.publicKeys: is required", node.Line)
	}
	return err
}

func parseRules(r *policy.Rules, node *yaml.Node) error {
	return eachKey(node, "allow.", policy.RuleNames(), func(rule string, value *yaml.Node) error {
		if rule == policy.RuleRoot {
			return parseRoot(r, value)
		}
		list, err := parseList(value, "allow."+rule)
		*r.ListOf(rule) = list
		return err
	})
}

func parseRoot(r *policy.Rules, value *yaml.Node) error {
	text, err := scalar(value, "allow.root")
	if err != nil {
		return err
	}
	if text != "true" && text != "false" {
		return fmt.Errorf("line %d: allow.root: must be true or false", value.Line)
	}
	r.Root = new(text == "true")
	return nil
}

// explainList returns what the lists of a field mean.
func explainList(field string) string {
	if strings.HasPrefix(field, "allow.") {
		return "; write [] to allow none, or remove the line to allow all"
	}
	return ""
}

// parseList returns a list that is never nil: an empty list is a rule.
func parseList(value *yaml.Node, field string) ([]string, error) {
	if value.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("line %d: %s: must be a list%s", value.Line, field, explainList(field))
	}
	list := []string{}
	for i, node := range value.Content {
		text, err := scalar(node, fmt.Sprintf("%s[%d]", field, i))
		if err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, nil
}

// scalar returns the text of a single value as it is written.
func scalar(n *yaml.Node, field string) (string, error) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return "", fmt.Errorf("line %d: %s: must be a single value", n.Line, field)
	}
	return n.Value, nil
}

// eachKey calls handle for each key of a map. Keys must be known and appear once.
func eachKey(n *yaml.Node, prefix string, known []string, handle func(key string, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: %s must be a map with the keys %s", n.Line, strings.TrimSuffix(prefix, "."), strings.Join(known, ", "))
	}
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || !slices.Contains(known, key.Value) {
			return fmt.Errorf("line %d: %s%.100s is not a key; the keys are %s", key.Line, prefix, key.Value, strings.Join(known, ", "))
		}
		if seen[key.Value] {
			return fmt.Errorf("line %d: %s%s appears twice", key.Line, prefix, key.Value)
		}
		seen[key.Value] = true
		if err := handle(key.Value, value); err != nil {
			return err
		}
	}
	return nil
}
