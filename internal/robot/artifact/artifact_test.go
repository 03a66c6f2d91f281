package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// small are limits that end endless sources and archives soon.
var small = Limits{
	MaxBytes: 1 << 20, MaxUnpacked: 1 << 20, MaxFiles: 100,
	Timeout: 10 * time.Second, IdleTimeout: 10 * time.Second, Tries: 3,
}

// fetchNow is Fetch without delays between tries. It returns the delays instead.
func fetchNow(r Request, l Limits, dir string) (waits []time.Duration, err error) {
	f := fetcher{limits: l.withDefaults(), sleep: func(_ context.Context, d time.Duration) { waits = append(waits, d) }}
	err = f.fetchArtifact(context.Background(), r, dir)
	return waits, err
}

// serve starts a server for the handler that logs nothing, and returns its URL.
func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

func content(b []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b) }
}

// taskDir returns a task's directory that already has some files.
func taskDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "task")
	check(t, os.MkdirAll(filepath.Join(dir, "data/old"), 0o755))
	check(t, os.WriteFile(filepath.Join(dir, "data/old/file"), []byte("old"), 0o640))
	check(t, os.WriteFile(filepath.Join(dir, "stdout.log"), nil, 0o600))
	check(t, os.Symlink("data", filepath.Join(dir, "link")))
	check(t, os.Symlink("..", filepath.Join(dir, "out")))
	return dir
}

// listing returns the files in a directory: modes, contents and link targets by path.
func listing(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	check(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		check(t, err)
		info, err := e.Info()
		check(t, err)
		name, _ := filepath.Rel(dir, path)
		switch {
		case info.Mode().IsRegular():
			b, _ := os.ReadFile(path)
			found[name] = fmt.Sprintf("%v %s", info.Mode(), b)
		case info.Mode().Type() == fs.ModeSymlink:
			target, _ := os.Readlink(path)
			found[name] = "-> " + target
		default:
			found[name] = info.Mode().String()
		}
		return nil
	}))
	return found
}

func same(t testing.TB, before, after map[string]string) {
	t.Helper()
	for name, was := range before {
		if after[name] != was {
			t.Errorf("%s is %q, was %q", name, after[name], was)
		}
	}
	for name, is := range after {
		if _, was := before[name]; !was {
			t.Errorf("%s was left behind: %q", name, is)
		}
	}
}

