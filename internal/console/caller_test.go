package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/platform/access"
)

func TestIdentifyCaller_AcceptsTokenSessionAndCertificate(t *testing.T) {
	for _, c := range []struct {
		name, method, session string
		headers               map[string]string
		user, token           string
		code                  int32 // of the error; zero: none
	}{
		{name: "a token", method: "GET", headers: map[string]string{"Authorization": "Bearer secret"}, user: "ann", token: "secret"},
		{name: "a token with blanks around it", method: "GET", headers: map[string]string{"Authorization": "Bearer  secret "}, code: 401},
		{name: "a change with a token", method: "POST", headers: map[string]string{"Authorization": "Bearer secret"}, user: "ann", token: "secret"},
		{name: "an invalid token", method: "GET", headers: map[string]string{"Authorization": "Bearer other"}, code: 401},
		{name: "no credentials", method: "GET", code: 401},
		{name: "a session that reads", method: "GET", session: "secret", user: "ann", token: "secret"},
		{name: "a session that changes something", method: "POST", session: "secret", user: "ann", token: "secret"},
		{name: "a session of an expired token", method: "GET", session: "old", code: 401},
		{name: "a session that is a token", method: "GET", headers: map[string]string{sessionHeader: "secret"}, code: 401},
		{name: "a cookie", method: "GET", headers: map[string]string{"Cookie": "k8s4r-session=secret"}, code: 401},
		{name: "the token wins over the session", method: "GET", session: "other", headers: map[string]string{"Authorization": "Bearer secret"}, user: "ann", token: "secret"},
		{name: "an invalid token is not replaced by the session", method: "GET", session: "secret", headers: map[string]string{"Authorization": "Bearer other"}, code: 401},
		{name: "a certificate", method: "POST", headers: map[string]string{"X-Certificate": "bob"}, user: "bob"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := newTestServer(&fakeGate{})
			r := httptest.NewRequestWithContext(t.Context(), c.method, "/", http.NoBody)
			for k, v := range c.headers {
				r.Header.Set(k, v)
			}
			if c.session != "" {
				r.Header.Set(sessionHeader, sessionOf(t, s, c.session, noon.Add(time.Minute)))
			}
			got, err := s.identifyCaller(r)
			if c.code != 0 {
				if is := apierrors.APIStatus(nil); !errors.As(err, &is) || is.Status().Code != c.code {
					t.Fatalf("got %+v (%v), want the code %d", got, err, c.code)
				}
				return
			}
			if err != nil || got.Name != c.user || got.token != c.token {
				t.Errorf("got %+v (%v), want user %q with token %q", got, err, c.user, c.token)
			}
		})
	}
}

func TestIdentifyCaller_MapsErrorsOfGate(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int32
	}{
		{fmt.Errorf("review token: %w", access.ErrUnauthenticated), 401},
		{access.ErrImpersonation, 400},
		{errReview, 503},
	} {
		s, _ := newTestServer(&fakeGate{err: c.err})
		_, err := s.identifyCaller(httptest.NewRequestWithContext(t.Context(), "GET", "/", http.NoBody))
		if is := apierrors.APIStatus(nil); !errors.As(err, &is) || is.Status().Code != c.code {
			t.Errorf("%v: got %v, want the code %d", c.err, err, c.code)
		}
	}
}

func TestCallerConfig_ActsAsCaller(t *testing.T) {
	s, _ := newTestServer(&fakeGate{})
	s.api = &rest.Config{Host: "https://api:6443", BearerToken: "console's own", Username: "console", TLSClientConfig: rest.TLSClientConfig{CertFile: "own.crt", KeyFile: "own.key", CAFile: "ca.crt"}}

	withToken := s.callerConfig(&caller{User: &access.User{Name: "ann"}, token: "secret"})
	if withToken.BearerToken != "secret" || withToken.CertFile != "" || withToken.Username != "" || withToken.Impersonate.UserName != "" {
		t.Errorf("with a token: %+v, which has credentials of the console", withToken)
	}
	if withToken.Host != "https://api:6443" || withToken.CAFile != "ca.crt" {
		t.Errorf("with a token: %+v, which is for another API server", withToken)
	}

	user := &access.User{Name: "bob", UID: "u1", Groups: []string{"fleet"}, Extra: map[string][]string{"k": {"v"}}}
	withCertificate := s.callerConfig(&caller{User: user})
	want := rest.ImpersonationConfig{UserName: "bob", UID: "u1", Groups: []string{"fleet"}, Extra: map[string][]string{"k": {"v"}}}
	if !reflect.DeepEqual(withCertificate.Impersonate, want) || withCertificate.BearerToken != "console's own" {
		t.Errorf("with a certificate: %+v", withCertificate)
	}
	if s.api.Impersonate.UserName != "" {
		t.Error("the console's own configuration was changed")
	}
}

