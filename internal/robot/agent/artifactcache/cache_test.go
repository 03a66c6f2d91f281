package artifactcache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/internal/robot/artifact"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clock returns times that increase by a second.
func clock() func() time.Time {
	now := time.Unix(1_700_000_000, 0)
	return func() time.Time {
		now = now.Add(time.Second)
		return now
	}
}

func config(dir string, quota int64) Config {
	return Config{Dir: dir, Quota: quota, Now: clock(), Log: slog.New(slog.DiscardHandler)}
}

func open(t testing.TB, c Config) *Cache {
	t.Helper()
	cache, err := Open(c)
	must(t, err)
	return cache
}

// source returns a file with bytes, and what it contains.
func source(t testing.TB, b []byte) (*os.File, artifact.Content) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "source")
	must(t, os.WriteFile(path, b, 0o600))
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f, contentOf(b)
}

func contentOf(b []byte) artifact.Content {
	sum := sha256.Sum256(b)
	return artifact.Content{Kind: "sha256", Sum: hex.EncodeToString(sum[:])}
}

// add adds bytes to the cache.
func add(t testing.TB, c *Cache, b []byte) (artifact.Content, error) {
	t.Helper()
	f, content := source(t, b)
	return content, c.Add(t.Context(), content, f)
}

// bytesOnDisk returns the size of all files below a directory.
func bytesOnDisk(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil
	})
	return total
}

func has(c *Cache, content artifact.Content) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.entries[content]
	return ok
}

func TestCache_DeletesLeastRecentlyUsed(t *testing.T) {
	c := open(t, config(t.TempDir(), 30))
	first, err := add(t, c, []byte("first-----"))
	must(t, err)
	second, err := add(t, c, []byte("second----"))
	must(t, err)
	third, err := add(t, c, []byte("third-----"))
	must(t, err)
	if _, ok := c.Lookup(first); !ok {
		t.Fatal("the first file is missing")
	}
	fourth, err := add(t, c, []byte("fourth----"))
	must(t, err)
	for content, want := range map[artifact.Content]bool{first: true, second: false, third: true, fourth: true} {
		if has(c, content) != want {
			t.Errorf("%s: in the cache %t, want %t", content, !want, want)
		}
	}
}

// The order survives a restart, and a smaller quota applies to what is there.
func TestCache_AppliesSmallerQuotaAfterRestart(t *testing.T) {
	dir := t.TempDir()
	c := open(t, config(dir, 30))
	old, err := add(t, c, []byte("old-------"))
	must(t, err)
	older, err := add(t, c, []byte("older-----"))
	must(t, err)
	_, _ = c.Lookup(old)
	c = open(t, config(dir, 15))
	if !has(c, old) || has(c, older) || c.Usage() != (Usage{Bytes: 10, Files: 1, Quota: 15}) {
		t.Errorf("the cache has old %t, older %t, %+v", has(c, old), has(c, older), c.Usage())
	}
}

func TestCache_RefusesWhatItMustNotKeep(t *testing.T) {
	full := config(t.TempDir(), 100)
	full.HasRoom = func(bytes int64) bool { return bytes == 0 }
	for name, test := range map[string]struct {
		cache *Cache
		bytes int
		wrong bool
		want  error
	}{
		"larger than the quota":     {cache: open(t, config(t.TempDir(), 9)), bytes: 10, want: ErrTooLarge},
		"disk is almost full":       {cache: open(t, full), bytes: 10, want: ErrNoRoom},
		"another checksum":          {cache: open(t, config(t.TempDir(), 100)), bytes: 10, wrong: true},
		"exactly the quota is kept": {cache: open(t, config(t.TempDir(), 10)), bytes: 10},
	} {
		t.Run(name, func(t *testing.T) {
			f, content := source(t, bytes.Repeat([]byte("x"), test.bytes))
			if test.wrong {
				content = contentOf([]byte("another"))
			}
			err := test.cache.Add(t.Context(), content, f)
			refused := test.want != nil || test.wrong
			if (err != nil) != refused || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			if kept := bytesOnDisk(test.cache.config.Dir); refused && kept > 0 || has(test.cache, content) == refused {
				t.Errorf("%d bytes are on the disk; refused %t", kept, refused)
			}
			if test.cache.reserved != 0 {
				t.Errorf("%d bytes stay reserved", test.cache.reserved)
			}
		})
	}
}

