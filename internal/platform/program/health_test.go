package program

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func is(name, note string, err error) Check {
	return Check{Name: name, Test: func(context.Context) (string, error) { return note, err }}
}

func ask(t *testing.T, h *Health, path string) (int, string) {
	t.Helper()
	mux := http.NewServeMux()
	h.Register(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestHealth_ListsEachCheckWithItsReason(t *testing.T) {
	var h Health
	h.AddLive(is("ping", "", nil))
	h.AddReady(is("ping", "", nil))
	h.AddReady(is("leader", "this instance stands by", nil))
	archive := is("archive", "", errors.New("connection\nrefused"))
	archive.Advisory = true
	h.AddReady(archive)
	well := "[+]ping ok\n[+]leader ok: this instance stands by\n[!]archive failed, which does not count: connection refused\nreadyz check passed\n"
	for _, row := range []struct {
		path string
		code int
		body string
	}{
		{"/livez", 200, "ok"},
		{"/healthz", 200, "ok"},
		{"/healthz?verbose", 200, "[+]ping ok\nhealthz check passed\n"},
		{"/readyz", 200, "ok"},
		{"/readyz?verbose", 200, well},
		{"/readyz/leader?verbose", 200, "[+]leader ok: this instance stands by\nreadyz check passed\n"},
		{"/readyz/nothing", 404, "404 page not found\n"},
	} {
		if code, body := ask(t, &h, row.path); code != row.code || body != row.body {
			t.Errorf("%s answers %d %q, want %d %q", row.path, code, body, row.code, row.body)
		}
	}
	if err := h.Ready(t.Context()); err != nil {
		t.Errorf("advice makes it not ready: %v", err)
	}

	h.AddReady(is("mqtt", "", errors.New("no connection to the MQTT broker")))
	for _, path := range []string{"/readyz", "/readyz?verbose"} {
		code, body := ask(t, &h, path)
		if code != 500 || !strings.Contains(body, "[-]mqtt failed: no connection to the MQTT broker\n") || !strings.HasSuffix(body, "readyz check failed\n") {
			t.Errorf("%s answers %d %q", path, code, body)
		}
	}
	if code, body := ask(t, &h, "/livez"); code != 200 || body != "ok" {
		t.Errorf("a server without its broker is to be killed: %d %q", code, body)
	}
	if code, _ := ask(t, &h, "/readyz?exclude=mqtt"); code != 200 {
		t.Errorf("without the check that fails it answers %d", code)
	}
	if err := h.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "mqtt") {
		t.Errorf("Ready says %v", err)
	}
}

func TestHealth_BoundsChecksThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Health
		hangs := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		h.AddReady(Check{Name: "one", Test: hangs})
		h.AddReady(Check{Name: "two", Test: hangs})
		began := time.Now()
		if code, _ := ask(t, &h, "/readyz"); code != 500 {
			t.Errorf("answers %d", code)
		}
		if took := time.Since(began); took != checkPatience {
			t.Errorf("it took %s", took)
		}
	})
}

func TestServerCheck_ToleratesAShortOutage(t *testing.T) {
	now, answers := time.Now(), errors.New("refused")
	c := &serverCheck{ask: func(context.Context) error { return answers }, now: func() time.Time { return now }}
	for _, row := range []struct {
		name    string
		pass    time.Duration
		answers error
		note    string
		fails   bool
	}{
		{"it has never answered", 0, errors.New("refused"), "", true},
		{"it answers", 0, nil, "", false},
		{"it is silent for a moment", 4 * time.Second, errors.New("refused"), "silent for 4s: refused", false},
		{"it is silent for long", 6 * time.Second, errors.New("refused"), "", true},
		{"it is back", 0, nil, "", false},
	} {
		now, answers = now.Add(row.pass), row.answers
		if note, err := c.checkServer(t.Context()); note != row.note || (err != nil) != row.fails {
			t.Errorf("%s: %q, %v", row.name, note, err)
		}
	}
}

func TestCheckLeader_StandingByIsHealthy(t *testing.T) {
	elected := make(chan struct{})
	if note, err := checkLeader(elected)(t.Context()); err != nil || note != "this instance stands by" {
		t.Errorf("%q, %v", note, err)
	}
	close(elected)
	if note, err := checkLeader(elected)(t.Context()); err != nil || note != "this instance leads" {
		t.Errorf("%q, %v", note, err)
	}
}

type syncs bool

func (s syncs) WaitForCacheSync(context.Context) bool { return bool(s) }

func TestCachesCheck_WaitsForTheCaches(t *testing.T) {
	for _, filled := range []bool{false, true} {
		c := &cachesCheck{cache: syncs(filled)}
		if _, err := c.checkCaches(t.Context()); err == nil {
			t.Error("ready before it has looked")
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.checkCaches(t.Context()); (err == nil) != filled {
			t.Errorf("caches that are filled %v: %v", filled, err)
		}
	}
}
