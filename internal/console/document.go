package console

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/events"
	"k8s4r.io/k8s4r/internal/events/row"
)

// Document is the OpenAPI document of the API, as GET /api/v1/openapi.json serves it.
func Document() *huma.OpenAPI {
	return NewServer(Parts{}).newAPI(http.NewServeMux()).OpenAPI()
}

func init() {
	// An empty list is [] in every answer, and null in none. The framework asks it of no type by itself.
	huma.DefaultArrayNullable = false
}

// teach tells the document what cannot be read off types of other packages.
func teach(schemas huma.Registry) {
	schemas.RegisterTypeAlias(reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[timestamp]())
	schemas.RegisterTypeAlias(reflect.TypeFor[row.Kind](), reflect.TypeFor[kindWord]())
	schemas.RegisterTypeAlias(reflect.TypeFor[row.Tone](), reflect.TypeFor[toneWord]())
}

// timestamp has the schema of times in rows.
type timestamp struct{}

// Schema is RFC 3339.
func (timestamp) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time"}
}

// kindWord has the schema of row.Kind.
type kindWord struct{}

// Schema is one of the kinds.
func (kindWord) Schema(r huma.Registry) *huma.Schema {
	return named(r, "Kind", word("Objects of one sort", row.Kinds))
}

// toneWord has the schema of row.Tone.
type toneWord struct{}

// Schema is one of the tones.
func (toneWord) Schema(r huma.Registry) *huma.Schema {
	return named(r, "Tone", word("What a state means, in the same words for all kinds", row.Tones))
}

// Schema is one of the actions.
func (verb) Schema(r huma.Registry) *huma.Schema {
	var all []verb
	for _, a := range labels {
		all = append(all, a.Action)
	}
	return named(r, "Verb", word("What can be asked of objects", all))
}

// word is the schema of a closed set.
func word[T ~string](doc string, all []T) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString, Description: doc}
	for _, v := range all {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

// named gives a schema a name in the document, once, and refers to it.
func named(r huma.Registry, name string, s *huma.Schema) *huma.Schema {
	if r.Map()[name] == nil {
		s.PrecomputeMessages()
		r.Map()[name] = s
	}
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

// refusal is what of a Status of the API server this API says.
type refusal struct {
	Kind       string         `json:"kind" enum:"Status"`
	APIVersion string         `json:"apiVersion" enum:"v1"`
	Metadata   map[string]any `json:"metadata"`
	Status     string         `json:"status" enum:"Failure"`
	Code       int32          `json:"code" doc:"As the HTTP status"`
	Reason     string         `json:"reason,omitempty" doc:"In one word, for programs"`
	Message    string         `json:"message,omitempty" doc:"What is wrong, for people"`
	Details    map[string]any `json:"details,omitempty" doc:"What it is about, as far as the API server said so"`
}

// Schema is that of a refusal: the Go type has more than is ever said.
func (*status) Schema(r huma.Registry) *huma.Schema {
	return named(r, "Status", huma.SchemaFromType(r, reflect.TypeFor[refusal]()))
}

// hello is the first that a stream of events says.
type hello struct {
	Since string `json:"since" doc:"The position from which it tells"`
}

// resync is what a stream says when it cannot tell everything: load anew what was loaded.
type resync struct{}

// told is the schema of the stream of events, which OpenAPI has no words for: a list of what is said, in the form
// that generators of clients know from this framework.
func told(r huma.Registry) *huma.Schema {
	event := func(name string, data reflect.Type) *huma.Schema {
		return &huma.Schema{
			Title: "Event " + name, Type: huma.TypeObject, Required: []string{"id", "event", "data"},
			Properties: map[string]*huma.Schema{
				"id":    {Type: huma.TypeString, Description: "The position just after this event"},
				"event": {Type: huma.TypeString, Enum: []any{name}},
				"data":  r.Schema(data, true, name),
			},
		}
	}
	return &huma.Schema{
		Title: "Server-sent events", Type: huma.TypeArray, Description: "Not a list in JSON, but one event after the other, as long as the connection lasts",
		Items: &huma.Schema{OneOf: []*huma.Schema{
			event("hello", reflect.TypeFor[hello]()), event("change", reflect.TypeFor[events.Change]()), event("resync", reflect.TypeFor[resync]()),
		}},
	}
}
