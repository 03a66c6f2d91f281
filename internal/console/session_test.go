package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sessionOf returns a session that is valid until the given time.
func sessionOf(t *testing.T, s *Server, token string, until time.Time) string {
	t.Helper()
	text, err := s.sealSession(token, until)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// signIn sends a request to sign in.
func signIn(t *testing.T, s *Server, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/api/v1/session", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	s.Handler().ServeHTTP(w, r)
	return w
}

func TestSignIn_ReturnsSessionOfAnHour(t *testing.T) {
	s, _ := newTestServer(&fakeGate{})
	valid := func(context.Context) (string, error) { return "secret", nil }
	code := s.codes.NewCode(valid, noon.Add(time.Second))
	expired := s.codes.NewCode(valid, noon)
	failing := s.codes.NewCode(func(context.Context) (string, error) { return "", errors.New("no ServiceAccount") }, noon.Add(time.Second))
	for _, c := range []struct {
		name, body string
		status     int
		message    string // of the error
	}{
		{"a token", `{"token": "secret"}`, 200, ""},
		{"an invalid token", `{"token": "other"}`, 401, "no valid token"},
		{"a code", `{"code": "` + code + `"}`, 200, ""},
		{"the same code again", `{"code": "` + code + `"}`, 401, "code: it was used or has expired"},
		{"an expired code", `{"code": "` + expired + `"}`, 401, "code: it was used or has expired"},
		{"an unknown code", `{"code": "x"}`, 401, "code: it was used or has expired"},
		{"a code whose token cannot be created", `{"code": "` + failing + `"}`, 503, "no ServiceAccount"},
		{"nothing", `{}`, 400, "token, code: set one of them"},
		{"a token and a code", `{"token": "secret", "code": "x"}`, 400, "token, code: set one of them"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := signIn(t, s, c.body)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.message) || w.Header().Get("Set-Cookie") != "" {
				t.Fatalf("got %d %s with %v", w.Code, w.Body, w.Header())
			}
			if c.status != http.StatusOK {
				return
			}
			var out session
			if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || !out.Until.Equal(noon.Add(time.Hour)) || strings.Contains(out.Session, "secret") {
				t.Errorf("got %+v (%v)", out, err)
			}
			if token, until, err := s.openSession(out.Session); err != nil || token != "secret" || !until.Equal(out.Until) {
				t.Errorf("the session has %q until %s (%v)", token, until, err)
			}
		})
	}
}

func TestOpenSession_RejectsEndedAndForeignSessions(t *testing.T) {
	s, _ := newTestServer(&fakeGate{})
	at := noon
	s.now = func() time.Time { return at }
	valid := sessionOf(t, s, "secret", noon.Add(sessionLife))
	at = noon.Add(sessionLife - time.Nanosecond)
	if token, _, err := s.openSession(valid); err != nil || token != "secret" {
		t.Errorf("just before its end: %q (%v)", token, err)
	}
	changed := []byte(valid)
	changed[len(changed)/2] ^= 1
	for name, text := range map[string]string{"a changed session": string(changed), "a part": valid[:len(valid)-4], "a token": "secret", "nothing": "", "no base64": "%"} {
		if _, _, err := s.openSession(text); !errors.Is(err, errSessionEnded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other, _ := newTestServer(&fakeGate{})
	other.secret = func() ([]byte, error) { return bytes.Repeat([]byte("o"), minSecret), nil }
	if _, _, err := other.openSession(valid); !errors.Is(err, errSessionEnded) {
		t.Errorf("another key: %v", err)
	}
	at = noon.Add(sessionLife)
	if _, _, err := s.openSession(valid); !errors.Is(err, errSessionEnded) {
		t.Errorf("at its end: %v", err)
	}
	broken := errors.New("no such file")
	s.secret = func() ([]byte, error) { return nil, broken }
	if _, _, err := s.openSession(valid); !errors.Is(err, broken) {
		t.Errorf("without a key: %v", err)
	}
	if w := signIn(t, s, `{"token": "secret"}`); w.Code != http.StatusInternalServerError {
		t.Errorf("signing in without a key: %d %s", w.Code, w.Body)
	}
}

func TestNewSecret_IsSharedByReplicasWithTheFile(t *testing.T) {
	dir := t.TempDir()
	file, short := filepath.Join(dir, "tls.key"), filepath.Join(dir, "short")
	for path, text := range map[string]string{file: strings.Repeat("k", minSecret), short: strings.Repeat("k", minSecret-1)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{short, filepath.Join(dir, "missing")} {
		if _, err := newSecret(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	replica := func(file string) *Server {
		s, _ := newTestServer(&fakeGate{})
		var err error
		if s.secret, err = newSecret(file); err != nil {
			t.Fatal(err)
		}
		return s
	}
	first, second := replica(file), replica(file)
	text := sessionOf(t, first, "secret", noon.Add(time.Minute))
	if token, _, err := second.openSession(text); err != nil || token != "secret" {
		t.Errorf("at another replica: %q (%v)", token, err)
	}
	if _, _, err := replica("").openSession(text); !errors.Is(err, errSessionEnded) {
		t.Errorf("at a console without the file: %v", err)
	}
	alone := replica("")
	if _, _, err := alone.openSession(sessionOf(t, alone, "secret", noon.Add(time.Minute))); err != nil {
		t.Errorf("of its own: %v", err)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("n", minSecret)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := second.openSession(text); !errors.Is(err, errSessionEnded) {
		t.Errorf("after the file was renewed: %v", err)
	}
}

func TestStream_EndsWithSession(t *testing.T) {
	s, _ := newTestServer(&fakeGate{})
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(sessionHeader, sessionOf(t, s, "secret", noon.Add(100*time.Millisecond)))
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(string(text), "event: hello") {
		t.Errorf("got %q (%v), want a broken connection at the end of the session", text, err)
	}
}

func TestCheckToken_RejectsUnusableTokens(t *testing.T) {
	s, _ := newTestServer(&fakeGate{})
	longest := strings.Repeat("a", maxToken)
	s.gate.(*fakeGate).users[longest] = "long"
	for name, c := range map[string]struct {
		token, want string
		code        int32
	}{
		"valid":                 {token: "secret"},
		"of the maximum length": {token: longest},
		"too long":              {longest + "a", "token: has 5001 bytes, but a session is limited to tokens of 5000: send it in the header Authorization of each request instead", 400},
		"with a line break":     {"sec\nret", "token: contains characters that are not allowed in a token", 400},
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
	if length := len(sessionOf(t, s, longest, noon)) + len(sessionHeader) + len(": "); length > 8<<10 {
		t.Errorf("the header of the longest session has %d bytes, which proxies refuse", length)
	}
	var is metav1.Status
	if code := serve(t, s, "POST", "/api/v1/session", `{"token":"sé"}`, &is); code != 400 || is.Message != "token: contains characters that are not allowed in a token" {
		t.Errorf("got %d, %+v", code, is)
	}
}