func TestRequest_CheckRejectsInvalidRequests(t *testing.T) {
	const web = "http://files.example/maps/hall.pgm"
	sum := strings.Repeat("0a", 32)
	tests := []struct {
		name string
		r    Request
		want string
	}{
		{"another scheme", Request{Source: "s3::https://key:secret@bucket/x"}, "artifacts[0] s3:: getterSource must begin with http://, https:// or file:///"},
		{"a bare path", Request{Source: "/opt/x"}, "artifacts[0] /opt/x: getterSource must begin with"},
		{"no address", Request{Source: "http://user:secret@host:port/x"}, "artifacts[0]: getterSource is not a valid address"},
		{"no host", Request{Source: "http:///x"}, "has no host"},
		{"a relative file", Request{Source: "file:x"}, "must be an absolute path on the robot"},
		{"a file of another host", Request{Source: "file://nas/x"}, "must be an absolute path on the robot"},
		{"a NUL in a file's path", Request{Source: "file:///a%00b"}, "is not a valid address"},
		{"an unknown option", Request{Source: web, Options: map[string]string{"cheksum": "x"}}, "getterOptions.cheksum is not supported: must be archive, checksum or perms"},
		{"an unknown checksum algorithm", Request{Source: web, Options: map[string]string{"checksum": "md5:00"}}, "getterOptions.checksum must be sha256: or sha512:"},
		{"a checksum that is too short", Request{Source: web, Options: map[string]string{"checksum": "sha512:" + sum}}, "getterOptions.checksum must be sha512: followed by 128 hexadecimal digits"},
		{"a checksum that is not hexadecimal", Request{Source: web, Options: map[string]string{"checksum": "sha256:" + strings.Repeat("x", 64)}}, "must be sha256: followed by 64 hexadecimal digits"},
		{"a checksum in the source", Request{Source: web + "?checksum=sha256:" + sum}, "move it to getterOptions.checksum"},
		{"an unknown archive", Request{Source: web, Options: map[string]string{"archive": "rar"}}, `getterOptions.archive "rar" must be one of false, tar, tar.gz`},
		{"an xz archive", Request{Source: web + ".tar.xz"}, "tar.xz is not supported"},
		{"an xz archive that is not unpacked", Request{Source: web + ".tar.xz", Options: map[string]string{"archive": "false"}}, ""},
		{"setuid perms", Request{Source: web, Options: map[string]string{"perms": "4755"}}, `getterOptions.perms "4755" must be octal permissions up to 0777`},
		{"perms of an archive", Request{Source: web + ".zip", Options: map[string]string{"perms": "0755"}}, "must not be set for an archive"},
		{"an unknown mode", Request{Source: web, Mode: "tree"}, `getterMode "tree" must be any, file or dir`},
		{"mode dir without an archive", Request{Source: web, Mode: ModeDir}, "getterMode dir requires an archive"},
		{"mode file with an archive option", Request{Source: web, Mode: ModeFile, Options: map[string]string{"archive": "zip"}}, "must not be set with getterMode file"},
		{"an absolute destination", Request{Source: web, Dest: "/etc"}, `relativeDest "/etc" is an absolute path`},
		{"a destination outside", Request{Source: web, Dest: "a/../../b"}, `relativeDest "a/../../b" is outside the task's directory`},
		{"a source without a name", Request{Source: "http://files.example/"}, "getterSource has no file name"},
		{"a source with a bad name", Request{Source: "http://files.example/a/%2e%2e"}, "getterSource has no file name"},
		{"a source without a name but with a destination", Request{Source: "http://files.example/", Mode: ModeFile, Dest: "x"}, ""},
		{"all options", Request{Source: web, Options: map[string]string{"checksum": "SHA256:" + strings.ToUpper(sum), "perms": "0755", "archive": "false"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			switch err := tt.r.Check(); {
			case tt.want == "" && err != nil:
				t.Fatal(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Fatalf("got %v, want %q", err, tt.want)
			case err != nil && strings.Contains(err.Error(), "secret"):
				t.Fatalf("%v shows a secret", err)
			}
		})
	}
}

func TestFetch_Destination(t *testing.T) {
	hello := tarOf(t, entry{name: "./a/", kind: tar.TypeDir, mode: 0o755}, entry{name: "a/hello", content: "hello\n"})
	zipped := zipOf(t, entry{name: "a/hello", content: "hello\n"})
	tests := []struct {
		name    string
		path    string
		body    []byte
		dest    string
		mode    Mode
		options map[string]string
		want    string
	}{
		{name: "a file", path: "/x/f.txt", body: []byte("hello\n"), want: "f.txt"},
		{name: "a file into a directory", path: "/f.txt", body: []byte("hello\n"), dest: "new/dir", want: "new/dir/f.txt"},
		{name: "a file of mode file", path: "/f.txt", body: []byte("hello\n"), dest: "new/name", mode: ModeFile, want: "new/name"},
		{name: "mode file into a directory", path: "/f.txt", body: []byte("hello\n"), dest: "new/", mode: ModeFile, want: "new/f.txt"},
		{name: "mode file without a destination", path: "/f.txt", body: []byte("hello\n"), mode: ModeFile, want: "f.txt"},
		{name: "mode file over a file", path: "/f.txt", body: []byte("hello\n"), mode: ModeFile, dest: "data/old/file", want: "data/old/file"},
		{name: "through a link", path: "/f.txt", body: []byte("hello\n"), dest: "link/old", want: "data/old/f.txt"},
		{name: "a name with an escape", path: "/a%20b", body: []byte("hello\n"), want: "a b"},
		{name: "a query", path: "/f.txt?signature=x.zip", body: []byte("hello\n"), want: "f.txt"},
		{name: "an archive of mode file", path: "/f.zip", body: []byte("hello\n"), mode: ModeFile, want: "f.zip"},
		{name: "an archive that is not unpacked", path: "/f.zip", body: []byte("hello\n"), options: map[string]string{"archive": "false"}, want: "f.zip"},
		{name: "tar", path: "/f.tar", body: hello, want: "a/hello"},
		{name: "tar.gz", path: "/f.tar.gz", body: gzipOf(t, hello), dest: "data", want: "data/a/hello"},
		{name: "tgz in capitals", path: "/F.TGZ", body: gzipOf(t, hello), dest: "data/new/x/", want: "data/new/x/a/hello"},
		{name: "tar.bz2", path: "/f.tar.bz2", body: helloBzip2(t), mode: ModeDir, want: "a/hello"},
		{name: "tar.zst", path: "/f.tar.zst", body: zstdOf(t, hello), want: "a/hello"},
		{name: "zip", path: "/f.zip", body: zipped, want: "a/hello"},
		{name: "an archive format by its option", path: "/download?id=7", body: gzipOf(t, hello), options: map[string]string{"archive": "tgz"}, want: "a/hello"},
		{name: "an archive of another format than its name", path: "/f.tar", body: zipped, options: map[string]string{"archive": "zip"}, want: "a/hello"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := taskDir(t)
			before := listing(t, dir)
			url := serve(t, content(tt.body))
			_, err := fetchNow(Request{Source: url + tt.path, Dest: tt.dest, Mode: tt.mode, Options: tt.options}, small, dir)
			check(t, err)
			after := listing(t, dir)
			if after[tt.want] != "-rw-r--r-- hello\n" {
				t.Fatalf("%s is %q in %q", tt.want, after[tt.want], after)
			}
			for path := tt.want; path != "."; path = filepath.Dir(path) {
				delete(after, path)
				delete(before, path)
			}
			same(t, before, after)
		})
	}
}

func TestFetch_SetsPermsOfFile(t *testing.T) {
	dir := taskDir(t)
	url := serve(t, content([]byte("#!/bin/sh\n")))
	_, err := fetchNow(Request{Source: url + "/run", Options: map[string]string{"perms": "0755"}}, small, dir)
	check(t, err)
	if got := listing(t, dir)["run"]; got != "-rwxr-xr-x #!/bin/sh\n" {
		t.Fatalf("got %q", got)
	}
}

func TestFetch_UnpacksAllKindsOfEntries(t *testing.T) {
	dir := taskDir(t)
	url := serve(t, content(tarOf(t,
		entry{kind: tar.TypeXGlobalHeader, name: "pax_global_header"},
		entry{name: "bin/run", content: "run", mode: 0o6755},
		entry{name: "bin/again", kind: tar.TypeLink, target: "./bin/run"},
		entry{name: "lib/deep/link", kind: tar.TypeSymlink, target: "../../bin/run"},
		entry{name: "lib/none", kind: tar.TypeSymlink, target: "later/on"},
		entry{name: "lib/deep", kind: tar.TypeDir, mode: 0o1777},
		entry{name: "data/old/file", content: "new"},
	)))
	_, err := fetchNow(Request{Source: url + "/x.tar"}, small, dir)
	check(t, err)
	got := listing(t, dir)
	for name, want := range map[string]string{
		"bin/run": "-rwxr-xr-x run", "bin/again": "-rwxr-xr-x run",
		"lib/deep/link": "-> ../../bin/run", "lib/none": "-> later/on", "lib/deep": "drwxr-xr-x",
		"data/old/file": "-rw-r--r-- new", "stdout.log": "-rw------- ",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

type harm struct {
	want string
	body []byte
}

// harmful returns archives that must be rejected, each with the error.
func harmful(t testing.TB) []harm {
	long := strings.Repeat("n", 300)
	return []harm{
		{`entry "../evil" is outside the archive`, tarOf(t, entry{name: "../evil"})},
		{`entry "a/../../evil" is outside`, zipOf(t, entry{name: "a/../../evil"})},
		{`entry "/etc/evil" has an absolute path`, tarOf(t, entry{name: "/etc/evil"})},
		{`entry "/evil" has an absolute path`, zipOf(t, entry{name: "/evil"})},
		{`symbolic link "s" refers to "../.."`, tarOf(t, entry{name: "s", kind: tar.TypeSymlink, target: "../.."})},
		{`symbolic link "s" refers to "/etc"`, zipOf(t, entry{name: "s", kind: tar.TypeSymlink, target: "/etc"})},
		{`symbolic link "t" refers to "d/s/../x"`, tarOf(t, entry{name: "d/s", kind: tar.TypeSymlink, target: ".."}, entry{name: "t", kind: tar.TypeSymlink, target: "d/s/../x"})},
		{`entry "s" is in the archive twice`, tarOf(t, entry{name: "s", kind: tar.TypeSymlink, target: "d"}, entry{name: "d", kind: tar.TypeDir, mode: 0o755}, entry{name: "s/evil"})},
		{`entry "l" is in the archive twice`, zipOf(t, entry{name: "l", kind: tar.TypeSymlink, target: "x"}, entry{name: "l/evil"})},
		{`hard link "h": entry "../../etc/passwd" is outside`, tarOf(t, entry{name: "h", kind: tar.TypeLink, target: "../../etc/passwd"})},
		{`hard link "h": entry "/etc/passwd" has an absolute path`, tarOf(t, entry{name: "h", kind: tar.TypeLink, target: "/etc/passwd"})},
		{`hard link "h" refers to "s", which is not an earlier file`, tarOf(t, entry{name: "s", kind: tar.TypeSymlink, target: "x"}, entry{name: "h", kind: tar.TypeLink, target: "s"})},
		{`hard link "h" refers to "stdout.log", which is not an earlier file`, tarOf(t, entry{name: "h", kind: tar.TypeLink, target: "stdout.log"})},
		{`entry "null" is a device or a pipe`, tarOf(t, entry{name: "null", kind: tar.TypeChar})},
		{`entry "disk" is a device or a pipe`, tarOf(t, entry{name: "disk", kind: tar.TypeBlock})},
		{`entry "pipe" is a device or a pipe`, tarOf(t, entry{name: "pipe", kind: tar.TypeFifo})},
		{`entry "tty" is a device or a pipe`, zipOf(t, entry{name: "tty", kind: tar.TypeChar})},
		{`entry "odd" has the unknown type 'Z'`, tarOf(t, entry{name: "odd", kind: 'Z'})},
		{`entry "f" is in the archive twice`, tarOf(t, entry{name: "f", content: "1"}, entry{name: "f", content: "2"})},
		{`entry "g" is in the archive twice`, zipOf(t, entry{name: "g", content: "1"}, entry{name: "g", content: "2"})},
		{`entry "d" is in the archive twice`, tarOf(t, entry{name: "d"}, entry{name: "d/f"})},
		{`entry "e" is in the archive twice`, tarOf(t, entry{name: "e/f"}, entry{name: "e"})},
		{`entry "` + long[:100] + `"… has a name that is too long`, tarOf(t, entry{name: long})},
		{`"… has a name that is too long`, tarOf(t, entry{name: strings.Repeat("a/"+long[:200]+"/", 9) + "f"})},
		{`is more than 64 directories deep`, tarOf(t, entry{name: strings.Repeat("d/", 65) + "f"})},
		{`it contains more than 100 files`, tarOf(t, many(101)...)},
		{`: it contains more than 100 files`, zipOf(t, many(101)...)},
		{`it contains more than 100 files`, tarOf(t, deep(10)...)},
		{`zip: it contains more than 100 files`, zipOf(t, wordy(3000)...)},
		{`entry "encrypted" is encrypted`, zipOf(t, entry{name: "encrypted"})},
		{`entry "../l" is outside the archive`, zipOf(t, entry{name: "../l", kind: tar.TypeSymlink, target: "x"})},
		{`symbolic link "l" refers to "`, zipOf(t, entry{name: "l", kind: tar.TypeSymlink, target: long + strings.Repeat("/"+long, 4)})},
		{`it unpacks to more than 1048576 bytes`, gzipOf(t, tarOf(t, entry{name: "bomb", content: strings.Repeat("0", 1<<20+1)}))},
		{`cannot be unpacked as zip: it unpacks to more than 1048576 bytes`, zipOf(t, entry{name: "a", content: strings.Repeat("0", 1<<19)}, entry{name: "b", content: strings.Repeat("0", 1<<19+1)})},
		{`tar.gz: it unpacks to more than 1048576 bytes`, gzipOf(t, append(tarOf(t), make([]byte, 8<<20)...))},
		{`unexpected EOF`, tarOf(t, entry{name: "f", content: "hello"})[:514]},
		{`gzip: invalid checksum`, flip(gzipOf(t, tarOf(t, entry{name: "f"})), -8)},
		{`invalid tar header`, bytes.Repeat([]byte("<html>"), 1000)},
		{`not a valid zip file`, []byte("<html>")},
	}
}

func many(n int) (all []entry) {
	for i := range n {
		all = append(all, entry{name: fmt.Sprint("f", i)})
	}
	return all
}

// wordy returns entries with long names, for a long list of files.
func wordy(n int) (all []entry) {
	for i := range n {
		all = append(all, entry{name: fmt.Sprintf("%0100d", i)})
	}
	return all
}

// deep returns entries that need a directory at each level.
func deep(n int) (all []entry) {
	for i := range n {
		all = append(all, entry{name: fmt.Sprintf("%d/%sf", i, strings.Repeat("d/", 20))})
	}
	return all
}

func flip(b []byte, at int) []byte {
	b[len(b)+at] ^= 1
	return b
}

func TestFetch_RejectsHarmfulArchives(t *testing.T) {
	for _, h := range harmful(t) {
		t.Run(h.want, func(t *testing.T) {
			want, body := h.want, h.body
			dir := taskDir(t)
			above := filepath.Dir(dir)
			before := listing(t, above)
			url := serve(t, content(body))
			waits, err := fetchNow(Request{Source: url + "/x." + formatOfBody(body), Index: 2}, small, dir)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v, want %q", err, want)
			}
			if begin := "artifacts[2] " + url + "/x."; !strings.HasPrefix(err.Error(), begin) {
				t.Errorf("%q does not begin with %q", err, begin)
			}
			if len(waits) > 0 || len(err.Error()) > 500 {
				t.Errorf("waited %v for %q", waits, err)
			}
			same(t, before, listing(t, above))
		})
	}
}

func formatOfBody(b []byte) string {
	switch {
	case bytes.HasPrefix(b, []byte{0x1f, 0x8b}):
		return "tar.gz"
	case bytes.HasPrefix(b, []byte("PK")), len(b) < 100:
		return "zip"
	}
	return "tar"
}

func TestFetch_FailureLeavesDirectoryUnchanged(t *testing.T) {
	sum := func(s string) map[string]string {
		return map[string]string{"checksum": fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s)))}
	}
	block := make(chan struct{})
	defer close(block)
	tests := []struct {
		name    string
		answer  http.HandlerFunc
		r       Request
		limits  func(*Limits)
		want    string
		waits   int
		atLeast time.Duration
	}{
		{name: "wrong checksum", answer: content([]byte("bad")), r: Request{Options: sum("good")},
			want: fmt.Sprintf("artifacts[0] http://HOST/f: sha256 is %x, want %x", sha256.Sum256([]byte("bad")), sha256.Sum256([]byte("good")))},
		{name: "wrong sha512", answer: content([]byte("bad")), r: Request{Options: map[string]string{"checksum": fmt.Sprintf("sha512:%x", sha512.Sum512(nil))}},
			want: "sha512 is "},
		{name: "wrong checksum of an archive", answer: content(tarOf(t, entry{name: "f"})), r: Request{Mode: ModeDir, Options: map[string]string{"archive": "tar", "checksum": sum("")["checksum"]}},
			want: "sha256 is "},
		{name: "404", answer: http.NotFound, want: "the server returned 404 Not Found"},
		{name: "204", answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, want: "the server returned 204 No Content"},
		{name: "206 unasked", answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPartialContent) }, want: "the server returned 206 Partial Content"},
		{name: "500", answer: status(500, ""), want: "the server returned 500 Internal Server Error (tried 3 times)", waits: 2},
		{name: "429 with seconds", answer: status(429, "7"), want: "429 Too Many Requests (tried 3 times)", waits: 2, atLeast: 7 * time.Second},
		{name: "503 with a date", answer: status(503, "Mon, 02 Jan 2006 15:04:25 GMT"), want: "(tried 3 times)", waits: 2, atLeast: 20 * time.Second},
		{name: "503 with a delay that is too long", answer: status(503, "3600"), want: "503 Service Unavailable, and requested a delay of 1h0m0s, which is more than 1m0s"},
		{name: "endless body", answer: endless, want: "is larger than 1048576 bytes"},
		{name: "a large Content-Length", answer: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "9999999999") }, want: "is larger than 1048576 bytes"},
		{name: "no response", answer: func(_ http.ResponseWriter, r *http.Request) { wait(r, block) },
			limits: func(l *Limits) { l.IdleTimeout = 20 * time.Millisecond }, want: "no data was received for 20ms (tried 3 times)", waits: 2},
		{name: "a body that stalls", answer: func(w http.ResponseWriter, r *http.Request) { part(w, "x"); wait(r, block) },
			// One try: the count starts over if a busy machine sends the byte only in a later one.
			limits: func(l *Limits) { l.IdleTimeout, l.Tries = 20*time.Millisecond, 1 }, want: "no data was received for 20ms (tried 1 times)"},
		{name: "a slow body", answer: drip, limits: func(l *Limits) { l.Timeout = 50 * time.Millisecond }, want: "took longer than 50ms"},
		{name: "a body that always breaks", answer: func(w http.ResponseWriter, _ *http.Request) { part(w, "x"); panic(http.ErrAbortHandler) },
			want: "the connection was interrupted after 1 bytes: unexpected EOF (tried 3 times)", waits: 2},
		{name: "a redirect to link-local", answer: to("http://169.254.169.254/latest/meta-data/iam"), want: "artifacts must not come from a link-local or metadata address: 169.254.169.254"},
		{name: "a redirect to mapped link-local", answer: to("http://[::ffff:169.254.169.254]/"), want: "metadata address: 169.254.169.254"},
		{name: "a redirect to a file", answer: to("file:///etc/passwd"), want: "the server redirected to a file address"},
		{name: "a redirect to nowhere", answer: to("http://user:secret@host:port"), want: "the server redirected to an invalid address"},
		{name: "redirects without end", answer: to("/f?secret"), want: "more than 10 redirects"},
		{name: "a destination that is a directory", answer: content(nil), r: Request{Mode: ModeFile, Dest: "data"}, want: `"data" is a directory: end relativeDest with /`},
		{name: "a destination below a file", answer: content(nil), r: Request{Dest: "stdout.log/x"}, want: "relativeDest: statat stdout.log/x: not a directory"},
		{name: "a destination through a link", answer: content(nil), r: Request{Dest: "out/x/y"}, want: "path escapes from parent"},
		{name: "a file where a directory is", answer: content(tarOf(t, entry{name: "a/f"}, entry{name: "data/old/file", content: "new"}, entry{name: "stdout.log/f"})),
			r: Request{Options: map[string]string{"archive": "tar"}}, want: `"stdout.log" is a directory in the artifact, but exists`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := taskDir(t)
			above := filepath.Dir(dir)
			before := listing(t, above)
			url := serve(t, tt.answer)
			limits := small
			if tt.limits != nil {
				tt.limits(&limits)
			}
			r := tt.r
			r.Source = strings.Replace(url, "http://", "http://user:secret@", 1) + "/f?key=secret#secret"
			waits, err := fetchNow(r, limits, dir)
			want := strings.Replace(tt.want, "http://HOST", url, 1)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v, want %q", err, want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%v shows a secret", err)
			}
			if len(waits) != tt.waits {
				t.Errorf("waited %v, want %d times", waits, tt.waits)
			}
			for _, w := range waits {
				if w < tt.atLeast {
					t.Errorf("waited %v, want %v", w, tt.atLeast)
				}
			}
			same(t, before, listing(t, above))
		})
	}
}

