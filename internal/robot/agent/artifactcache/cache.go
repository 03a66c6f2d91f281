// Package artifactcache keeps the sources of artifacts on the disk of the robot, by their checksums. A task
// that starts again, or another one with the same artifact, downloads nothing.
//
// Only the agent's user can read and write the files. The set-up of a task receives them as open files, and
// verifies the checksum of its own copy: so a damaged file is as good as none. A task that names the checksum
// of a content gets it. Sources with credentials in their address, and those without a checksum, are never
// kept (artifact.Request.Content).
package artifactcache

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/robot/artifact"
)

// Config configures a Cache.
type Config struct {
	// Dir is the directory of the cache, which is created.
	Dir string
	// Quota bounds all files together, in bytes, with those that are being written. It must be positive.
	Quota int64
	// HasRoom reports whether the disk is not almost full after that many more bytes were written. If nil,
	// only the quota counts.
	HasRoom func(bytes int64) bool
	Now     func() time.Time
	Log     *slog.Logger
}

// The errors of contents that the cache does not take.
var (
	ErrTooLarge = errors.New("is larger than the cache (cacheQuota)")
	ErrNoRoom   = errors.New("the disk is almost full")
)

// maxFiles bounds the number of files, which the cache has in memory.
const maxFiles = 4096

// incomingDir is the directory in Dir for files that are not complete. Its content does not survive a restart.
const incomingDir = "incoming"

// kinds are the directories in Dir with complete files, by the kind of their checksums.
var kinds = []string{"sha256", "sha512"}

// Cache is a directory with the sources of artifacts. It is safe for concurrent use.
type Cache struct {
	config Config
	queue  chan kept

	mu       sync.Mutex // guards the fields below
	entries  map[artifact.Content]entry
	bytes    int64 // of all entries
	reserved int64 // of files that are being written
}

// entry is a complete file.
type entry struct {
	bytes  int64
	usedAt time.Time
}

// Usage is what a cache contains.
type Usage struct {
	Bytes int64 `json:"bytes"`
	Files int   `json:"files"`
	Quota int64 `json:"quotaBytes"`
}

// Open returns the cache in a directory. It deletes what an earlier process has not completed, and what
// exceeds the quota.
func Open(c Config) (*Cache, error) {
	if c.HasRoom == nil {
		c.HasRoom = func(int64) bool { return true }
	}
	cache := &Cache{config: c, queue: make(chan kept, queueSize), entries: map[artifact.Content]entry{}}
	incoming := filepath.Join(c.Dir, incomingDir)
	if err := os.RemoveAll(incoming); err != nil {
		return nil, fmt.Errorf("clear the cache of artifacts: %w", err)
	}
	for _, dir := range append([]string{incoming}, cache.kindDirs()...) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("create the cache of artifacts: %w", err)
		}
	}
	for _, kind := range kinds {
		if err := cache.readEntries(kind); err != nil {
			return nil, fmt.Errorf("read the cache of artifacts: %w", err)
		}
	}
	cache.mu.Lock()
	defer cache.mu.Unlock()
	cache.evictLocked(func() bool { return cache.bytes <= c.Quota && len(cache.entries) <= maxFiles && c.HasRoom(0) })
	return cache, nil
}

// Remove deletes a cache that is not used any more.
func Remove(dir string) error { return os.RemoveAll(dir) }

func (c *Cache) kindDirs() (dirs []string) {
	for _, kind := range kinds {
		dirs = append(dirs, filepath.Join(c.config.Dir, kind))
	}
	return dirs
}

// readEntries reads which files an earlier process has left. The time of the last use is that of the file.
func (c *Cache) readEntries(kind string) error {
	found, err := os.ReadDir(filepath.Join(c.config.Dir, kind))
	for _, e := range found {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			_ = os.RemoveAll(filepath.Join(c.config.Dir, kind, e.Name()))
			continue
		}
		c.entries[artifact.Content{Kind: kind, Sum: e.Name()}] = entry{info.Size(), info.ModTime()}
		c.bytes += info.Size()
	}
	return err
}

func (c *Cache) path(content artifact.Content) string {
	return filepath.Join(c.config.Dir, content.Kind, content.Sum)
}

// Lookup returns the file with a content, which its user must verify, and records its use.
func (c *Cache) Lookup(content artifact.Content) (path string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[content]
	if !ok {
		return "", false
	}
	path, e.usedAt = c.path(content), c.config.Now()
	if err := os.Chtimes(path, e.usedAt, e.usedAt); errors.Is(err, fs.ErrNotExist) {
		c.dropLocked(content) // people have deleted it
		return "", false
	}
	c.entries[content] = e
	return path, true
}

// Usage returns what the cache contains.
func (c *Cache) Usage() Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Usage{Bytes: c.bytes + c.reserved, Files: len(c.entries), Quota: c.config.Quota}
}

// FreeSpace deletes files until the disk is not almost full any more, those first that were not used for
// the longest time.
func (c *Cache) FreeSpace() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evictLocked(func() bool { return c.config.HasRoom(0) })
}

// reserve makes room for a file that is being written, of which the first held bytes have room already.
func (c *Cache) reserve(held, bytes int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	more := bytes - held
	if bytes > c.config.Quota {
		return ErrTooLarge
	}
	fits := func() bool {
		return c.bytes+c.reserved+more <= c.config.Quota && len(c.entries) < maxFiles && c.config.HasRoom(more)
	}
	if c.evictLocked(fits); !fits() {
		return ErrNoRoom
	}
	c.reserved += more
	return nil
}

func (c *Cache) release(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved -= bytes
}

// evictLocked deletes the least recently used files until done returns true or none are left.
func (c *Cache) evictLocked(done func() bool) {
	for !done() && len(c.entries) > 0 {
		var oldest artifact.Content
		for content, e := range c.entries {
			if first := c.entries[oldest]; oldest.Sum == "" || e.usedAt.Before(first.usedAt) ||
				e.usedAt.Equal(first.usedAt) && strings.Compare(content.Sum, oldest.Sum) < 0 {
				oldest = content
			}
		}
		if err := os.Remove(c.path(oldest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.config.Log.Warn("a file of the cache was not deleted", "error", err)
		}
		c.dropLocked(oldest)
	}
}

// dropLocked forgets a file.
func (c *Cache) dropLocked(content artifact.Content) {
	c.bytes -= c.entries[content].bytes
	delete(c.entries, content)
}
