package console

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
)

func TestBuildDocument_MatchesCommittedFile(t *testing.T) {
	served, err := json.MarshalIndent(BuildDocument(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile("../../docs/reference/console-openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(served)+"\n" != string(committed) {
		t.Error("docs/reference/console-openapi.json is not what the code serves: run make generate")
	}
}

// The enums in struct tags must equal the sets in the code.
func TestBuildDocument_EnumsMatchCode(t *testing.T) {
	doc := BuildDocument()
	texts := func(enum []any) (out []string) {
		for _, v := range enum {
			out = append(out, v.(string))
		}
		slices.Sort(out)
		return out
	}
	var severities, asked []string
	for _, severity := range row.Severities {
		severities = append(severities, string(severity))
	}
	for kind := range maps.Keys(actionRules) {
		asked = append(asked, string(kind))
	}
	slices.Sort(severities)
	slices.Sort(asked)
	for _, p := range doc.Paths["/api/v1/objects/{kind}"].Get.Parameters {
		if p.Name == "severity" && !slices.Equal(texts(p.Schema.Items.Enum), severities) {
			t.Errorf("lists can be asked for the severities %v, and there are %v", p.Schema.Items.Enum, severities)
		}
	}
	if got := texts(doc.Components.Schemas.Map()["Target"].Properties["kind"].Enum); !slices.Equal(got, asked) {
		t.Errorf("something may be asked of %v, and there are actions for %v", got, asked)
	}
}

func TestListActions_OffersPossibleActions(t *testing.T) {
	of := func(k row.Kind) []action {
		o := kinds[k].fresh()
		return NewServer(Parts{}).listActions(&watch.Item{Object: o, Row: &row.Row{Kind: k}})
	}
	if got := of(row.TaskGroups); len(got) != 0 {
		t.Errorf("of a group of tasks nothing can be asked, and %v is offered", got)
	}
	if got := of(row.Pods); !slices.Equal(got, []action{{actDelete, "Delete", true}}) {
		t.Errorf("a Pod can be deleted, and %v is offered", got)
	}
}

// A condition may have no time, and the document declares times as strings.
func TestConditionsOf_OmitsMissingTime(t *testing.T) {
	raw, err := json.Marshal(parseConditions([]byte(`{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`)))
	if want := `[{"type":"Ready","status":"True"}]`; err != nil || string(raw) != want {
		t.Errorf("got %s (%v), want %s", raw, err, want)
	}
}
