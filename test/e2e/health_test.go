package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/testkit"
)

// observed is a program that shows its health and its metrics.
type observed struct {
	*program
	health, metrics string // URLs
}

// observe starts a program with metrics and health endpoints. If wide, metrics listen on all addresses.
func observe(t *testing.T, name string, wide bool, args ...string) *observed {
	t.Helper()
	health, metrics, scheme := testkit.FreeAddr(t), testkit.FreeAddr(t), "http"
	bind := metrics
	if wide {
		_, port, _ := net.SplitHostPort(metrics)
		bind, scheme = ":"+port, "https"
	}
	args = append(args, "--leader-elect", "--metrics-bind-address", bind, "--health-probe-bind-address", health)
	return &observed{run(t, name, args...), "http://" + health, scheme + "://" + metrics}
}

// get sends a request with a token. If empty, without one.
func get(t *testing.T, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	// The certificate is one that the program makes for itself.
	c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}} //nolint:gosec // self-signed, as above
	answer, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(body)
}

// bearer returns the token of a new ServiceAccount with the role. If empty, without a role.
func (s *system) bearer(name, role string) string {
	s.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.create(account)
	if role != "" {
		if out, err := s.kubectl("create", "clusterrolebinding", name, "--clusterrole", role, "--serviceaccount", "default:"+name); err != nil {
			s.t.Fatal(err, out)
		}
	}
	var t authenticationv1.TokenRequest
	if err := s.SubResource("token").Create(context.Background(), account, &t); err != nil {
		s.t.Fatal(err)
	}
	return t.Status.Token
}

// checkHealthReports checks the health of two replicas, one of which leads.
func checkHealthReports(t *testing.T, of []*observed, well ...string) {
	t.Helper()
	const leads, standsBy = "[+]leader ok: this instance leads", "[+]leader ok: this instance stands by"
	var said []string
	for _, p := range of {
		testkit.EventuallyNoError(t, time.Minute, "it is ready", func() error {
			code, body := get(t, p.health+"/readyz?verbose", "")
			for _, want := range append([]string{"[+]ping ok", "[+]kube-apiserver ok", "[+]caches ok", "readyz check passed"}, well...) {
				if code != http.StatusOK || !slices.Contains(strings.Split(body, "\n"), want) {
					return fmt.Errorf("%d without %s:\n%s", code, want, body)
				}
			}
			return nil
		})
		_, body := get(t, p.health+"/readyz/leader?verbose", "")
		said = append(said, strings.Split(body, "\n")[0])
		for _, path := range []string{"/healthz", "/livez", "/readyz"} {
			if code, body := get(t, p.health+path, ""); code != http.StatusOK || body != "ok" {
				t.Errorf("%s answers %d %q", path, code, body)
			}
		}
	}
	if slices.Sort(said); !slices.Equal(said, []string{leads, standsBy}) {
		t.Errorf("of two one leads and one stands by; they say %q", said)
	}
}

// profilesNeedRights requests metrics and profiles with and without permissions.
func profilesNeedRights(t *testing.T, s *system, open, wide *observed) {
	t.Helper()
	scraper, profiler, outsider := s.bearer("scraper", "k8s4r-metrics-reader"), s.bearer("profiler", "k8s4r-profiler"), s.bearer("outsider", "")
	const heap, begins = "/debug/pprof/heap?debug=1", "heap profile:"
	for _, row := range []struct {
		of    *observed
		path  string
		token string
		code  int
		has   string
	}{
		{open, "/metrics", "", 200, "# HELP go_goroutines"},
		{wide, "/metrics", "", 401, "no valid bearer token"},
		{wide, "/metrics", outsider, 403, "k8s4r-metrics-reader"},
		{wide, "/metrics", profiler, 403, "k8s4r-metrics-reader"},
		{wide, "/metrics", scraper, 200, "# HELP go_goroutines"},
		{open, heap, "", 401, "no valid bearer token"},
		{open, heap, "made up", 401, "no valid bearer token"},
		{open, heap, scraper, 403, "k8s4r-profiler"},
		{open, heap, profiler, 200, begins},
		{wide, heap, "", 401, "no valid bearer token"},
		{wide, heap, scraper, 403, "k8s4r-profiler"},
		{wide, heap, profiler, 200, begins},
		{wide, "/debug/pprof/", profiler, 200, "goroutine"},
		{open, "/debug/pprof/cmdline", profiler, 200, "--leader-elect"},
	} {
		if code, body := get(t, row.of.metrics+row.path, row.token); code != row.code || !strings.Contains(body, row.has) {
			t.Errorf("%s%s answers %d, want %d with %q:\n%.300s", row.of.metrics, row.path, code, row.code, row.has, body)
		}
	}
}
