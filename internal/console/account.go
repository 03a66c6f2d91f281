package console

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

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

// signInBody has a token or a code.
type signInBody struct {
	Token string `json:"token,omitempty" doc:"Token for the API server, for example from kubectl create token"`
	Code  string `json:"code,omitempty" doc:"One-time code of the link that k8s4r up prints"`
}

// session is the response to signing in.
type session struct {
	Session string    `json:"session" doc:"Send it in the header X-K8s4r-Session of each request"`
	Until   time.Time `json:"until" doc:"End of the session; its token may expire earlier"`
}

func (s *Server) registerSession(api huma.API) {
	addRead(s, api, "/me", "whoami", "The caller, and the namespaces that the caller can see", s.getMe)
	huma.Register(api, huma.Operation{
		OperationID: "sign-in", Method: http.MethodPost, Path: prefix + "/session", Summary: "Sign in: exchange a token or a one-time code for a session of at most an hour",
		Security: []map[string][]string{}, Errors: []int{400, 401, 403, 421, 503},
	}, func(ctx context.Context, in *body[signInBody]) (*body[session], error) {
		out, err := s.signIn(ctx, in.Body)
		if err != nil {
			return nil, s.toAPIError(err)
		}
		return &body[session]{*out}, nil
	})
}

func (s *Server) signIn(ctx context.Context, in signInBody) (*session, error) {
	if (in.Token == "") == (in.Code == "") {
		return nil, apierrors.NewBadRequest("token, code: set one of them")
	}
	var err error
	if in.Code != "" {
		in.Token, err = s.redeemCode(ctx, in.Code)
	} else {
		err = s.checkToken(ctx, in.Token)
	}
	if err != nil {
		return nil, err
	}
	until := s.now().Add(sessionLife)
	sealed, err := s.sealSession(in.Token, until)
	return &session{sealed, until}, err
}

// redeemCode returns the token of a one-time code.
func (s *Server) redeemCode(ctx context.Context, text string) (string, error) {
	is, ok := s.codes.takeCode(text, s.now())
	if !ok {
		return "", apierrors.NewUnauthorized("code: it was used or has expired; the next start of k8s4r up prints another link, or sign in with a token")
	}
	token, err := is.token(ctx)
	if err != nil {
		s.log.Error(err, "Cannot create a token for the user")
		return "", apierrors.NewServiceUnavailable("cannot create a token for the user: " + err.Error())
	}
	return token, nil
}

// checkToken returns an error unless the token authenticates a user and its session fits a header.
func (s *Server) checkToken(ctx context.Context, token string) error {
	switch {
	case len(token) > maxToken:
		return apierrors.NewBadRequest(fmt.Sprintf("token: has %d bytes, but a session is limited to tokens of %d: send it in the header Authorization of each request instead", len(token), maxToken))
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return apierrors.NewBadRequest("token: contains characters that are not allowed in a token")
	}
	probe, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	if err != nil {
		return err
	}
	probe.Header.Set("Authorization", "Bearer "+token)
	_, err = s.identifyCaller(probe)
	return err
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
