package e2e

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"k8s4r.io/k8s4r/internal/console"
)

// apiDocument returns the OpenAPI document of the console, and a mux that finds the operation of a path.
var apiDocument = sync.OnceValues(func() (*huma.OpenAPI, *http.ServeMux) {
	doc, paths := console.BuildDocument(), http.NewServeMux()
	for pattern := range doc.Paths {
		paths.Handle(pattern, http.NotFoundHandler())
	}
	return doc, paths
})

// conforms holds an answer in JSON against the document: clients are generated from it.
func conforms(t *testing.T, method, path string, code int, text string) {
	t.Helper()
	doc, paths := apiDocument()
	at, err := url.Parse(path)
	if err != nil {
		t.Fatal(err)
	}
	_, pattern := paths.Handler(&http.Request{Method: http.MethodGet, URL: at})
	item := doc.Paths[pattern]
	if item == nil || !strings.HasPrefix(text, "{") {
		return // a page, a log, the document itself
	}
	op := map[string]*huma.Operation{http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodDelete: item.Delete}[method]
	if op == nil {
		return
	}
	said := op.Responses[strconv.Itoa(code)]
	if said == nil || said.Content["application/json"] == nil {
		t.Errorf("%s %s answers %d, of which the document knows nothing: %.300s", method, path, code, text)
		return
	}
	conformsTo(t, method+" "+path, said.Content["application/json"].Schema, text)
}

// conformsTo holds JSON against a schema of the document.
func conformsTo(t *testing.T, what string, schema *huma.Schema, text string) {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	doc, _ := apiDocument()
	found := &huma.ValidateResult{}
	huma.Validate(doc.Components.Schemas, schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, value, found)
	for _, err := range found.Errors {
		t.Errorf("%s is not as the document says: %v: %.500s", what, err, text)
	}
}
