package artifact

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func sumOption(b []byte) map[string]string {
	return map[string]string{"checksum": fmt.Sprintf("sha256:%x", sha256.Sum256(b))}
}

func TestRequest_Content(t *testing.T) {
	sum := sumOption(nil)
	const digits = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for name, test := range map[string]struct {
		source  string
		options map[string]string
		want    string
	}{
		"https":            {"https://files.example/model.bin", sum, "sha256:" + digits},
		"upper case":       {"http://files.example/model.bin", map[string]string{"checksum": "SHA256:" + "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"}, "sha256:" + digits},
		"no checksum":      {"https://files.example/model.bin", nil, ""},
		"file":             {"file:///etc/shadow", sum, ""},
		"user":             {"https://robot:secret@files.example/model.bin", sum, ""},
		"query":            {"https://files.example/model.bin?X-Amz-Signature=secret", sum, ""},
		"invalid checksum": {"https://files.example/model.bin", map[string]string{"checksum": "sha256:../../x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			content, ok := Request{Source: test.source, Options: test.options}.Content()
			if ok != (test.want != "") || ok && content.String() != test.want {
				t.Errorf("content %v, %t, want %q", content, ok, test.want)
			}
		})
	}
}

// cachedFile returns an open file.
func cachedFile(t *testing.T, b []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cached")
	check(t, os.WriteFile(path, b, 0o400))
	f, err := os.Open(path)
	check(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFetchCached(t *testing.T) {
	file, archive := []byte("weights"), modelTar(t)
	for name, test := range map[string]struct {
		name      string
		source    []byte
		cached    []byte
		noSum     bool
		downloads int
	}{
		"the cached file is copied":                   {"model", file, file, false, 0},
		"the cached archive is unpacked":              {"model.tar", archive, archive, false, 0},
		"a damaged file is downloaded":                {"model", file, []byte("weightz"), false, 1},
		"an empty file is downloaded":                 {"model", file, nil, false, 1},
		"a file that is too large is downloaded":      {"model", file, make([]byte, 2<<20), false, 1},
		"without a checksum the source is downloaded": {"model", file, file, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			downloads := 0
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) { downloads++; _, _ = w.Write(test.source) })
			r := Request{Source: url + "/" + test.name, Options: sumOption(test.source)}
			if test.noSum {
				r.Options = nil
			}
			dir := t.TempDir()
			err := FetchCached(context.Background(), r, cachedFile(t, test.cached), small, dir)
			b, _ := os.ReadFile(filepath.Join(dir, "model"))
			if err != nil || string(b) != "weights" || downloads != test.downloads {
				t.Errorf("error %v, the file is %q, %d downloads, want %d", err, b, downloads, test.downloads)
			}
		})
	}
}

// A task's change of its file must not reach the cache.
func TestFetchCached_CopiesFile(t *testing.T) {
	b := []byte("weights")
	cached, dir := cachedFile(t, b), t.TempDir()
	check(t, FetchCached(context.Background(), Request{Source: "http://files.invalid/model", Options: sumOption(b)}, cached, small, dir))
	check(t, os.WriteFile(filepath.Join(dir, "model"), []byte("changed"), 0o600))
	if now, err := os.ReadFile(cached.Name()); err != nil || string(now) != "weights" {
		t.Errorf("the cached file is %q, %v", now, err)
	}
}

func TestFetch_KeepsDownloadedSource(t *testing.T) {
	for name, test := range map[string]struct {
		name     string
		source   []byte
		isCached bool
		status   int
		want     bool
	}{
		"a file":                {"model", []byte("weights"), false, http.StatusOK, true},
		"an archive":            {"model.tar", modelTar(t), false, http.StatusOK, true},
		"not a copy":            {"model", []byte("weights"), true, http.StatusOK, false},
		"not after an error":    {"model", []byte("weights"), false, http.StatusNotFound, false},
		"not a damaged archive": {"model.tar", []byte("no archive"), false, http.StatusOK, false},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(test.status); _, _ = w.Write(test.source) })
			r := Request{Source: url + "/" + test.name, Options: sumOption(test.source), Keep: true}
			var cached *os.File
			if test.isCached {
				cached = cachedFile(t, test.source)
			}
			dir, into := t.TempDir(), filepath.Join(t.TempDir(), "kept")
			_ = FetchCached(context.Background(), r, cached, small, dir)
			taken, err := r.TakeKept(dir, into)
			if b, _ := os.ReadFile(into); err != nil || taken != test.want || taken && string(b) != string(test.source) {
				t.Errorf("taken %t, %v, %d bytes", taken, err, len(b))
			}
			if _, err := os.Stat(filepath.Join(dir, stageOf(r))); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the hidden directory is still there: %v", err)
			}
		})
	}
}

