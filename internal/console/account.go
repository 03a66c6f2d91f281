package console

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/protocol/version"
)

// me describes the caller and what the caller can see.
type me struct {
	User   string   `json:"user"`
	Groups []string `json:"groups"`
	// Namespaces lists the namespaces that have objects and in which the caller may list tasks.
	Namespaces []string `json:"namespaces"`
	Version    string   `json:"version"`
	// Archive reports whether the console has an archive.
	Archive bool `json:"archive"`
	// Position is the position in the event stream before this request.
	Position string `json:"position" doc:"Position in the event stream. A client that loads lists after this response and follows the events since this position misses nothing"`
}

type tokenIn struct {
	Body struct {
		Token string `json:"token" doc:"Token for the API server, for example from kubectl create token"`
	}
}

type cookieOut struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
}

func (s *Server) registerSession(api huma.API) {
	addRead(s, api, "/me", "whoami", "The caller, and the namespaces that the caller can see", s.getMe)
	huma.Register(api, huma.Operation{
		OperationID: "sign-in", Method: http.MethodPost, Path: prefix + "/session", Summary: "Sign in: store a token in a cookie of the browser", DefaultStatus: http.StatusNoContent,
		Security: []map[string][]string{}, Errors: []int{400, 401, 503},
	}, func(ctx context.Context, in *tokenIn) (*cookieOut, error) {
		if err := s.checkToken(ctx, in.Body.Token); err != nil {
			return nil, s.toAPIError(err)
		}
		return &cookieOut{*newSessionCookie(requestFromContext(ctx), in.Body.Token)}, nil
	})
	huma.Register(api, huma.Operation{
		OperationID: "sign-out", Method: http.MethodDelete, Path: prefix + "/session", Summary: "Sign out: delete the cookie", DefaultStatus: http.StatusNoContent,
		Security: []map[string][]string{},
	}, func(ctx context.Context, _ *struct{}) (*cookieOut, error) {
		return &cookieOut{*newSessionCookie(requestFromContext(ctx), "")}, nil
	})
}

func (s *Server) getMe(ctx context.Context, _ *struct{}) (*me, error) {
	c := callerFromContext(ctx)
	at := s.store.Ring().Position()
	out := &me{Position: at, User: c.Name, Groups: append([]string{}, c.Groups...), Namespaces: []string{}, Version: version.Version, Archive: s.archive != nil}
	sees, err := s.findScope(ctx, row.Tasks, "")
	if err != nil {
		return nil, err
	}
	out.Namespaces = append(out.Namespaces, sees.names...)
	if sees.all {
		out.Namespaces = s.listNamespaces()
	}
	return out, nil
}
