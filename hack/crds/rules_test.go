package main

import (
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestTakeRules has a schema with rules at the top, in an optional field and in nested lists.
func TestTakeRules(t *testing.T) {
	var schema object
	if err := yaml.Unmarshal([]byte(`
type: object
x-kubernetes-validations:
- {rule: "!has(self.a) || self.b", message: needs b}
properties:
  a: {type: string, x-kubernetes-validations: [{rule: size(self) > 0, message: is empty}]}
  lists:
    items:
      properties:
        inner:
          items: {x-kubernetes-validations: [{rule: self > 0, message: must be positive}]}
`), &schema); err != nil {
		t.Fatal(err)
	}
	got := takeRules(nil, schema, "object.spec", "spec", func(check string) string { return check })
	want := []any{
		object{"expression": "[object.spec].all(self, !has(self.a) || self.b)", "message": "spec: needs b"},
		object{"expression": "(!has(object.spec.a) || [object.spec.a].all(self, size(self) > 0))", "message": "spec.a: is empty"},
		object{
			"expression": "(!has(object.spec.lists) || object.spec.lists.all(e0, (!has(e0.inner) || e0.inner.all(e1, [e1].all(self, self > 0)))))",
			"message":    "spec.lists[].inner[]: must be positive",
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	left, err := yaml.Marshal(schema)
	if err != nil || strings.Contains(string(left), "x-kubernetes-validations") {
		t.Errorf("the schema keeps a rule: %s, %v", left, err)
	}
}
