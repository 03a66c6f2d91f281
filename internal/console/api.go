package console

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/version"
)

// prefix of all addresses of the API.
const prefix = "/api/v1"

// status is an error as the API server says it, so that a client of both knows one form.
type status struct{ metav1.Status }

// Error is what is wrong.
func (s *status) Error() string { return s.Message }

// GetStatus is the HTTP code.
func (s *status) GetStatus() int { return int(s.Code) }

// newStatus is how the framework says what is wrong with a request.
func newStatus(code int, message string, errs ...error) huma.StatusError {
	for _, err := range errs {
		if err != nil {
			message += "; " + err.Error()
		}
	}
	return &status{metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code),
		Reason: reasons[code], Message: message,
	}}
}

var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest: metav1.StatusReasonBadRequest, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
	http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusUnsupportedMediaType: metav1.StatusReasonUnsupportedMediaType,
}

func init() {
	huma.NewError = newStatus // the framework has no other way to say it
}

// problem is an error as the API answers it. What nobody knows stays inside.
func (s *Server) problem(err error) error {
	var known apierrors.APIStatus
	var ours *status
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ours):
		return ours
	case errors.Is(err, context.Canceled):
		return newStatus(499, "the request was canceled")
	case !errors.As(err, &known):
		s.log.Error(err, "answer a request")
		known = apierrors.NewInternalError(errors.New("it is in the console's log"))
	}
	is := known.Status()
	is.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status{is}
}

// newAPI prepares the API on a mux.
func (s *Server) newAPI(mux *http.ServeMux) huma.API {
	c := huma.DefaultConfig("K8s4r console", version.Version)
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = prefix+"/openapi", "", ""
	c.CreateHooks = nil // no $schema in answers
	c.Info.Description = "What K8s4r runs and has run, live and archived. Every answer holds only what its caller may list or get; every change goes to the API server as its caller."
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":   {Type: "http", Scheme: "bearer"},
		"session": {Type: "apiKey", In: "cookie", Name: sessionCookie},
	}
	c.Security = []map[string][]string{{"token": {}}, {"session": {}}}
	teach(c.Components.Schemas)
	api := humago.New(mux, c)
	api.UseMiddleware(s.metrics.count)
	s.registerSession(api)
	s.registerObjects(api)
	s.registerFlows(api)
	s.registerWhy(api)
	s.registerHistory(api)
	s.registerActions(api)
	s.registerStreams(api)
	return api
}

// get adds an operation that only reads.
func get[I, O any](s *Server, api huma.API, path, id, summary string, answer func(context.Context, *I) (*O, error)) {
	huma.Register(api, huma.Operation{OperationID: id, Method: http.MethodGet, Path: prefix + path, Summary: summary, Errors: []int{400, 401, 403, 404, 503}},
		func(ctx context.Context, in *I) (*body[O], error) {
			out, err := answer(ctx, in)
			if err != nil {
				return nil, s.problem(err)
			}
			return &body[O]{*out}, nil
		})
}

// body of an answer.
type body[O any] struct{ Body O }
