package console

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"k8s4r.io/k8s4r/internal/platform/serveraddr"
)

func TestTaskRuns_ForwardsWithTokenOfCaller(t *testing.T) {
	var asked *http.Request
	answer, code := `{"attempt":2,"runCount":12,"items":[{"run":11,"startedAt":"2026-03-01T12:00:00Z","finishedAt":"2026-03-01T12:00:01.5Z","exitCode":0,"withoutContact":true},{"run":12}],
		"gaps":[{"reason":"OutOfContact","firstRun":9,"lastRun":11,"from":"2026-03-01T11:00:00Z"}],"before":11}`, http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Clone(context.Background())
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	s, _ := newTestServer(&fakeGate{})
	s.api = &rest.Config{Host: "https://api:6443", BearerToken: "console's own"}
	s.findLogs = func(context.Context) (serveraddr.Address, error) { return serveraddr.Address{URL: server.URL}, nil }
	get := func(header, value string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/api/v1/tasks/n/t/runs?attempt=2&before=13", http.NoBody)
		r.Header.Set(header, value)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	code1, text := get("Authorization", "Bearer secret")
	var page runPage
	if err := json.Unmarshal([]byte(text), &page); err != nil || code1 != 200 || asked.Header.Get("Authorization") != "Bearer secret" {
		t.Fatalf("got %d %s (%v), asked with %q", code1, text, err, asked.Header.Get("Authorization"))
	}
	if want := "/v1/namespaces/n/tasks/t/runs?attempt=2&before=13&limit=100"; asked.URL.String() != want {
		t.Errorf("asked for %s, want %s", asked.URL, want)
	}
	first, last := page.Items[0], page.Items[1]
	if page.RunCount != 12 || page.Before != 11 || first.Number != 11 || *first.ExitCode != 0 || !first.WithoutContact || first.Finished.Sub(first.Started.Time).Seconds() != 1.5 || last.ExitCode != nil || last.Finished != nil {
		t.Errorf("got %s", text)
	}
	if g := page.Gaps[0]; g.Reason != "OutOfContact" || g.First != 9 || g.Last != 11 || g.From == nil || g.To != nil {
		t.Errorf("gap %+v", g)
	}
	if code, text := get("X-Certificate", "bob"); code != 403 || !strings.Contains(text, "sign in with a token") {
		t.Errorf("with a certificate: got %d %q", code, text)
	}
	answer, code = `{"kind":"Status","apiVersion":"v1","status":"Failure","code":409,"reason":"NotStarted","message":"it has not started"}`, http.StatusConflict
	if code, text := get("Authorization", "Bearer secret"); code != 409 || !strings.Contains(text, "it has not started") {
		t.Errorf("before the start: got %d %q", code, text)
	}
	answer, code = "404 page not found", http.StatusNotFound
	if code, text := get("Authorization", "Bearer secret"); code != 502 || !strings.Contains(text, "404") {
		t.Errorf("of a server of the previous version: got %d %q", code, text)
	}
	server.Close()
	if code, text := get("Authorization", "Bearer secret"); code != 503 || !strings.Contains(text, "cannot read the log from k8s4r-server") {
		t.Errorf("of an unreachable server: got %d %q", code, text)
	}
}
