package controllers

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// fields is a part of an object, as in its JSON.
type fields = map[string]any

// sample is a file of test/parity, whose README describes it.
type sample struct {
	Description string            `json:"description"`
	Input       []fields          `json:"input"`
	Values      map[string]string `json:"values"`
	Refused     string            `json:"refused"`
	Warns       string            `json:"warns"`
	Stored      fields            `json:"stored"`
	Pods        []expectation     `json:"pods"`
	Objects     []expectation     `json:"objects"`

	file      string
	fragments map[string]fields
}

// subject returns the object of the input that the sample is about: the last.
func (s *sample) subject() fields { return s.Input[len(s.Input)-1] }

// expectation describes one expected object, or Count of them.
type expectation struct {
	Name     string            `json:"name"`
	Count    *int              `json:"count"`
	Template string            `json:"template"`
	Waits    bool              `json:"waits"`
	Owner    *string           `json:"owner"`
	Use      []string          `json:"use"`
	Values   map[string]string `json:"values"`
	Add      fields            `json:"add"`
}

// loadSamples reads the samples of a folder of test/parity, and its fragments.
func loadSamples(t *testing.T, folder string) (all []sample) {
	t.Helper()
	var fragments map[string]fields
	readYAML(t, filepath.Join("../parity", folder, "shared.yaml"), &fragments)
	files, err := filepath.Glob(filepath.Join("../parity", folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Base(file) == "shared.yaml" {
			continue
		}
		s := sample{file: strings.TrimSuffix(filepath.Base(file), ".yaml"), fragments: fragments}
		readYAML(t, file, &s)
		if s.Description == "" || len(s.Input) == 0 || (s.Refused == "") != (len(s.Pods) > 0) {
			t.Fatalf("%s: description, input, and either refused or pods are required", file)
		}
		all = append(all, s)
	}
	return all
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// setValue sets a value that is known only once the sample is applied.
func (s *sample) setValue(name, value string) {
	if s.Values == nil {
		s.Values = map[string]string{}
	}
	s.Values[name] = value
}

// expected is one object that a sample must lead to. Leaves "*" stand for any value.
type expected struct {
	name   string // a pattern of path.Match
	owner  string // KIND/NAME; if empty, the object has no owner
	object fields
}

// expand returns the expected objects of a list of a sample. Each has its own copy of all fields.
func (s *sample) expand(list []expectation, namespace string) (all []expected, err error) {
	for i := range list {
		for n := range orDefault(list[i].Count, 1) {
			one, err := s.expandOne(&list[i], n, namespace)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", list[i].Name, err)
			}
			all = append(all, one)
		}
	}
	return all, nil
}

func orDefault[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func (s *sample) expandOne(e *expectation, n int, namespace string) (expected, error) {
	f := filler{values: map[string]string{}}
	for name, v := range s.fragments["values"] {
		f.values[name] = fmt.Sprint(v)
	}
	f.values["namespace"], f.values["n"] = namespace, strconv.Itoa(n)
	object, err := s.copyTemplate(e.Template, &f)
	if err != nil {
		return expected{}, err
	}
	maps.Copy(f.values, s.Values)
	maps.Copy(f.values, e.Values)
	parts, err := s.findFragments(e.Use)
	if err != nil {
		return expected{}, err
	}
	for _, part := range append(parts, e.Add) {
		filled, err := f.fill(copyFields(part))
		if err != nil {
			return expected{}, err
		}
		mergeFields(object, filled.(fields))
	}
	return s.nameExpected(e, object, &f)
}

// copyTemplate returns a Pod as the user's template at a path describes it, without a path an empty object.
func (s *sample) copyTemplate(at string, f *filler) (fields, error) {
	if at == "" {
		return fields{}, nil
	}
	template, err := lookUp(s.subject()["spec"], at)
	if err != nil {
		return nil, err
	}
	if f.container, err = lookUp(template, "spec.containers.0"); err != nil {
		return nil, err
	}
	f.values["container"], f.values["image"] = fmt.Sprint(f.container["name"]), fmt.Sprint(f.container["image"])
	pod := copyFields(template)
	pod["apiVersion"], pod["kind"] = "v1", "Pod"
	return pod, nil
}

func (s *sample) findFragments(names []string) (all []fields, err error) {
	for _, name := range names {
		part, ok := s.fragments[name]
		if !ok {
			return nil, fmt.Errorf("there is no fragment %s", name)
		}
		all = append(all, part)
	}
	return all, nil
}

// nameExpected fills the values into the name and the owner.
func (s *sample) nameExpected(e *expectation, object fields, f *filler) (expected, error) {
	kind, _ := s.subject()["kind"].(string)
	meta, _ := s.subject()["metadata"].(fields)
	owner, err := f.fillText(orDefault(e.Owner, fmt.Sprintf("%s/%v", kind, meta["name"])))
	if err != nil {
		return expected{}, err
	}
	name := e.Name
	if own, ok := object["metadata"].(fields); ok && name == "" {
		name, _ = own["name"].(string)
	}
	name, err = f.fillText(name)
	return expected{name: name, owner: owner, object: object}, err
}

// lookUp returns the part of an object at a path such as workerGroupSpecs.0.template.
func lookUp(in any, path string) (fields, error) {
	for _, key := range strings.Split(path, ".") {
		switch v := in.(type) {
		case fields:
			in = v[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(v) {
				return nil, fmt.Errorf("%s: there is no element %s", path, key)
			}
			in = v[i]
		}
	}
	found, ok := in.(fields)
	if !ok {
		return nil, fmt.Errorf("the input has no %s", path)
	}
	return found, nil
}

func copyFields(f fields) fields {
	c, _ := copyValue(f).(fields)
	return c
}

func copyValue(v any) any {
	switch v := v.(type) {
	case fields:
		c := make(fields, len(v))
		for k := range v {
			c[k] = copyValue(v[k])
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i := range v {
			c[i] = copyValue(v[i])
		}
		return c
	}
	return v
}

var valuePattern = regexp.MustCompile(`<[a-z][a-z0-9-]*>`)

// filler fills values into a part of an expected object.
type filler struct {
	values    map[string]string
	container fields // the first of the template
}

// fillText replaces each <name> by its value, and those in values too.
func (f *filler) fillText(text string) (string, error) {
	var missing error
	for range 8 { // a value may name others
		text = valuePattern.ReplaceAllStringFunc(text, func(name string) string {
			v, ok := f.values[strings.Trim(name, "<>")]
			if !ok {
				missing = fmt.Errorf("there is no value %s", name)
			}
			return v
		})
	}
	return text, missing
}

// fill fills values into all texts and keys below v, and replaces =FIELD by that field of the
// template's first container.
func (f *filler) fill(v any) (any, error) {
	switch v := v.(type) {
	case string:
		if name, ok := strings.CutPrefix(v, "="); ok {
			return copyValue(f.container[name]), nil
		}
		return f.fillText(v)
	case []any:
		return f.fillList(v)
	case fields:
		return f.fillFields(v)
	}
	return v, nil
}

// fillList fills the elements of a list. A list that replaces an element takes its place.
func (f *filler) fillList(list []any) (any, error) {
	all := make([]any, 0, len(list))
	for _, v := range list {
		filled, err := f.fill(v)
		if err != nil {
			return nil, err
		}
		if more, ok := filled.([]any); ok {
			all = append(all, more...)
		} else if filled != nil {
			all = append(all, filled)
		}
	}
	return all, nil
}

func (f *filler) fillFields(in fields) (any, error) {
	out := make(fields, len(in))
	for k, v := range in {
		key, err := f.fillText(k)
		if err != nil {
			return nil, err
		}
		if out[key], err = f.fill(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// mergeFields adds fields to an object: null deletes, objects are merged, elements of lists are
// merged with the one of the same name or mountPath, or appended. Other values replace.
func mergeFields(into, add fields) {
	for k, v := range add {
		was := into[k]
		switch v := v.(type) {
		case nil:
			delete(into, k)
			continue
		case fields:
			if was, ok := was.(fields); ok {
				mergeFields(was, v)
				continue
			}
		case []any:
			if was, ok := was.([]any); ok && len(v) > 0 && isObject(v[0]) {
				into[k] = mergeLists(was, v)
				continue
			}
		}
		into[k] = v
	}
}

func isObject(v any) bool { _, ok := v.(fields); return ok }

func mergeLists(list, add []any) []any {
	for _, v := range add {
		at := slices.IndexFunc(list, func(was any) bool { return isSameElement(was, v) })
		if at < 0 {
			list = append(list, v)
			continue
		}
		mergeFields(list[at].(fields), v.(fields))
	}
	return list
}

// isSameElement reports whether two elements of lists have the same mountPath, or else name.
func isSameElement(a, b any) bool {
	x, y := a.(fields), b.(fields)
	for _, key := range []string{"mountPath", "name"} {
		if x[key] != nil || y[key] != nil {
			return x[key] == y[key]
		}
	}
	return false
}

// fillAny replaces each leaf "*" by what the actual object has there.
func fillAny(want, got any) any {
	switch v := want.(type) {
	case string:
		if s, ok := got.(string); ok && v == "*" && s != "" {
			return s
		}
	case fields:
		g, _ := got.(fields)
		for k := range v {
			v[k] = fillAny(v[k], g[k])
		}
	case []any:
		g, _ := got.([]any)
		for i := range v {
			if i < len(g) {
				v[i] = fillAny(v[i], g[i])
			}
		}
	}
	return want
}

// diffFields returns a line for each difference between two objects.
func diffFields(at string, want, got any) (lines []string) {
	switch w := want.(type) {
	case fields:
		if g, ok := got.(fields); ok {
			keys := maps.Clone(w)
			maps.Copy(keys, g)
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				lines = append(lines, diffFields(at+"."+k, w[k], g[k])...)
			}
			return lines
		}
	case []any:
		if g, ok := got.([]any); ok {
			for i := range max(len(w), len(g)) {
				lines = append(lines, diffFields(fmt.Sprintf("%s[%d]", at, i), elementAt(w, i), elementAt(g, i))...)
			}
			return lines
		}
	}
	if reflect.DeepEqual(want, got) {
		return nil
	}
	return []string{fmt.Sprintf("%s: got %v, want %v", at, got, want)}
}

func elementAt(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}
