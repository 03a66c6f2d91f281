package console

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"k8s4r.io/k8s4r/internal/events"
	"k8s4r.io/k8s4r/internal/events/row"
)

func TestTheCommittedDocumentIsTheOneThatIsServed(t *testing.T) {
	served, err := json.MarshalIndent(Document(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile("../../docs/spec/console-openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(served)+"\n" != string(committed) {
		t.Error("docs/spec/console-openapi.json is not what the code serves: run make generate")
	}
}

// TestTheDocumentKnowsTheWords holds the sets that stand in tags against those that the code goes by.
func TestTheDocumentKnowsTheWords(t *testing.T) {
	doc := Document()
	texts := func(enum []any) (out []string) {
		for _, v := range enum {
			out = append(out, v.(string))
		}
		slices.Sort(out)
		return out
	}
	var tones, asked []string
	for _, tone := range row.Tones {
		tones = append(tones, string(tone))
	}
	for kind := range maps.Keys(deeds) {
		asked = append(asked, string(kind))
	}
	slices.Sort(tones)
	slices.Sort(asked)
	for _, p := range doc.Paths["/api/v1/objects/{kind}"].Get.Parameters {
		if p.Name == "tone" && !slices.Equal(texts(p.Schema.Items.Enum), tones) {
			t.Errorf("lists can be asked for the tones %v, and there are %v", p.Schema.Items.Enum, tones)
		}
	}
	if got := texts(doc.Components.Schemas.Map()["Target"].Properties["kind"].Enum); !slices.Equal(got, asked) {
		t.Errorf("something may be asked of %v, and there are actions for %v", got, asked)
	}
}

func TestNoActionIsOfferedThatIsRefused(t *testing.T) {
	of := func(k row.Kind) []action {
		o := kinds[k].fresh()
		return NewServer(Parts{}).actions(&events.Item{Object: o, Row: &row.Row{Kind: k}})
	}
	if got := of(row.TaskGroups); len(got) != 0 {
		t.Errorf("of a group of tasks nothing can be asked, and %v is offered", got)
	}
	if got := of(row.Pods); !slices.Equal(got, []action{{actDelete, "Delete", true}}) {
		t.Errorf("a Pod can be deleted, and %v is offered", got)
	}
}

// TestNoTimeIsNull: a condition may lack its time, and the document has times that are strings.
func TestNoTimeIsNull(t *testing.T) {
	raw, err := json.Marshal(conditionsOf([]byte(`{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`)))
	if want := `[{"type":"Ready","status":"True"}]`; err != nil || string(raw) != want {
		t.Errorf("got %s (%v), want %s", raw, err, want)
	}
}
