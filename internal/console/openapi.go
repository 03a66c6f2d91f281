package console

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// BuildDocument returns the OpenAPI document, as GET /api/v1/openapi.json serves it.
func BuildDocument() *huma.OpenAPI {
	return NewServer(Parts{}).newAPI(http.NewServeMux()).OpenAPI()
}

func init() {
	// Responses contain [] for empty lists, never null. The framework documents all lists as
	// nullable by default.
	huma.DefaultArrayNullable = false
}

// registerSchemas registers the schemas of types of other packages.
func registerSchemas(schemas huma.Registry) {
	schemas.RegisterTypeAlias(reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[timestamp]())
	schemas.RegisterTypeAlias(reflect.TypeFor[row.Kind](), reflect.TypeFor[kindSchema]())
	schemas.RegisterTypeAlias(reflect.TypeFor[row.Severity](), reflect.TypeFor[severitySchema]())
	schemas.RegisterTypeAlias(reflect.TypeFor[rollout.WaveState](), reflect.TypeFor[waveStateSchema]())
}

// timestamp provides the schema of times in rows.
type timestamp struct{}

// Schema returns a string in RFC 3339 format.
func (timestamp) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time"}
}

// kindSchema provides the schema of row.Kind.
type kindSchema struct{}

// Schema returns an enum of all kinds.
func (kindSchema) Schema(r huma.Registry) *huma.Schema {
	return namedSchema(r, "Kind", closedSetSchema("Kind of objects", row.Kinds))
}

// severitySchema provides the schema of row.Severity.
type severitySchema struct{}

// Schema returns an enum of all severities.
func (severitySchema) Schema(r huma.Registry) *huma.Schema {
	return namedSchema(r, "Severity", closedSetSchema("Severity of a state, with the same values for all kinds", row.Severities))
}

// Schema returns an enum of all actions.
func (verb) Schema(r huma.Registry) *huma.Schema {
	var all []verb
	for _, a := range actionLabels {
		all = append(all, a.Action)
	}
	return namedSchema(r, "Verb", closedSetSchema("Action on objects", all))
}

// waveStateSchema provides the schema of rollout.WaveState.
type waveStateSchema struct{}

// Schema returns an enum of all states of waves.
func (waveStateSchema) Schema(r huma.Registry) *huma.Schema {
	return namedSchema(r, "WaveState", closedSetSchema("Progress of a wave of a Rollout", rollout.WaveStates))
}

// Schema returns an enum of all states of units.
func (unitState) Schema(r huma.Registry) *huma.Schema {
	return namedSchema(r, "UnitState", closedSetSchema("Progress of a unit of a Rollout", unitStates))
}

// closedSetSchema returns an enum of all values.
func closedSetSchema[T ~string](doc string, all []T) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString, Description: doc}
	for _, v := range all {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

// namedSchema registers a schema under a name unless it is registered, and returns a reference to
// it.
func namedSchema(r huma.Registry, name string, s *huma.Schema) *huma.Schema {
	if r.Map()[name] == nil {
		s.PrecomputeMessages()
		r.Map()[name] = s
	}
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

// statusSchema documents the fields of a Status that this API returns.
type statusSchema struct {
	Kind       string         `json:"kind" enum:"Status"`
	APIVersion string         `json:"apiVersion" enum:"v1"`
	Metadata   map[string]any `json:"metadata"`
	Status     string         `json:"status" enum:"Failure"`
	Code       int32          `json:"code" doc:"Same as the HTTP status"`
	Reason     string         `json:"reason,omitempty" doc:"CamelCase word for programs"`
	Message    string         `json:"message,omitempty" doc:"Description for people"`
	Details    map[string]any `json:"details,omitempty" doc:"Details from the API server, if any"`
}

// Schema returns the schema of statusSchema: the Go type has more fields than the API returns.
func (*status) Schema(r huma.Registry) *huma.Schema {
	return namedSchema(r, "Status", huma.SchemaFromType(r, reflect.TypeFor[statusSchema]()))
}

// hello is the data of the first event of a stream.
type hello struct {
	Since string `json:"since" doc:"Position at which the stream starts"`
}

// resync is the data of the event after which clients must reload their lists.
type resync struct{}

// eventStreamSchema returns the schema of the event stream. OpenAPI cannot describe server-sent
// events, so this uses the framework's convention, which client generators support.
func eventStreamSchema(r huma.Registry) *huma.Schema {
	event := func(name string, data reflect.Type) *huma.Schema {
		return &huma.Schema{
			Title: "Event " + name, Type: huma.TypeObject, Required: []string{"id", "event", "data"},
			Properties: map[string]*huma.Schema{
				"id":    {Type: huma.TypeString, Description: "Position directly after this event"},
				"event": {Type: huma.TypeString, Enum: []any{name}},
				"data":  r.Schema(data, true, name),
			},
		}
	}
	return &huma.Schema{
		Title: "Server-sent events", Type: huma.TypeArray, Description: "A stream of server-sent events, not a JSON list",
		Items: &huma.Schema{OneOf: []*huma.Schema{
			event("hello", reflect.TypeFor[hello]()), event("change", reflect.TypeFor[watch.Change]()), event("resync", reflect.TypeFor[resync]()),
		}},
	}
}
