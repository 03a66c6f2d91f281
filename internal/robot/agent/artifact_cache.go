package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/agent/artifactcache"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

// The bounds of Config.CacheQuota in bytes.
const (
	defaultCacheQuota = 1 << 30
	maxCacheQuota     = 1 << 40
)

// cacheDir is the name of the directory of the cache in the state directory.
const cacheDir = "cache"

// byteSize is a number of bytes. As text it may end in Ki, Mi, Gi or Ti.
type byteSize int64

// byteUnits are the suffixes of a byteSize, the largest first.
var byteUnits = []struct {
	suffix string
	bytes  int64
}{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}}

// UnmarshalText parses a number of bytes.
func (s *byteSize) UnmarshalText(text []byte) error {
	digits, unit := string(text), int64(1)
	for _, u := range byteUnits {
		if before, ok := strings.CutSuffix(digits, u.suffix); ok {
			digits, unit = before, u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || int64(n) > maxCacheQuota/unit {
		return fmt.Errorf("must be a number of bytes from 0 to %v, such as 500Mi", byteSize(maxCacheQuota))
	}
	*s = byteSize(int64(n) * unit)
	return nil
}

// String returns the number with the largest unit that needs no fraction.
func (s byteSize) String() string {
	for _, u := range byteUnits {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText returns String.
func (s byteSize) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// openCache opens the cache of artifacts. Without one the agent works, and each task downloads its own.
func (a *Agent) openCache() {
	dir := filepath.Join(a.config.StateDir, cacheDir)
	if a.config.CacheQuota == 0 {
		if err := artifactcache.Remove(dir); err != nil {
			a.log.Warn("the cache of artifacts was not deleted", "error", err)
		}
		return
	}
	cache, err := artifactcache.Open(artifactcache.Config{
		Dir: dir, Quota: int64(a.config.CacheQuota), HasRoom: func(bytes int64) bool { return hasRoom(unix.Statfs, a.config.StateDir, bytes) },
		Now: time.Now, Log: a.log,
	})
	if err != nil {
		a.log.Warn("the agent works without a cache of artifacts", "error", err)
		return
	}
	a.cache = cache
}

// hasRoom reports whether the disk of dir is not almost full after that many more bytes were written. It
// leaves the room that ends a pressure, so that the cache never causes one.
func hasRoom(statfs func(string, *unix.Statfs_t) error, dir string, bytes int64) bool {
	var s unix.Statfs_t
	if err := statfs(dir, &s); err != nil {
		return false
	}
	s.Bavail -= min(s.Bavail, uint64(bytes)/max(uint64(s.Bsize), 1)+1)
	return !isAlmostFull(s, true)
}

// setRunnerCache gives the cache to the runner, if there is one.
func (a *Agent) setRunnerCache(c *runner.Config) {
	if a.cache != nil {
		c.Artifacts = a.cache
	}
}

// runCache adds to the cache what tasks have downloaded, until ctx ends.
func (a *Agent) runCache(ctx context.Context, parts *sync.WaitGroup) {
	if a.cache != nil {
		parts.Go(func() { a.cache.Run(ctx, a.stateDir().KeptArtifacts()) })
	}
}

// readDiskHealth is readHealth of the disk. Before the disk is reported as almost full, the cache gives up
// what it has.
func (a *Agent) readDiskHealth(disk *diskHealth) func() (diskPressure, journalReadOnly bool) {
	return func() (bool, bool) {
		pressure, readOnly := disk.readHealth()
		if !pressure || a.cache == nil || a.cache.Usage().Files == 0 {
			return pressure, readOnly
		}
		a.cache.FreeSpace()
		return disk.readHealth()
	}
}
