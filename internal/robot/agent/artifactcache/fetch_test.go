package artifactcache

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"k8s4r.io/k8s4r/internal/robot/artifact"
)

func noWait(context.Context, int) error { return nil }

// requestFor serves bytes, and returns a request for them and the number of downloads.
func requestFor(t *testing.T, b []byte) (artifact.Request, *int) {
	t.Helper()
	downloads := new(int)
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		*downloads++
		_, _ = w.Write(b)
	}))
	t.Cleanup(files.Close)
	return artifact.Request{Source: files.URL + "/a.tar", Options: map[string]string{"checksum": contentOf(b).String()}}, downloads
}

func TestFetch(t *testing.T) {
	b := make([]byte, 100<<10)
	for name, test := range map[string]struct {
		prepare   func(t *testing.T, c *Cache)
		quota     int64
		downloads int
		bytes     int64
		fails     error
	}{
		"is downloaded":                     {quota: 1 << 20, downloads: 1, bytes: 100 << 10},
		"exactly the quota":                 {quota: 100 << 10, downloads: 1, bytes: 100 << 10},
		"is there already":                  {quota: 1 << 20, prepare: func(t *testing.T, c *Cache) { _, err := add(t, c, b); must(t, err) }},
		"what is damaged is replaced":       {quota: 1 << 20, downloads: 1, bytes: 100 << 10, prepare: damage},
		"what was used earlier makes room":  {quota: 150 << 10, downloads: 1, bytes: 100 << 10, prepare: func(t *testing.T, c *Cache) { _, err := add(t, c, make([]byte, 60<<10)); must(t, err) }},
		"larger than the quota is no use":   {quota: 99 << 10, downloads: 1, fails: errAny},
		"the disk is almost full meanwhile": {quota: 1 << 20, downloads: 1, fails: ErrNoRoom, prepare: func(_ *testing.T, c *Cache) { c.config.HasRoom = func(n int64) bool { return c.reserved+n < 50<<10 } }},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, config(t.TempDir(), test.quota))
			if test.prepare != nil {
				test.prepare(t, c)
			}
			r, downloads := requestFor(t, b)
			received, err := c.Fetch(t.Context(), r, noWait)
			if (err != nil) != (test.fails != nil) || test.fails != nil && !errors.Is(test.fails, errAny) && !errors.Is(err, test.fails) {
				t.Fatalf("error %v, want %v", err, test.fails)
			}
			if *downloads != test.downloads || err == nil && received != test.bytes {
				t.Errorf("%d downloads of %d bytes, want %d of %d", *downloads, received, test.downloads, test.bytes)
			}
			if has(c, contentOf(b)) != (err == nil) || c.reserved != 0 || bytesOnDisk(c.config.Dir) != c.bytes || c.bytes > test.quota {
				t.Errorf("in the cache %t; %d bytes reserved, %d in the cache, %d on the disk", has(c, contentOf(b)), c.reserved, c.bytes, bytesOnDisk(c.config.Dir))
			}
		})
	}
}

var errAny = errors.New("any error")

func damage(t *testing.T, c *Cache) {
	content, err := add(t, c, make([]byte, 100<<10))
	must(t, err)
	must(t, os.WriteFile(c.path(content), make([]byte, 99<<10), 0o600))
	c.entries[content] = entry{99 << 10, c.entries[content].usedAt}
	c.bytes = 99 << 10
}

func TestFetch_RefusesWhatTheCacheMustNotHave(t *testing.T) {
	c := open(t, config(t.TempDir(), 100))
	for _, r := range []artifact.Request{
		{Source: "https://files.example/a"},
		{Source: "https://user:secret@files.example/a", Options: map[string]string{"checksum": contentOf(nil).String()}},
		{Source: "file:///etc/shadow", Options: map[string]string{"checksum": contentOf(nil).String()}},
	} {
		if _, err := c.Fetch(t.Context(), r, noWait); !errors.Is(err, errNoContent) {
			t.Errorf("%s: error %v", r.Source, err)
		}
	}
}

func TestFetch_EndsWhenItMayNotGoOn(t *testing.T) {
	c := open(t, config(t.TempDir(), 1<<20))
	r, _ := requestFor(t, make([]byte, 100<<10))
	stop := errors.New("stop")
	if _, err := c.Fetch(t.Context(), r, func(context.Context, int) error { return stop }); !errors.Is(err, stop) || c.reserved != 0 {
		t.Errorf("error %v, %d bytes reserved", err, c.reserved)
	}
}
