package program

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"

	"k8s4r.io/k8s4r/internal/platform/access"
)

// gateOf lets through who is named in the token, to the paths that are listed.
type gateOf map[string][]string

func (g gateOf) Authenticate(r *http.Request) (*access.User, error) {
	switch name := r.Header.Get("Authorization"); name {
	case "":
		return nil, access.ErrUnauthenticated
	case "unknown":
		return nil, errors.New("the API server is down")
	default:
		return &access.User{Name: name}, nil
	}
}

func (g gateOf) IsPathAllowed(_ context.Context, u *access.User, do authorizationv1.NonResourceAttributes) (bool, error) {
	for _, path := range g[u.Name] {
		if path == do.Path && do.Verb == "get" {
			return true, nil
		}
	}
	if u.Name == "unlucky" {
		return false, errors.New("the API server is down")
	}
	return false, nil
}

func TestAuthorizeRequests(t *testing.T) {
	g := gateOf{"prometheus": {"/metrics"}, "ann": {"/debug/pprof/heap"}}
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "secret") })
	for _, row := range []struct {
		open bool
		who  string
		path string
		want int
	}{
		{true, "", "/metrics", 200},
		{false, "", "/metrics", 401},
		{false, "ann", "/metrics", 403},
		{false, "prometheus", "/metrics", 200},
		{true, "", "/debug/pprof/heap", 401},
		{true, "prometheus", "/debug/pprof/heap", 403},
		{true, "ann", "/debug/pprof/heap", 200},
		{false, "ann", "/debug/pprof/heap", 200},
		{true, "ann", "/debug/pprof/trace", 403},
		{true, "unknown", "/debug/pprof/heap", 503},
		{true, "unlucky", "/debug/pprof/heap", 503},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, row.path, nil)
		r.Header.Set("Authorization", row.who)
		w := httptest.NewRecorder()
		authorizeRequests(g, row.open, logr.Discard(), h).ServeHTTP(w, r)
		if w.Code != row.want || (w.Body.String() == "secret") != (row.want == 200) {
			t.Errorf("%+v: %d %q", row, w.Code, w.Body)
		}
	}
}

func TestMetricsOptions_ByAddress(t *testing.T) {
	for _, row := range []struct {
		address          string
		secure           bool
		tls, hasProfiles bool
	}{
		{"127.0.0.1:8080", true, false, true},
		{"[::1]:8080", true, false, true},
		{"localhost:8080", false, false, true},
		{":8080", true, true, true},
		{"10.0.0.1:8080", true, true, true},
		{":8080", false, false, false},
	} {
		o := metricsOptions(row.address, row.secure)
		guards := o.FilterProvider != nil
		if o.SecureServing != row.tls || guards != row.hasProfiles || (len(o.ExtraHandlers) > 0) != row.hasProfiles {
			t.Errorf("%+v: TLS %v, guarded %v, %d profiles", row, o.SecureServing, guards, len(o.ExtraHandlers))
		}
	}
}