func status(code int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(code)
	}
}

func to(location string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusFound)
	}
}

func part(w http.ResponseWriter, s string) {
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, s)
	w.(http.Flusher).Flush()
}

func wait(r *http.Request, done chan struct{}) {
	select {
	case <-r.Context().Done():
	case <-done:
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := w.Write(make([]byte, 1<<16)); err != nil {
			return
		}
	}
}

// drip never stops and never is idle.
func drip(w http.ResponseWriter, r *http.Request) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
			part(w, "x")
		}
	}
}

func TestFilesOfTheRobot(t *testing.T) {
	from := t.TempDir()
	path := func(name string) string { return filepath.Join(from, name) }
	check(t, os.WriteFile(path("map"), []byte("hall"), 0o600))
	check(t, os.WriteFile(path("map.tar"), tarOf(t, entry{name: "hall", content: "hall"}), 0o600))
	check(t, os.WriteFile(path("large"), make([]byte, 1<<20+1), 0o600))
	check(t, os.Mkdir(path("dir"), 0o755))
	check(t, syscall.Mkfifo(path("pipe"), 0o600))
	tests := []struct{ source, want, file string }{
		{source: "file://" + path("map"), file: "map"},
		{source: "file://localhost" + path("map.tar"), file: "hall"},
		{source: "file:" + path("map"), file: "map"},
		{source: "file://" + path("none"), want: "/none: no such file or directory"},
		{source: "file://" + path("dir"), want: "/dir: is a directory: pack it into an archive"},
		{source: "file://" + path("pipe"), want: "/pipe: is a device or a pipe"},
		{source: "file:///dev/zero", want: "artifacts[0] file:///dev/zero: is a device or a pipe"},
		{source: "file://" + path("large"), want: "/large: is larger than 1048576 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.source, func(t *testing.T) {
			dir := taskDir(t)
			before := listing(t, dir)
			_, err := fetchNow(Request{Source: tt.source}, small, dir)
			after := listing(t, dir)
			if tt.want == "" {
				check(t, err)
				if after[tt.file] != "-rw-r--r-- hall" {
					t.Errorf("%s is %q", tt.file, after[tt.file])
				}
				return
			}
			if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			same(t, before, after)
		})
	}
}

