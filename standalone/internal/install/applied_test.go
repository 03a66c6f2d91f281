package install

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestContains(t *testing.T) {
	const manifest = `{apiVersion: v1, kind: Role, metadata: {name: a, labels: {app: one}}, rules: [{verbs: [get, list], limit: 2}], status: {}}`
	for _, c := range []struct {
		name, live string
		want       bool
	}{
		{"as it was applied", manifest, true},
		{"with fields of others", `{apiVersion: v1, kind: Role, metadata: {name: a, uid: u, labels: {app: one, more: two}}, rules: [{verbs: [get, list], limit: 2, more: 1}], status: {count: 1}}`, true},
		{"another value", `{apiVersion: v1, kind: Role, metadata: {name: a, labels: {app: two}}, rules: [{verbs: [get, list], limit: 2}], status: {}}`, false},
		{"another number", `{apiVersion: v1, kind: Role, metadata: {name: a, labels: {app: one}}, rules: [{verbs: [get, list], limit: 3}], status: {}}`, false},
		{"without a field", `{apiVersion: v1, kind: Role, metadata: {name: a}, rules: [{verbs: [get, list], limit: 2}], status: {}}`, false},
		{"without an empty field", `{apiVersion: v1, kind: Role, metadata: {name: a, labels: {app: one}}, rules: [{verbs: [get, list], limit: 2}]}`, false},
		{"a longer list", `{apiVersion: v1, kind: Role, metadata: {name: a, labels: {app: one}}, rules: [{verbs: [get, list, watch], limit: 2}], status: {}}`, false},
		{"a shorter list", `{apiVersion: v1, kind: Role, metadata: {name: a, labels: {app: one}}, rules: [], status: {}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := contains(parse(t, c.live).Object, parse(t, manifest).Object); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// A field that a newer manifest no longer has is in the cluster until the manifest is applied, and
// only the hash differs.
func TestStampHash_DiffersWhenAFieldIsRemoved(t *testing.T) {
	older, newer := parse(t, `{apiVersion: v1, kind: Role, metadata: {name: a}, spec: {count: 1, old: true}}`), parse(t, `{apiVersion: v1, kind: Role, metadata: {name: a}, spec: {count: 1}}`)
	for _, o := range []*unstructured.Unstructured{older, newer} {
		if err := stampHash(o); err != nil {
			t.Fatal(err)
		}
	}
	if contains(older.Object, newer.Object) {
		t.Error("the older manifest counts as the newer one")
	}
	if _, isInt := older.Object["spec"].(map[string]any)["count"].(int64); !isInt {
		t.Errorf("a number is %T, in an object of the cluster it is an int64", older.Object["spec"].(map[string]any)["count"])
	}
}
