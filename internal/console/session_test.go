package console

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tokenOf returns a function that creates this token.
func tokenOf(text string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return text, nil }
}

func TestCodes_AreValidOnceUntilTheyExpire(t *testing.T) {
	c := &Codes{}
	if _, ok := c.takeCode("", noon); ok {
		t.Error("the zero value accepts a code")
	}
	first, second := c.NewCode(tokenOf("one"), noon.Add(time.Minute)), c.NewCode(tokenOf("two"), noon.Add(time.Hour))
	if first == second || len(first) != 32 {
		t.Errorf("codes %q and %q", first, second)
	}
	if _, ok := c.takeCode(first[:31], noon); ok {
		t.Error("a part of a code is accepted")
	}
	is, ok := c.takeCode(second, noon)
	if token, err := is.token(t.Context()); !ok || err != nil || token != "two" {
		t.Errorf("got %q, %t (%v)", token, ok, err)
	}
	if _, ok := c.takeCode(second, noon); ok {
		t.Error("a code is accepted twice")
	}
	if _, ok := c.takeCode(first, noon.Add(time.Minute)); ok {
		t.Error("a code is accepted at its end")
	}
	if _, ok := c.takeCode(first, noon); ok {
		t.Error("an expired code can be tried again")
	}
	third := c.NewCode(tokenOf("three"), noon.Add(time.Minute))
	if _, ok := c.takeCode(third, noon.Add(time.Minute-time.Nanosecond)); !ok {
		t.Error("a code is rejected before its end")
	}
}

func TestSignIn_ExchangesCodeForSession(t *testing.T) {
	s, _ := newTestServer(&fakeGate{})
	code := s.codes.NewCode(tokenOf("secret"), noon.Add(time.Second))
	failing := s.codes.NewCode(func(context.Context) (string, error) { return "", errors.New("no ServiceAccount") }, noon.Add(time.Second))
	expired := s.codes.NewCode(tokenOf("secret"), noon)
	for _, c := range []struct {
		name, query, location, cookie string
		status                        int
	}{
		{"a code", "?code=" + code, "/", "secret", http.StatusSeeOther},
		{"the same code again", "?code=" + code, "/signin-failed", "", http.StatusSeeOther},
		{"an expired code", "?code=" + expired, "/signin-failed", "", http.StatusSeeOther},
		{"an unknown code", "?code=x", "/signin-failed", "", http.StatusSeeOther},
		{"no code", "", "/signin-failed", "", http.StatusSeeOther},
		{"a token that cannot be created", "?code=" + failing, "", "", http.StatusServiceUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/signin"+c.query, http.NoBody))
			var cookie string
			for _, is := range w.Result().Cookies() {
				cookie = is.Value
			}
			if w.Code != c.status || w.Header().Get("Location") != c.location || cookie != c.cookie {
				t.Errorf("got %d to %q with cookie %q", w.Code, w.Header().Get("Location"), cookie)
			}
		})
	}
}

func TestSession_KeepsValidTokenInCookie(t *testing.T) {
	s, _ := newTestServer(&fakeGate{})
	send := func(method, body string) *http.Response {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), method, "/api/v1/session", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		s.Handler().ServeHTTP(w, r)
		return w.Result()
	}
	in := send("POST", `{"token":"secret"}`)
	if in.StatusCode != http.StatusNoContent || len(in.Cookies()) != 1 {
		t.Fatalf("got %d with %v", in.StatusCode, in.Cookies())
	}
	c := in.Cookies()[0]
	if c.Name != "k8s4r-session" || c.Value != "secret" || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.MaxAge != 24*60*60 || c.Secure {
		t.Errorf("got %+v", c)
	}
	if wrong := send("POST", `{"token":"other"}`); wrong.StatusCode != http.StatusUnauthorized || len(wrong.Cookies()) != 0 {
		t.Errorf("an invalid token: %d with %v", wrong.StatusCode, wrong.Cookies())
	}
	out := send("DELETE", "")
	if c := out.Cookies(); out.StatusCode != http.StatusNoContent || len(c) != 1 || c[0].Value != "" || c[0].MaxAge != -1 {
		t.Errorf("signing out: %d with %+v", out.StatusCode, c)
	}
}

func TestNewSessionCookie_IsSecureBehindTLS(t *testing.T) {
	plain := httptest.NewRequestWithContext(t.Context(), "GET", "/", http.NoBody)
	direct, proxied := plain.Clone(t.Context()), plain.Clone(t.Context())
	direct.TLS = &tls.ConnectionState{}
	proxied.Header.Set("X-Forwarded-Proto", "https")
	if newSessionCookie(plain, "x").Secure || !newSessionCookie(direct, "x").Secure || !newSessionCookie(proxied, "x").Secure {
		t.Error("Secure does not follow the connection of the browser")
	}
}

func TestCheckToken_RejectsUnusableTokens(t *testing.T) {
	s, _ := newTestServer(&fakeGate{})
	s.gate.(*fakeGate).users[strings.Repeat("a", maxToken)] = "long"
	for name, c := range map[string]struct {
		token, want string
		code        int32
	}{
		"valid":                 {token: "secret"},
		"of the maximum length": {token: strings.Repeat("a", maxToken)},
		"empty":                 {"", "token: must not be empty", 400},
		"too long":              {strings.Repeat("a", maxToken+1), "token: has 3801 bytes, but a cookie is limited to 3800: send it in the header Authorization of each request instead", 400},
		"with a line break":     {"sec\nret", "token: contains characters that are not allowed in a token", 400},
		"with a separator":      {"secret;x", "token: contains characters that are not allowed in a token", 400},
		"with an umlaut":        {"sécret", "token: contains characters that are not allowed in a token", 400},
		"unknown":               {"other", "no valid token, session or client certificate: sign in", 401},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.checkToken(t.Context(), c.token)
			if c.code == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var got *status
			if !errors.As(s.toAPIError(err), &got) || got.Code != c.code || got.Message != c.want {
				t.Errorf("got %+v (%v), want %d: %s", got, err, c.code, c.want)
			}
		})
	}
	var is metav1.Status
	if code := serve(t, s, "POST", "/api/v1/session", `{"token":""}`, &is); code != 400 || is.Message != "token: must not be empty" {
		t.Errorf("got %d, %+v", code, is)
	}
}
