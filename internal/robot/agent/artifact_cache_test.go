package agent

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// artifactServer serves one file, and counts the requests for it.
type artifactServer struct {
	*httptest.Server
	requests atomic.Int32
}

func serveArtifact(t *testing.T, content []byte) *artifactServer {
	s := &artifactServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.requests.Add(1)
		_, _ = w.Write(content)
	}))
	t.Cleanup(s.Close)
	return s
}

// withArtifact gives the task an artifact with a checksum.
func withArtifact(source string, content []byte) func(*wire.Task) {
	return func(t *wire.Task) {
		t.Spec.Artifacts = []wire.Artifact{{
			GetterSource: source, GetterOptions: map[string]string{"checksum": fmt.Sprintf("sha256:%x", sha256.Sum256(content))},
		}}
	}
}

func tarWith(t *testing.T, name, content string) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	must(t, w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644}))
	_, err := w.Write([]byte(content))
	must(t, err)
	must(t, w.Close())
	return out.Bytes()
}

// cached returns the files in the cache of an agent.
func cached(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, cacheDir, "sha*", "*"))
	return found
}

// A second task with the same artifact starts without the server of its source, and so does one of the
// next agent. A change that a task makes of its file does not reach them.
func TestArtifactCache_SecondTaskDownloadsNothing(t *testing.T) {
	for name, test := range map[string]struct {
		file    string
		content []byte
		change  func(*wire.Task)
	}{
		"file":                {"/model", []byte("weights"), func(*wire.Task) {}},
		"archive":             {"/model.tar", tarWith(t, "model", "weights"), func(*wire.Task) {}},
		"of an isolated task": {"/model.tar", tarWith(t, "model", "weights"), isolated},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir, files := newFakeServer(t), t.TempDir(), serveArtifact(t, test.content)
			config := s.config(dir)
			config.CacheQuota = 1 << 20
			a := startAgent(t, config)
			s.awaitRegistered(1)
			run := func(uid, script string) {
				s.dispatch(shell(uid, script, withArtifact(files.URL+test.file, test.content), test.change), 1)
				s.awaitEnd(uid, 1)
				if out := output(t, dir, uid, 1, record.Stdout); out != "weights" && out != "weights\n" {
					t.Errorf("task %s has read %q", uid, out)
				}
			}
			run("t1", "cat model")
			waitUntil(t, "the cache to have the artifact", func() bool { return len(cached(dir)) == 1 })
			run("t2", "cat model; echo changed > model")
			a.stop()
			files.Close()
			startAgent(t, config)
			s.awaitRegistered(2)
			run("t3", "cat model; ls -A | grep k8s4r-artifact")
			if n := files.requests.Load(); n != 1 {
				t.Errorf("%d downloads, want 1", n)
			}
		})
	}
}

// A damaged file of the cache is replaced.
func TestArtifactCache_ReplacesDamagedFile(t *testing.T) {
	content := tarWith(t, "model", "weights")
	s, dir, files := newFakeServer(t), t.TempDir(), serveArtifact(t, content)
	config := s.config(dir)
	config.CacheQuota = 1 << 20
	startAgent(t, config)
	s.awaitRegistered(1)
	run := func(uid string) {
		s.dispatch(shell(uid, "cat model", withArtifact(files.URL+"/model.tar", content)), 1)
		s.awaitEnd(uid, 1)
		if out := output(t, dir, uid, 1, record.Stdout); out != "weights" {
			t.Errorf("task %s has read %q", uid, out)
		}
	}
	isRight := func() bool {
		found := cached(dir)
		if len(found) != 1 {
			return false
		}
		b, err := os.ReadFile(found[0])
		return err == nil && bytes.Equal(b, content)
	}
	run("t1")
	waitUntil(t, "the cache to have the artifact", isRight)
	must(t, os.WriteFile(cached(dir)[0], []byte("damaged"), 0o600))
	run("t2")
	waitUntil(t, "the file to be replaced", isRight)
	run("t3")
	if n := files.requests.Load(); n != 2 {
		t.Errorf("%d downloads, want 2", n)
	}
}

// With a quota of 0 the agent deletes the cache of an earlier one.
func TestArtifactCache_QuotaOfZeroDeletesIt(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	file := filepath.Join(dir, cacheDir, "sha256", strings.Repeat("0", 64))
	must(t, os.MkdirAll(filepath.Dir(file), 0o700))
	must(t, os.WriteFile(file, []byte("x"), 0o600))
	startAgent(t, s.config(dir))
	if _, err := os.Stat(filepath.Join(dir, cacheDir)); !os.IsNotExist(err) {
		t.Errorf("the cache is still there: %v", err)
	}
}

func TestByteSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "1500": 1500, "1Ki": 1 << 10, "500Mi": 500 << 20, "4Gi": 4 << 30, "1Ti": 1 << 40,
		"2Ti": -1, "-1": -1, "1.5Gi": -1, "1G": -1, "Mi": -1, "": -1, "99999999999999999999": -1,
	} {
		var s byteSize
		err := s.UnmarshalText([]byte(text))
		if (err != nil) != (want < 0) || err == nil && (int64(s) != want) {
			t.Errorf("%q is %d, %v, want %d", text, s, err, want)
		}
	}
	for size, want := range map[byteSize]string{0: "0", 1: "1", 1536: "1536", 2 << 20: "2Mi", 1 << 40: "1Ti"} {
		if size.String() != want {
			t.Errorf("%d is written as %s, want %s", int64(size), size, want)
		}
	}
}

// The cache leaves the room with which the disk is not almost full any more.
func TestHasRoom(t *testing.T) {
	disk := func(free uint64) func(string, *unix.Statfs_t) error {
		return func(_ string, s *unix.Statfs_t) error {
			*s = unix.Statfs_t{Bsize: 1 << 10, Blocks: 1000, Bavail: free}
			return nil
		}
	}
	for name, test := range map[string]struct {
		free  uint64
		bytes int64
		want  bool
	}{
		"much is free":                 {500, 100 << 10, true},
		"almost full afterwards":       {170, 100 << 10, false},
		"just not almost full":         {177, 100 << 10, true},
		"larger than what is free":     {50, 100 << 10, false},
		"almost full before":           {60, 0, false},
		"nothing more is to be stored": {100, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hasRoom(disk(test.free), "/", test.bytes); got != test.want {
				t.Errorf("has room %t, want %t", got, test.want)
			}
		})
	}
}