// The agent takes the source in its only loop: whatever a task puts there must neither block it nor take
// time to delete.
func TestTakeKept_DoesNotBlock(t *testing.T) {
	r := Request{Source: "https://files.example/model", Options: sumOption(nil)}
	for name, test := range map[string]struct {
		put    func(stage string) error
		isLeft bool
		fails  bool
	}{
		"nothing":                      {put: func(string) error { return nil }},
		"a pipe in place of the stage": {put: func(stage string) error { return syscall.Mkfifo(stage, 0o600) }, isLeft: true, fails: true},
		"a link in place of the stage": {put: func(stage string) error { return os.Symlink(t.TempDir(), stage) }, isLeft: true, fails: true},
		"a file in place of the stage": {put: func(stage string) error { return os.WriteFile(stage, nil, 0o600) }, isLeft: true, fails: true},
		"an empty stage":               {put: func(stage string) error { return os.Mkdir(stage, 0o700) }, isLeft: true},
		"a pipe in place of the file":  {put: inStage(func(kept string) error { return syscall.Mkfifo(kept, 0o600) }), isLeft: true, fails: true},
		"a link in place of the file":  {put: inStage(func(kept string) error { return os.Symlink("/etc/hostname", kept) }), isLeft: true, fails: true},
		"a directory in place of it":   {put: inStage(func(kept string) error { return os.MkdirAll(filepath.Join(kept, "sub"), 0o700) }), isLeft: true, fails: true},
		"other files and no kept one":  {put: inStage(func(kept string) error { return os.WriteFile(kept+"-not", nil, 0o600) }), isLeft: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, into, done := t.TempDir(), filepath.Join(t.TempDir(), "into"), make(chan struct{})
			check(t, test.put(filepath.Join(dir, stageOf(r))))
			var taken bool
			var err error
			go func() { defer close(done); taken, err = r.TakeKept(dir, into) }()
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Fatal("TakeKept blocks")
			}
			_, left := os.Lstat(filepath.Join(dir, stageOf(r)))
			_, moved := os.Lstat(into)
			if taken || (err != nil) != test.fails || (left == nil) != test.isLeft || moved == nil {
				t.Errorf("taken %t, %v; the stage: %v, the target: %v", taken, err, left, moved)
			}
		})
	}
}

// inStage returns a function that creates the stage, and calls put with the path of the kept file.
func inStage(put func(kept string) error) func(stage string) error {
	return func(stage string) error {
		return errors.Join(os.Mkdir(stage, 0o700), put(filepath.Join(stage, keptFile)))
	}
}

// Other files of a task in the stage do not delay the agent: they are deleted with the attempt.
func TestTakeKept_LeavesOtherFiles(t *testing.T) {
	r := Request{Source: "https://files.example/model", Options: sumOption(nil)}
	dir, into := t.TempDir(), filepath.Join(t.TempDir(), "into")
	other := filepath.Join(dir, stageOf(r), "other")
	check(t, inStage(func(kept string) error {
		return errors.Join(os.WriteFile(kept, []byte("weights"), 0o600), os.WriteFile(other, nil, 0o600))
	})(filepath.Dir(other)))
	taken, err := r.TakeKept(dir, into)
	if b, _ := os.ReadFile(into); err != nil || !taken || string(b) != "weights" {
		t.Errorf("taken %t, %v, %q", taken, err, b)
	}
	check(t, func() error { _, err := os.Lstat(other); return err }())
}

// Admit sees every byte once, also if the connection breaks, and its error ends the transfer.
func TestLimits_Admit(t *testing.T) {
	body := make([]byte, 100<<10)
	url := serve(t, content(body))
	r := Request{Source: url + "/model", Options: sumOption(body)}
	var total, size int64
	limits := small
	limits.Admit = func(_ context.Context, bytes int, now int64) error {
		total, size = total+int64(bytes), now
		if bytes > maxAdmitted {
			t.Errorf("%d bytes at once", bytes)
		}
		return nil
	}
	if err := Fetch(context.Background(), r, limits, t.TempDir()); err != nil || total != int64(len(body)) || size != total {
		t.Errorf("error %v, %d bytes, size %d, want %d", err, total, size, len(body))
	}
	refused := errors.New("no room")
	calls := 0
	limits.Admit = func(context.Context, int, int64) error { calls++; return refused }
	if err := Fetch(context.Background(), r, limits, t.TempDir()); !errors.Is(err, refused) || calls != 1 {
		t.Errorf("error %v after %d calls", err, calls)
	}
}

// modelTar returns an archive with the file model.
func modelTar(t *testing.T) []byte { return tarOf(t, entry{name: "model", content: "weights"}) }
