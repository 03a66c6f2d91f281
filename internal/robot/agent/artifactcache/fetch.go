package artifactcache

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s4r.io/k8s4r/internal/robot/artifact"
)

// errNoContent refuses a source that the cache must not have.
var errNoContent = errors.New("has no checksum, or credentials in its address")

// fetchTimeout bounds a transfer, which may be slow on purpose. Its caller may end it earlier.
const fetchTimeout = 24 * time.Hour

// Fetch downloads a source into the cache, unless that has it, and returns the number of bytes that were
// received. Before each step of a transfer it calls wait with the number of bytes, which blocks as long as
// the transfer must wait. Errors do not contain parts of addresses that may be secret.
func (c *Cache) Fetch(ctx context.Context, r artifact.Request, wait func(ctx context.Context, bytes int) error) (received int64, err error) {
	content, ok := r.Content()
	if !ok {
		return 0, errNoContent
	}
	if c.hasVerified(ctx, content) || ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	var reserved int64
	defer func() { c.release(reserved) }()
	admit := func(ctx context.Context, bytes int, size int64) error {
		if size > reserved {
			if err := c.reserve(reserved, size); err != nil {
				return err
			}
			reserved = size
		}
		received += int64(bytes)
		return wait(ctx, bytes)
	}
	incoming := filepath.Join(c.config.Dir, incomingDir)
	name := "fetch-" + content.Kind + "-" + content.Sum
	r.Dest, r.Mode, r.Keep = name, artifact.ModeFile, false
	r.Options = map[string]string{"checksum": content.String(), "perms": "0600"}
	limits := artifact.Limits{MaxBytes: c.config.Quota, Timeout: fetchTimeout, Admit: admit}
	if err := artifact.Fetch(ctx, r, limits, incoming); err != nil {
		return received, err
	}
	return received, c.installFetched(filepath.Join(incoming, name), content)
}

// hasVerified reports whether the cache has a content, and deletes a damaged file.
func (c *Cache) hasVerified(ctx context.Context, content artifact.Content) bool {
	path, ok := c.Lookup(content)
	if !ok {
		return false
	}
	f, err := openRegular(path)
	if err == nil {
		err = errors.Join(content.Verify(contextReader{ctx, f}), f.Close())
	}
	if err == nil || ctx.Err() != nil {
		return err == nil
	}
	c.config.Log.Warn("a damaged file of the cache was deleted", "checksum", content.String(), "reason", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := os.Remove(path); err == nil || errors.Is(err, fs.ErrNotExist) {
		c.dropLocked(content)
	}
	return false
}

// installFetched moves a complete file to its place.
func (c *Cache) installFetched(path string, content artifact.Content) error {
	f, err := openRegular(path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = c.install(path, content, info.Size())
	}
	if err != nil {
		_ = os.Remove(path)
	}
	return err
}