// A task that gives the cache junk does not make it delete what others need.
func TestCache_KeepsOthersForWrongContent(t *testing.T) {
	c := open(t, config(t.TempDir(), 30))
	first, err := add(t, c, []byte("first-----"))
	must(t, err)
	second, err := add(t, c, []byte("second----"))
	must(t, err)
	junk, _ := source(t, bytes.Repeat([]byte("x"), 30))
	if err := c.Add(t.Context(), contentOf([]byte("third")), junk); err == nil {
		t.Error("a file with other content was added")
	}
	if !has(c, first) || !has(c, second) || c.reserved != 0 {
		t.Errorf("has the first file: %t, the second: %t; %d bytes reserved", has(c, first), has(c, second), c.reserved)
	}
}

// All files together never exceed the quota, and each has the content of its name.
func TestCache_StaysWithinQuota(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp("", "cache")
		must(t, err)
		defer os.RemoveAll(dir)
		quota := rapid.Int64Range(1, 200).Draw(r, "quota")
		settings := config(filepath.Join(dir, "cache"), quota)
		c := open(t, settings)
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			b := bytes.Repeat([]byte{rapid.Byte().Draw(r, "byte")}, rapid.IntRange(0, 120).Draw(r, "size"))
			switch rapid.IntRange(0, 3).Draw(r, "step") {
			case 0:
				_, _ = c.Lookup(contentOf(b))
			case 1:
				c = open(t, settings)
			default:
				path := filepath.Join(dir, "source")
				must(t, os.WriteFile(path, b, 0o600))
				f, err := os.Open(path)
				must(t, err)
				if err := c.Add(context.Background(), contentOf(b), f); (err == nil) != (int64(len(b)) <= quota) {
					r.Fatalf("add %d bytes of %d: %v", len(b), quota, err)
				}
				_ = f.Close()
			}
			checkFiles(r, c, quota)
		}
	})
}

func checkFiles(r *rapid.T, c *Cache, quota int64) {
	if total := bytesOnDisk(c.config.Dir); total > quota || total != c.Usage().Bytes {
		r.Fatalf("%d bytes on the disk, %+v counted, quota %d", total, c.Usage(), quota)
	}
	for content := range c.entries {
		b, err := os.ReadFile(c.path(content))
		if err != nil || contentOf(b) != content {
			r.Fatalf("%s has other content (%v)", content, err)
		}
	}
}

// An agent that was killed leaves files in any state. The next one has complete files only.
func TestCache_RecoversFromCrash(t *testing.T) {
	b := []byte("model weights")
	content := contentOf(b)
	tests := map[string]struct {
		leave func(t *testing.T, dir, attempt string)
		want  bool
	}{
		"while it copied": {leave: func(t *testing.T, dir, _ string) {
			must(t, os.WriteFile(filepath.Join(dir, incomingDir, "add-1"), b[:4], 0o600))
		}},
		"before it moved the complete file": {leave: func(t *testing.T, dir, _ string) {
			must(t, os.WriteFile(filepath.Join(dir, incomingDir, "add-1"), b, 0o600))
		}},
		"before it copied": {want: true, leave: func(t *testing.T, _, attempt string) {
			must(t, os.WriteFile(filepath.Join(attempt, KeptName(content)), b, 0o600))
		}},
		"before it deleted what it had copied": {want: true, leave: func(t *testing.T, dir, attempt string) {
			must(t, os.WriteFile(filepath.Join(dir, "sha256", content.Sum), b, 0o600))
			must(t, os.WriteFile(filepath.Join(attempt, KeptName(content)), b, 0o600))
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, attempt := t.TempDir(), t.TempDir()
			open(t, config(dir, 100))
			test.leave(t, dir, attempt)
			c := open(t, config(dir, 100))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { c.Run(ctx, attempt); close(ended) }()
			for bytesOnDisk(attempt) > 0 { // until Run has taken it
				time.Sleep(time.Millisecond)
			}
			cancel()
			<-ended
			if has(c, content) != test.want {
				t.Errorf("in the cache: %t, want %t", !test.want, test.want)
			}
			want := int64(0)
			if test.want {
				want = int64(len(b))
			}
			if got := bytesOnDisk(dir); got != want || c.Usage().Bytes != want {
				t.Errorf("%d bytes on the disk, %+v", got, c.Usage())
			}
		})
	}
}