func TestHandler_RequiresCaller(t *testing.T) {
	s, _ := newTestServer(&fakeGate{})
	for path, want := range map[string]int{
		"/api/v1/me": 401, "/api/v1/objects/jobs": 401, "/api/v1/events": 401, "/api/v1/unknown": 401,
		"/api/v1/openapi.json": 200,
	} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost"+path, http.NoBody))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
		if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%s: headers %v", path, w.Header())
		}
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/api/v1/me", http.NoBody))
	var body metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Kind != "Status" || body.Reason != metav1.StatusReasonUnauthorized || body.Code != 401 {
		t.Errorf("got %+v (%v)", body, err)
	}
}

func TestRequireAccess_ReviewsPermission(t *testing.T) {
	gate := &fakeGate{allow: func(_ string, do authorizationv1.ResourceAttributes) (bool, error) { return do.Verb == "get", nil }}
	s, _ := newTestServer(gate)
	ctx := asAnn(t.Context())
	if err := s.requireAccess(ctx, "get", row.VCJobs, "n", "j"); err != nil {
		t.Error(err)
	}
	want := authorizationv1.ResourceAttributes{Verb: "get", Group: "batch.volcano.sh", Resource: "jobs", Namespace: "n", Name: "j"}
	if len(gate.asked) != 1 || gate.asked[0] != want {
		t.Errorf("reviewed %+v, want %+v", gate.asked, want)
	}
	err := s.requireAccess(ctx, "list", row.Robots, "n", "")
	if text := `robots.robot.k8s4r.io is forbidden: user "ann" cannot list robots in namespace "n"`; !apierrors.IsForbidden(err) || err.Error() != text {
		t.Errorf("got %v, want %s", err, text)
	}
	gate.allow = func(string, authorizationv1.ResourceAttributes) (bool, error) { return false, errReview }
	if err := s.requireAccess(ctx, "get", row.Jobs, "n", "j"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v while no review is possible", err)
	}
}

func TestVisibleScope_ReturnsNamespacesOfCaller(t *testing.T) {
	in := func(namespace string) client.Object {
		return &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "t"}}
	}
	for _, c := range []struct {
		name, namespace string
		allowed         []string // namespaces; empty string: all
		want            scope
		forbidden       bool
	}{
		{"all namespaces", "", []string{""}, scope{all: true}, false},
		{"some namespaces, sorted", "", []string{"c", "a"}, scope{names: []string{"a", "c"}}, false},
		{"the default namespace without objects", "", []string{"default"}, scope{names: []string{"default"}}, false},
		{"no namespaces", "", nil, scope{}, false},
		{"a namespace without objects is not found", "", []string{"empty"}, scope{}, false},
		{"a named namespace", "b", []string{"b", "c"}, scope{names: []string{"b"}}, false},
		{"a named namespace without objects", "empty", []string{"empty"}, scope{names: []string{"empty"}}, false},
		{"a named namespace without permission", "b", []string{"a"}, scope{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := newTestServer(&fakeGate{allow: func(_ string, do authorizationv1.ResourceAttributes) (bool, error) {
				for _, ns := range c.allowed {
					if do.Verb == "list" && do.Resource == "tasks" && do.Namespace == ns {
						return true, nil
					}
				}
				return false, nil
			}}, in("c"), in("b"), in("a"))
			got, err := s.findScope(asAnn(t.Context()), row.Tasks, c.namespace)
			if apierrors.IsForbidden(err) != c.forbidden || (err != nil) != c.forbidden {
				t.Fatal(err)
			}
			if !c.forbidden && !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	s, _ := newTestServer(&fakeGate{allow: func(string, authorizationv1.ResourceAttributes) (bool, error) { return false, errReview }}, in("a"))
	if got, err := s.findScope(asAnn(t.Context()), row.Tasks, ""); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %+v (%v) while no review is possible", got, err)
	}
}

func TestScope_FiltersNamespaces(t *testing.T) {
	some := scope{names: []string{"a", "c"}}
	for namespace, want := range map[string]bool{"a": true, "b": false, "c": true, "": false, "d": false} {
		if got := some.includes(namespace); got != want {
			t.Errorf("%q: got %t", namespace, got)
		}
	}
	if all := (scope{all: true}); !all.includes("b") {
		t.Error("a scope of all namespaces excludes some")
	}
}

func TestListObjects_HidesOtherNamespaces(t *testing.T) {
	in := func(namespace string) client.Object {
		return &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "r-" + namespace}}
	}
	s, _ := newTestServer(&fakeGate{allow: func(_ string, do authorizationv1.ResourceAttributes) (bool, error) { return do.Namespace == "a", nil }}, in("a"), in("b"))
	var got page
	if code := serve(t, s, "GET", "/api/v1/objects/robots", "", &got); code != 200 || len(got.Items) != 1 || got.Items[0].Name != "r-a" || *got.Total != 1 {
		t.Errorf("%d: %+v", code, got)
	}
	var denied metav1.Status
	if code := serve(t, s, "GET", "/api/v1/objects/robots?namespace=b", "", &denied); code != 403 || denied.Reason != metav1.StatusReasonForbidden {
		t.Errorf("%d: %+v", code, denied)
	}
	if code := serve(t, s, "GET", "/api/v1/objects/robots/b/r-b", "", &denied); code != 403 {
		t.Errorf("an object of another namespace: %d", code)
	}
}