func TestFetchEndsWithItsContext(t *testing.T) {
	dir := taskDir(t)
	before := listing(t, dir)
	ctx, cancel := context.WithCancel(context.Background())
	// A context that ends while the fetcher waits for its next try, an hour.
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		status(500, "")(w, r)
		cancel()
	})
	err := Fetch(ctx, Request{Source: url + "/f"}, Limits{Backoff: time.Hour, MaxWait: time.Hour}, dir)
	if err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("got %v", err)
	}
	same(t, before, listing(t, dir))
}

func TestFetchTriesAgain(t *testing.T) {
	url, ranges := answers(t, status(503, ""), content([]byte("hello")))
	dir := taskDir(t)
	check(t, Fetch(context.Background(), Request{Source: url + "/f"}, Limits{Backoff: time.Millisecond}, dir))
	if got := listing(t, dir)["f"]; got != "-rw-r--r-- hello" || len(*ranges) != 2 {
		t.Errorf("got %q in %d requests", got, len(*ranges))
	}
}

// TestUnpackingEndsInTime unpacks what takes longer than it may.
func TestUnpackingEndsInTime(t *testing.T) {
	dir := taskDir(t)
	before := listing(t, dir)
	// Parts of a gzip file may follow one another: this one unpacks to 1 GiB, which takes a second.
	padding := bytes.Repeat(gzipOf(t, make([]byte, 16<<20)), 64)
	url := serve(t, content(append(gzipOf(t, tarOf(t, entry{name: "f", content: "hello"})), padding...)))
	_, err := fetchNow(Request{Source: url + "/x.tgz"}, Limits{MaxUnpacked: 1 << 40, Timeout: 5 * time.Millisecond}, dir)
	if err == nil || !strings.Contains(err.Error(), "took longer than 5ms") {
		t.Errorf("got %v", err)
	}
	same(t, before, listing(t, dir))
}

func TestFetchNeedsTheTasksDirectory(t *testing.T) {
	err := Fetch(context.Background(), Request{Source: "file:///x"}, Limits{}, filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.Contains(err.Error(), "open the task's directory") {
		t.Errorf("got %v", err)
	}
}
