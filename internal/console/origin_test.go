package console

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// pageTab sends the requests that a browser would send for a page: with the browser's cookies, and with
// the headers that name the page's origin.
type pageTab struct {
	*testing.T
	origin string // empty: typed by the user
	client http.Client
}

// newTabs returns a tab for each origin, in one browser that reaches all host names at 127.0.0.1.
func newTabs(t *testing.T, origins ...string) (tabs []*pageTab) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
	}}
	t.Cleanup(transport.CloseIdleConnections)
	for _, origin := range origins {
		tabs = append(tabs, &pageTab{t, origin, http.Client{Jar: jar, Transport: transport}})
	}
	return tabs
}

// send sends a request and returns its response and body. header has pairs of a name and a value.
func (p *pageTab) send(method, target, body string, header ...string) (*http.Response, string) {
	p.Helper()
	r, err := http.NewRequestWithContext(p.Context(), method, target, strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	switch p.origin {
	case "":
		r.Header.Set("Sec-Fetch-Site", "none")
	case r.URL.Scheme + "://" + r.URL.Host:
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	default:
		r.Header.Set("Origin", p.origin)
		r.Header.Set("Sec-Fetch-Site", "same-site") // other ports are the same site
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := p.client.Do(r)
	if err != nil {
		p.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.Fatal(err)
	}
	return response, string(text)
}

// TestConsole_GivesPagesAtOtherPortsNothing signs in under each host name of the console. Then a page at
// another port of that name is sent nothing of the session, and gets no answer of the console.
func TestConsole_GivesPagesAtOtherPortsNothing(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "console.example.com"} {
		t.Run(host, func(t *testing.T) {
			s, _ := newTestServer(&fakeGate{})
			s.app = newApp(fstest.MapFS{"index.html": {Data: []byte("<title>K8s4r</title>")}})
			s.publicURL = &url.URL{Scheme: "http", Host: "console.example.com"}
			own := listenUnder(t, host, s.Handler())
			received := make(chan http.Header, 1)
			other := listenUnder(t, host, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received <- r.Header.Clone() }))
			tabs := newTabs(t, "", own, other)
			typed, page, attacker := tabs[0], tabs[1], tabs[2]

			code := s.codes.NewCode(tokenOf("secret"), noon.Add(time.Second))
			if got, text := typed.send("GET", own+"/signin?code="+code, ""); got.StatusCode != http.StatusOK || !strings.Contains(text, "<title>K8s4r") {
				t.Fatalf("the sign-in link: %s %s", got.Status, text)
			}
			_, text := page.send("POST", own+"/api/v1/session", `{"code":"`+code+`"}`, "Content-Type", "application/json")
			var in session
			if err := json.Unmarshal([]byte(text), &in); err != nil || in.Session == "" {
				t.Fatalf("signing in: %s", text)
			}
			if got, text := page.send("GET", own+"/api/v1/me", "", sessionHeader, in.Session); got.StatusCode != http.StatusOK || !strings.Contains(text, `"user":"ann"`) {
				t.Fatalf("the console's own page: %s %s", got.Status, text)
			}

			attacker.send("GET", other, "")
			for name, values := range <-received {
				if name == "Cookie" || name == "Authorization" || strings.Contains(strings.Join(values, ""), in.Session) {
					t.Errorf("the other port receives %s: %v", name, values)
				}
			}
			attacker.getsNothing(own)
		})
	}
}

// listenUnder serves on a port of its own and returns the origin under the host name.
func listenUnder(t *testing.T, host string, h http.Handler) (origin string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + host + ":" + u.Port()
}

