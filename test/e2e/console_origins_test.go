package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/testca"
)

// TestConsole_GivesOtherOriginsNothing signs in at up under each of its host names, as a browser with
// one cookie store does. A page at another port of that name receives no credentials, cannot read or
// change anything, and the console serves no page under a DNS name that is not its own.
func TestConsole_GivesOtherOriginsNothing(t *testing.T) {
	t.Parallel()
	s := start(t, "--without", "manager,server,broker,robots,node")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := s.browser(t, "")
	b.Jar = jar
	received := make(chan http.Header, 1)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received <- r.Header.Clone() }))
	defer other.Close()

	session := s.signedIn(t).session
	for _, host := range []string{"127.0.0.1", "localhost"} {
		b.at, b.session = underHost(t, s.ConsoleURL, host), session
		var me struct{ User string }
		if b.get("/api/v1/me", &me); me.User != "system:serviceaccount:k8s4r-system:k8s4r-operator" {
			t.Errorf("under %s the session is of %q", host, me.User)
		}
		elsewhere := &browser{t: t, at: underHost(t, other.URL, host), Client: http.Client{Jar: jar}}
		elsewhere.open(t.Context(), http.MethodGet, "/", nil).Body.Close()
		for name, values := range <-received {
			if name == "Cookie" || name == "Authorization" || strings.Contains(strings.Join(values, " "), session) {
				t.Errorf("another port of %s receives %s: %v", host, name, values)
			}
		}
		b.session = ""
		b.getsNothingFrom(elsewhere.at)
	}

	b.session = session
	for _, path := range []string{"/", "/signin?code=x", "/api/v1/me"} {
		if code, text := b.askAs("attacker.example.com", path); code != http.StatusMisdirectedRequest || !strings.Contains(text, "--public-url") {
			t.Errorf("%s under the name of another site: %d %s", path, code, text)
		}
	}
	b.session, b.token = "", s.bearer("reader", "k8s4r-view")
	if code, text := b.askAs("console.in-cluster.svc", "/api/v1/me"); code != http.StatusOK {
		t.Errorf("a program with a token: %d %s", code, text)
	}
}

// TestConsole_OfUpHasAPublicURL asks the console of up as a proxy does that keeps the name.
func TestConsole_OfUpHasAPublicURL(t *testing.T) {
	t.Parallel()
	s := start(t, "--without", "manager,server,broker,robots,node", "--public-url", "https://console.example.com/")
	b := s.browser(t, "")
	if code, text := b.askAs("console.example.com", "/"); code != http.StatusOK {
		t.Errorf("under its own name: %d %s", code, text)
	}
	if code, _ := b.askAs("other.example.com", "/"); code != http.StatusMisdirectedRequest {
		t.Errorf("under another name: %d", code)
	}
	testkit.Eventually(t, time.Minute, "the sign-in link has that address", func() bool {
		return strings.Contains(s.OutputTail(), "\n  https://console.example.com/signin?code=")
	})
}

// underHost returns the origin of u under another host name.
func underHost(t *testing.T, u, host string) string {
	t.Helper()
	at, err := url.Parse(u)
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + net.JoinHostPort(host, at.Port())
}

// getsNothingFrom sends what a page of another origin can make the browser send.
func (b *browser) getsNothingFrom(origin string) {
	b.t.Helper()
	for _, c := range []struct {
		method, path string
		code         int
		header       []string
	}{
		{http.MethodGet, "/api/v1/me", http.StatusUnauthorized, nil},
		{http.MethodGet, "/api/v1/events", http.StatusUnauthorized, nil},
		{http.MethodOptions, "/api/v1/me", http.StatusUnauthorized, []string{"Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "x-k8s4r-session"}},
		{http.MethodPost, "/api/v1/actions", http.StatusForbidden, nil},
		{http.MethodPost, "/api/v1/session", http.StatusForbidden, nil},
	} {
		answer := b.open(b.t.Context(), c.method, c.path, map[string]string{}, append(c.header, "Origin", origin, "Sec-Fetch-Site", "same-site")...)
		answer.Body.Close()
		if answer.StatusCode != c.code {
			b.t.Errorf("%s %s from %s: %s, want %d", c.method, c.path, origin, answer.Status, c.code)
		}
		for name := range answer.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				b.t.Errorf("%s %s from %s: the answer has %s", c.method, c.path, origin, name)
			}
		}
	}
}

// askAs sends a request under another Host, as the page of a site does whose name has been made to
// resolve to this machine.
func (b *browser) askAs(host, path string) (int, string) {
	b.t.Helper()
	console, err := url.Parse(b.at)
	if err != nil {
		b.t.Fatal(err)
	}
	as := *b
	as.at = "http://" + host
	as.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, console.Host)
	}}
	return as.ask(http.MethodGet, path, nil)
}

// TestConsole_ReplicasShareSessions signs in at one of two consoles with the same certificate, and uses
// the session at the other one and after a restart.
func TestConsole_ReplicasShareSessions(t *testing.T) {
	t.Parallel()
	s := start(t, "--without", "manager,server,broker,robots,node,console")
	dir := t.TempDir()
	testca.New(t).WriteServerFiles(dir)
	token := s.bearer("viewer", "view")
	const name = "console.example.com"
	newReplica := func(flags ...string) (*program, *browser) {
		address := testkit.FreeAddr(t)
		p := run(t, "k8s4r-console", append([]string{"--kubeconfig", s.serviceAccountKubeconfig("k8s4r-console"), "--bind-address", address,
			"--metrics-bind-address=0", "--health-probe-bind-address=0", "--public-url=https://" + name}, flags...)...)
		return p, &browser{t: t, at: "http://" + address}
	}
	shared := filepath.Join(dir, "session.key")
	if err := os.WriteFile(shared, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	first, one := newReplica("--session-key-file", shared)
	_, two := newReplica("--session-key-file", shared)
	_, alone := newReplica()
	signsIn := func(b *browser) (session string) {
		t.Helper()
		testkit.EventuallyNoError(t, time.Minute, "the console serves", func() error {
			r, err := http.Post(b.at+"/api/v1/session", "application/json", strings.NewReader(`{"token": "`+token+`"}`)) //nolint:noctx // EventuallyNoError bounds it
			if err != nil {
				return err
			}
			defer r.Body.Close()
			var in struct{ Session string }
			err = json.NewDecoder(r.Body).Decode(&in)
			if r.StatusCode != http.StatusOK {
				err = errors.New(r.Status)
			}
			session = in.Session
			return err
		})
		return session
	}
	for _, b := range []*browser{two, alone} {
		signsIn(b)
	}
	session := signsIn(one)
	first.Kill()
	first.Start()
	signsIn(one)
	for b, want := range map[*browser]int{one: http.StatusOK, two: http.StatusOK, alone: http.StatusUnauthorized} {
		b.session = session
		if code, text := b.ask(http.MethodGet, "/api/v1/me", nil); code != want {
			t.Errorf("the session at %s: %d %s, want %d", b.at, code, text, want)
		}
	}
	if code, text := two.askAs(name, "/api/v1/me"); code != http.StatusOK {
		t.Errorf("under the public name: %d %s", code, text)
	}
}
