package console

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/protocol/version"
)

// prefix is the path prefix of the API.
const prefix = "/api/v1"

// status is an error in the format of the API server, so that clients handle both in the same
// way.
type status struct{ metav1.Status }

// Error returns the message.
func (s *status) Error() string { return s.Message }

// GetStatus returns the HTTP status code.
func (s *status) GetStatus() int { return int(s.Code) }

// newStatus creates the errors of the framework, such as failed validation of a request.
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
	huma.NewError = newStatus // the framework can only be configured by this global variable
}

// toAPIError converts err into the response of the API. Unknown errors are logged and not shown
// to the caller.
func (s *Server) toAPIError(err error) error {
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
		s.log.Error(err, "Request failed")
		known = apierrors.NewInternalError(errors.New("see the console's log"))
	}
	is := known.Status()
	is.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status{is}
}

// newAPI registers all operations of the API with mux.
func (s *Server) newAPI(mux *http.ServeMux) huma.API {
	c := huma.DefaultConfig("K8s4r console", version.Version)
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = prefix+"/openapi", "", ""
	c.CreateHooks = nil // no $schema in responses
	c.Info.Description = "Live and archived objects of K8s4r. Every response contains only what the caller may list or get. Every change is sent to the API server with the permissions of the caller."
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":   {Type: "http", Scheme: "bearer"},
		"session": {Type: "apiKey", In: "header", Name: sessionHeader},
	}
	c.Security = []map[string][]string{{"token": {}}, {"session": {}}}
	registerSchemas(c.Components.Schemas)
	api := humago.New(mux, c)
	api.UseMiddleware(s.metrics.countRequest)
	s.registerSession(api)
	s.registerObjects(api)
	s.registerFlows(api)
	s.registerRollouts(api)
	s.registerWhy(api)
	s.registerHistory(api)
	s.registerActions(api)
	s.registerStreams(api)
	s.registerRuns(api)
	return api
}

// addRead registers a read-only operation.
func addRead[I, O any](s *Server, api huma.API, path, id, summary string, answer func(context.Context, *I) (*O, error)) {
	huma.Register(api, huma.Operation{OperationID: id, Method: http.MethodGet, Path: prefix + path, Summary: summary, Errors: []int{400, 401, 403, 404, 421, 503}},
		func(ctx context.Context, in *I) (*body[O], error) {
			out, err := answer(ctx, in)
			if err != nil {
				return nil, s.toAPIError(err)
			}
			return &body[O]{*out}, nil
		})
}

// body is the response body of an operation.
type body[O any] struct{ Body O }
