package controllers

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const formatSample = `
input:
- kind: Secret
- kind: Thing
  metadata: {name: a}
  spec:
    template:
      metadata: {labels: {mine: "yes"}}
      spec:
        containers:
        - {name: main, image: i, env: [{name: A, value: "1"}], volumeMounts: [{name: x, mountPath: /x}]}
values: {thing: a, greeting: "hello <thing>"}
pods:
- count: 2
  template: template
  use: [common]
  add:
    metadata: {labels: {mine: null}}
    spec: {containers: [{name: main, volumeMounts: [{name: z, mountPath: /x}]}]}
`

const formatFragments = `
values: {suffix: "-*"}
common:
  metadata: {name: <thing>-<n><suffix>, labels: {of: <thing>}}
  spec:
    initContainers:
    - {name: wait, image: <image>, args: [<greeting>], env: [=env, {name: B, value: "2"}], securityContext: =securityContext}
    containers:
    - {name: <container>, env: [{name: A, value: "3"}, {name: C}]}
`

const formatExpected = `
apiVersion: v1
kind: Pod
metadata: {name: a-1-*, labels: {of: a}}
spec:
  initContainers:
  - {name: wait, image: i, args: [hello a], env: [{name: A, value: "1"}, {name: B, value: "2"}], securityContext: null}
  containers:
  - {name: main, image: i, env: [{name: A, value: "3"}, {name: C}], volumeMounts: [{name: z, mountPath: /x}]}
`

// TestParity_Format tests how an expected Pod is composed, as test/parity/README.md describes it.
func TestParity_Format(t *testing.T) {
	s := parseSample(t)
	all, err := s.expand(s.Pods, "ns")
	if err != nil || len(all) != 2 {
		t.Fatal(len(all), err)
	}
	if all[0].name != "a-0-*" || all[1].name != "a-1-*" || all[1].owner != "Thing/a" {
		t.Errorf("name %q, %q, owner %q", all[0].name, all[1].name, all[1].owner)
	}
	var want fields
	if err := yaml.Unmarshal([]byte(formatExpected), &want); err != nil {
		t.Fatal(err)
	}
	if lines := diffFields("pod", want, all[1].object); len(lines) > 0 {
		t.Error(strings.Join(lines, "\n"))
	}
	s.Values = nil
	if _, err := s.expand(s.Pods, "ns"); err == nil || !strings.Contains(err.Error(), "there is no value <greeting>") && !strings.Contains(err.Error(), "there is no value <thing>") {
		t.Errorf("without its value: %v", err)
	}
	s.Pods[0].Use = []string{"other"}
	if _, err := s.expand(s.Pods, "ns"); err == nil || !strings.Contains(err.Error(), "there is no fragment other") {
		t.Errorf("another fragment: %v", err)
	}
}

func parseSample(t *testing.T) sample {
	t.Helper()
	var s sample
	for text, into := range map[string]any{formatSample: &s, formatFragments: &s.fragments} {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestParity_Differences tests that every difference between two objects is found.
func TestParity_Differences(t *testing.T) {
	want := fields{"a": "*", "b": []any{"x", "*"}, "c": fields{"d": int64(1)}, "e": "*"}
	got := fields{"a": "any", "b": []any{"x", "y", "z"}, "c": fields{"d": int64(2), "f": true}}
	lines := diffFields("o", fillAny(want, got), got)
	if expect := []string{"o.b[2]: got z, want <nil>", "o.c.d: got 2, want 1", "o.c.f: got true, want <nil>", "o.e: got <nil>, want *"}; !slices.Equal(lines, expect) {
		t.Errorf("%q, want %q", lines, expect)
	}
}