// getsNothing tries what a page of another origin can do without the user's help.
func (p *pageTab) getsNothing(console string) {
	p.Helper()
	for _, c := range []struct {
		name, method, path string
		header             []string
		code               int
	}{
		{"a read", "GET", "/api/v1/me", nil, 401},
		{"the event stream", "GET", "/api/v1/events", nil, 401},
		{"a preflight for a session", "OPTIONS", "/api/v1/me", []string{"Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", sessionHeader}, 401},
		{"a preflight for a token", "OPTIONS", "/api/v1/actions", []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization"}, 401},
		{"a form", "POST", "/api/v1/actions", []string{"Content-Type", "text/plain"}, 403},
		{"a form with the browser's certificate", "POST", "/api/v1/actions", []string{"Content-Type", "text/plain", "X-Certificate", "bob"}, 403},
		{"signing in as another user", "POST", "/api/v1/session", []string{"Content-Type", "text/plain"}, 403},
		{"a page", "GET", "/", nil, 200},
	} {
		got, text := p.send(c.method, console+c.path, "{}", c.header...)
		if got.StatusCode != c.code {
			p.Errorf("%s: %s %s, want %d", c.name, got.Status, text, c.code)
		}
		for name := range got.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				p.Errorf("%s: the response has %s", c.name, name)
			}
		}
		if got.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			p.Errorf("%s: the response may be embedded: %v", c.name, got.Header)
		}
	}
}

// A page of another site can reach the console under a DNS name of its own, and would then be of the same
// origin.
func TestConsole_ServesOwnHostsOnly(t *testing.T) {
	s, _ := newTestServer(&fakeGate{})
	s.app = newApp(fstest.MapFS{"index.html": {Data: []byte("<title>K8s4r</title>")}})
	s.publicURL = &url.URL{Scheme: "https", Host: "console.example.com:8443"}
	for _, c := range []struct {
		host   string
		header []string
		code   int // of GET /api/v1/me; a page is served unless it is 421
	}{
		{"localhost", nil, 401},
		{"localhost:8800", nil, 401},
		{"127.0.0.1:8800", nil, 401},
		{"127.8.8.8:8800", nil, 401},
		{"[::1]:8800", nil, 401},
		{"10.1.2.3:8443", nil, 401}, // a probe of the kubelet or a load balancer
		{"console.example.com", nil, 401},
		{"Console.Example.com:8443", nil, 401},
		{"attacker.example.com:8800", nil, 421},
		{"attacker.example.com:8800", []string{"X-Certificate", "bob"}, 421},
		{"attacker.example.com:8800", []string{"Authorization", "Bearer secret"}, 200},
		{"127.0.0.1.attacker.example.com", nil, 421},
		{"localhost.attacker.example.com", nil, 421},
		{"x.console.example.com", nil, 421},
		{"", nil, 401}, // a probe in HTTP/1.0
	} {
		for path, code := range map[string]int{"/api/v1/me": c.code, "/": 200, "/signin?code=x": 200} {
			if c.code == http.StatusMisdirectedRequest {
				code = c.code
			}
			r := httptest.NewRequestWithContext(t.Context(), "GET", path, http.NoBody)
			r.Host = c.host
			for i := 0; i+1 < len(c.header); i += 2 {
				r.Header.Set(c.header[i], c.header[i+1])
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if w.Code != code || code == 421 && !strings.Contains(w.Body.String(), "--public-url") {
				t.Errorf("%s under %q with %v: %d %s, want %d", path, c.host, c.header, w.Code, w.Body, code)
			}
		}
	}
}

func TestParsePublicURL_RequiresOrigin(t *testing.T) {
	for text, host := range map[string]string{"https://console.example.com": "console.example.com", "https://console.example.com:8443/": "console.example.com:8443"} {
		if u, err := ParsePublicURL(text); err != nil || u.Host != host {
			t.Errorf("%s: %v (%v)", text, u, err)
		}
	}
	if u, err := ParsePublicURL(""); u != nil || err != nil {
		t.Errorf("empty: %v (%v)", u, err)
	}
	for _, text := range []string{"console.example.com", "ftp://console.example.com", "https://", "https://:8443", "https://a/b", "https://a?b", "https://a#b", "https://u@a", "%"} {
		if u, err := ParsePublicURL(text); err == nil {
			t.Errorf("%s is accepted as %v", text, u)
		}
	}
}
