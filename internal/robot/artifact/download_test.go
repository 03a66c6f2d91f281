package artifact

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// flaky serves a file and breaks each connection after some bytes.
type flaky struct {
	one     sync.Mutex // a handler may outlive the connection that it broke
	body    []byte
	tag     string
	changed time.Time
	random  *rand.Rand
	served  int
	ranges  []string
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.one.Lock()
	defer f.one.Unlock()
	f.ranges = append(f.ranges, r.Header.Get("Range"))
	if f.tag != "" {
		w.Header().Set("ETag", f.tag)
	}
	cut := &cutter{ResponseWriter: w, left: f.random.IntN(len(f.body) / 3), served: &f.served}
	http.ServeContent(cut, r, "", f.changed, bytes.NewReader(f.body))
}

type cutter struct {
	http.ResponseWriter
	left   int
	served *int
}

func (c *cutter) Write(b []byte) (int, error) {
	if len(b) > c.left {
		_, _ = c.ResponseWriter.Write(b[:c.left])
		*c.served += c.left
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(b)
	*c.served += len(b)
	return c.ResponseWriter.Write(b)
}

func randomBody(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

func TestFetch_ResumesBrokenTransfer(t *testing.T) {
	for seed := range uint64(20) {
		for _, f := range []*flaky{{tag: `"v1"`}, {changed: time.Unix(1_000_000_000, 0)}} {
			f.random = rand.New(rand.NewPCG(seed, 1))
			f.body = randomBody(f.random, 200_000)
			url := serve(t, f.ServeHTTP)
			dir := taskDir(t)
			options := map[string]string{"checksum": fmt.Sprintf("sha256:%x", sha256.Sum256(f.body))}
			if _, err := fetchNow(Request{Source: url + "/f", Options: options}, small, dir); err != nil {
				t.Fatalf("seed %d, ETag %s: %v", seed, f.tag, err)
			}
			if got, _ := os.ReadFile(filepath.Join(dir, "f")); !bytes.Equal(got, f.body) {
				t.Errorf("seed %d, ETag %s: another file came", seed, f.tag)
			}
			// Bytes that were in flight when the connection broke may be sent again, but not
			// everything before.
			if f.served > 2*len(f.body) || len(f.ranges) < 3 {
				t.Errorf("seed %d, ETag %s: the server sent %d bytes in %q", seed, f.tag, f.served, f.ranges)
			}
		}
	}
}

// answers gives one answer per request, and records the Range headers.
func answers(t testing.TB, all ...http.HandlerFunc) (url string, ranges *[]string) {
	ranges = &[]string{}
	one := sync.Mutex{}
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		one.Lock()
		defer one.Unlock()
		*ranges = append(*ranges, r.Header.Get("Range"))
		if len(*ranges) > len(all) {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		all[len(*ranges)-1](w, r)
	}), ranges
}

func TestFetch_HandlesRangeResponses(t *testing.T) {
	broken := func(tag string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", tag)
			part(w, "hel")
			panic(http.ErrAbortHandler)
		}
	}
	rest := func(contentRange, s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", contentRange)
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, s)
		}
	}
	beyond := func(contentRange string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", contentRange)
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		}
	}
	tests := []struct {
		name    string
		answers []http.HandlerFunc
		want    string
		ranges  string
	}{
		{"the rest", []http.HandlerFunc{broken(`"v"`), rest("bytes 3-4/5", "lo")}, "hello", `["" "bytes=3-"]`},
		{"the rest with an unknown total size", []http.HandlerFunc{broken(`"v"`), rest("bytes 3-4/*", "lo")}, "hello", `["" "bytes=3-"]`},
		{"the rest in pieces", []http.HandlerFunc{broken(`"v"`), rest("bytes 3-3/5", "l"), rest("bytes 4-4/5", "o")}, "hello", `["" "bytes=3-" "bytes=4-"]`},
		{"a new version", []http.HandlerFunc{broken(`"v"`), content([]byte("HELLO"))}, "HELLO", `["" "bytes=3-"]`},
		{"another part", []http.HandlerFunc{broken(`"v"`), rest("bytes 0-4/5", "HELLO"), content([]byte("hello"))}, "hello", `["" "bytes=3-" ""]`},
		{"a range beyond the total size", []http.HandlerFunc{broken(`"v"`), rest("bytes 3-4/2", "lo"), content([]byte("hello"))}, "hello", `["" "bytes=3-" ""]`},
		{"no Content-Range", []http.HandlerFunc{broken(`"v"`), rest("", "lo"), content([]byte("hello"))}, "hello", `["" "bytes=3-" ""]`},
		{"it was complete", []http.HandlerFunc{broken(`"v"`), beyond("bytes */3")}, "hel", `["" "bytes=3-"]`},
		{"the source has become shorter", []http.HandlerFunc{broken(`"v"`), beyond("bytes */2"), content([]byte("he"))}, "he", `["" "bytes=3-" ""]`},
		{"a weak tag", []http.HandlerFunc{broken(`W/"v"`), content([]byte("hello"))}, "hello", `["" ""]`},
		{"no tag", []http.HandlerFunc{broken(""), content([]byte("hello"))}, "hello", `["" ""]`},
		{"a server that recovers", []http.HandlerFunc{broken(`"v"`), status(502, ""), rest("bytes 3-4/5", "lo")}, "hello", `["" "bytes=3-" "bytes=3-"]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url, ranges := answers(t, tt.answers...)
			dir := taskDir(t)
			_, err := fetchNow(Request{Source: url + "/f"}, small, dir)
			check(t, err)
			if got := listing(t, dir)["f"]; got != "-rw-r--r-- "+tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := fmt.Sprintf("%q", *ranges); got != tt.ranges {
				t.Errorf("requested ranges %s, want %s", got, tt.ranges)
			}
		})
	}
}

// killed creates what a process leaves that was killed during a download.
func killed(t testing.TB, r Request, dir, body, validator string) {
	t.Helper()
	stage := filepath.Join(dir, stageOf(r))
	check(t, os.MkdirAll(filepath.Join(stage, treeDir, "half"), 0o700))
	check(t, os.WriteFile(filepath.Join(stage, bodyFile), []byte(body), 0o600))
	check(t, os.WriteFile(filepath.Join(stage, validatorFile), []byte(validator), 0o600))
}

func TestFetch_ResumesPartOfEarlierProcess(t *testing.T) {
	archive := tarOf(t, entry{name: "f", content: "hello"})
	sum := map[string]string{"checksum": fmt.Sprintf("sha256:%x", sha256.Sum256(archive))}
	damaged := strings.Repeat("x", 100)
	tests := []struct {
		name, left, validator, ranges string
	}{
		{"a part", string(archive[:100]), `"v1"`, `["bytes=100-"]`},
		{"all of it", string(archive), `"v1"`, fmt.Sprintf(`["bytes=%d-"]`, len(archive))},
		{"a part of another version", damaged, `"v0"`, `["bytes=100-"]`},
		{"a part of an unknown version", damaged, "", `[""]`},
		{"a damaged part", damaged, `"v1"`, `["bytes=100-" ""]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			whole := func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", `"v1"`)
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(archive))
			}
			url, ranges := answers(t, whole, whole)
			dir := taskDir(t)
			want := listing(t, dir)
			want["f"] = "-rw-r--r-- hello"
			r := Request{Source: url + "/x.tar", Options: sum}
			killed(t, r, dir, tt.left, tt.validator)
			_, err := fetchNow(r, small, dir)
			check(t, err)
			if got := fmt.Sprintf("%q", *ranges); got != tt.ranges {
				t.Errorf("requested ranges %s, want %s", got, tt.ranges)
			}
			same(t, want, listing(t, dir))
		})
	}
}