// A task may put anything in the place of its artifact.
func TestCache_CollectsOnlyRegularFiles(t *testing.T) {
	content := contentOf([]byte("secret"))
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	for name, replace := range map[string]func(path string) error{
		"link":      func(path string) error { return os.Symlink(secret, path) },
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.MkdirAll(filepath.Join(path, "sub"), 0o700) },
		"file with other content": func(path string) error {
			return os.WriteFile(path, []byte("other"), 0o600)
		},
		"nothing": func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			c, path := open(t, config(t.TempDir(), 100)), filepath.Join(t.TempDir(), KeptName(content))
			must(t, replace(path))
			done := make(chan struct{})
			go func() { c.addKept(t.Context(), kept{content, path}); close(done) }()
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Fatal("the cache blocks")
			}
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) || has(c, content) {
				t.Errorf("it is still there (%v), in the cache %t", err, has(c, content))
			}
		})
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("the target of the link is %q, %v", b, err)
	}
}

// A full queue drops sources: tasks do not wait for the cache.
func TestCache_CollectDoesNotBlock(t *testing.T) {
	c, dir := open(t, config(t.TempDir(), 100)), t.TempDir()
	content := contentOf(nil)
	for range queueSize {
		c.Collect(content, filepath.Join(dir, "missing"))
	}
	path := filepath.Join(dir, "last")
	must(t, os.WriteFile(path, nil, 0o600))
	c.Collect(content, path)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a source that was dropped stays on the disk: %v", err)
	}
}

// The disk of the robot has priority over the cache.
func TestCache_FreesSpace(t *testing.T) {
	settings := config(t.TempDir(), 100)
	isFull := false
	var c *Cache
	settings.HasRoom = func(int64) bool { return !isFull || c.bytes <= 10 }
	c = open(t, settings)
	oldest, err := add(t, c, []byte("oldest----"))
	must(t, err)
	newest, err := add(t, c, []byte("newest----"))
	must(t, err)
	isFull = true
	if c.FreeSpace(); has(c, oldest) || !has(c, newest) {
		t.Errorf("has the oldest file: %t, the newest: %t", has(c, oldest), has(c, newest))
	}
}

// People may delete the files of a running agent.
func TestCache_LookupNoticesDeletedFiles(t *testing.T) {
	c := open(t, config(t.TempDir(), 100))
	content, err := add(t, c, []byte("x"))
	must(t, err)
	must(t, os.Remove(c.path(content)))
	if _, ok := c.Lookup(content); ok || c.Usage().Files != 0 {
		t.Errorf("found %t, %+v", ok, c.Usage())
	}
}

// Only the agent's user may read what tasks of other users have fetched.
func TestCache_IsPrivate(t *testing.T) {
	c := open(t, config(t.TempDir(), 100))
	content, err := add(t, c, []byte("x"))
	must(t, err)
	for path, want := range map[string]fs.FileMode{c.path(content): 0o600, filepath.Dir(c.path(content)): 0o700} {
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode().Perm() != want {
			t.Errorf("%s has the mode %v, want %v", strings.TrimPrefix(path, c.config.Dir), info.Mode().Perm(), want)
		}
	}
}