func TestStageOf_DiffersByRequest(t *testing.T) {
	r := Request{Source: "http://h/f", Dest: "d", Options: map[string]string{"a": "b"}}
	if stageOf(r) != stageOf(Request{Index: 3, Source: r.Source, Dest: r.Dest, Options: map[string]string{"a": "b"}}) {
		t.Error("the same request has two stages")
	}
	for _, other := range []Request{{Source: "http://h/f"}, {Source: "http://h/fd"}, {Source: "http://h/f", Dest: "d", Mode: ModeFile}, {}} {
		if stageOf(r) == stageOf(other) {
			t.Errorf("%v and %v share a stage", r, other)
		}
	}
}

func TestFetch_SendsCredentialsOnlyToTheirHost(t *testing.T) {
	var seen []string
	one := sync.Mutex{}
	record := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			one.Lock()
			defer one.Unlock()
			user, password, _ := r.BasicAuth()
			seen = append(seen, r.URL.Path+" "+user+":"+password+r.Referer())
			next(w, r)
		}
	}
	other := serve(t, record(content([]byte("x"))))
	own := serve(t, record(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/f" {
			to("/moved")(w, r)
			return
		}
		to(other+"/there")(w, r)
	}))
	_, err := fetchNow(Request{Source: strings.Replace(own, "://", "://me:secret@", 1) + "/f"}, small, taskDir(t))
	check(t, err)
	if got := strings.Join(seen, ", "); got != "/f me:secret, /moved me:secret, /there :" {
		t.Errorf("got %s", got)
	}
}

func TestFetch_DoesNotRetryUntrustedCertificate(t *testing.T) {
	s := httptest.NewUnstartedServer(content(nil))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	waits, err := fetchNow(Request{Source: s.URL + "/f"}, small, taskDir(t))
	if err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") || len(waits) > 0 {
		t.Errorf("got %v after %v", err, waits)
	}
}

func TestFetch_RejectsRedirectFromHTTPSToHTTP(t *testing.T) {
	from, err := url.Parse("https://user:pw@h/f")
	check(t, err)
	if _, err := resolveRedirect(from, "http://h/f"); err == nil || !strings.Contains(err.Error(), "from https to http") {
		t.Errorf("got %v", err)
	}
	if _, err := resolveRedirect(from, "https:///f"); err == nil || !strings.Contains(err.Error(), "without a host") {
		t.Errorf("got %v", err)
	}
	if next, err := resolveRedirect(from, "g"); err != nil || next.String() != "https://user:pw@h/g" {
		t.Errorf("got %v, %v", next, err)
	}
}

func TestIsRefused(t *testing.T) {
	for _, a := range []string{
		"169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "febf::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe",
		"::169.254.169.254", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "224.0.0.1", "ff02::1",
	} {
		if !isForbidden(netip.MustParseAddr(a)) {
			t.Errorf("%s is not forbidden", a)
		}
	}
	for _, a := range []string{"127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "169.253.1.1", "fd00::1", "2001:db8::1", "64:ff9b::a00:1", "::ffff:10.0.0.1"} {
		if isForbidden(netip.MustParseAddr(a)) {
			t.Errorf("%s is forbidden", a)
		}
	}
	if err := checkAddress(t.Context(), "tcp", "unix", nil); !errors.Is(err, errForbiddenAddress) {
		t.Errorf("got %v", err)
	}
}

func TestRetryDelay_GrowsToMaxWait(t *testing.T) {
	f := fetcher{limits: Limits{Backoff: time.Second, MaxWait: time.Minute}}
	for failed, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 9: time.Minute, 1 << 20: time.Minute} {
		if d := f.retryDelay(failed); d < most/2 || d > most {
			t.Errorf("after %d failures it waits %v, want %v to %v", failed, d, most/2, most)
		}
	}
}
